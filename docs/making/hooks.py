"""What MkDocs does besides Markdown: pages and pictures made from the code, formulas as MathML."""

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

import figures
import layers
import pages
import peers

_RESULT = re.compile(r"<!-- results: (\w+) -->")
# of several functions the first that exists: <!-- source: graph.build build_graph -->
_SOURCE = re.compile(r"<!-- source: ([\w.]+) ([\w ]+?) -->")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(((?:\.\./)*figures/[\w-]+)\.svg\)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# formulas in docstrings are written with their own characters
_CHARACTERS = {
    "Σ": r"\sum ",
    "∫": r"\int ",
    "½": r"\frac{1}{2}",
    "p̄": r"\bar{p}",
    "−": "-",
    "‖": r"\Vert ",
    "⊤": r"\top ",
    "∂": r"\partial ",
    "∈": r"\in ",
    "∝": r"\propto ",
    "·": r"\cdot ",
    "γ": r"\gamma ",
    "ω": r"\omega ",
}


def on_config(config: Any) -> Any:
    """Name the generated pages in the navigation."""
    for entry in config.nav:
        if "Gallery" in entry:
            entry["Gallery"] += [f"gallery/{path.stem}.md" for path in pages.examples()]
        if "Reference" in entry:
            entry["Reference"] += list(pages.room_pages())
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what is made at every build and committed nowhere."""
    made: dict[str, str | bytes] = {
        "reference/index.md": pages.names_page(),
        "reference/cli.md": pages.cli_page(),
        **pages.room_pages(),
        **figures.all_figures(),
        **pages.gallery(),
        **pages.tutorial_pictures(),
    }
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put in tables from committed results, source, the rooms, outputs and pictures."""
    path = pages.ROOT / "docs" / page.file.src_uri
    if path in pages.tutorials():
        markdown = pages.with_outputs(path, markdown)
    markdown = pages.without_private_links(markdown)
    markdown = _SOURCE.sub(lambda found: pages.source_of(found[1], found[2]), markdown)
    markdown = _RESULT.sub(lambda found: pages.results(found[1]), markdown)
    markdown = markdown.replace("<!-- layers -->", layers.picture())
    markdown = markdown.replace("<!-- peers table -->", peers.peers_table())
    return _PICTURE.sub(r"![\1](\2.svg#only-light)![\1](\2-dark.svg#only-dark)", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Make formulas MathML, which browsers draw without a script."""
    return _FORMULA.sub(_as_mathml, content)


def _as_mathml(found: re.Match[str]) -> str:
    formula = html.unescape(found[2]).strip()
    for character, command in _CHARACTERS.items():
        formula = formula.replace(character, command)
    return str(convert(formula, display="block" if found[1] == "div" else "inline"))


def on_post_build(config: Any) -> None:
    """Refuse a site that would ask another server for anything; its own address is only named."""
    kinds = r'<(?:script|img|link(?! rel="canonical")|iframe)'
    asked = re.compile(kinds + r"""\b[^>]*\b(?:src|href)=["'](?:https?:)?//""")
    for path in Path(config.site_dir).rglob("*.html"):
        for found in asked.finditer(path.read_text("utf-8")):
            raise RuntimeError(f"{path}: {found[0]} is fetched from elsewhere")
