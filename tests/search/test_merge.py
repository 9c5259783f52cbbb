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
from prcut.search.merge import MergeTree, merge


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


@problems
@settings(max_examples=40, deadline=None)
def test_every_merge_is_the_cheapest_and_costs_what_it_says(
    n_fragments: int, seed: int, density: float, balance_weight: float
) -> None:
    coarse, cost, total = problem(n_fragments, seed, density, balance_weight)
    tree = merge(coarse, cost)
    check_children(tree, n_fragments)

    def objective(groups: list[list[int]]) -> float:
        """By its formula with 3 clusters, though any number may be there."""
        n_samples, value = coarse.sizes.sum(), 0.0
        for group in groups:
            rest = [i for other in groups if other is not group for i in other]
            size = coarse.sizes[group].sum()
            cut = coarse.links.toarray()[np.ix_(group, rest)].sum()
            value += n_samples / total * cut / size if total else 0
            value += (
                balance_weight / math.log(3 / 2) * size / n_samples * math.log(size / n_samples)
            )
        return value

    members = {i: [i] for i in range(n_fragments)}
    for number, (one, two) in enumerate(tree.children.tolist()):
        now = objective(list(members.values()))
        changes = {}
        for pair in itertools.combinations(members, 2):
            others = [group for node, group in members.items() if node not in pair]
            changes[pair] = objective([*others, members[pair[0]] + members[pair[1]]]) - now
        assert tree.costs[number] == pytest.approx(changes[one, two], abs=1e-10)
        assert tree.costs[number] == pytest.approx(min(changes.values()), abs=1e-10)
        members[n_fragments + number] = members.pop(one) + members.pop(two)
    assert len(members) == 1


@problems
@settings(max_examples=40, deadline=None)
def test_labels_have_as_many_clusters_as_asked_and_nest(
    n_fragments: int, seed: int, density: float, balance_weight: float
) -> None:
    coarse, cost, _ = problem(n_fragments, seed, density, balance_weight)
    tree = merge(coarse, cost)
    finer = np.arange(n_fragments)
    for n_clusters in range(n_fragments, 0, -1):
        labels = tree.labels(n_clusters)
        assert labels.dtype == np.int64
        assert sorted(set(labels.tolist())) == list(range(n_clusters))
        assert len(set(zip(finer.tolist(), labels.tolist(), strict=True))) == finer.max() + 1
        finer = labels
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


def test_one_fragment_has_nothing_to_merge() -> None:
    coarse = CoarseGraph(csr_array(np.zeros((1, 1))), np.array([7.0]))
    tree = merge(coarse, ClusterCost.of(7, 12.0, 1, balance_weight=1.0))
    check_children(tree, 1)
    assert tree.labels(1).tolist() == [0]


def test_what_is_given_is_not_changed() -> None:
    coarse, cost, _ = problem(12, seed=0, density=0.5, balance_weight=1.0)
    links, sizes = coarse.links.copy(), coarse.sizes.copy()
    merge(coarse, cost)
    np.testing.assert_array_equal(coarse.links.toarray(), links.toarray())
    np.testing.assert_array_equal(coarse.sizes, sizes)


def test_ties_of_equal_fragments_are_merged_all_the_same() -> None:
    links = 1 - np.eye(16)
    cost = ClusterCost.of(16, links.sum(), 4, balance_weight=1.0)
    tree = merge(CoarseGraph(csr_array(links), np.ones(16)), cost)
    check_children(tree, 16)
    assert np.isfinite(tree.costs).all()
