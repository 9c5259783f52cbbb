"""Reports: one file that holds everything, asks for nothing, and shows texts as texts."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs

from prcut import PRCut
from prcut.cli import main
from prcut.errors import InvalidInputError, PRCutError
from prcut.fitting import FitConfig
from prcut.inspection import Inspection, inspect_run
from prcut.levels import fit_levels
from prcut.report import write_report
from prcut.report_page import chip, draw, image_uri, page, section, table
from prcut.runs import fit_run
from prcut.sources import ArraySource

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")

EVIL = '<script>alert("1")</script><img src=http://evil.example/x onerror=alert(2)> & "quoted"'
SMALL: dict[str, Any] = {"max_steps": 40, "n_init": 1, "n_neighbors": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on 300 rows of Parquet, of which every text is an attack."""
    where = tmp_path_factory.mktemp("report")
    rows, classes = make_blobs(300, 4, centers=3, cluster_std=1.5, random_state=0)
    table = pa.table(
        {
            "vector": list(rows.astype(np.float32)),
            "text": [f"{EVIL} {i}" for i in range(300)],
            "class": [f"<b>class {c}</b>" for c in classes],
        }
    )
    pq.write_table(table, where / "rows.parquet")
    data = str(where / "rows.parquet")
    fit_run(data, where / "run", FitConfig.of("default", 3, **SMALL), device="cpu")
    fit_run(data, where / "other", FitConfig.of("default", 4, **SMALL), device="cpu")
    return where


@pytest.fixture(scope="module")
def inspected(folder: Path) -> Inspection:
    return inspect_run(folder / "run")


