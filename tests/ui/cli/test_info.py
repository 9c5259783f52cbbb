"""What `prcut info` says about files and folders."""

from pathlib import Path

import pytest

from prcut.errors import InvalidInputError
from prcut.ui.cli.info import describe_path


def test_a_finished_run_has_stages_and_results(run: Path) -> None:
    found = dict(describe_path(run))
    assert found["kind"] == "run"
    assert found["state"] == "finished"
    assert found["stage start 1"] == "step 50 of at most 50"
    assert found["stage model"].startswith("done, ")
    assert found["clusters in use"] == "4 of 4"
    assert {"objective", "ratio cut", "steps"} < set(found)


def test_an_unfinished_run_says_how_to_resume_it(run: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes((run / "plan.json").read_bytes())
    found = dict(describe_path(tmp_path))
    assert found["state"] == "unfinished; resume it with `prcut fit … --resume`"
    assert found["stage graph"] == "not started"
    assert found["stage labels"] == "not done"
    assert "objective" not in found


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"nowhere does not exist\.$"):
        describe_path(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="is not a run, model, graph, blocks"):
        describe_path(tmp_path)
