import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import dendrogram, is_monotonic, is_valid_linkage
from scipy.sparse import csr_array

import reference
from prcut.errors import InvalidInputError
from prcut.numerics.objective import ClusterCost
from prcut.search.fragments import CoarseGraph, contract
from prcut.search.merge import MergeTree, merge, merge_linked


def problem(
    n_fragments: int, seed: int, density: float, balance_weight: float, n_clusters: int = 3
) -> tuple[CoarseGraph, ClusterCost, float]:
    """Fragments of several rows, and the weight of the graph that they are of."""
    graph = reference.random_graph(3 * n_fragments, seed, density)
    fragments = reference.full_labels(3 * n_fragments, n_fragments, seed)
    total = float(graph.weight.values().sum())
    cost = ClusterCost.of(graph.n_samples, total, n_clusters, balance_weight=balance_weight)
    return contract(graph.to_scipy(), fragments), cost, total


def check_children(tree: MergeTree, n_fragments: int) -> None:
    """Valid as scikit-learn's and SciPy's: each node once, none before it exists."""
    assert tree.children.shape == (n_fragments - 1, 2)
    assert tree.costs.shape == (n_fragments - 1,)
    used = tree.children.ravel().tolist()
    assert sorted(used) == list(range(2 * n_fragments - 2))
    count = [1] * n_fragments
    for pair in tree.children:
        count.append(count[pair[0]] + count[pair[1]])
    # heights rise here: those of greedy merges by cost may fall
    steps = np.arange(1.0, n_fragments)
    if n_fragments > 1:
        linkage = np.column_stack([tree.children, steps, count[n_fragments:]])
        assert is_valid_linkage(linkage)


problems = given(
    n_fragments=st.integers(1, 9),
    seed=st.integers(0, 10**6),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    balance_weight=st.sampled_from([0.0, 0.5, 2.0]),
)


class Merging:
    """Groups of fragments that merge, by the formula of the objective with 3 clusters."""

    def __init__(self, coarse: CoarseGraph, total: float, balance_weight: float) -> None:
        self.links, self.sizes, self.total = coarse.links.toarray(), coarse.sizes, total
        self.factor = balance_weight / math.log(3 / 2)
        self.members = {i: [i] for i in range(len(self.sizes))}

    def cost(self, group: list[int]) -> float:
        n_samples, size = self.sizes.sum(), self.sizes[group].sum()
        cut = self.links[group].sum() - self.links[np.ix_(group, group)].sum()
        ratio = n_samples / self.total * cut / size if self.total else 0.0
        return float(ratio + self.factor * size / n_samples * math.log(size / n_samples))

    def change(self, one: int, two: int) -> float:
        """Of the objective, if these two merge."""
        groups = self.members[one], self.members[two]
        return self.cost(groups[0] + groups[1]) - self.cost(groups[0]) - self.cost(groups[1])

    def pairs(self, *, linked: bool) -> list[tuple[int, int]]:
        return [
            (one, two)
            for one, two in itertools.combinations(self.members, 2)
            if not linked or self.links[np.ix_(self.members[one], self.members[two])].any()
        ]

    def merge(self, one: int, two: int, into: int) -> None:
        self.members[into] = self.members.pop(one) + self.members.pop(two)

    def labels(self) -> np.ndarray:
        """The groups in the order of their numbers."""
        found = np.empty(len(self.sizes), dtype=np.int64)
        for label, (_, group) in enumerate(sorted(self.members.items())):
            found[group] = label
        return found


