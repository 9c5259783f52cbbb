"""What `prcut info` says about files and folders."""

from pathlib import Path

from prcut.ui.cli.info import describe_path


def test_an_unfinished_run_says_how_to_resume_it(run: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes((run / "plan.json").read_bytes())
    found = dict(describe_path(tmp_path))
    assert found["state"] == "unfinished; resume it with `prcut fit … --resume`"
    assert "objective" not in found
