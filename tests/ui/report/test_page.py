"""Pictures of a page take the reader's theme, and are the same each time."""

import base64

from prcut.ui.report.page import draw


def test_pictures_take_the_theme_and_are_the_same_each_time() -> None:
    picture = draw(lambda ax: ax.set_title("<b>title</b>"), (3, 2))
    kind, _, content = picture.partition(";base64,")
    svg = base64.b64decode(content).decode()
    assert kind == "data:image/svg+xml"
    assert "&lt;b&gt;title" in svg
    assert "var(--ink)" in svg
    assert "prefers-color-scheme: dark" in svg.replace(":dark", ": dark")
    assert "#010203" not in svg
    assert picture == draw(lambda ax: ax.set_title("<b>title</b>"), (3, 2))
