"""The capacity model: what it counts is what a run moves."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.harness.usage import MeasuredEngine

from prcut.graph.blocks.build import BlockConfig, build_blocks
from prcut.graph.blocks.read import join_blocks, save_joined
from prcut.graph.neighbors import find_nearest, find_neighbors
from prcut.runs.plan import (
    COMPARISONS,
    Workload,
    plan_stages,
)
from prcut.runtime.engine import LocalEngine
from prcut.runtime.folder import Folder


@pytest.mark.costly("30,000 rows: of fewer the model says little")
def test_bytes_written_and_read_are_those_of_the_model(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(30_000, 32)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    # modules that are imported on the way would be counted as bytes read
    build_blocks(rows[:300], tmp_path / "few", BlockConfig(block_rows=100))
    engine = MeasuredEngine(LocalEngine())
    # what a run on disk keeps: enough to distil, here all rows
    config = BlockConfig(block_rows=3_000, kept=450 * 256)
    blocks = build_blocks(tmp_path / "rows.npy", tmp_path / "blocks", config, engine=engine)

    def join(_: int, advance: Callable[[int], None]) -> None:
        save_joined(Folder(tmp_path / "graph"), join_blocks(blocks, "mean", advance), "key")

    engine.run("join", join, 1, total=30_000)
    work = Workload(30_000, 32, 10, block_rows=3_000)
    planned = {stage.stage: stage for stage in plan_stages(work)}
    for stage, used in engine.usage.items():
        assert used.written == pytest.approx(planned[stage].written, rel=0.15), stage
        if stage in ("gather", "join"):  # the system counts no mapped files
            assert used.read == pytest.approx(planned[stage].read, rel=0.15), stage


def test_costs_grow_with_what_they_are_of() -> None:
    small, large = (Workload(n, 64, 100) for n in (10**7, 10**8))
    for one, ten in zip(plan_stages(small), plan_stages(large), strict=True):
        if one.stage not in ("lesson", "distil"):
            assert 7 < ten.read / one.read < 11
        assert ten.core_seconds >= one.core_seconds


@pytest.mark.weekly("a ratio of CPU times")
def test_neighbors_cost_what_their_search_takes() -> None:
    """Of rows with structure, in units of one comparison on this machine."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 24))[rng.integers(100, size=30_000)]
    wide = (rows + 0.5 * rng.normal(size=rows.shape)) @ rng.normal(size=(24, 256))
    rows = (wide + 0.5 * rng.normal(size=wide.shape)).astype(np.float32)
    for _ in range(2):  # the first calls import
        start = time.process_time()
        find_neighbors(rows, 15)
        middle = time.process_time()
        find_nearest(rows[:2_000], rows, 15, by_product=False)
        of_pair = (time.process_time() - middle) / (2_000 * 30_000)
    assert COMPARISONS / 5 < (middle - start) / 30_000**1.5 / of_pair < 4 * COMPARISONS
