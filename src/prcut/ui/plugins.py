"""What other tools ask of a clustering: a function for Scanpy, a clusterer for Toponymy.

Both fit an estimator that they are given, so that its settings are the only ones. BERTopic needs
nothing: pass a :class:`prcut.PRCut` as its ``hdbscan_model``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from prcut.errors import InvalidInputError

_CONNECTIVITIES = "connectivities"


def cluster_cells(
    adata: Any,
    model: Any,
    *,
    use_rep: str | None = None,
    obsp: str | None = None,
    neighbors_key: str | None = None,
    adjacency: Any = None,
    restrict_to: tuple[str, Sequence[str]] | None = None,
    key_added: str = "prcut",
    copy: bool = False,
) -> Any:
    """Cluster the cells of an AnnData object, as ``scanpy.tl.leiden`` does.

    Labels are categories of strings in ``adata.obs[key_added]``, their probabilities are in
    ``adata.obs[key_added + "_probability"]``, parameters and layers in ``adata.uns[key_added]``.

    Parameters
    ----------
    adata : AnnData
    model : PRCut
        Is fitted here, and predicts the cells of other experiments afterwards.
    use_rep : str, optional
        Features in ``adata.obsm``, or ``"X"``; by default ``"X_pca"`` where it is there.
    obsp, neighbors_key, adjacency : optional
        The graph: a key of ``adata.obsp``, what ``scanpy.pp.neighbors`` was told as ``key_added``,
        or a sparse matrix. By default what ``scanpy.pp.neighbors`` found, if it was run; neighbours
        of the features otherwise.
    restrict_to : (str, sequence of str), optional
        Column of ``adata.obs`` and the categories whose cells are clustered; others keep theirs.
    key_added : str
    copy : bool
        Return a changed copy, and leave ``adata`` as it was.
    """
    import pandas as pd
    from natsort import natsorted

    adata = adata.copy() if copy else adata
    labels = np.full(adata.n_obs, "", dtype=object)
    chosen = np.ones(adata.n_obs, dtype=bool)
    if restrict_to is not None:
        column, groups = restrict_to
        _check_key(adata.obs, column, "obs")
        labels = adata.obs[column].astype(str).to_numpy(dtype=object)
        chosen = adata.obs[column].isin(list(groups)).to_numpy()
        if not chosen.any():
            raise InvalidInputError(f"no cell has one of {list(groups)} in obs[{column!r}].")
    graph = _find_graph(adata, obsp, neighbors_key, adjacency)
    graph = None if graph is None else csr_array(graph)[chosen][:, chosen]
    model.fit(_features(adata, use_rep)[chosen], graph=graph)
    prefix = "" if restrict_to is None else f"{'-'.join(restrict_to[1])},"
    labels[chosen] = [f"{prefix}{label}" for label in model.labels_]
    adata.obs[key_added] = pd.Categorical(labels, categories=natsorted(set(labels)))
    probabilities = np.full(adata.n_obs, np.nan, dtype=np.float32)
    probabilities[chosen] = model.probabilities_
    adata.obs[f"{key_added}_probability"] = probabilities
    adata.uns[key_added] = {
        "params": {name: _storable(value) for name, value in model.get_params().items()},
        "n_clusters": model.n_clusters_,
        "layer_sizes": np.array(model.layer_sizes_),
        "ratio_cut": model.ratio_cut_,
    }
    return adata if copy else None


def _features(adata: Any, use_rep: str | None) -> Any:
    if use_rep is None:
        use_rep = "X_pca" if "X_pca" in adata.obsm else "X"
    if use_rep == "X":
        return adata.X
    _check_key(adata.obsm, use_rep, "obsm")
    return adata.obsm[use_rep]


def _find_graph(adata: Any, obsp: str | None, neighbors_key: str | None, adjacency: Any) -> Any:
    if sum(given is not None for given in (obsp, neighbors_key, adjacency)) > 1:
        raise InvalidInputError("give one of obsp, neighbors_key and adjacency.")
    if adjacency is not None:
        return adjacency
    if neighbors_key is not None:
        _check_key(adata.uns, neighbors_key, "uns")
        obsp = str(adata.uns[neighbors_key]["connectivities_key"])
    elif obsp is None:
        return adata.obsp.get(_CONNECTIVITIES)
    _check_key(adata.obsp, obsp, "obsp")
    return adata.obsp[obsp]


def _check_key(mapping: Any, key: str, name: str) -> None:
    if key not in mapping:
        raise InvalidInputError(f"adata.{name} has no {key!r}, only {sorted(map(str, mapping))}.")


def _storable(value: Any) -> Any:
    """Return a parameter as an .h5ad file holds it."""
    return value if isinstance(value, bool | int | float | str) else str(value)


class TopicClusterer:
    """Gives Toponymy the layers of a clustering: ``Toponymy(clusterer=TopicClusterer(model))``.

    Embeddings are clustered as they are: Toponymy's ``clusterable_vectors``, which density needs in
    few dimensions, are not looked at.

    Parameters
    ----------
    model : PRCut
        With ``n_clusters="auto"`` it finds layers; with a number there is one.

    Attributes
    ----------
    cluster_layers_ : list of Toponymy's ClusterLayer, the finest first
    cluster_tree_ : dict
        The clusters in every cluster of the layer above, as (layer, cluster).
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(
        self,
        clusterable_vectors: Any,  # noqa: ARG002
        embedding_vectors: np.ndarray,
        layer_class: Any,
        **layer_options: Any,
    ) -> TopicClusterer:
        """Cluster the embeddings, and make a layer of Toponymy's of every layer."""
        self.model.fit(embedding_vectors)
        self.cluster_layers_ = [
            layer_class(labels, _centroids(labels, embedding_vectors), layer_id=i, **layer_options)
            for i, labels in enumerate(self.model.cluster_layers_)
        ]
        self.cluster_tree_ = self.model.cluster_tree_
        return self

    def fit_predict(self, *args: Any, **options: Any) -> tuple[list[Any], dict[Any, Any]]:
        """Do what :meth:`fit` does; return layers and tree."""
        self.fit(*args, **options)
        return self.cluster_layers_, self.cluster_tree_


def _centroids(labels: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return np.stack([vectors[labels == label].mean(0) for label in range(labels.max() + 1)])
