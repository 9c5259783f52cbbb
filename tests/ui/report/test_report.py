"""Reports: one file that holds everything, asks for nothing, and shows texts as texts."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prcut.numerics.certificate import SpectralBound
from prcut.ui.cli.commands import main
from prcut.ui.report.inspection import Inspection
from prcut.ui.report.report import list_headline, score_classes, write_report
from prcut.ui.report.row_contents import read_labels
from report_samples import EVEN, EVIL, check_self_contained, made_up

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")


def test_a_report_has_every_part_and_texts_stay_texts(folder: Path, inspected: Inspection) -> None:
    path = folder / "new/report.html"
    write_report(inspected, path, texts="text", labels="class")
    content = path.read_text("utf-8")
    found = check_self_contained(content)
    assert "<script>alert" not in content
    assert "&lt;script&gt;alert(&#34;1&#34;)" in content
    assert "<b>class" not in content
    assert any('<script>alert("1")</script><img src=http' in words for words in found.words)
    cut = "Cut between clusters, and their classes"
    for title in ("Map of the rows", "How it was clustered", cut, "Clusters"):
        assert f">{title}</h2>" in content
    assert content.count('<article class="cluster">') == 3
    assert content.count("Most ambiguous") == 3
    # sizes, cut, confusion: each described for who does not see them
    pictures = [given for tag, given in found.tags if tag == "img"]
    assert len(pictures) == 3
    assert all(given["alt"] for given in pictures)
    assert "prefers-color-scheme: dark" in content
    classes = read_labels(inspected.source, "class", inspected.rows)
    tiles = list_headline(inspected, score_classes(classes, inspected))
    assert tiles["rows"] == "300"
    assert float(tiles["accuracy against the classes"].rstrip("%")) > 90
    for name, value in tiles.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in content
    assert f"<td>{inspected.about['ratio_cut']:.5g}</td>" in content


def test_what_is_wrong_is_said_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(folder / "run"), "--texts", "title", "-q", "-o", str(folder / "refused.html")]
    assert main(["report", *given]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "has no column 'title'; it has vector, text, class" in said
    assert not (folder / "refused.html").exists()


def test_names_are_escaped_wherever_they_are_shown(inspected: Inspection, tmp_path: Path) -> None:
    name = f"{EVIL}</script> $\\frac$"
    about = {**inspected.about, "data": name, "column": name, "metric": name, "similarity": name}
    evil = replace(inspected, name=name, about=about)
    write_report(evil, tmp_path / "evil.html", labels=[name, *[f"{EVIL} 2"] * 299])
    content = (tmp_path / "evil.html").read_text("utf-8")
    check_self_contained(content)
    assert "<script>alert" not in content


def test_a_certificate_says_how_far_from_optimal() -> None:
    bound = SpectralBound(1.0, torch.zeros(4), 0.0)
    found = made_up(EVEN, 4, about={"ratio_cut": 3.0}, bound=bound)
    assert list_headline(found, None)["ratio cut over its lower bound"] == "3.00"
    assert "ratio cut over its lower bound" not in list_headline(made_up(EVEN, 4), None)
