"""A page of HTML that needs nothing else: no script, no font, no request.

Everything that is not markup goes through :func:`text`. Pictures are drawn in two colours that no
palette has; in the page these become the colours of the reader's light or dark theme.
"""

from __future__ import annotations

import base64
import html
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Template
from typing import Any

import numpy as np

from prcut.errors import PRCutError

__all__ = ["chip", "draw", "figure", "image_uri", "page", "percent", "section", "table", "text"]

# stand-ins, which an SVG gives back as the page's own: ink, paper and thin lines
_INK, _PAPER, _LINES = "#010203", "#fcfbfa", "#a1a2a3"
_MEANING = {_INK: "currentColor", _PAPER: "var(--paper)", _LINES: "var(--lines)"}
# matplotlib's own words about a file, which name an address on the web
_METADATA = re.compile(r"<metadata>.*?</metadata>|<!DOCTYPE[^>]*>|<\?xml[^>]*>", re.DOTALL)
_IDS = re.compile(r'\b(id="|url\(#|href="#)')
_THUMBNAIL = 64

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ground: #f3f4f6; --ink: #1b1f24;
  --soft: #59626d; --lines: #c9ced6; --accent: #2563ac; --warn: #8a5300; --warn-ground: #fff4de; }
@media (prefers-color-scheme: dark) { :root { --paper: #181b20; --ground: #0f1115; --ink: #e6e8eb;
  --soft: #a0a8b2; --lines: #3b424c; --accent: #7db3f0; --warn: #f3c26b; --warn-ground: #33270f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.45;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
header, main, footer { max-width: 1180px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 28px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 12px; }
h3 { font-size: 1rem; margin: 0; }
h4 { font-size: .78rem; font-weight: 600; color: var(--soft); margin: 12px 0 6px; }
p { margin: 0 0 10px; max-width: 76ch; }
.soft, figcaption, footer { color: var(--soft); font-size: .87rem; }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 14px 0 0; font-size: .9rem; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
section { background: var(--paper); border-radius: 12px; padding: 20px; margin: 18px 0;
  scroll-margin-top: 8px; box-shadow: 0 0 0 1px color-mix(in srgb, var(--lines) 45%, transparent); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); gap: 10px;
  margin: 18px 0; padding: 0; }
.tiles div { min-width: 0; overflow-wrap: anywhere; background: var(--paper);
  border-radius: 12px; padding: 12px 14px;
  box-shadow: 0 0 0 1px color-mix(in srgb, var(--lines) 45%, transparent); }
.tiles dd { margin: 0; font-size: 1.35rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.tiles dt { color: var(--soft); font-size: .82rem; }
.warnings { background: var(--warn-ground); }
.warnings h2 { color: var(--warn); } .warnings ul { margin: 0; padding-left: 20px; }
.warnings li { margin: 6px 0; max-width: 92ch; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap: 22px; align-items: start; }
.pair.wide-first { grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)); }
@media (min-width: 900px) { .pair.wide-first { grid-template-columns: 1.5fr 1fr; } }
figure { margin: 0; min-width: 0; } figure + figure { margin-top: 20px; }
figure svg { display: block; width: 100%; height: auto; max-width: 620px; margin: 0 auto;
  color: var(--ink); }
figure.map svg { max-width: 800px; }
figcaption { margin-top: 8px; }
svg text { font-family: inherit !important; }
.scroll { overflow-x: auto; max-height: 560px; overflow-y: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 14px 5px 0; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid color-mix(in srgb, var(--lines) 45%, transparent); }
thead th { color: var(--soft); font-weight: 600; font-size: .8rem; position: sticky; top: 0;
  background: var(--paper); }
td.number, th.number { text-align: right; }
.name { display: inline-block; min-width: 7em; max-width: 18em; white-space: normal;
  overflow-wrap: anywhere; }