@problems
@settings(max_examples=40, deadline=None)
def test_every_merge_is_the_cheapest_and_labels_follow_the_tree(
    n_fragments: int, seed: int, density: float, balance_weight: float
) -> None:
    coarse, cost, total = problem(n_fragments, seed, density, balance_weight)
    tree = merge(coarse, cost)
    check_children(tree, n_fragments)
    merging = Merging(coarse, total, balance_weight)
    for number, (one, two) in enumerate(tree.children.tolist()):
        labels = tree.labels(n_fragments - number)
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, merging.labels())
        least = min(itertools.starmap(merging.change, merging.pairs(linked=False)))
        assert tree.costs[number] == pytest.approx(merging.change(one, two), abs=1e-10)
        assert tree.costs[number] == pytest.approx(least, abs=1e-10)
        merging.merge(one, two, into=n_fragments + number)
    assert not tree.labels(1).any()


@problems
@settings(max_examples=40, deadline=None)
def test_every_merge_along_edges_is_the_cheapest_then_the_smallest_merge(
    n_fragments: int, seed: int, density: float, balance_weight: float
) -> None:
    coarse, cost, total = problem(n_fragments, seed, density, balance_weight)
    merging = Merging(coarse, total, balance_weight)
    for n_clusters in range(n_fragments, 0, -1):
        labels = merge_linked(coarse, cost._replace(n_clusters=n_clusters))
        assert labels.dtype == np.int64
        assert sorted(set(labels.tolist())) == list(range(n_clusters))
        if n_clusters < n_fragments:
            # the pair that is now together, found by the fragments that it consists of
            together = {number: labels[group] for number, group in merging.members.items()}
            assert all(len(set(found.tolist())) == 1 for found in together.values())
            (pair,) = (
                (one, two)
                for one, two in merging.pairs(linked=False)
                if together[one][0] == together[two][0]
            )
            if linked := merging.pairs(linked=True):
                least = min(itertools.starmap(merging.change, linked))
                assert pair in linked
                assert merging.change(*pair) == pytest.approx(least, abs=1e-10)
            else:
                sizes = sorted(coarse.sizes[group].sum() for group in merging.members.values())
                assert sum(coarse.sizes[merging.members[one]].sum() for one in pair) == sum(
                    sizes[:2]
                )
            merging.merge(*pair, into=min(pair))


@problems
@settings(max_examples=40, deadline=None)
def test_a_tree_is_one_that_scipy_draws(
    n_fragments: int, seed: int, density: float, balance_weight: float
) -> None:
    coarse, cost, _ = problem(n_fragments, seed, density, balance_weight)
    tree = merge(coarse, cost)
    linkage = tree.linkage()
    assert linkage.shape == (n_fragments - 1, 4)
    if n_fragments > 1:
        assert is_valid_linkage(linkage, throw=True)
        assert is_monotonic(linkage)
        assert len(dendrogram(linkage, no_plot=True)["leaves"]) == n_fragments
    for wrong in (0, -1, n_fragments + 1, 1.5, True):
        with pytest.raises(InvalidInputError, match=r"n_clusters=.* must be "):
            tree.labels(wrong)  # type: ignore[arg-type]


def test_costs_add_up_to_the_change_of_the_objective() -> None:
    coarse, cost, total = problem(40, seed=1, density=0.1, balance_weight=1.0, n_clusters=5)
    tree = merge(coarse, cost)

    def objective(n_clusters: int) -> float:
        labels = tree.labels(n_clusters)
        own = ClusterCost(cost.n_samples, cost.scale, cost.factor, 40)
        member = np.eye(n_clusters)[labels]
        cuts = member.T @ coarse.links.toarray() @ (1 - member)
        return own.objective(cuts.diagonal(), coarse.sizes @ member)

    assert total > 0
    for n_clusters in (1, 2, 5, 20, 39):
        change = objective(n_clusters) - objective(40)
        assert tree.costs[: 40 - n_clusters].sum() == pytest.approx(change, abs=1e-9)


def test_ties_of_equal_fragments_are_merged_all_the_same() -> None:
    links = 1 - np.eye(16)
    cost = ClusterCost.of(16, links.sum(), 4, balance_weight=1.0)
    tree = merge(CoarseGraph(csr_array(links), np.ones(16)), cost)
    check_children(tree, 16)
    assert np.isfinite(tree.costs).all()
