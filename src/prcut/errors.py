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
