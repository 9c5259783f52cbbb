import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.pipeline.outofcore.blocks import open_blocks
from prcut.pipeline.outofcore.build_blocks import BlockConfig, build_blocks
from prcut.runtime.folder import Folder

ROWS = np.random.default_rng(0).standard_normal((2000, 6)).astype(np.float32)
CONFIG = BlockConfig(n_neighbors=5, block_rows=300, halo=3)


def test_blocks_are_opened_by_number(tmp_path: Path) -> None:
    built, opened = build_blocks(ROWS, tmp_path, CONFIG), open_blocks(tmp_path)
    assert opened.records == built.records
    assert len(list(opened)) == len(opened) == len(built)
    np.testing.assert_array_equal(opened[3].rows, built[3].rows)
    with pytest.raises(InvalidInputError, match=r"holds no finished result .* run build_blocks"):
        open_blocks(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_graph_of_a_block_is_its_directed_edges_halved(tmp_path: Path) -> None:
    block = build_blocks(ROWS, tmp_path, CONFIG)[0]
    directed = np.zeros((len(block.rows), len(block.rows)))
    for anchor, neighbors in zip(block.anchors, block.neighbors, strict=True):
        directed[anchor, neighbors] = 1
    dense = block.graph().weight.to_dense().numpy()
    np.testing.assert_allclose(dense, (directed + directed.T) / 2)


def test_kept_rows_must_be_core_rows(tmp_path: Path) -> None:
    blocks = build_blocks(ROWS, tmp_path, replace(CONFIG, kept=200))
    record = blocks.records[1]
    kept = np.load(tmp_path / "block-00001/kept.npy")
    kept[0] = record["n_core"]
    Folder(tmp_path / "block-00001").seal("forged.json", {"kept.npy": kept}, {})
    forged = json.loads((tmp_path / "block-00001/forged.json").read_text())["files"]["kept.npy"]
    record["files"]["kept.npy"] = forged
    with pytest.raises(CorruptFileError, match=r"block-00001 .*: kept lie in"):
        blocks.open(1)


def test_newer_or_broken_manifest_is_refused(tmp_path: Path) -> None:
    build_blocks(ROWS, tmp_path, CONFIG)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["plan"]["format"] = 99
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidInputError, match="has format 99, this version reads up to 2"):
        open_blocks(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(CorruptFileError, match=r"manifest\.json lacks 'plan'"):
        open_blocks(tmp_path)
