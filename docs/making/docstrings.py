"""Docstrings, written for Sphinx and pydoc, as Markdown for mkdocstrings."""

import re
from typing import Any

from griffe import Extension, Object

import pages

_ROLE = re.compile(r":(?:func|class|meth|mod):`~?([\w.]+)`")
_INLINE = re.compile(r":math:`([^`]*)`")
_DISPLAY = re.compile(r"^\.\. math:: *((?:.+\n?)(?: +.+\n?)*)", re.MULTILINE)
_TABLE = re.compile(r"^(=+ +=+[ =]*\n)(.*)\n\1", re.MULTILINE | re.DOTALL)
_LITERAL = re.compile(r"^(.*?):{1,2}\n\n((?: {4}.*\n?|\n)+)", re.MULTILINE)
_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)


class Docstrings(Extension):  # type: ignore[misc]
    """Links, formulas, tables and examples."""

    def on_object(self, *, obj: Object, loader: Any, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(
                obj.docstring.value, lambda name: _link(name, obj, loader.modules_collection)
            )


def as_markdown(text: str, link: Any) -> str:
    """Rewrite Sphinx's markup as Markdown; ``link`` makes what a role names a link."""
    text, heading, examples = text.partition("Examples\n--------")
    text = _TABLE.sub(lambda found: f"```text\n{_plain(found[0]).strip()}\n```\n", text)
    text = _DISPLAY.sub(lambda found: f"\n$$\n{' '.join(found[1].split())}\n$$\n", text)
    text = _LITERAL.sub(_as_literal, text)
    text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
    text = _INLINE.sub(r"$\1$", text)
    text = _ROLE.sub(lambda found: link(found[1]), text)
    return text + heading + examples


def _plain(table: str) -> str:
    """Return a table as it is read in a terminal; roles become as many blanks behind the name."""
    return _ROLE.sub(lambda role: role[1].ljust(len(role[0])), table)


def _as_literal(found: re.Match[str]) -> str:
    if not found[0].startswith(found[1] + "::"):  # an ordinary colon
        return found[0]
    lead = f"{found[1]}:\n\n" if found[1].strip() else ""
    return f"{lead}{found[2]}"


def _link(name: str, obj: Object, modules: Any) -> str:
    """Return a link to what a docstring names, looked for from the inside out."""
    scope: Object | None = obj
    while scope is not None:
        if (found := _find(f"{scope.path}.{name}", modules)) is not None:
            return f"[`{name.removeprefix('prcut.')}`][{found}]"
        scope = scope.parent
    found = _find(name, modules)
    return f"`{name}`" if found is None else f"[`{name.removeprefix('prcut.')}`][{found}]"


def _find(path: str, modules: Any) -> str | None:
    if path.rpartition(".")[2].startswith("_"):
        return None
    try:
        found = modules[path]
        canonical = str(found.canonical_path)
        return canonical if pages.has_page(canonical) else None
    except Exception:  # griffe's own kinds of not found
        return None
