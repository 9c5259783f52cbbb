import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut import Assigner, PRCut
from prcut.errors import CorruptFileError
from prcut.pipeline.config import FitConfig
from prcut.pipeline.run import fit_run
from prcut.pipeline.saved_fit import describe_tree, load_fit, parse_fit
from prcut.search.merge import MergeTree
from prcut.training.assigner.saved import LoadedModel

ROWS = make_blobs(300, 4, centers=5, cluster_std=2.0, random_state=0)[0].astype(np.float32)
TREE = MergeTree(np.array([[0, 1], [2, 3]]), np.array([0.25, 0.5]))


def test_the_merge_tree_survives_save_and_load(tmp_path: Path) -> None:
    model = PRCut(5, max_steps=20, random_state=0).fit(ROWS)
    model.save(tmp_path)
    loaded = PRCut.load(tmp_path)
    np.testing.assert_array_equal(loaded.merge_tree_.children, model.merge_tree_.children)
    np.testing.assert_array_equal(loaded.merge_tree_.costs, model.merge_tree_.costs)
    np.testing.assert_array_equal(loaded.merge_tree_.labels(2), model.merge_tree_.labels(2))


@pytest.mark.parametrize("memory", [None, 1])
@pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
def test_a_run_writes_its_merge_tree(tmp_path: Path, memory: int | None) -> None:
    config = FitConfig.of("default", 5, n_neighbors=10, max_steps=20, n_init=1)
    fit_run(ROWS, tmp_path, config, device="cpu", memory=memory)
    tree = PRCut.load(tmp_path / "model").merge_tree_
    assert tree.children.shape == (4, 2)
    assert len(np.unique(tree.labels(3))) == 3


def parse(**description: Any) -> dict[str, Any]:
    return parse_fit(LoadedModel(Assigner(4, 3), description)).fitted


def test_a_description_is_read_back() -> None:
    content = json.loads(json.dumps({"fitted": {"objective_": 0.5}, **describe_tree(TREE)}))
    fitted = parse(**content)
    assert fitted["objective_"] == 0.5
    np.testing.assert_array_equal(fitted["merge_tree_"].children, TREE.children)
    assert parse(**describe_tree(None)) == {}
    assert parse(fitted={"labels_": [1], "__class__": "x"}) == {}


@pytest.mark.parametrize(
    "content",
    [
        {"children": [[0, 1]], "costs": [0.1]},
        {"children": [[0, 1], [2, 9]], "costs": [0.1, 0.2]},
        {"children": [[0, -1], [2, 3]], "costs": [0.1, 0.2]},
        {"children": [[0, 1], [2, 3]], "costs": [0.1, float("inf")]},
        {"children": "x", "costs": [0.1, 0.2]},
        {"costs": []},
        [1],
    ],
)
def test_forged_trees_are_refused(content: Any) -> None:
    with pytest.raises(CorruptFileError):
        parse(merge_tree=content)


def test_labels_of_another_kind_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    model = PRCut(5, max_steps=20, random_state=0).fit(ROWS)
    model.save(tmp_path)
    save_file({"labels": np.zeros((3, 3))}, tmp_path / "fit.safetensors")
    with pytest.raises(CorruptFileError, match=r"fit\.safetensors"):
        load_fit(tmp_path)
