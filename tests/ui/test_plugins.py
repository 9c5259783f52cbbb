"""Scanpy, really run on real cells, and what Toponymy calls."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from prcut import PRCut
from prcut.ui.plugins import TopicClusterer, cluster_cells

of_others = pytest.mark.filterwarnings("ignore")  # warnings of their own dependencies


@pytest.fixture
def cells() -> Any:
    scanpy = pytest.importorskip("scanpy", reason="needs scanpy")
    return scanpy.datasets.pbmc68k_reduced()  # 700 cells, in the package


@pytest.mark.costly("Scanpy, really run, on real cells")
@of_others
def test_cells_are_clustered_as_scanpy_does(cells: Any, tmp_path: Any) -> None:
    model = PRCut(8, random_state=0)
    assert cluster_cells(cells, model) is None
    column = cells.obs["prcut"]
    assert column.cat.categories.tolist() == [str(number) for number in range(8)]
    assert (column.astype(int) == model.labels_).all()
    # the graph is the one that scanpy.pp.neighbors found
    direct = PRCut(8, random_state=0).fit(cells.obsm["X_pca"], graph=cells.obsp["connectivities"])
    assert (direct.labels_ == model.labels_).all()
    assert cells.uns["prcut"]["n_clusters"] == 8
    assert 0 < cells.obs["prcut_probability"].min() <= cells.obs["prcut_probability"].max() <= 1
    file = tmp_path / "cells.h5ad"
    cells.write_h5ad(file)  # all that was added can be saved
    import anndata

    assert anndata.read_h5ad(file).obs["prcut"].tolist() == column.tolist()


@of_others
def test_cells_of_some_groups_are_clustered_further(cells: Any) -> None:
    cluster_cells(cells, PRCut(4, random_state=0), use_rep="X_pca")
    before = cells.obs["prcut"].astype(str)
    changed = cluster_cells(
        cells,
        PRCut(2, random_state=0),
        restrict_to=("prcut", ["1"]),
        key_added="finer",
        copy=True,
    )
    assert "finer" not in cells.obs
    finer = changed.obs["finer"].astype(str)
    inside = before == "1"
    assert set(finer[inside]) == {"1,0", "1,1"}
    assert (finer[~inside] == before[~inside]).all()
    assert changed.obs["finer_probability"].isna().sum() == (~inside).sum()


def test_topics_have_the_layers_of_the_model() -> None:
    """Called as Toponymy calls it, which would compile for a minute."""
    rows, _ = make_blobs(200, 8, centers=6, cluster_std=0.7, random_state=0)
    model = PRCut((4, 6), random_state=0)
    layers, tree = TopicClusterer(model).fit_predict(None, rows, lambda *made, **by: (*made, by))
    assert len(layers) == len(model.layer_sizes_)
    assert tree == model.cluster_tree_
    labels, centroids, options = layers[0]
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_allclose(centroids[1], rows[labels == 1].mean(0))
    assert options == {"layer_id": 0}
