"""Scanpy and Toponymy, really run, on real cells and texts."""

import json
import re
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from prcut import PRCut
from prcut.errors import InvalidInputError
from prcut.ui.plugins import TopicClusterer, cluster_cells

of_others = pytest.mark.filterwarnings("ignore")  # warnings of their own dependencies


@pytest.fixture
def cells() -> Any:
    scanpy = pytest.importorskip("scanpy", reason="needs scanpy")
    return scanpy.datasets.pbmc68k_reduced()  # 700 cells, in the package


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


@of_others
def test_graphs_of_cells_by_their_names(cells: Any) -> None:
    given = cells.obsp["connectivities"]
    cells.obsp["mine"] = given
    cells.uns["other"] = {"connectivities_key": "mine"}
    found = []
    for where in ({}, {"obsp": "mine"}, {"neighbors_key": "other"}, {"adjacency": given.tocoo()}):
        cluster_cells(cells, PRCut(5, random_state=0), **where)
        found.append(cells.obs["prcut"].tolist())
    assert found[0] == found[1] == found[2] == found[3]
    model = PRCut(5, random_state=0)
    with pytest.raises(InvalidInputError, match="one of obsp, neighbors_key and adjacency"):
        cluster_cells(cells, model, obsp="mine", adjacency=given)
    with pytest.raises(InvalidInputError, match="obsp has no 'theirs', only"):
        cluster_cells(cells, model, obsp="theirs")
    with pytest.raises(InvalidInputError, match="no cell has one of"):
        cluster_cells(cells, model, restrict_to=("bulk_labels", ["nobody"]))


class Words:
    """Embeds texts by fixed random vectors of their words."""

    def encode(self, texts: list[str], **_: Any) -> np.ndarray:
        def vector(word: str) -> np.ndarray:
            return np.random.default_rng(list(word.encode())).normal(size=384)

        words = [re.findall(r"\w+", text.lower()) or ["nothing"] for text in texts]
        return np.stack([np.mean([vector(word) for word in some], axis=0) for some in words])


@of_others
def test_toponymy_names_the_layers(bank_texts: dict[str, Any]) -> None:
    toponymy = pytest.importorskip("toponymy", reason="needs toponymy")
    from toponymy.llm_wrappers import LLMWrapper

    asked = []

    class Namer(LLMWrapper):  # type: ignore[misc, valid-type]
        """Stands for a language model: numbers the topics that it is asked to name."""

        def _call_llm(self, prompt: Any, *_: Any) -> str:
            asked.append(prompt)
            return json.dumps({"topic_name": f"Topic {len(asked)}", "topic_specificity": 0.5})

        _call_llm_with_system_prompt = _call_llm

    model = PRCut((4, 12), metric="cosine", random_state=0)
    clusterer = TopicClusterer(model)
    topics = toponymy.Toponymy(Namer(), Words(), clusterer, verbose=False)
    texts, embeddings = bank_texts["texts"], bank_texts["embeddings"]
    topics.fit(list(texts), embeddings, embeddings)
    assert len(topics.cluster_layers_) == len(model.layer_sizes_)
    names = topics.topic_name_vectors_[0]
    assert adjusted_rand_score(names, model.labels_) == 1
    assert [len(layer) for layer in topics.topic_names_] == model.layer_sizes_
    assert topics.cluster_tree_ == model.cluster_tree_
    assert len(asked) >= model.n_clusters_
    assert "Topic" in str(topics.topic_tree_)
