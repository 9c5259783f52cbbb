"""Reports of two runs: what moved between their clusters."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prcut.ui.report.inspection import Inspection
from prcut.ui.report.report import write_report
from prcut.ui.report.saved_run import inspect_run
from report_samples import check_self_contained, figures

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")

SMALL: dict[str, Any] = {"max_steps": 40, "n_init": 1, "n_neighbors": 8}


@pytest.mark.costly("two reports of two runs")
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