table.facts th { font-weight: 500; color: var(--soft); }
table.facts td, td.wrap { white-space: normal; overflow-wrap: anywhere; }
.chip { display: inline-block; min-width: 1.9em; padding: 0 .45em; border-radius: 6px;
  text-align: center; font-weight: 650; font-size: .85em; line-height: 1.6;
  font-variant-numeric: tabular-nums; }
.clusters { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr)); }
.cluster { border: 1px solid color-mix(in srgb, var(--lines) 70%, transparent);
  border-radius: 10px; padding: 14px; min-width: 0; }
.cluster header { padding: 0; display: flex; gap: 8px; align-items: baseline; flex-wrap: wrap; }
.cluster p { overflow-wrap: anywhere; font-size: .85rem; color: var(--soft); margin: 6px 0 0; }
.thumbs { display: grid; grid-template-columns: repeat(6, minmax(0, 1fr)); gap: 6px;
  list-style: none; margin: 0; padding: 0; font-size: .68rem; color: var(--soft); }
.thumbs img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain;
  image-rendering: pixelated; border-radius: 4px; background: #000; }
.thumbs span { display: block; text-align: center; line-height: 1.25; }
.texts { margin: 0; padding: 0; list-style: none; font-size: .88rem; }
.texts li { padding: 4px 0; overflow-wrap: anywhere;
  border-bottom: 1px solid color-mix(in srgb, var(--lines) 35%, transparent); }
.texts li:last-child { border: 0; }
.texts span { color: var(--soft); font-size: .78rem; white-space: nowrap; }
footer { padding-bottom: 32px; }
@media (max-width: 600px) { header, main, footer { padding-left: 12px; padding-right: 12px; }
  section { padding: 14px; } .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
@media print { body { background: none; } section { box-shadow: none; break-inside: avoid; } }
"""

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="generator" content="prcut">
<link rel="icon" href="data:,">
<title>$title</title>
<style>$style</style>
</head>
<body>
<header>
<h1>$title</h1>
<div class="soft">$subtitle</div>
<nav aria-label="Sections">$links</nav>
</header>
<main>
$body
</main>
<footer>$footer</footer>
<script type="application/json" id="figures">$figures</script>
</body>
</html>
""")


def text(value: Any) -> str:
    """Anything as text that cannot become markup.

    >>> text("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(value), quote=True)


def percent(share: float) -> str:
    """A share in per cent, with as many digits as tell something.

    >>> percent(0.123), percent(0.0123), percent(0.0001), percent(0.0)
    ('12%', '1.2%', '&lt; 0.1%', '0%')
    """
    if share == 0:
        return "0%"
    if share < 0.0005:
        return "&lt; 0.1%"
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def page(
    title: str,
    subtitle: str,
    parts: Iterable[str],
    *,
    links: Mapping[str, str],
    footer: str,
    figures: Mapping[str, Any],
) -> str:
    """The whole page; ``parts`` is markup, all else text.

    ``links`` are the titles of sections by their ids, ``figures`` what machines may read.
    """
    # a closing tag inside a string would end the block
    block = json.dumps(figures, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
    return _PAGE.substitute(
        title=text(title),
        subtitle=text(subtitle),
        style=_STYLE,
        links=" ".join(f'<a href="#{text(key)}">{text(name)}</a>' for key, name in links.items()),
        body="\n".join(parts),
        footer=text(footer),
        figures=block,
    )


def section(key: str, title: str, *parts: str, kind: str = "") -> str:
    """A part of the page with a heading; ``parts`` is markup."""
    kind = f' class="{text(kind)}"' if kind else ""
    inside = "\n".join(part for part in parts if part)
    return f'<section id="{text(key)}"{kind}>\n<h2>{text(title)}</h2>\n{inside}\n</section>'


def table(
    heads: Sequence[str], lines: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()
) -> str:
    """A table of cells that are markup, ``numbers`` being the columns that are aligned right.

    Without heads the first cell of every line is its head.
    """

    def cell(tag: str, place: int, inside: str) -> str:
        kind = ' class="number"' if place in numbers else ""
        return f"<{tag}{kind}>{inside}</{tag}>"

    if heads:
        top = "".join(cell("th", place, text(head)) for place, head in enumerate(heads))
        rows = ("".join(cell("td", place, part) for place, part in enumerate(ln)) for ln in lines)
        head = f"<thead><tr>{top}</tr></thead>"
        return _scroll(head + "".join(f"<tr>{row}</tr>" for row in rows))
    rows = (f'<th scope="row">{ln[0]}</th><td>{"</td><td>".join(ln[1:])}</td>' for ln in lines)
    return _scroll("".join(f"<tr>{row}</tr>" for row in rows), "facts")


def _scroll(inside: str, kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    # a box that scrolls must be reachable by keyboard
    return f'<div class="scroll" tabindex="0"><table{kind}>{inside}</table></div>'


def chip(number: int, color: np.ndarray) -> str:
    """A cluster's number on its colour."""
    red, green, blue = (round(255 * float(part)) for part in color)
    # the contrast of the two choices, by relative luminance
    light = float(np.dot(np.asarray(color) ** 2.2, [0.2126, 0.7152, 0.0722]))
    ink = "#000" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "#fff"
    return (
        f'<span class="chip" style="background:rgb({red},{green},{blue});color:{ink}">'
        f"{number}</span>"
    )


