"""What prcut raises on purpose.

::

    PRCutError
    └── InvalidInputError (also a ValueError)   an argument breaks a stated rule

A message names the thing, the rule, the value and the mend.
"""

__all__ = ["InvalidInputError", "PRCutError"]


class PRCutError(Exception):
    """Base of every error that prcut raises on purpose."""


class InvalidInputError(PRCutError, ValueError):
    """An argument breaks a rule; the message says which, and how to mend it."""
