"""The stages of a run on disk: the search is that of memory, and resumes with the same bytes."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from prcut.fit.config import FitConfig
from prcut.graph.blocks.read import open_joined
from prcut.runs.labels import RowLabels, read_score
from prcut.runs.run import fit_run
from prcut.runtime.engine import LocalEngine, Task
from prcut.runtime.folder import Folder
from prcut.runtime.progress import OnProgress
from prcut.search.fragments import CoarseGraph
from prcut.search.partition import find_partition

STAGES = "scatter", "gather", "join", "search", "lesson"


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rows, labels = make_blobs(2400, 6, centers=4, cluster_std=4.0, random_state=1)
    return rows.astype(np.float32), labels


@pytest.mark.costly("a run on disk, compared with a search in memory")
def test_the_search_is_that_of_memory(tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = blobs
    config = FitConfig.of("default", 4, n_init=4, n_neighbors=8, max_steps=30, n_jobs=1)
    result = fit_run(rows, tmp_path, config, memory=1000, device="cpu")
    assert result.mode == "disk"
    joined = open_joined(Folder(tmp_path / "graph"))
    graph = CoarseGraph.of_arrays(*joined[1:])
    graph = graph._replace(links=graph.links.astype(np.float64))
    expected = find_partition(graph, 4, n_init=4)
    partition = Folder(tmp_path / "partition")
    found = RowLabels(partition).read(0, len(rows))[joined.rows]
    assert np.array_equal(found, expected.labels)
    score, balance_weight = read_score(partition)
    assert balance_weight == expected.balance_weight
    assert score.objective == pytest.approx(expected.objective)
    assert score.merge_tree is not None
    assert score.cluster_sizes.tolist() == np.bincount(found).tolist()
    assert adjusted_rand_score(labels[joined.rows], found) > 0.8


class StruckError(RuntimeError):
    """What a struck engine raises."""


class StruckEngine(LocalEngine):
    """Fails once, after ``after`` tasks of a stage."""

    def __init__(self, stage: str | None, after: int = 0) -> None:
        self.stage, self.after, self.seen = stage, after, set[str]()

    def run(
        self, stage: str, task: Task, n_tasks: int, *, total: int, on_progress: OnProgress = None
    ) -> None:
        self.seen.add(stage)

        def struck(number: int, advance: Callable[[int], None]) -> None:
            if stage == self.stage:
                if self.after == 0:
                    raise StruckError(stage)
                self.after -= 1
            task(number, advance)

        super().run(stage, struck, n_tasks, total=total, on_progress=on_progress)


def digests(run: Path) -> dict[str, str]:
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_file() and "status/" not in name and path.name != "config.json":
            content = path.read_bytes()
            if path.name == "result.json":
                content = json.dumps({**json.loads(content), "seconds": 0}).encode()
            found[name] = hashlib.sha256(content).hexdigest()
    return found


@pytest.mark.costly("two runs on disk, one of them resumed in every stage")
def test_a_run_struck_in_every_stage_ends_with_the_same_bytes(
    tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    rows, labels = blobs
    settings: dict[str, Any] = {"n_neighbors": 8, "max_steps": 30, "outliers": 0.05}
    config = FitConfig.of("default", 4, n_init=1, max_size="equal", **settings)
    how: dict[str, Any] = {"memory": 1000, "device": "cpu"}
    calm = StruckEngine(None)
    fit_run(rows, tmp_path / "calm", config, engine=calm, **how)
    assert calm.seen == set(STAGES)
    expected = digests(tmp_path / "calm")
    assert "model/fit.safetensors" in expected  # the rows that others are compared with
    run = tmp_path / "run"
    # each call resumes what the last one left
    for stage, after in (("scatter", 0), ("gather", 1), *((stage, 0) for stage in STAGES[2:])):
        with pytest.raises(StruckError, match=stage):
            fit_run(rows, run, config, engine=StruckEngine(stage, after), **how)
    fit_run(rows, run, config, **how)
    assert digests(run) == expected
    found = RowLabels(Folder(tmp_path / "calm/partition")).read(0, len(rows))
    assert adjusted_rand_score(labels, found) > 0.7
