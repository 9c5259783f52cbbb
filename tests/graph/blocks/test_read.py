import json
from pathlib import Path

import numpy as np
import pytest

from prcut.errors import CorruptFileError, InvalidInputError
from prcut.graph.blocks.build import BlockConfig, build_blocks
from prcut.graph.blocks.read import Blocks
from prcut.runtime.folder import Folder

ROWS = np.random.default_rng(0).standard_normal((2000, 6)).astype(np.float32)
CONFIG = BlockConfig(n_neighbors=5, block_rows=300, halo=3)


def test_blocks_are_opened_by_number(tmp_path: Path) -> None:
    built, opened = build_blocks(ROWS, tmp_path, CONFIG), Blocks(Folder(tmp_path))
    assert opened.records == built.records
    assert len(list(opened)) == len(opened) == len(built)
    np.testing.assert_array_equal(opened.open(3).rows, built.open(3).rows)
    with pytest.raises(InvalidInputError, match=r"holds no finished result .* run build_blocks"):
        Blocks(Folder(tmp_path / "absent"))
    assert not (tmp_path / "absent").exists()


def test_newer_or_broken_manifest_is_refused(tmp_path: Path) -> None:
    build_blocks(ROWS, tmp_path, CONFIG)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["plan"]["format"] = 99
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidInputError, match="has format 99, this version reads up to 2"):
        Blocks(Folder(tmp_path))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(CorruptFileError, match=r"manifest\.json lacks 'plan'"):
        Blocks(Folder(tmp_path))
