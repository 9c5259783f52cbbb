"""Render a self-contained page of HTML: no fonts, no requests, one script of this package.

The templates escape every value. The page's policy names the hash of its script, so that a browser
runs no other.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import prcut

# an unused colour that stands for text and lines
_INK = "#010203"
# pictures follow the theme of the reader, as the page does
_THEME = (
    "<style>:root{--ink:#1b1f24}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb}}</style></svg>"
)
# pixels of the longer side of an image
_THUMBNAIL = 64


def render(template: str, **values: Any) -> str:
    """Render a template of this package, escaping every value."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("prcut.ui.report"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"commas": "{:,}".format, "percent": percent}
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


def draw(plot: Callable[[Any], Any], size: tuple[float, float]) -> str:
    """Draw on axes of a size in inches, and return the picture as a data URI.

    A picture of its own shares no ids with the page and can run nothing.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "prcut", "font.size": 9}
    with matplotlib.rc_context(settings | dict.fromkeys(inked, _INK)):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        plot(figure.add_subplot())
        content = io.StringIO()
        figure.savefig(content, format="svg", metadata={"Date": None}, transparent=True)
    svg = content.getvalue().replace(_INK, "var(--ink)").replace("</svg>", _THEME)
    return _data_uri("svg+xml", svg.encode())


def draw_image(image: np.ndarray) -> str:
    """Return a thumbnail of an image as a data URI."""
    from PIL import Image

    picture = Image.fromarray(image)
    is_large = max(picture.size) > _THUMBNAIL
    picture.thumbnail((_THUMBNAIL, _THUMBNAIL))
    content = io.BytesIO()
    # photographs are smaller as JPEG, drawings of few pixels as PNG
    kind = "jpeg" if is_large and picture.mode in ("L", "RGB") else "png"
    picture.save(content, kind, optimize=True, **({"quality": 80} if kind == "jpeg" else {}))
    return _data_uri(kind, content.getvalue())


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
