"""Levels: a planted hierarchy is found, by runs that may be interrupted."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from prcut.errors import InvalidInputError
from prcut.pipeline.levels import fit_levels
from prcut.training.assigner.predict import assign_labels
from prcut.ui.cli.commands import main

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")


def planted(n_rows: int, *levels: int, n_features: int = 16) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centre, spread = np.zeros((1, n_features)), 8.0
    for n_clusters in levels:
        inside = rng.normal(0, spread, (len(centre), n_clusters, n_features))
        centre = (centre[:, None] + inside).reshape(-1, n_features)
        spread /= 2
    leaf = rng.integers(len(centre), size=n_rows)
    rows = centre[leaf] + rng.normal(0, 0.5, (n_rows, n_features))
    return rows.astype(np.float32), leaf


@pytest.mark.parametrize("levels", [(5, 4), (4, 3, 2)])
def test_planted_leaves_are_found_and_a_second_call_makes_nothing(
    tmp_path: Path, levels: tuple[int, ...]
) -> None:
    rows, leaf = planted(3000, *levels)
    found = fit_levels(rows, tmp_path / "run", levels)
    assert found.n_clusters == np.prod(levels)
    assert 0 <= found.cut_share < 0.2
    labels = assign_labels(found.assigner, rows)
    assert labels.min() >= 0
    assert labels.max() < found.n_clusters
    assert normalized_mutual_info_score(leaf, labels) > 0.95
    assert not (tmp_path / "run/exchange").exists()
    before = sorted(path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.safetensors"))
    again = fit_levels(rows, tmp_path / "run", levels)
    np.testing.assert_array_equal(assign_labels(again.assigner, rows), labels)
    after = sorted(path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.safetensors"))
    assert before == after


def test_an_interrupted_run_is_finished_with_the_same_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = planted(3000, 4, 3)
    whole = fit_levels(rows, tmp_path / "whole", (4, 3))

    import prcut.pipeline.levels as module

    fit_cluster = module._fit_cluster

    def stop(plan, exchange, number, advance):
        if number == 2:
            raise KeyboardInterrupt
        fit_cluster(plan, exchange, number, advance)

    monkeypatch.setattr(module, "_fit_cluster", stop)
    with pytest.raises(KeyboardInterrupt):
        fit_levels(rows, tmp_path / "run", (4, 3))
    monkeypatch.undo()
    finished = fit_levels(rows, tmp_path / "run", (4, 3))
    labels = [assign_labels(found.assigner, rows) for found in (whole, finished)]
    np.testing.assert_array_equal(*labels)


def test_clusters_with_few_rows_stay_leaves(tmp_path: Path) -> None:
    rows, _ = planted(400, 3)
    rows[:7] += 200  # a cluster of its own, too small for five
    found = fit_levels(rows, tmp_path / "run", (4, 5))
    assert None in found.assigner.children_or_none or found.n_clusters == 20
    assert len(assign_labels(found.assigner, rows)) == 400


def test_bad_levels_are_refused(tmp_path: Path) -> None:
    rows, _ = planted(100, 2)
    for levels in ((3,), (3, 0), (200, 2)):
        with pytest.raises(InvalidInputError):
            fit_levels(rows, tmp_path / "run", levels)


def test_levels_by_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet as pq

    rows, leaf = planted(3000, 4, 3)
    np.save(tmp_path / "rows.npy", rows)
    run, data = str(tmp_path / "run"), str(tmp_path / "rows.npy")
    assert main(["fit", data, "--levels", "4,3", "--out", run, "--quiet"]) == 0
    assert "n_clusters=12" in capsys.readouterr().out
    labels = pq.read_table(f"{run}/labels")["label"].to_numpy()
    assert normalized_mutual_info_score(leaf, labels) > 0.95
    assert main(["assign", run, data, "--out", str(tmp_path / "again"), "--quiet"]) == 0
    again = pq.read_table(tmp_path / "again")["label"].to_numpy()
    np.testing.assert_array_equal(labels, again)
    capsys.readouterr()
    assert main(["status", run]) == 0
    out = capsys.readouterr().out
    assert "clusters        done" in out
    assert out.endswith("finished\n")
    for path, words in ((run, ("levels", "finished", "4 × 3")), (f"{run}/model", ("12", "16"))):
        assert main(["info", path]) == 0
        out = capsys.readouterr().out
        assert all(word in out for word in words)
