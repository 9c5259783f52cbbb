"""What a move costs besides the change of J: preferred clusters, limits, rows kept apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

# the price of a fixed row, to fragments: far above any objective, and finite so that it adds up
_FIXED = 1e6


class Prices(NamedTuple):
    """Prices of the nodes of a graph, each in units of the objective; None where there are none.

    Attributes
    ----------
    preferred : int64 array, shape (n_nodes,)
        The cluster that a node is to have, −1 for any.
    price : float64 array, shape (n_nodes,)
        What the objective rises by while a node is elsewhere; infinite for a fixed node.
    least, most : float64 arrays, shape (n_clusters,)
        A move leaves its cluster above ``least`` and keeps the other below ``most``.
    apart : CSR array, shape (n_nodes, n_nodes), symmetric
        What the objective rises by while two nodes share a cluster.
    """

    preferred: np.ndarray | None = None
    price: np.ndarray | None = None
    least: np.ndarray | None = None
    most: np.ndarray | None = None
    apart: csr_array | None = None

    @property
    def is_fixed(self) -> np.ndarray | None:
        """Which nodes may have no cluster but one."""
        if self.preferred is None or self.price is None:
            return None
        return np.asarray((self.preferred >= 0) & np.isinf(self.price))

    def fix(self, labels: np.ndarray) -> np.ndarray:
        """Return labels with those of the fixed nodes."""
        if self.preferred is None or self.is_fixed is None:
            return labels
        return np.where(self.is_fixed, self.preferred, labels)

    def of_fragments(self, fragments: np.ndarray, n_clusters: int) -> np.ndarray | None:
        """Return what every fragment pays in every cluster, shape (n_fragments, n_clusters).

        >>> prices = Prices(np.array([0, 1, -1]), np.array([2.0, 1.0, 5.0]))
        >>> prices.of_fragments(np.array([0, 0, 1]), 2)
        array([[1., 2.],
               [0., 0.]])
        """
        if self.preferred is None or self.price is None:
            return None
        wants = np.flatnonzero(self.preferred >= 0)
        n_fragments, price = int(fragments.max()) + 1, np.minimum(self.price[wants], _FIXED)
        flat = fragments[wants] * n_clusters + self.preferred[wants]
        kept = np.bincount(flat, price, n_fragments * n_clusters).reshape(n_fragments, n_clusters)
        paid: np.ndarray = kept.sum(1)[:, None] - kept
        return paid

    def of_groups(self, groups: np.ndarray) -> Prices:
        """Return the prices of groups, none of which holds nodes that are fixed to two clusters.

        A group prefers the cluster for which its nodes would pay most, and leaves it for what they
        would pay for the next one less.

        >>> prices = Prices(np.array([0, 1, 1, -1]), np.array([2.0, 1.0, 4.0, 0.0]))
        >>> prices.of_groups(np.array([0, 0, 0, 1]))[:2]
        (array([ 1, -1]), array([3., 0.]))
        """
        n_groups = int(groups.max()) + 1
        preferred, price, apart = self.preferred, self.price, self.apart
        if preferred is not None and price is not None:
            wants = np.flatnonzero(preferred >= 0)
            paid = np.minimum(price[wants], _FIXED)
            n_clusters = int(preferred.max()) + 1
            pairs, pair = np.unique(
                groups[wants] * n_clusters + preferred[wants], return_inverse=True
            )
            sums = np.bincount(pair.reshape(-1), paid, len(pairs))
            group, cluster = np.divmod(pairs, max(1, n_clusters))
            order = np.lexsort((-sums, group))
            group, cluster, sums = group[order], cluster[order], sums[order]
            first = np.flatnonzero(np.diff(group, prepend=-1))
            has_second = np.diff(np.append(first, len(group))) > 1
            second = np.where(has_second, sums[np.minimum(first + 1, len(sums) - 1)], 0.0)
            preferred, price = np.full(n_groups, -1), np.zeros(n_groups)
            preferred[group[first]] = cluster[first]
            price[group[first]] = np.where(sums[first] >= _FIXED, np.inf, sums[first] - second)
        if apart is not None:
            ends = groups[np.repeat(np.arange(len(groups)), np.diff(apart.indptr))]
            entries = apart.data, (ends, groups[apart.indices])
            apart = csr_array(entries, shape=(n_groups, n_groups))
        return self._replace(preferred=preferred, price=price, apart=apart)

    def total(self, labels: np.ndarray) -> float:
        """Return what labels pay for rows elsewhere and for pairs that share a cluster."""
        paid = 0.0
        if self.preferred is not None and self.price is not None:
            is_elsewhere = (self.preferred >= 0) & (labels != self.preferred)
            paid += float(self.price[is_elsewhere].sum())
        if self.apart is not None:
            source = np.repeat(labels, np.diff(self.apart.indptr))
            paid += 0.5 * float(self.apart.data[source == labels[self.apart.indices]].sum())
        return paid


def match_prices(labels: np.ndarray, paid: np.ndarray) -> np.ndarray:
    """Rename clusters so that fragments pay least, by what each pays in every cluster."""
    n_clusters = paid.shape[1]
    member = csr_array(
        (np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(n_clusters, len(labels))
    )
    before, after = linear_sum_assignment(member @ paid)
    names = np.empty(n_clusters, np.int64)
    names[before] = after
    return np.asarray(names[labels])
