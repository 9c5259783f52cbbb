"""The errors and the warning that prcut raises on purpose.

::

    PRCutError
    ├── InvalidInputError (also a ValueError)   an argument breaks a stated rule
    ├── CorruptFileError                        a file is truncated, altered or mislabelled
    └── StageError                              tasks of a stage failed after all their retries

    UserWarning
    └── DataWarning                             the data is usable but looks suspicious

A message names the thing, the rule, the value and the remedy.
"""

import sys
import warnings
from types import FrameType

# whose frames stand between a user's line and what it is warned of
_OURS = ("prcut", "sklearn")


class PRCutError(Exception):
    """Base of every error that prcut raises on purpose."""


class InvalidInputError(PRCutError, ValueError):
    """An argument breaks a rule; the message says which one, and how to fix it."""


class CorruptFileError(PRCutError):
    """A file is truncated, altered or not what it claims to be; the message names it."""


class StageError(PRCutError):
    """Some tasks failed after all their retries; the message names them. All others are done."""


class DataWarning(UserWarning):
    """The data can be used; the message says what in it looks suspicious, and how much of it."""


def warn_of(text: str) -> None:
    """Raise a :class:`DataWarning` at the line that called prcut, however deep it was noticed."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, DataWarning, stacklevel=level)


def check_positive_int(name: str, value: int) -> int:
    """Return ``value`` as an int, or raise if it is not a whole number >= 1."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise InvalidInputError(f"{name}={value!r} must be a whole number >= 1.")
    return int(value)
