"""The map to explore: its arrays are exact, bounded and named, and a reader can use it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks._browser import PATIENCE, Explorer, browse, explore, find_chromium

from prcut.ui.report.explorer import choose_points, collect_points
from prcut.ui.report.inspection import Inspection
from prcut.ui.report.report import write_report
from prcut.ui.report.row_contents import read_contents
from report_samples import EVEN, EVIL, check_self_contained, made_up

pytest.importorskip("matplotlib")


def spread(n_rows: int = 400, n_clusters: int = 4, **options: Any) -> Inspection:
    rng = np.random.default_rng(0)
    labels = np.arange(n_rows) % n_clusters
    coords = rng.normal(size=(n_rows, 2)) + 8 * np.column_stack([labels % 2, labels // 2])
    fields = {"coords": coords, "distances": rng.random(n_rows), "confidence": rng.random(n_rows)}
    return made_up(labels, n_clusters, **(fields | options))


def collect(found: Inspection, texts: list[str] | None = None, **options: Any) -> Any:
    points = choose_points(found, found.examples(4))
    known = read_contents(found.source, found.rows[points], texts)
    names = options.pop("names", [""] * found.n_clusters)
    return points, collect_points(found, points, known, names, **options)


def test_arrays_say_what_was_inspected() -> None:
    found = spread(inside=np.linspace(0, 1, 400), runner_up=np.where(EVEN == 0, -1, 0))
    points, data = collect(found, [f"text {i}" for i in range(400)])
    read = {name: np.array(values) for name, values in data["points"].items()}
    assert np.array_equal(np.sort(points), np.arange(400))
    assert np.array_equal(read["row"], points)
    assert np.array_equal(read["label"], found.labels[points])
    assert np.array_equal(read["second"].astype(int) - 1, found.runner_up[points])
    assert np.abs(read["confidence"] / 254 - found.confidence[points]).max() <= 0.5 / 254 + 1e-9
    assert np.abs(read["inside"] / 254 - points / 399).max() <= 0.5 / 254 + 1e-9
    assert data["texts"] == [f"text {i}" for i in points]
    # distances on the map keep their proportions
    drawn = np.column_stack([read["x"], read["y"]]).astype(float)
    true = found.coords[points]
    ratios = np.linalg.norm(drawn[1:] - drawn[0], axis=1) / np.linalg.norm(
        true[1:] - true[0], axis=1
    )
    assert np.ptp(ratios) / ratios.mean() < 0.01
    # the most typical row of every cluster is the nearest to its mean
    for cluster in range(4):
        inside = np.flatnonzero(read["label"] == cluster)
        nearest = inside[read["typical"][inside].argmin()]
        distances = found.distances[found.labels == cluster]
        assert found.distances[points[nearest]] <= np.sort(distances)[1]


@pytest.mark.costly("a browser: hostile texts are shown as text")
def test_readers_hover_search_and_select(tmp_path: Path) -> None:
    if (chromium := find_chromium()) is None:
        pytest.skip("no Chromium, or no playwright")
    names = [f"{EVIL} name {c}" for c in range(4)]
    texts = [f"{EVIL} {'apple' if i % 3 else 'pear'} {i}" for i in range(400)]
    found = spread(inside=np.ones(400))
    write_report(found, tmp_path / "page.html", texts=texts, names=names)
    check_self_contained((tmp_path / "page.html").read_text("utf-8"))
    said: list[str] = []
    with browse(chromium) as browser:
        page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: said.append(message.text))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: said.append(request.url))
        page.goto((tmp_path / "page.html").as_uri())
        said.clear()  # the page itself
        assert explore(page, "pear", 4) == []
        used = Explorer(page)
        page.locator("#explore-back").click()
        assert used.search("pear") == 134
        # hostile texts and names are shown as they are, as text
        used.search("name 2")
        assert used.n_entries == 1
        page.locator("#explore-list .entry").click()
        assert used.read("title") == f"2 · {names[2]}"
        assert EVIL in page.locator("#explore-list .entry").first.inner_text()
        assert page.locator("#explore-list script, #explore-list img").count() == 0
    assert said == []
