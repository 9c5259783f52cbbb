import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import reference
from prcut.numerics.cuts import cluster_cuts
from prcut.numerics.objective import ClusterCost
from prcut.search.refine import _change_of_cuts, _Refinement, partition_cuts, refine


def cost_of(weight: csr_array, n_clusters: int, balance_weight: float = 1.0) -> ClusterCost:
    total = float(weight.data.sum(dtype=np.float64))
    return ClusterCost.of(weight.shape[0], total, n_clusters, balance_weight=balance_weight)


def objective(weight: csr_array, labels: np.ndarray, n_clusters: int, balance: float) -> float:
    dense = weight.toarray().astype(np.float64)
    ones = np.ones(len(labels))
    return reference.partition_objective(dense, ones, labels, n_clusters, dense.sum(), balance)


def least_change(
    weight: csr_array, labels: np.ndarray, n_clusters: int, balance_weight: float
) -> float:
    """Of moving one row to the cluster of a neighbour without emptying its own."""
    now = objective(weight, labels, n_clusters, balance_weight)
    sizes, least = np.bincount(labels, minlength=n_clusters), np.inf
    for row in np.flatnonzero(sizes[labels] > 1):
        for cluster in set(labels[weight[[row]].indices].tolist()) - {labels[row]}:
            moved = labels.copy()
            moved[row] = cluster
            least = min(least, objective(weight, moved, n_clusters, balance_weight) - now)
    return least


