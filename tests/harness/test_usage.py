"""What tasks use is measured where they run, and added up by stage."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.harness.usage import MeasuredEngine, Usage, peak_memory

from prcut.runtime.engine import LocalEngine
from prcut.runtime.progress import Progress


def write(folder: Path, number: int, advance) -> None:
    (folder / f"{number}.bin").write_bytes(bytes(10**6))
    advance(number)


def test_every_number_runs_once_and_what_it_took_is_counted(tmp_path: Path) -> None:
    seen: list[Progress] = []
    engine = MeasuredEngine(LocalEngine())
    engine.run("write", partial(write, tmp_path), 4, total=6, on_progress=seen.append)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{n}.bin" for n in range(4)]
    used = engine.usage["write"]
    assert (used.tasks, used.rows) == (4, 6)
    assert used.written >= 4 * 10**6
    assert used.peak_bytes > 10**7
    assert [progress.done for progress in seen] == [0, 1, 3, 6]


def test_usage_adds_up() -> None:
    both = Usage(1, 7, read=3, peak_bytes=5).plus(Usage(2, 3, read=5, peak_bytes=10**15))
    assert both == Usage(3, 10, read=8, peak_bytes=10**15)


def test_the_peak_of_this_process_is_not_that_of_its_parent() -> None:
    held = np.ones(2**25)  # 256 MB here, nothing of it in the child
    here = peak_memory()
    script = "from benchmarks.harness.usage import peak_memory; print(peak_memory())"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert here is not None
    assert here > held.nbytes
    assert 2**20 < int(run.stdout) < here - held.nbytes / 2
