"""A cluster that is started here listens on loopback only, and shares no folder."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LISTENING = """
import os, sys
import psutil, ray
from prcut.runtime.ray_engine import RayEngine
RayEngine().run("wait", lambda number, advance: advance(1), 2, total=2)
me = psutil.Process()
ends = [
    (process.name(), end.laddr.ip)
    for process in (me, *me.children(recursive=True))
    for end in process.net_connections("inet")
    if end.status == psutil.CONN_LISTEN
]
ray.shutdown()
print(ends)
outside = [end for end in ends if end[1].removeprefix("::ffff:") not in ("127.0.0.1", "::1")]
sys.exit(f"{outside} listen beyond this machine" if outside or len(ends) < 3 else 0)
"""


@pytest.mark.weekly("starts a Ray cluster: 50 CPU-seconds")
def test_a_cluster_of_this_machine_listens_on_loopback_only() -> None:
    pytest.importorskip("ray", reason="the engine of clusters")
    pytest.importorskip("psutil", reason="tells which addresses are listened at")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LISTENING],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_cluster_of_this_machine_has_a_folder_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = pytest.importorskip("ray", reason="the engine of clusters")
    from prcut.runtime.ray_engine import RayEngine

    folders: list[Path] = []

    def init(**options: Any) -> None:
        folders.append(Path(options["_temp_dir"]))

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    for _ in range(2):
        RayEngine()
    assert folders[0] != folders[1]
    for folder in folders:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
