"""The compiled loops give the bits of the same loops in NumPy, and load, or say why not."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import _sparsetools, csr_array, random_array

from prcut.errors import InvalidInputError
from prcut.numerics.objective import ClusterCost
from prcut.search import kernels
from prcut.search.fragments import CoarseGraph, contract, find_groups
from prcut.search.merge import merge, merge_linked
from prcut.search.moves import improve
from prcut.search.prices import Prices
from prcut.search.sweep import cluster_sums, sweep
from search import numpy_search


class Problem:
    """A random graph, fragments of its rows, labels of rows and fragments, and a cost."""

    def __init__(self, seed: int, n_samples: int = 140, n_clusters: int = 7) -> None:
        rng = np.random.default_rng(seed)
        # halves: sums in any order are exact, so both ways must take the same decisions
        density = rng.uniform(0.04, 0.2)
        upper = random_array((n_samples, n_samples), density=density, rng=rng)
        upper.data = rng.integers(1, 5, upper.nnz) / 2
        weight = csr_array(upper + upper.T)
        weight.setdiag(0)
        weight.eliminate_zeros()
        arrays = weight.data, weight.indices.astype(np.int32), weight.indptr.astype(np.int32)
        self.weight = csr_array(arrays, shape=weight.shape)
        self.labels = rng.permutation(np.arange(n_samples) % n_clusters)
        self.fragments = np.concatenate([np.arange(40), rng.integers(40, size=n_samples - 40)])
        self.fragment_labels = rng.permutation(np.arange(40) % n_clusters)
        total, balance = float(weight.sum()), rng.choice([0.0, 0.3, 2.0])
        self.cost = ClusterCost.of(n_samples, total, n_clusters, balance_weight=balance)


def _move_rows(problem: Problem) -> tuple[np.ndarray, ...]:
    """Return the labels of rows after sweeps, and the cuts before them."""
    rows = CoarseGraph(problem.weight, np.ones(len(problem.labels)))
    sums = cluster_sums(rows, problem.labels, problem.cost.n_clusters)
    return sweep(rows, problem.labels, problem.cost, sums), sums[0]


def _sweep(problem: Problem) -> np.ndarray:
    coarse = contract(problem.weight, problem.fragments)
    sums = cluster_sums(coarse, problem.fragment_labels, problem.cost.n_clusters)
    return sweep(coarse, problem.fragment_labels, problem.cost, sums)


def _priced(problem: Problem) -> tuple[np.ndarray, ...]:
    """Sweep and improve with preferred clusters, fixed rows, limits, and rows kept apart."""
    rng, n_samples, cost = np.random.default_rng(3), len(problem.labels), problem.cost
    preferred = rng.integers(-1, cost.n_clusters, n_samples)
    price = rng.choice([0.0, 2.0**-6, 2.0**-3, np.inf], n_samples)
    pairs = rng.integers(n_samples, size=(2, 100))
    entries = np.full(100, 0.25), pairs[:, pairs[0] != pairs[1]]
    half = csr_array((entries[0][: entries[1].shape[1]], tuple(entries[1])), problem.weight.shape)
    apart = csr_array(half + half.T)
    limits = np.full(cost.n_clusters, 17.5), np.full(cost.n_clusters, 22.5)
    prices = Prices(preferred, price, *limits, apart)
    rows = CoarseGraph(problem.weight, np.ones(n_samples))
    sums = cluster_sums(rows, problem.labels, cost.n_clusters)
    coarse = contract(problem.weight, problem.fragments)
    paid = prices.of_fragments(problem.fragments, cost.n_clusters)
    mean = n_samples / cost.n_clusters
    return (
        sweep(rows, problem.labels, cost, sums, prices=prices),
        sweep(rows, problem.labels, cost, sums, prices=prices._replace(least=None, most=None)),
        improve(coarse, problem.fragment_labels, cost, paid)[0],
        improve(rows, problem.labels, cost, bounds=(0.9 * mean, 1.1 * mean, 2.0))[0],
    )


def both_ways(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[Problem], Any], seed: int
) -> tuple[Any, Any]:
    # among more than 32 clusters a fragment may not enter all
    n_clusters = 36 if seed % 2 else 7
    compiled = function(Problem(seed, n_clusters=n_clusters))
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "call", numpy_search.call)
        return compiled, function(Problem(seed, n_clusters=n_clusters))


@pytest.mark.parametrize("seed", range(8))
def test_moves_and_merges_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    def search(problem: Problem) -> Any:
        coarse = contract(problem.weight, problem.fragments)
        rows = CoarseGraph(problem.weight, np.ones(len(problem.labels)))
        return (
            improve(coarse, problem.fragment_labels, problem.cost),
            merge(coarse, problem.cost),
            merge_linked(coarse, problem.cost),
            merge_linked(rows, problem.cost),
            coarse.links.toarray(),
            contract(problem.weight, problem.fragments, inner=True).links.toarray(),
        )

    compiled, plain = both_ways(monkeypatch, search, seed)
    np.testing.assert_array_equal(compiled[0][0], plain[0][0])
    assert compiled[0][1] == pytest.approx(plain[0][1], rel=1e-13)
    for mine, other in zip((*compiled[1], *compiled[2:]), (*plain[1], *plain[2:]), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("seed", range(8))
def test_rows_move_and_group_as_in_numpy(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    def search(problem: Problem) -> Any:
        return (
            *_move_rows(problem),
            find_groups(problem.weight, 5, np.random.default_rng(seed)),
            _sweep(problem),
            *_priced(problem),
        )

    for compiled, plain in zip(*both_ways(monkeypatch, search, seed), strict=True):
        np.testing.assert_array_equal(compiled, plain)


def test_of_equal_moves_the_first_cluster_is_taken() -> None:
    # row 0 is linked to a pair of cluster 2, then to the same pair of cluster 1; row 5 to nothing
    rows, columns = [0, 0, 1, 2], [1, 2, 3, 4]
    half = csr_array((np.ones(4), (rows, columns)), shape=(6, 6))
    graph = CoarseGraph(csr_array(half + half.T), np.ones(6))
    labels = np.array([0, 2, 1, 2, 1, 0])
    cost = ClusterCost.of(6, 8.0, 3, balance_weight=0.0)
    expected = [1, 2, 1, 2, 1, 0]
    assert sweep(graph, labels, cost, cluster_sums(graph, labels, 3)).tolist() == expected
    groups, order = np.empty(6, dtype=np.int64), np.array([3, 4, 0, 1, 2, 5])
    kernels.call("propagate", graph.links, order, 2, 1, groups)
    assert groups.tolist() == [0, 1, 2, 1, 2, 5]
    kernels.call("propagate", graph.links, order, 3, 1, groups)
    assert groups.tolist() == [1, 1, 2, 1, 2, 5]


def test_groups_are_bounded_and_linked() -> None:
    problem = Problem(0)
    groups = find_groups(problem.weight, 4, np.random.default_rng(0))
    assert np.bincount(groups).max() == 4
    inside = problem.weight.tocoo()
    is_inside = groups[inside.row] == groups[inside.col]
    assert is_inside.mean() > 0.05  # 3 / 139 is what groups of rows drawn at random have


def test_a_wrong_array_is_refused_before_it_is_read() -> None:
    with pytest.raises(Exception, match="must have data type int64"):
        kernels.call("partition_cuts", Problem(0).weight, np.zeros(140, np.int32), np.zeros(7))


def test_too_many_rows_for_a_table_use_the_logarithm(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(1)
    expected = _move_rows(problem)[0]
    monkeypatch.setattr(kernels, "_MAX_TABLE", 10)
    kernels._balance_table.cache_clear()
    found = _move_rows(problem)[0]
    kernels._balance_table.cache_clear()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("library", "message"),
    [
        ("missing.so", r"missing\.so, is missing; PRCUT_KERNELS names it"),
        ("text.so", r"text\.so, cannot be loaded: "),
        (_sparsetools.__file__, r"cannot be loaded: .*interface"),
        (None, r"libkernels\.so, is missing; reinstall prcut from a wheel, or from source"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_an_error_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str | None, message: str
) -> None:
    (tmp_path / "text.so").write_text("no library")
    if library is None:
        monkeypatch.delenv("PRCUT_KERNELS", raising=False)
        monkeypatch.setattr(kernels, "__file__", str(tmp_path / "kernels.py"))
    else:
        monkeypatch.setenv("PRCUT_KERNELS", str(tmp_path / library))
    with pytest.raises(ImportError, match=message):
        kernels._load()


def test_more_rows_than_32_bits_number_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MAX_ROWS", 300)
    kernels.as_graph(Problem(0, n_samples=300).weight)
    with pytest.raises(InvalidInputError, match=r"n_samples=301 must be <= 300"):
        kernels.as_graph(Problem(0, n_samples=301).weight)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("weight", [np.float32, np.float64])
def test_types_of_a_graph_make_no_difference(index: type, weight: type) -> None:
    def search(problem: Problem) -> list[Any]:
        rows = CoarseGraph(problem.weight, np.ones(len(problem.labels)))
        return [
            *_move_rows(problem),
            find_groups(problem.weight, 5, np.random.default_rng(0)),
            improve(rows, problem.labels, problem.cost)[0],
            merge(rows, problem.cost).children,
            merge_linked(rows, problem.cost),
            _sweep(problem),
        ]

    expected, problem = search(Problem(0)), Problem(0)
    # halves are the same number in single precision
    links = problem.weight
    arrays = links.data.astype(weight), links.indices.astype(index), links.indptr.astype(index)
    problem.weight = csr_array(arrays, shape=links.shape)
    for found, same in zip(search(problem), expected, strict=True):
        np.testing.assert_array_equal(found, same)


@pytest.mark.weekly("compiles and runs the kernels under the address sanitizer: 30 CPU-seconds")
def test_no_byte_beyond_an_array_is_touched(tmp_path: Path) -> None:
    """Run the tests of this file again with a library that checks every access."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc, which would check the accesses")
    library, source = tmp_path / "checked.so", Path(kernels.__file__).with_name("kernels.c")
    flags = "-O1", "-g", "-fsanitize=address,undefined", "-ffp-contract=off", "-shared", "-fPIC"
    subprocess.run([compiler, *flags, "-o", library, source, "-lm"], check=True)
    checker = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "of_numpy or in_numpy",
            __file__,
        ],
        env={**os.environ, **options, "LD_PRELOAD": checker, "PRCUT_KERNELS": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout


def test_stored_zeros_are_refused() -> None:
    problem = Problem(0)
    problem.weight.data[:3] = 0
    with pytest.raises(InvalidInputError, match="weights that are not above 0"):
        _move_rows(problem)