class Elements(HTMLParser):
    """Tags with their attributes, and the text of the page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def check_self_contained(content: str) -> Elements:
    """No script that runs, nothing fetched, ids that are there once, links that lead somewhere."""
    found = Elements(content)
    scripts = [given for tag, given in found.tags if tag == "script"]
    assert [given.get("type") for given in scripts] == ["application/json"]
    ids = [given["id"] for _, given in found.tags if "id" in given]
    assert len(ids) == len(set(ids))
    for tag, given in found.tags:
        assert tag not in ("iframe", "object", "embed", "base", "form"), tag
        assert not [name for name in given if name.startswith("on")]
        for name in ("src", "href", "xlink:href"):
            if value := given.get(name):
                assert value.startswith(("data:", "#")), (tag, value)
                assert not value.startswith("#") or value[1:] in ids, value
    assert not re.search(r"@import|url\((?!#)", content)
    assert found.count("img") == sum("alt" in given for tag, given in found.tags if tag == "img")
    assert len(content) < 5_000_000
    return found


def figures(content: str) -> Any:
    return json.loads(re.findall(r'id="figures">(.*?)</script>', content)[0])


def test_a_report_has_every_part_and_texts_stay_texts(folder: Path, inspected: Inspection) -> None:
    path = folder / "new/report.html"
    write_report(inspected, path, texts="text", labels="class")
    content = path.read_text("utf-8")
    found = check_self_contained(content)
    assert "<script>alert" not in content
    assert "&lt;script&gt;alert(&quot;1&quot;)" in content
    assert "<b>class" not in content
    assert any('<script>alert("1")</script><img src=http' in words for words in found.words)
    for title in ("Map of the rows", "How it was clustered", "Cut between clusters", "Clusters"):
        assert f">{title}</h2>" in content
    assert "Clusters and classes" in content
    assert content.count('<article class="cluster">') == 3
    assert content.count("Most ambiguous") == 3
    # map, sizes, confidence, history, cut, confusion: each described for who does not see them
    pictures = [given for tag, given in found.tags if tag == "svg"]
    assert len(pictures) == 6
    assert all(given["aria-label"] for given in pictures)
    assert "currentColor" in content
    assert "prefers-color-scheme: dark" in content
    read = figures(content)
    assert read["n_samples"] == 300
    assert sum(read["cluster_sizes"]) == 300
    assert read["ratio_cut"] == inspected.about["ratio_cut"]
    assert read["accuracy"] > 0.9
    assert f"{read['accuracy']:.1%}" in content


def test_the_command_writes_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "by-command.html"
    assert main(["report", str(folder / "run"), "--texts", "text", "-o", str(out), "-q"]) == 0
    assert capsys.readouterr().out == f"report={out}\n"
    check_self_contained(out.read_text("utf-8"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["run", "--texts", "title"], "has no column 'title'; it has vector, text, class"),
        (["run", "--images", "28x28"], "28x28 have 784 values, a row has n_features=4"),
        (["run", "--labels", "none.npy"], "none.npy cannot be read as a .npy file"),
        (["rows.parquet"], "is not a run folder"),
        (["run", "--data", "moved.parquet"], "moved.parquet does not exist"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(folder / options[0]), *options[1:], "-q", "-o", str(folder / "refused.html")]
    assert main(["report", *given]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert message in said[0]
    assert not (folder / "refused.html").exists()


def test_two_runs_side_by_side(folder: Path, inspected: Inspection) -> None:
    other = inspect_run(folder / "other")
    path = folder / "moved.html"
    write_report(inspected, path, against=other, texts="text", labels="class")
    content = path.read_text("utf-8")
    check_self_contained(content)
    assert "<h1>run and other</h1>" in content
    read = figures(content)
    # the fourth cluster took its rows from some of the three: all others stay
    moved = (
        1
        - np.sort(
            [np.bincount(inspected.labels[other.labels == j], minlength=3).max() for j in range(4)]
        )[1:].sum()
        / 300
    )
    assert read["moved_share"] == pytest.approx(moved)
    assert "3 → 4" in content
    assert "Largest moves" in content
    assert content.count("<svg") == 3
    write_report(inspected, path, against=inspected)
    again = path.read_text("utf-8")
    assert "No row is in another cluster" in again
    assert "run (first) and run (second)" in again


def test_runs_on_other_rows_are_not_compared(folder: Path, inspected: Inspection) -> None:
    rows = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    fit_run(rows, folder / "few", FitConfig.of("default", 3, **SMALL), device="cpu")
    few = inspect_run(folder / "few", data=rows)
    with pytest.raises(InvalidInputError, match="n_samples=300 rows, few 100"):
        write_report(inspected, folder / "refused.html", against=few)


def test_too_many_clusters_are_not_matched(inspected: Inspection, tmp_path: Path) -> None:
    many = replace(inspected, n_clusters=10_000)
    with pytest.raises(InvalidInputError, match="10,000 and 10,000 clusters are too many"):
        write_report(many, tmp_path / "refused.html", against=many)


def test_estimators_report_with_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.random((120, 16)).astype(np.float32)
    pixels[::2, :8] += 2
    model = PRCut(2, random_state=0, **SMALL).fit(pixels)
    model.report(tmp_path / "dense.html", pixels, images="4x4", labels=np.arange(120) % 2)
    content = (tmp_path / "dense.html").read_text("utf-8")
    found = check_self_contained(content)
    assert found.count("img") == 2 * 2 * 6
    assert figures(content)["accuracy"] == 1
    assert "PRCut: 2 clusters" in content
    # sparse rows, and new ones
    model.report(tmp_path / "sparse.html", csr_array(pixels[:60]), images=(4, 4))
    assert figures((tmp_path / "sparse.html").read_text("utf-8"))["n_samples"] == 60
    with pytest.raises(InvalidInputError, match="needs its rows"):
        write_report(model, tmp_path / "none.html")


def test_levels_have_a_report(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    fit_levels(
        str(tmp_path / "rows.npy"),
        tmp_path / "levels",
        (2, 2),
        FitConfig.of("default", 2, **SMALL),
        device="cpu",
    )
    write_report(tmp_path / "levels", tmp_path / "levels.html")
    content = (tmp_path / "levels.html").read_text("utf-8")
    check_self_contained(content)
    assert "2 × 2" in content
    assert "clusters of the first level" in content


def test_thousands_of_clusters_stay_a_small_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n_rows, n_clusters = 10_000, 1000
    labels = rng.integers(n_clusters, size=n_rows).astype(np.int32)
    many = Inspection(
        name="many",
        source=ArraySource(np.zeros((n_rows, 2))),
        about={"objective": 1.0, "ratio_cut": 2.0},
        rows=np.arange(n_rows),
        labels=labels,
        runner_up=np.zeros(n_rows, np.int32),
        confidence=rng.random(n_rows).astype(np.float32),
        places=rng.normal(size=(n_rows, 2)).astype(np.float32),
        distances=rng.random(n_rows).astype(np.float32),
        n_clusters=n_clusters,
        links=rng.random((n_clusters, n_clusters)),
    )
    write_report(many, tmp_path / "many.html", texts=["word " * 500] * n_rows)
    content = (tmp_path / "many.html").read_text("utf-8")
    check_self_contained(content)
    assert content.count('<article class="cluster">') == 40
    assert "the 32 largest are shown, and of the others the 8" in content
    assert "The 300 largest clusters" in content


# -- the page --------------------------------------------------------------------------------


def test_everything_that_is_not_markup_is_escaped() -> None:
    content = page(
        EVIL,
        EVIL,
        [section("a", EVIL, table([EVIL], [["x"]]))],
        links={"a": EVIL},
        footer=EVIL,
        figures={"name": f"{EVIL}</script>"},
    )
    check_self_contained(content)
    assert figures(content)["name"] == f"{EVIL}</script>"


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
    assert "color:#000" in chip(1, np.array([1.0, 1.0, 0.2]))
    assert "color:#fff" in chip(1, np.array([0.1, 0.1, 0.4]))


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, inspected: Inspection, tmp_path: Path
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PRCutError, match=r"pip install 'prcut\[plot\]'"):
        write_report(inspected, tmp_path / "report.html")
