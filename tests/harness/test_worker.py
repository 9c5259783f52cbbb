"""The digest that distinguishes two states of the code."""

import re
from pathlib import Path

from benchmarks.harness.worker import _source_digest


def test_digest_changes_with_the_code_that_decides(tmp_path: Path) -> None:
    for name in ("graph/build.py", "estimator.py", "ui/plot.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("pass\n")
    before = _source_digest(tmp_path)
    assert re.fullmatch("[0-9a-f]{16}", before)
    (tmp_path / "ui/plot.py").write_text("# what people see changes no label\n")
    assert _source_digest(tmp_path) == before
    (tmp_path / "graph/build.py").write_text("raise\n")
    assert _source_digest(tmp_path) != before
