"""The search of a graph in blocks: parts that add up, levels, rounds, and the same bytes always."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from prcut.pipeline.config import FitConfig
from prcut.pipeline.outofcore.blocks import Blocks
from prcut.pipeline.outofcore.build_blocks import BlockConfig, build_blocks
from prcut.pipeline.outofcore.coarsen import coarsen, join_stranded
from prcut.pipeline.outofcore.link import LinkedBlocks, link_blocks
from prcut.pipeline.outofcore.parts import Posts, join_parts
from prcut.pipeline.outofcore.row_labels import RowLabels
from prcut.pipeline.outofcore.search_blocks import BlockSearch
from prcut.pipeline.run import fit_run
from prcut.runtime.engine import LocalEngine, Task
from prcut.runtime.folder import Folder
from prcut.runtime.progress import OnProgress
from prcut.search.fragments import contract
from prcut.search.partition import find_partition

STAGES = (
    *("scatter", "gather", "link", "join", "meet", "fragments", "contract", "search", "refine"),
    *("measure", "price", "score", "lesson", "send labels", "sort labels"),
)


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rows, labels = make_blobs(2400, 6, centers=4, cluster_std=4.0, random_state=1)
    return rows.astype(np.float32), labels


def options(n_rows: int) -> dict[str, Any]:
    return {"total": n_rows, "on_progress": None}


def linked(rows: np.ndarray, path: Path, **given: Any) -> tuple[Blocks, LinkedBlocks]:
    config = BlockConfig(**{"n_neighbors": 8, "block_rows": 300, "halo": 3, **given})
    blocks = build_blocks(rows, path / "blocks", config)
    how = LocalEngine(), options(len(rows))
    return blocks, link_blocks(blocks, Folder(path / "level-0"), "mean", *how)


def row_numbers(rows: Posts) -> np.ndarray:
    return np.concatenate([rows.own(number) for number in range(rows.level.n_parts)])


@pytest.mark.parametrize("given", [{}, {"anchors": 0.2}, {"block_rows": 5000}])
def test_parts_add_up_to_the_graph_of_all_blocks(
    tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray], given: dict[str, Any]
) -> None:
    rows, _ = blobs
    blocks, found = linked(rows, tmp_path, **given)
    check_sum(blocks, found, len(rows))
    if given.get("anchors"):  # rows that nobody found are no nodes
        assert found.level.first_nodes()[-1] < len(rows)


def check_sum(blocks: Blocks, found: LinkedBlocks, n_rows: int) -> None:
    expected = np.zeros((n_rows, n_rows))
    for block in blocks:
        at = np.asarray(block.rows)
        expected[np.ix_(at, at)] += block.graph("mean").to_scipy().toarray()
    node = row_numbers(found.rows)
    joined = np.zeros((n_rows, n_rows))
    joined[np.ix_(node, node)] = join_parts(found.level).links.toarray()
    np.testing.assert_array_equal(joined, expected)


def test_coarse_levels_are_those_of_the_joined_graph(
    tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    _, (level, _) = linked(blobs[0], tmp_path)
    joined = join_parts(level)
    for number in (1, 2):
        how = LocalEngine(), options(len(blobs[0]))
        coarse, fragments = coarsen(level, Folder(tmp_path / f"level-{number}"), 0, *how)
        first = coarse.first_nodes()
        numbers = range(level.n_parts)
        groups = np.concatenate([first[one] + fragments.own(one) for one in numbers])
        joined = contract(csr_array(joined.links), groups, sizes=joined.sizes)
        found = join_parts(coarse)
        np.testing.assert_array_equal(found.links.toarray(), joined.links.toarray())
        np.testing.assert_array_equal(found.sizes, joined.sizes)
        assert found.sizes.max() <= 8**number
        level = coarse


def test_nodes_whose_edges_all_lead_outside_join_by_the_nearest() -> None:
    # own nodes 0 and 1 are linked; 7 outside is nearest to 2, 3 and 6, 8 to 4, and 5 has no edges
    links = np.zeros((7, 9))
    links[[2, 3, 6], 7] = 2.0
    links[[2, 3], 8] = 1.0
    links[4, [7, 8]] = 1.0, 3.0
    links[[0, 1], [1, 0]] = 9.0
    groups = np.array([0, 0, 1, 2, 3, 4, 5])
    assert join_stranded(csr_array(links), groups, 8).tolist() == [0, 0, 1, 1, 2, 3, 1]
    assert join_stranded(csr_array(links), groups, 2).tolist() == [0, 0, 1, 1, 2, 3, 4]
    assert join_stranded(csr_array(links)[:0], groups[:0], 2).tolist() == []


@pytest.mark.costly("compares searches over blocks with one in memory")
def test_blocks_are_searched_as_well_as_memory(
    tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]
) -> None:
    rows, labels = blobs
    blocks = build_blocks(rows, tmp_path / "blocks", BlockConfig(n_neighbors=8, block_rows=300))
    config = FitConfig.of("default", 4, n_init=1, balance_weight=0.5, n_jobs=1)
    how = LocalEngine(), options(len(rows))
    for most_nodes in (10**6, 100):  # one coarse level, and two
        folder = Folder(tmp_path / f"search-{most_nodes}")
        search = BlockSearch(folder, config, most_nodes, *how)
        found = search.run(blocks)
        assert ("level-2" in folder.names(folders=True)) == (most_nodes == 100)
        level = found.rows.level
        partition = np.concatenate(
            [found.state.labels.own(number) for number in range(level.n_parts)]
        )
        assert adjusted_rand_score(labels[row_numbers(found.rows)], partition) > 0.8
        joined = join_parts(level)
        expected = find_partition(joined, 4, balance_weight=0.5).objective
        assert found.state.objective <= 1.02 * expected
        score = search.score(found)
        assert score.objective == pytest.approx(found.state.objective)
        assert score.merge_tree is not None
        assert score.cluster_sizes.tolist() == np.bincount(partition).tolist()


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
    # each call resumes what the last one left, and rounds are struck in their midst, too
    for stage, after in (*((stage, 0) for stage in STAGES[:9]), ("refine", 12), ("measure", 7)):
        with pytest.raises(StruckError, match=stage):
            fit_run(rows, run, config, engine=StruckEngine(stage, after), **how)
    for stage in STAGES[10:]:
        with pytest.raises(StruckError, match=stage):
            fit_run(rows, run, config, engine=StruckEngine(stage), **how)
    fit_run(rows, run, config, **how)
    assert digests(run) == expected
    found = RowLabels(Folder(tmp_path / "calm/partition")).read(0, len(rows))
    assert adjusted_rand_score(labels, found) > 0.7