def figure(svg: str, caption: str, *, kind: str = "") -> str:
    """A picture with its caption."""
    kind = f' class="{text(kind)}"' if kind else ""
    return f"<figure{kind}>{svg}<figcaption>{text(caption)}</figcaption></figure>"


def draw(name: str, plot: Callable[[Any], Any], size: tuple[float, float], label: str) -> str:
    """What ``plot`` draws on axes, as SVG in the colours of the page.

    Parameters
    ----------
    name : str
        Of its own on the page: ids inside begin with it.
    plot : callable
        Given the axes.
    size : pair of float
        Inches.
    label : str
        What a reader hears who does not see it.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PRCutError(
            f"reports need matplotlib ({error}): pip install 'prcut[plot]'."
        ) from error

    inked = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
    lined = ("axes.edgecolor", "xtick.color", "ytick.color")
    settings: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 9,
        "axes.facecolor": _PAPER,
        "figure.facecolor": "none",
        **dict.fromkeys(inked, _INK),
        **dict.fromkeys(lined, _LINES),
    }
    with mpl.rc_context(settings):  # type: ignore[arg-type,unused-ignore]
        drawn = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(drawn)
        plot(drawn.add_subplot())
        content = io.StringIO()
        drawn.savefig(content, format="svg", metadata={"Date": None}, dpi=72, transparent=False)
    svg = _METADATA.sub("", content.getvalue()).strip()
    for stand_in, meaning in _MEANING.items():
        svg = svg.replace(stand_in, meaning)
    svg = _IDS.sub(lambda found: f"{found[1]}{name}-", svg)
    # the size is that of the page's column; the view box keeps the shape
    svg = re.sub(r'(<svg [^>]*?)\s(?:width|height)="[\d.]+pt"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?)\s(?:width|height)="[\d.]+pt"', r"\1", svg, count=1)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{text(label)}" ', 1)


def image_uri(image: np.ndarray) -> str:
    """A small picture of an image as a data URI."""
    from PIL import Image

    picture = Image.fromarray(image)
    is_large = max(picture.size) > _THUMBNAIL
    picture.thumbnail((_THUMBNAIL, _THUMBNAIL))
    content = io.BytesIO()
    # photographs are smaller as JPEG, drawings of few pixels as PNG
    kind = "JPEG" if is_large and picture.mode in ("L", "RGB") else "PNG"
    picture.save(content, kind, optimize=True, **({"quality": 80} if kind == "JPEG" else {}))
    code = base64.b64encode(content.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{code}"
