"""Reports: one file that holds everything, asks for nothing, and shows texts as texts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from prcut import PRCut
from prcut.errors import InvalidInputError
from prcut.ui.cli.commands import main
from prcut.ui.report.inspection import Inspection
from prcut.ui.report.report import write_report
from report_samples import EVIL, check_self_contained, figures

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")

SMALL: dict[str, Any] = {"max_steps": 40, "n_init": 1, "n_neighbors": 8}


def test_a_report_has_every_part_and_texts_stay_texts(folder: Path, inspected: Inspection) -> None:
    path = folder / "new/report.html"
    write_report(inspected, path, texts="text", labels="class")
    content = path.read_text("utf-8")
    found = check_self_contained(content)
    assert "<script>alert" not in content
    assert "&lt;script&gt;alert(&#34;1&#34;)" in content
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["run", "--texts", "title"], "has no column 'title'; it has vector, text, class"),
        (["run", "--images", "28x28"], "28x28 have 784 values, a row has n_features=4"),
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


@pytest.mark.costly("two reports with images")
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


def test_names_are_escaped_wherever_they_are_shown(inspected: Inspection, tmp_path: Path) -> None:
    name = f"{EVIL}</script> $\\frac$"
    about = {**inspected.about, "data": name, "column": name, "metric": name, "similarity": name}
    evil = replace(inspected, name=name, about=about)
    write_report(evil, tmp_path / "evil.html", labels=[name, *[f"{EVIL} 2"] * 299])
    content = (tmp_path / "evil.html").read_text("utf-8")
    check_self_contained(content)
    assert figures(content)["name"] == name
    assert "<script>alert" not in content
    write_report(evil, tmp_path / "two.html", against=evil)
    content = (tmp_path / "two.html").read_text("utf-8")
    check_self_contained(content)
    assert "<script>alert" not in content
