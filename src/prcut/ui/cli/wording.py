"""Messages of the library in the words of the command line: options in place of parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from inspect import Parameter

# words of Python that a message may have, and what the command line says instead
_PHRASES = {
    "a folder that save_model wrote": "a finished run or a model folder",
    "for one use fit_run": "for one use --clusters",
}
# before the bare name of a parameter; without them "memory" is a word of English
_VERBS = "lower|raise|give|pass|set|use"


def find_flags(parameters: Iterable[Parameter]) -> dict[str, str]:
    """Return the options of a command by the names that the library has for them."""
    flags = {}
    for parameter in parameters:
        about = getattr(parameter.annotation, "__metadata__", (None,))[0]
        # typer takes the first name of an annotated option for its default, until it is used
        names = [getattr(about, "default", None), *(getattr(about, "param_decls", None) or ())]
        flags_of = [str(name).partition("/")[0] for name in names]
        flag = next((one for one in flags_of if one.startswith("--")), None)
        if flag is not None:
            flags[parameter.name] = flag
            flags.setdefault(f"n_{parameter.name}", flag)
    return flags


def name_options(message: str, flags: Mapping[str, str]) -> str:
    """Return a message with options where it names parameters.

    >>> name_options("n_neighbors=9 must be < n_samples=9; lower n_neighbors.",
    ...              {"n_neighbors": "--neighbors"})
    '--neighbors 9 must be < n_samples=9; lower --neighbors.'
    """
    for name, flag in flags.items():
        message = re.sub(rf"(?<![\w.-]){name}=(?=[.,;:]?(\s|$))", flag, message)
        message = re.sub(rf"(?<![\w.-]){name}=", f"{flag} ", message)
        message = re.sub(rf"\b({_VERBS}) {name}\b(?!=)", rf"\1 {flag}", message)
    for phrase, words in _PHRASES.items():
        message = message.replace(phrase, words)
    return message
