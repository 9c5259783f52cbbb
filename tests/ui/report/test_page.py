"""Pages: values are escaped, pictures take the page's colours, thumbnails are small."""

import re

import numpy as np
import pytest

from prcut.ui.report.page import draw, image_uri, make_chip, render
from report_samples import EVEN, EVIL, check_self_contained, figures, made_up

pytest.importorskip("matplotlib")


def test_everything_that_is_not_markup_is_escaped() -> None:
    move = {
        "first": make_chip(0, np.zeros(3)),
        "second": make_chip(1, np.ones(3)),
        "count": 1,
        "fraction": 1.0,
        "rows": [0, 1, 2],
    }
    shown = [(EVIL, None), (EVIL, "data:,"), (None, None)]
    run = made_up(EVEN, 4, name=EVIL)
    content = render(
        "comparison.html",
        first=run,
        second=run,
        names=[EVIL, EVIL],
        seconds=1.0,
        figures={"name": f"{EVIL}</script>", "moved_share": 0.0, "ari": 1.0},
        nmi=1.0,
        matrix=EVIL,
        moves=[move],
        contents=shown,
        maps=[EVIL],
        settings=[{EVIL: EVIL}, {EVIL: "x"}],
        warnings=[EVIL],
    )
    check_self_contained(content)
    assert figures(content)["name"] == f"{EVIL}</script>"
    assert "<script>alert" not in content
    assert "row 2" in content


def test_pictures_take_the_colors_of_the_page() -> None:
    svg = draw("one", lambda ax: ax.set_title("title"), (3, 2), EVIL)
    assert "currentColor" in svg
    assert "var(--lines)" in svg
    assert "#010203" not in svg
    assert 'id="one-' in svg
    assert "<metadata>" not in svg
    assert not re.search(r'<svg [^>]*\swidth="', svg)
    assert svg == draw("one", lambda ax: ax.set_title("title"), (3, 2), EVIL)


@pytest.mark.parametrize("shape", [(28, 28), (300, 200), (300, 200, 3), (40, 40, 4)])
def test_thumbnails_are_small(shape: tuple[int, ...]) -> None:
    noise = np.random.default_rng(0).integers(256, size=shape).astype(np.uint8)
    uri = image_uri(noise)
    assert uri.startswith("data:image/")
    assert len(uri) < 10_000


def test_numbers_read_on_every_color() -> None:
    light = {"number": 1, "color": "#ffff33", "ink": "#000"}
    assert make_chip(1, np.array([1.0, 1.0, 0.2])) == light
    assert make_chip(1, np.array([0.1, 0.1, 0.4]))["ink"] == "#fff"
