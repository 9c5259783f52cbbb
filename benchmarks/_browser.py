"""A page as readers see it: in headless Chromium, wide and narrow, light and dark."""

import shutil
from pathlib import Path
from typing import NamedTuple

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")


class View(NamedTuple):
    """What a browser reports about a page at one width in one colour scheme."""

    width: int
    scheme: str
    console: list[str]
    requests: list[str]
    overflow: int
    """Pixels by which the page is wider than the window."""


def find_chromium() -> str | None:
    """Find Chromium; return None if it, or the package that drives it, is missing."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return None
    return shutil.which("chromium") or shutil.which("chromium-browser")


def look(chromium: str, page_file: Path, shots: Path | None = None) -> list[View]:
    """Open a page in every width and scheme; keep pictures of it in ``shots``."""
    from playwright.sync_api import sync_playwright

    views = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in WIDTHS:
            for scheme in SCHEMES:
                console: list[str] = []
                requests: list[str] = []
                page = browser.new_page(
                    viewport={"width": width, "height": 900},
                    color_scheme=scheme,
                    device_scale_factor=1 if width > 600 else 2,
                )
                page.on("console", lambda message, said=console: said.append(message.text))
                page.on("pageerror", lambda error, said=console: said.append(str(error)))
                page.on("request", lambda request, asked=requests: asked.append(request.url))
                page.goto(page_file.absolute().as_uri())
                page.wait_for_load_state("networkidle")
                overflow = page.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                if shots is not None:
                    shots.mkdir(parents=True, exist_ok=True)
                    name = f"{page_file.stem}-{width}-{scheme}.png"
                    page.screenshot(path=shots / name, full_page=True)
                page.close()
                outside = [
                    url for url in requests if not url.startswith(("data:", page_file.as_uri()))
                ]
                views.append(View(width, scheme, console, outside, int(overflow)))
        browser.close()
    return views
