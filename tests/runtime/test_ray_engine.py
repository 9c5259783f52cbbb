"""Ray as the engine, on real raylets: the same bytes as here, whatever dies."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prcut import Assigner
from prcut.errors import InvalidInputError, StageError
from prcut.fit.config import FitConfig
from prcut.graph.blocks.build import BlockConfig, build_blocks
from prcut.runs.labels import RowLabels, assign_parquet
from prcut.runs.plan import Workload, plan_stages
from prcut.runs.run import fit_run
from prcut.runtime.engine import LocalEngine
from prcut.runtime.folder import Folder
from prcut.runtime.progress import Progress, read_status

pytest.importorskip("ray")

from benchmarks.harness.local_cluster import LocalCluster, local_cluster

from prcut.runtime.ray_engine import RayEngine

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("cluster"),
    # Ray's own
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(2, 1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 3, (4, 8))
    for number in range(3):
        rows = centres[rng.integers(4, size=700)] + rng.normal(0, 0.4, (700, 8))
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.astype(np.float32).ravel()), 8)
        ids = pa.array(np.arange(700) + 700 * number)
        pq.write_table(pa.table({"id": ids, "x": lists}), folder / f"{number}.parquet")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """All files, but for the versions and times that records hold."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "status" not in path.parts
    }


# tasks are module-level functions: they are sent by name


def leave_mark(folder: Path, number: int, advance) -> None:
    (folder / f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
    advance(10)


def fail_some(number: int, advance) -> None:
    if number in (3, 5):
        raise ValueError(f"row {number} is wrong")
    advance(1)


def fail_to_read_twice(folder: Path, number: int, advance) -> None:
    leave_mark(folder, number, lambda _: None)
    if len(list(folder.glob(f"{number}-*"))) < 3:
        raise OSError("the disk is away")
    advance(1)


def die(folder: Path, number: int, advance) -> None:
    leave_mark(folder, number, advance)
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def test_tasks_run_once_each_on_several_workers(tmp_path: Path) -> None:
    engine, seen = RayEngine(), []
    engine.run("mark", partial(leave_mark, tmp_path), 20, total=200, on_progress=seen.append)
    marks = [path.name.split("-") for path in tmp_path.iterdir()]
    assert sorted(int(number) for number, *_ in marks) == list(range(20))
    assert str(os.getpid()) not in {pid for _, pid, _ in marks}
    assert isinstance(seen[-1], Progress)
    assert (seen[-1].done, seen[-1].failed) == (200, 0)


def test_a_task_that_fails_is_named_and_all_others_are_done() -> None:
    engine, seen = RayEngine(), []
    with pytest.raises(StageError, match=r"'check'.*2 of 8.*\(number 3, 5\).*row 3 is wrong"):
        engine.run("check", fail_some, 8, total=8, on_progress=seen.append)
    assert (seen[-1].done, seen[-1].running, seen[-1].failed) == (6, 0, 2)


def test_a_disk_that_is_away_is_asked_again(tmp_path: Path) -> None:
    engine = RayEngine()
    engine.run("read", partial(fail_to_read_twice, tmp_path), 2, total=2)
    assert len(list(tmp_path.iterdir())) == 6


def test_a_task_that_kills_its_worker_is_given_up_in_the_end(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"1 of 3.*\(number 1\)"):
        RayEngine().run("die", partial(die, tmp_path), 3, total=30)
    assert len(list(tmp_path.glob("1-*"))) == 4  # and three retries


def test_blocks_and_labels_are_those_of_one_machine(data: Path, tmp_path: Path) -> None:
    config = BlockConfig(n_neighbors=5, block_rows=300)
    assigner = Assigner(8, 4)
    for name, engine in (("here", LocalEngine()), ("ray", RayEngine())):
        folder = tmp_path / name
        build_blocks(data, folder / "blocks", config, column="x", engine=engine)
        assign_parquet(assigner, data, folder / "labels", id_column="id", engine=engine)
    assert contents(tmp_path / "here") == contents(tmp_path / "ray")


@pytest.mark.costly("a whole run on two raylets")
def test_a_fit_on_a_cluster_is_that_of_one_machine(data: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n_neighbors": 8, "max_steps": 60, "max_size": "equal"}
    config = FitConfig.of("default", 4, n_init=1, **settings)
    options = {"column": "x", "device": "cpu"}
    here = fit_run(data, tmp_path / "here", config, **options, memory=1)
    assert here.mode == "disk"
    engine = RayEngine()
    found = fit_run(data, tmp_path / "ray", config, **options, memory=1, engine=engine)
    assert found.objective == here.objective
    for folder in ("blocks", "partition", "lesson"):
        assert contents(tmp_path / "here" / folder) == contents(tmp_path / "ray" / folder)
    assert (found.mode, found.n_samples, found.n_steps) == ("disk", 2100, here.n_steps)
    states = {stage.progress.stage: stage.state for stage in read_status(tmp_path / "ray")}
    assert set(states.values()) == {"done"}
    stages = {one.stage.replace("distil", "train") for one in plan_stages(Workload(2100, 8, 4))}
    assert stages - {"assign"} == set(states)
    labels = RowLabels(Folder(tmp_path / "ray/partition")).read(0, 2100)
    assert np.bincount(labels).tolist() == [525] * 4
    again = fit_run(data, tmp_path / "ray", config, **options, engine=engine)
    assert again.objective == found.objective


def test_arrays_and_missing_clusters_are_refused(tmp_path: Path) -> None:
    rows = np.zeros((100, 3), np.float32)
    with pytest.raises(InvalidInputError, match="path or URI that all nodes see"):
        fit_run(rows, tmp_path / "run", FitConfig(2), engine=RayEngine())


def slow(number: int, advance) -> None:
    time.sleep(0.4)
    advance(min(number, 1))


@pytest.mark.costly("the one Ray node that is killed in CI")
def test_a_node_that_dies_takes_no_task_with_it(cluster: LocalCluster) -> None:
    cluster.add_node()
    engine, seen = RayEngine(), []
    killer = threading.Timer(2.0, lambda: cluster.kill_node(-1))
    killer.start()
    engine.run("slow", slow, 31, total=30, on_progress=seen.append)
    killer.join()
    assert seen[-1].done == 30
