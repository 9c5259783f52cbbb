r"""Follow a world that changes: clusters keep their rows unless the objective pays for more.

The partition of earlier rows is refined on the graph of earlier and new rows together. J has one
more term: an earlier row that leaves its cluster pays :math:`μ/n` with :math:`μ = 2 k σ`. The
stickiness σ is a fraction of what J falls at most when a single row moves. Then the number of
clusters may change, by the same sum of J and what is paid for renamed rows:

- Two clusters *merge* where the sum falls. J keeps the number of clusters it was made for, so a
  cluster that goes costs the balance weight, ten times what a cluster adds to the cut.
- A cluster that new rows joined is split in two, around rows whose neighbours are new. The newer
  part is a *birth* where its new rows are more than chance explains (a binomial test against their
  share of all rows, at 1 ‰ over all clusters that are tried), and where it is as distinct as other
  clusters are: what the split adds to the cut, and what renamed rows pay, is no more than the two
  clusters with the weakest border would save by merging, or than half of what the split of a median
  cluster adds. In a partition of lowest J no split costs less than a merge would save.
- A cluster *dies* that has no rows left, or hardly any, which its neighbour takes. One that new
  rows hardly join does not grow meanwhile: balance would fill it up with its neighbours' rows.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import binom

from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.objective import ClusterCost
from prcut.search.fragments import CoarseGraph, as_coarse, contract
from prcut.search.partition import refine_labels
from prcut.search.prices import Prices
from prcut.search.problem import cluster_cost

# mean sizes of clusters that a birth has at least, and below which one that goes is dead
_LEAST_SIZE, _DEAD_SIZE = 0.2, 0.1
# balance between the parts of a cluster: without any, a few rows would be cut off
_PART_BALANCE = 0.1
# fraction of the balance weight that a birth may add to the cut in any case: what two clusters
# cost, since the weight is ten times what one does, and both sides of a border pay for it
_CHEAP = 0.2
# fraction of what the split of a median cluster adds: less is a gap
_GAP = 0.5
# chance that a birth is no more than a fair share of the new rows; that a cluster has so few of
# them, below which it does not grow
_CHANCE, _FADES = 0.001, 0.01
_MAX_ROUNDS = 5

Kind = Literal["birth", "merge", "death"]


class Change(NamedTuple):
    """What became of a cluster.

    Attributes
    ----------
    kind : {"birth", "merge", "death"}
    cluster : int
        The cluster that was born, or is no more.
    other : int
        The cluster that it split from, or that took its rows; −1 where there is none.
    n_rows : int
        Rows that it had then.
    objective : float
        What was added to J and to the price of renamed rows.
    """

    kind: Kind
    cluster: int
    other: int
    n_rows: int
    objective: float


class Followed(NamedTuple):
    """A partition of earlier and new rows.

    Attributes
    ----------
    labels : int64 array, shape (n_samples,)
        Numbers of clusters: earlier ones as they were, births from ``n_clusters`` on. Those that
        are no more have no rows.
    changes : tuple of Change
    n_numbers : int
        Earlier clusters and births, with those that are no more.
    """

    labels: np.ndarray
    changes: tuple[Change, ...]
    n_numbers: int


def follow(
    graph: SimilarityGraph,
    labels: np.ndarray,
    is_old: np.ndarray,
    n_clusters: int,
    *,
    balance_weight: float,
    stickiness: float = 0.1,
) -> Followed:
    """Refine an earlier partition with new rows, and let clusters be born, merge and die.

    Parameters
    ----------
    graph : SimilarityGraph
        Of earlier and new rows.
    labels : int64 array, shape (n_samples,)
        Clusters of the earlier rows, and a first guess of those of new rows.
    is_old : bool array, shape (n_samples,)
        Which rows are earlier ones.
    n_clusters : int
        Of the earlier partition; some may have no rows here.
    balance_weight : float
    stickiness : float
        Fraction of what J falls at most when a row moves, which an earlier row pays to leave.
    """
    world = _World(graph, labels, is_old, n_clusters, balance_weight, stickiness)
    world.bury(np.arange(n_clusters))
    world.merge()  # before balance fills up what hardly has rows left
    world.refine()
    for _ in range(_MAX_ROUNDS):
        if not world.split():
            break
        world.refine()
    if world.merge():
        world.refine()
    return Followed(world.labels, tuple(world.changes), world.n_numbers)


class _Part(NamedTuple):
    """A part of a cluster that might be one of its own."""

    cluster: int
    rows: np.ndarray
    least: int  # rows of the smaller of both parts
    added: float
    paid: float
    chance: float


class _World:
    """Earlier and new rows, their clusters, and what happens to these."""

    def __init__(
        self,
        graph: SimilarityGraph,
        labels: np.ndarray,
        is_old: np.ndarray,
        n_clusters: int,
        balance_weight: float,
        stickiness: float,
    ) -> None:
        self.coarse, self.is_old = as_coarse(graph), is_old
        self.labels, self.n_numbers = labels.astype(np.int64), n_clusters
        self.n_clusters, self.balance_weight = n_clusters, balance_weight
        self.preferred = np.where(is_old, labels, -1)
        # what an earlier row pays to leave its cluster
        self.price = 2 * n_clusters * stickiness / len(labels)
        n_rows, n_new = (np.bincount(self.labels, one, n_clusters) for one in (None, ~is_old))
        is_fading = binom.cdf(n_new, n_rows, (~is_old).mean()) <= _FADES
        self.most = np.where(is_fading, n_rows + 0.5, np.inf)
        self.changes: list[Change] = []

    @property
    def cut_cost(self) -> ClusterCost:
        """The cost of clusters without their balance."""
        return cluster_cost(self.coarse, self.n_clusters, 0.0)

    @property
    def mean_size(self) -> float:
        """Rows of a cluster, on average."""
        return len(self.labels) / len(np.unique(self.labels))

    def bury(self, clusters: np.ndarray) -> None:
        """Note the death of clusters that have no rows."""
        for cluster in np.setdiff1d(clusters, self.labels).tolist():
            self.changes.append(Change("death", cluster, -1, 0, 0.0))

    def refine(self) -> None:
        """Move single rows while J and what earlier rows pay falls."""
        used, labels = np.unique(self.labels, return_inverse=True)
        place = np.full(self.n_numbers + 1, -1)
        place[used] = np.arange(len(used))
        preferred = place[self.preferred]  # −1 is the last place
        price = np.where(preferred >= 0, self.price, 0.0)
        most = np.append(self.most, np.full(self.n_numbers - self.n_clusters, np.inf))[used]
        self.labels = used[
            refine_labels(
                self.coarse,
                labels.reshape(-1),
                len(used),
                balance_weight=self.balance_weight,
                prices=Prices(preferred, price, most=most),
            )
        ]

    def split(self) -> bool:
        """Split clusters that new rows joined, where that is a birth; return whether any was."""
        joined = np.unique(self.labels[~self.is_old]).tolist()
        parts = [part for part in map(self._find_part, joined) if part is not None]
        savings, *_ = self._savings(self.cut_cost)
        gap = _GAP * float(np.median([one.added for one in parts])) if parts else 0.0
        dearest = max(float(savings.max()), _CHEAP * self.balance_weight, gap)
        least, n_before = _LEAST_SIZE * self.mean_size, self.n_numbers
        for part in parts:
            is_new = part.chance <= _CHANCE / len(joined)
            if is_new and part.least >= least and part.added + part.paid <= dearest:
                added, n_rows = part.added + part.paid, len(part.rows)
                self.changes.append(Change("birth", self.n_numbers, part.cluster, n_rows, added))
                self.labels[part.rows] = self.n_numbers
                self.n_numbers += 1
        return self.n_numbers > n_before

    def _find_part(self, cluster: int) -> _Part | None:
        """Split a cluster in two around rows with new neighbours, and measure the newer part."""
        rows = np.flatnonzero(self.labels == cluster)
        all_links = self.coarse.links[rows]
        links = csr_array(all_links[:, rows])
        graph, is_new = CoarseGraph(links, np.ones(len(rows))), ~self.is_old[rows]
        # rows of a cluster to be have new neighbours, others as many as they have anywhere
        fraction = (links @ is_new) / np.maximum(links.sum(1), 1e-300)
        start = (fraction > 0.5 * (1 + is_new.mean())).astype(np.int64)
        found = refine_labels(graph, start, 2, balance_weight=_PART_BALANCE)
        n_rows, n_new = (np.bincount(found, one, 2) for one in (None, is_new))
        if n_rows.min() == 0:
            return None
        born = int(n_new[1] * n_rows[0] > n_new[0] * n_rows[1])
        outside = np.asarray(all_links.sum(1) - links.sum(1)).reshape(-1)
        cuts = np.bincount(found, outside, 2) + links[found == 0][:, found == 1].sum()
        before = self.cut_cost(outside.sum(), len(rows))
        added = float(self.cut_cost(cuts, n_rows).sum() - before)
        paid = self.price * float(n_rows[born] - n_new[born])
        # of so many new rows, if all clusters had gained in proportion
        chance = float(binom.sf(n_new[born] - 1, n_rows[born], (~self.is_old).mean()))
        return _Part(cluster, rows[found == born], int(n_rows.min()), added, paid, chance)

    def merge(self) -> bool:
        """Merge the pair that lowers J most, again and again; return whether there was one."""
        n_changes = len(self.changes)
        while len(np.unique(self.labels)) > 1:
            balanced = cluster_cost(self.coarse, self.n_clusters, self.balance_weight)
            savings, used, sizes = self._savings(balanced)
            renamed = self.is_old & (self.labels == self.preferred)
            paid = self.price * np.bincount(self.labels[renamed], minlength=self.n_numbers)[used]
            savings -= np.minimum(paid[:, None], paid)
            first, second = np.unravel_index(int(savings.argmax()), savings.shape)
            if not savings[first, second] > 0:
                break
            gone, kept = (first, second) if paid[first] < paid[second] else (second, first)
            is_dead = sizes[gone] < _DEAD_SIZE * self.mean_size
            what: Kind = "death" if is_dead else "merge"
            names = int(used[gone]), int(used[kept])
            self.changes.append(Change(what, *names, int(sizes[gone]), -savings[first, second]))
            self.labels[self.labels == names[0]] = names[1]
        return len(self.changes) > n_changes

    def _savings(self, cost: ClusterCost) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what every two clusters would save by merging, their numbers and their sizes."""
        used, labels = np.unique(self.labels, return_inverse=True)
        groups = contract(self.coarse.links, labels.reshape(-1))
        between, sizes = groups.links.toarray(), groups.sizes
        cuts = between.sum(1)
        own = cost(cuts, sizes)
        merged = cost(cuts[:, None] + cuts - 2 * between, sizes[:, None] + sizes)
        savings: np.ndarray = own[:, None] + own - merged
        np.fill_diagonal(savings, -np.inf)
        return savings, used, sizes
