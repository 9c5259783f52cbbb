from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs

from prcut.fit.config import FitConfig
from prcut.graph.blocks.read import Blocks
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.runs.explain import explain_run
from prcut.runs.labels import RowLabels
from prcut.runs.run import fit_run
from prcut.runs.update import FinishedRun
from prcut.runtime.folder import Folder
from prcut.search.explain import find_reasons

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
ROWS, _ = make_blobs(1200, 3, centers=4, cluster_std=3.0, random_state=0)
ASKED = [3, 700, 701, 1199]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in memory and one on disk, of rows with names."""
    folder = tmp_path_factory.mktemp("runs")
    names = pa.array([f"r{number}" for number in range(len(ROWS))])
    table = pa.table({"id": names, "e": list(ROWS.astype(np.float32))})
    pq.write_table(table, folder / "rows.parquet")
    config = FitConfig.of("default", 4, n_neighbors=10, max_steps=50, n_init=1)
    for name, memory in (("memory", None), ("disk", 1000)):
        where = f"{folder}/rows.parquet", folder / name, config
        fit_run(*where, id_column="id", memory=memory, device="cpu")
    return folder


def whole_graph(path: Path) -> SimilarityGraph:
    """Return the sum of all blocks, which fits in memory here."""
    total = np.zeros((len(ROWS), len(ROWS)))
    for block in Blocks(Folder(path / "blocks")):
        links = block.links("mean").tocoo()
        np.add.at(total, (block.rows[links.row], block.rows[links.col]), links.data / 2)
    return SimilarityGraph.from_scipy(total + total.T)


def test_blocks_on_disk_say_what_the_whole_graph_says(runs: Path) -> None:
    run = FinishedRun.open(runs / "disk")
    assert len(Blocks(Folder(runs / "disk/blocks"))) > 1
    labels = RowLabels(Folder(runs / "disk/partition")).read(0, len(ROWS)).astype(np.int64)
    expected = find_reasons(whole_graph(runs / "disk"), labels, 4, run.balance_weight, ASKED)
    found = explain_run(runs / "disk", ASKED)
    assert found.rows.tolist() == ASKED
    for one, other in zip(found.reasons, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)


def test_rows_are_found_by_id(runs: Path) -> None:
    by_number, by_id = (
        explain_run(runs / "memory", ASKED),
        explain_run(runs / "memory", ids=["r701", "r3", "r1199", "r700"]),
    )
    assert by_id.ids == ["r3", "r700", "r701", "r1199"]
    assert by_id.reasons.explain() == by_number.reasons.explain()
    assert all(" in cluster " in text for text in by_number.reasons.explain())
