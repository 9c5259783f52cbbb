"""Ids of clusters, which stay theirs from one update to the next."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prcut.runtime.folder import whole_number


class ClusterIds(NamedTuple):
    """What clusters are called; an id is never given to a second cluster.

    Attributes
    ----------
    ids : int64 array, shape (n_clusters,)
    n_given : int
        Ids below this were given to some cluster, which may be no more.
    """

    ids: np.ndarray
    n_given: int

    @classmethod
    def first(cls, n_clusters: int) -> ClusterIds:
        """Return those of a first fit."""
        return cls(np.arange(n_clusters), n_clusters)

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the clusters with these ids, −1 where there is none any more."""
        order = np.argsort(self.ids)
        place = order[np.searchsorted(self.ids, ids, sorter=order).clip(max=len(order) - 1)]
        return np.where(self.ids[place] == ids, place, -1)

    @property
    def are_first(self) -> bool:
        """Whether these are the ids of a first fit."""
        n_clusters = len(self.ids)
        return self.n_given == n_clusters and np.array_equal(self.ids, np.arange(n_clusters))

    def describe(self) -> dict[str, Any]:
        """Return the ids in JSON's types."""
        return {"cluster_ids": self.ids.tolist(), "n_ids": self.n_given}

    @classmethod
    def parse(cls, description: Any, n_clusters: int) -> ClusterIds:
        """Return what :meth:`describe` described, which a stranger may have written.

        >>> ClusterIds.parse({"cluster_ids": [0, 5], "n_ids": 6}, 2).ids.tolist()
        [0, 5]
        """
        if "cluster_ids" not in description:
            return cls.first(n_clusters)
        ids = np.array([whole_number(one) for one in description["cluster_ids"]], np.int64)
        n_given = whole_number(description["n_ids"])
        if len(ids) != n_clusters or len(np.unique(ids)) != n_clusters or ids.max() >= n_given:
            raise ValueError(f"{len(ids)} ids of {n_clusters} clusters")
        return cls(ids, n_given)
