"""Render a self-contained page of HTML: no fonts, no requests, one script of this package.

The templates escape all values except the pictures that are drawn here. The page's policy names the
hash of its script, so that a browser runs no other.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import prcut

if TYPE_CHECKING:
    from markupsafe import Markup

# unused colours that stand for the reader's light or dark theme: text, background, thin lines
_INK, _PAPER, _LINES = "#010203", "#fcfbfa", "#a1a2a3"
_MEANING = {_INK: "currentColor", _PAPER: "var(--paper)", _LINES: "var(--lines)"}
# matplotlib's own description of a file, which names an address on the web
_METADATA = re.compile(r"<metadata>.*?</metadata>|<!DOCTYPE[^>]*>|<\?xml[^>]*>", re.DOTALL)
# ids, which must be unique in the page
_IDS = re.compile(r'\b(id="|url\(#|href="#)')
# pixels of the longer side of an image
_THUMBNAIL = 64
# pixels per inch of what is rasterized in a picture, sharp on screens of twice the density
_DPI = 150


def render(template: str, **values: Any) -> str:
    """Render a template of this package, escaping every value that is not markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    how: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    loader = PackageLoader("prcut.ui.report")
    environment = Environment(loader=loader, undefined=StrictUndefined, **how)  # noqa: S701
    environment.filters |= {
        "commas": "{:,}".format,
        "percent": percent,
        "file_name": lambda path: Path(str(path)).name,
    }
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": False}
    return environment.get_template(template).render(version=prcut.__version__, **values)


def load_script(name: str) -> dict[str, Any]:
    """Read a script of this package, and the hash by which a page allows it to run."""
    from markupsafe import Markup

    text = (Path(__file__).parent / "templates" / name).read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    # the text is a file of the package and has no values of a user
    return {"script": Markup(text), "script_hash": Markup(f"sha256-{digest}")}  # noqa: S704


def percent(fraction: float) -> str:
    """Format a fraction in percent with two significant digits.

    >>> percent(0.123), percent(0.0123), percent(0.0001), percent(0.0)
    ('12%', '1.2%', '< 0.1%', '0%')
    """
    if fraction == 0:
        return "0%"
    if fraction < 0.0005:
        return "< 0.1%"
    return f"{fraction:.1%}" if fraction < 0.0995 else f"{fraction:.0%}"


def make_chip(number: int, color: np.ndarray) -> dict[str, Any]:
    """Return the number of a cluster, its colour, and black or white ink, whichever is legible."""
    from matplotlib.colors import to_hex

    luminance = float(np.dot(np.asarray(color) ** 2.2, [0.2126, 0.7152, 0.0722]))
    is_light = (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05)
    red, green, blue = color
    ink = "#000" if is_light else "#fff"
    return {"number": number, "color": to_hex((red, green, blue)), "ink": ink}


def draw(name: str, plot: Callable[[Any], Any], size: tuple[float, float], label: str) -> Markup:
    """Draw on axes and return SVG in the colours of the page.

    The name prefixes the ids inside, so it must be unique on the page; the size is in inches.
    """
    import matplotlib
    from markupsafe import Markup, escape
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    inked = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
    lined = ("axes.edgecolor", "xtick.color", "ytick.color")
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 9,
        "axes.facecolor": _PAPER,
        "figure.facecolor": "none",
        **dict.fromkeys(inked, _INK),
        **dict.fromkeys(lined, _LINES),
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        plot(figure.add_subplot())
        content = io.StringIO()
        figure.savefig(content, format="svg", metadata={"Date": None}, dpi=_DPI, transparent=False)
    svg = _METADATA.sub("", content.getvalue()).strip()
    for stand_in, meaning in _MEANING.items():
        svg = svg.replace(stand_in, meaning)
    svg = _IDS.sub(lambda match: f"{match[1]}{name}-", svg)
    # the view box keeps the shape; the page decides the size
    start, rest = svg.removeprefix("<svg ").split(">", 1)
    start = re.sub(r'\b(?:width|height)="[\d.]+pt"', "", start)
    return Markup(f'<svg role="img" aria-label="{escape(label)}" {start}>{rest}')  # noqa: S704


def image_uri(image: np.ndarray) -> str:
    """Encode a thumbnail of an image as a data URI."""
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
