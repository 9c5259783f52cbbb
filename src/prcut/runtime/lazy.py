"""Import a public name when it is first used, so that a package loads nothing that nobody needs."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def import_lazily(
    package: str, home: dict[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names have these homes."""

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return get, lambda: sorted(home)