@given(
    n_samples=st.integers(1, 15),
    n_clusters=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    balance_weight=st.sampled_from([0.0, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_moves_on_offer_are_the_best_of_every_row(
    n_samples: int, n_clusters: int, seed: int, balance_weight: float
) -> None:
    n_clusters = min(n_clusters, n_samples)
    weight = reference.random_graph(n_samples, seed, density=0.4).to_scipy()
    labels = reference.full_labels(n_samples, n_clusters, seed)
    rng = np.random.default_rng(seed)
    active = np.flatnonzero(rng.random(n_samples) < 0.7)
    sizes = np.bincount(labels, minlength=n_clusters)
    cost = cost_of(weight, n_clusters, balance_weight)
    rows, after, gain = _Refinement(weight, labels, cost)._best_moves(active)

    expected = {}
    now = objective(weight, labels, n_clusters, balance_weight)
    for row in active[sizes[labels[active]] > 1]:
        changes = {}
        for cluster in set(labels[weight[[row]].indices].tolist()) - {labels[row]}:
            moved = labels.copy()
            moved[row] = cluster
            changes[cluster] = objective(weight, moved, n_clusters, balance_weight) - now
        if min(changes.values(), default=0.0) < -1e-9:
            expected[row] = (
                min(changes, key=lambda cluster: changes[cluster]),
                min(changes.values()),
            )
    assert rows.tolist() == sorted(expected)
    assert after.tolist() == [expected[row][0] for row in rows]
    np.testing.assert_allclose(gain, [expected[row][1] for row in rows], atol=1e-10)


def ring(n_samples: int) -> csr_array:
    rows = np.arange(n_samples)
    matrix = np.zeros((n_samples, n_samples))
    matrix[rows, (rows + 1) % n_samples] = matrix[(rows + 1) % n_samples, rows] = 1
    return csr_array(matrix)


@given(
    n_samples=st.integers(1, 25),
    n_clusters=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    density=st.sampled_from([0.0, 0.1, 0.3, 1.0]),
    balance_weight=st.floats(0, 2),
    weighted=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_it_ends_in_a_local_optimum_no_worse_than_the_start(
    n_samples: int,
    n_clusters: int,
    seed: int,
    density: float,
    balance_weight: float,
    weighted: bool,
) -> None:
    n_clusters = min(n_clusters, n_samples)
    weight = reference.random_graph(n_samples, seed, density).to_scipy()
    if not weighted:
        weight.data[:] = 1
    labels = reference.full_labels(n_samples, n_clusters, seed + 1)
    given_labels = labels.copy()
    refined = refine(weight, labels, cost_of(weight, n_clusters, balance_weight))
    np.testing.assert_array_equal(labels, given_labels)
    assert sorted(set(refined.tolist())) == list(range(n_clusters))
    before = objective(weight, labels, n_clusters, balance_weight)
    after = objective(weight, refined, n_clusters, balance_weight)
    assert after <= before + 1e-12
    assert np.array_equal(refined, labels) or after < before
    assert least_change(weight, refined, n_clusters, balance_weight) > -1e-9


@pytest.mark.parametrize("seed", range(3))
def test_a_larger_graph_ends_in_a_local_optimum_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((250, 2))
    distance = ((points[:, None] - points) ** 2).sum(2)
    near = distance <= np.sort(distance)[:, [6]]
    matrix = np.where(near | near.T, np.exp(-distance), 0.0)
    np.fill_diagonal(matrix, 0.0)
    weight = csr_array(matrix)
    labels = reference.full_labels(250, 8, seed)
    refined = refine(weight, labels, cost_of(weight, 8))
    assert objective(weight, refined, 8, 1.0) < 0.7 * objective(weight, labels, 8, 1.0)
    assert least_change(weight, refined, 8, 1.0) > -1e-9


@pytest.mark.parametrize(
    ("n_samples", "n_clusters", "density", "seed"),
    [(60, 4, 0.1, 4), (48, 5, 0.05, 3536), (56, 6, 0.1, 1822), (76, 3, 0.03, 3843)],
)
def test_single_precision_weights_of_few_values_do_as_well(
    n_samples: int, n_clusters: int, density: float, seed: int
) -> None:
    # many moves are worth nothing, and rounding makes some look better: none may end it early
    weight = reference.random_graph(n_samples, seed, density).to_scipy().astype(np.float32)
    weight.data[:] = np.ceil(3 * weight.data) / np.float32(10)
    labels = reference.full_labels(n_samples, n_clusters, seed)
    for balance_weight in (0.5, 2.0):
        refined = refine(weight, labels, cost_of(weight, n_clusters, balance_weight))
        before = objective(weight, labels, n_clusters, balance_weight)
        assert objective(weight, refined, n_clusters, balance_weight) < before
        assert least_change(weight, refined, n_clusters, balance_weight) > -1e-7


def test_one_round_moves_and_none_does_not() -> None:
    weight = ring(24)
    labels = np.arange(24) % 2
    np.testing.assert_array_equal(refine(weight, labels, cost_of(weight, 2), max_rounds=0), labels)
    values = [
        objective(weight, refine(weight, labels, cost_of(weight, 2), max_rounds=rounds), 2, 1.0)
        for rounds in (0, 1, 2, 50)
    ]
    assert values[1] < values[0]
    assert values == sorted(values, reverse=True)


def test_only_rows_near_a_move_are_considered_again() -> None:
    weight = csr_array(np.eye(40, k=1) + np.eye(40, k=-1))
    labels = np.repeat([0, 1], 20)
    labels[[9, 11]] = 1  # both come back, and rows far from them have nothing new to see
    state = _Refinement(weight, labels, cost_of(weight, 2))
    moved = state.run_round(np.arange(40))
    assert moved is not None
    assert {9, 11} <= set(moved.tolist()) <= {*range(6, 15), *range(17, 23)}


def test_an_empty_cluster_does_not_stop_the_others() -> None:
    path = csr_array(np.eye(6, k=1) + np.eye(6, k=-1))
    labels = np.array([0, 1, 0, 1, 1, 1])
    refined = refine(path, labels, cost_of(path, 3))
    assert refined.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("n_clusters", [1, 12])
def test_one_cluster_and_as_many_as_rows_stay(n_clusters: int) -> None:
    weight = ring(12)
    labels = reference.full_labels(12, n_clusters)
    np.testing.assert_array_equal(refine(weight, labels, cost_of(weight, n_clusters)), labels)


def test_rows_without_edges_stay_where_they_are() -> None:
    matrix = np.zeros((10, 10))
    matrix[:6, :6] = ring(6).toarray()
    weight = csr_array(matrix)
    labels = np.array([0, 1, 0, 0, 1, 1, 0, 1, 0, 1])
    refined = refine(weight, labels, cost_of(weight, 2))
    np.testing.assert_array_equal(refined[6:], labels[6:])
    assert objective(weight, refined, 2, 1.0) < objective(weight, labels, 2, 1.0)


@given(n_samples=st.integers(1, 20), n_clusters=st.integers(1, 5), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_cuts_are_those_of_the_package(n_samples: int, n_clusters: int, seed: int) -> None:
    graph = reference.random_graph(n_samples, seed)
    labels = reference.random_labels(n_samples, n_clusters, seed)
    found = partition_cuts(graph.to_scipy(), labels.numpy(), n_clusters)
    assert found.shape == (n_clusters,)
    # torch.testing would import sympy, for seconds
    np.testing.assert_allclose(found, cluster_cuts(graph.weight, labels, n_clusters).numpy())


@given(
    n_samples=st.integers(1, 20),
    n_clusters=st.integers(1, 5),
    n_moved=st.integers(0, 20),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_change_of_cuts_is_their_difference(
    n_samples: int, n_clusters: int, n_moved: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weight = reference.random_graph(n_samples, seed).to_scipy()
    labels = rng.integers(n_clusters, size=n_samples)
    moved = rng.permutation(n_samples)[:n_moved]
    moved_to = rng.integers(n_clusters, size=len(moved))
    after = labels.copy()
    after[moved] = moved_to
    change = _change_of_cuts(weight, labels, moved, moved_to, n_clusters)
    expected = partition_cuts(weight, after, n_clusters) - partition_cuts(
        weight, labels, n_clusters
    )
    np.testing.assert_allclose(change, expected, atol=1e-12)
