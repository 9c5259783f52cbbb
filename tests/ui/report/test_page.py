"""Pages: values are escaped, pictures take the page's colours, thumbnails are small."""

import re

import pytest

from prcut.ui.report.page import draw
from report_samples import EVIL

pytest.importorskip("matplotlib")


def test_pictures_take_the_colors_of_the_page() -> None:
    svg = draw("one", lambda ax: ax.set_title("title"), (3, 2), EVIL)
    assert "currentColor" in svg
    assert "var(--lines)" in svg
    assert "#010203" not in svg
    assert 'id="one-' in svg
    assert "<metadata>" not in svg
    assert not re.search(r'<svg [^>]*\swidth="', svg)
    assert svg == draw("one", lambda ax: ax.set_title("title"), (3, 2), EVIL)
