"""A page as readers see it: in headless Chromium, wide and narrow, light and dark."""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
# milliseconds to wait for the browser on a busy machine
PATIENCE = 240_000
# drags the map to and fro for two seconds, a move in every frame
_PAN = """async () => {
  const canvas = document.getElementById("explore-canvas"), box = canvas.getBoundingClientRect();
  const fire = (type, x) => canvas.dispatchEvent(new PointerEvent(type,
    { pointerId: 7, clientX: box.left + x, clientY: box.top + box.height / 2, bubbles: true }));
  fire("pointerdown", box.width / 2);
  const began = performance.now();
  let frames = 0, points = 0, now = began;
  while (now - began < 2000) {
    await new Promise(requestAnimationFrame);
    frames++;
    points += Number(canvas.dataset.points);
    fire("pointermove", box.width * (0.5 + 0.3 * Math.sin(frames / 12)));
    now = performance.now();
  }
  fire("pointercancel", 0);
  return [1000 * frames / (now - began), points / frames];
}"""


class View(NamedTuple):
    """What a browser reports about a page at one width in one colour scheme."""

    width: int
    scheme: str
    faults: list[str]
    frames: float
    """Frames per second while the map is dragged; NaN if they were not counted."""
    drawn: float
    """Points in such a frame, on average."""


def find_chromium() -> str | None:
    """Find Chromium; return None if it, or the package that drives it, is missing."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return None
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def browse(chromium: str) -> Iterator[Any]:
    """Start the browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def look(
    browser: Any,
    page_file: Path,
    *,
    views: Sequence[tuple[int, str]],
    act: Callable[[Any], list[str]],
    count_frames: bool = False,
) -> Iterator[View]:
    """Open a page in every width and scheme, act on it."""
    for width, scheme in views:
        faults: list[str] = []
        requests: list[str] = []
        page = browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            device_scale_factor=1 if width > 600 else 2,
        )
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message, said=faults: said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error, said=faults: said.append(f"error: {error}"))
        page.on("request", lambda request, asked=requests: asked.append(request.url))
        page.goto(page_file.absolute().as_uri())
        page.wait_for_load_state("networkidle")
        # other work on the machine only slows the map down: the best of three counts
        pans = [page.evaluate(_PAN) for _ in range(3 if count_frames else 0)]
        frames, drawn = max(pans, default=(float("nan"), float("nan")))
        page.reload()
        faults += act(page)
        overflow = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        if overflow > 0:
            faults.append(f"{overflow} px wider than the window")
        page.close()
        outside = [url for url in requests if not url.startswith(("data:", page_file.as_uri()))]
        faults += [f"asks for {url}" for url in outside]
        yield View(width, scheme, faults, frames, drawn)


class Explorer:
    """The map of a report, as a reader uses it."""

    def __init__(self, page: Any) -> None:
        self.page, self.canvas = page, page.locator("#explore-canvas")

    def read(self, name: str) -> str:
        """Return the text of a part: tip, status, title, zoom."""
        return str(self.page.locator(f"#explore-{name}").inner_text())

    @property
    def zoom(self) -> float:
        return float(self.read("zoom").rstrip("×"))

    @property
    def n_entries(self) -> int:
        return int(self.page.locator("#explore-list .entry").count())

    @property
    def n_points(self) -> int:
        """Number of points in the status line, such as ``1,234 of 5,000 points match``."""
        found = re.search(r"([\d,]+)(?: of [\d,]+)? points?\b", self.read("status"))
        return -1 if found is None else int(found[1].replace(",", ""))

    def hover(self) -> tuple[float, float] | None:
        """Move the mouse over the map until a row is described; return where."""
        self.canvas.scroll_into_view_if_needed()
        box = self.canvas.bounding_box()
        for step in range(12, 400):
            # a spiral around the middle
            x = box["x"] + box["width"] * (0.5 + 0.001 * step * ((step % 7) - 3) / 3)
            y = box["y"] + box["height"] * (0.5 + 0.001 * step * ((step % 5) - 2) / 2)
            self.page.mouse.move(x, y)
            if self.page.locator("#explore-tip").is_visible():
                return x, y
        return None

    def search(self, word: str) -> int:
        """Search and return the number of points that match."""
        self.page.locator("#explore-query").fill(word)
        return self.n_points


def explore(page: Any, word: str, n_clusters: int) -> list[str]:
    """Hover, click, search, zoom and press keys; return what did not do what it should.

    The word occurs in some of the rows, but not in all.
    """
    map_, faults = Explorer(page), []

    def expect(holds: bool, what: str) -> None:
        if not holds:
            faults.append(what)

    n_all = map_.n_points
    expect(map_.n_entries == min(n_clusters, 400), f"{map_.n_entries} clusters are listed")
    page.locator("#explore-canvas:not([data-names='0'])[data-names]").wait_for()
    where = map_.hover()
    expect(where is not None, "no row is described under the mouse")
    if where is not None:
        tip = map_.read("tip")
        expect("cluster" in tip and "confidence" in tip, f"reasons are missing: {tip!r}")
        page.mouse.down()
        page.mouse.up()
        expect(0 < map_.n_points < n_all, f"a click selects: {map_.read('status')!r}")
        expect(map_.n_entries == min(map_.n_points, 60), f"{map_.n_entries} rows are listed")
        page.locator("#explore-back").click()
    expect(map_.n_points == n_all, "the selection stays")
    n_found = map_.search(word)
    expect(0 < n_found < n_all, f"a search for {word} finds {n_found} of {n_all}")
    expect(map_.n_entries > 0, "a search leaves no clusters")
    expect(map_.search("no such word anywhere") == 0, "a search finds what is not there")
    expect(map_.search("") == n_all, "the search stays")
    box = map_.canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -300)
    page.locator("#explore-zoom", has_not_text="1.0×").wait_for()
    map_.canvas.focus()
    page.keyboard.press("0")
    expect(map_.zoom == 1, f"0 zooms to {map_.zoom}")
    for key in ("+", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    expect(map_.zoom > 1, "+ does not zoom")
    expect("confidence" in map_.read("status"), "keys do not describe the row in the middle")
    page.keyboard.press("Enter")
    expect("clusters" not in map_.read("title"), "Enter does not select")
    page.keyboard.press("Escape")
    page.locator("#explore-list .entry").last.focus()
    page.keyboard.press("Enter")
    expect(0 < map_.n_points < n_all, "a cluster of the list is not selected by key")
    page.emulate_media(media="print")
    expect(map_.canvas.is_visible(), "the map is not printed")
    expect(not page.locator("#explore-query").is_visible(), "the search field is printed")
    page.emulate_media(media="screen")
    page.locator("#explore-closer").click()
    expect(map_.zoom >= 1, "a cluster is not zoomed to")
    return faults
