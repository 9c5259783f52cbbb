"""Reports of two runs: what moved between their clusters."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prcut.errors import InvalidInputError
from prcut.pipeline.config import FitConfig
from prcut.pipeline.run import fit_run
from prcut.ui.report.inspection import Inspection
from prcut.ui.report.report import write_report
from prcut.ui.report.saved_run import inspect_run
from report_samples import check_self_contained, figures

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")

SMALL: dict[str, Any] = {"max_steps": 40, "n_init": 1, "n_neighbors": 8}


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
    with pytest.raises(InvalidInputError, match="10,000 and 10,000 clusters are too many to match"):
        write_report(many, tmp_path / "refused.html", against=many)
