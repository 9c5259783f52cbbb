import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut import Assigner, PRCut
from prcut.errors import CorruptFileError
from prcut.fit.saved_fit import _check_arrays, describe_tree, load_fit, parse_fit
from prcut.search.merge import MergeTree
from prcut.training.assigner.saved import LoadedModel

ROWS = make_blobs(300, 4, centers=5, cluster_std=2.0, random_state=0)[0].astype(np.float32)
TREE = MergeTree(np.array([[0, 1], [2, 3]]), np.array([0.25, 0.5]))


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
    ("name", "values"),
    [
        ("labels", np.zeros((2, 2), np.int64)),
        ("labels", np.array([0, 3])),
        ("probabilities", np.array([0.5, np.nan])),
        ("probabilities", np.ones(3)),
        ("keys", np.zeros(2)),
        ("stability", np.zeros(2)),
        ("violated_links", np.zeros((1, 3), np.int64)),
        ("reasons.runner_up", np.array([-2, 0])),
    ],
)
def test_arrays_of_another_kind_or_shape_are_rejected(name: str, values: np.ndarray) -> None:
    arrays = {"labels": np.array([0, 2]), "probabilities": np.ones(2), "stability": np.ones(3)}
    _check_arrays(arrays, 3)
    with pytest.raises(ValueError, match=f"{name} of shape"):
        _check_arrays(arrays | {name: values}, 3)


def test_the_merge_tree_is_saved_and_labels_of_another_kind_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    model = PRCut(5, max_steps=20, random_state=0).fit(ROWS)
    model.save(tmp_path)
    loaded = PRCut.load(tmp_path)
    np.testing.assert_array_equal(loaded.merge_tree_.children, model.merge_tree_.children)
    save_file({"labels": np.zeros((3, 3))}, tmp_path / "fit.safetensors")
    with pytest.raises(CorruptFileError, match=r"fit\.safetensors"):
        load_fit(tmp_path)
