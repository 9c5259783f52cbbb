"""What prcut raises on purpose.

::

    PRCutError
    ├── InvalidInputError (also a ValueError)   an argument breaks a stated rule
    ├── CorruptFileError                        a file is cut off, altered or not what it says
    └── StageError                              tasks of a cluster failed, after all their retries

    UserWarning
    └── DataWarning                             the data is usable, but deserves a look

A message names the thing, the rule, the value and the mend.
"""

__all__ = ["CorruptFileError", "DataWarning", "InvalidInputError", "PRCutError", "StageError"]


class PRCutError(Exception):
    """Base of every error that prcut raises on purpose."""


class InvalidInputError(PRCutError, ValueError):
    """An argument breaks a rule; the message says which, and how to mend it."""


class CorruptFileError(PRCutError):
    """A file is cut off, altered or not what it says; the message names it."""


class StageError(PRCutError):
    """Tasks failed after all their retries; the message names them. All others are done."""


class DataWarning(UserWarning):
    """The data can be used, but the message names what in it deserves a look, and how much."""
