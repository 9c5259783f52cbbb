"""Pairs within ε, and chains that are cut until one row stands for all of a group."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prcut.curate import dedup as library
from prcut.curate.dedup import Pairs, distances_to, pairs_within, split_chains
from prcut.graph.neighbors import find_neighbors


def all_pairs(rows: np.ndarray, epsilon: float) -> Pairs:
    distances = distances_to(rows, rows, "euclidean")
    ends = np.nonzero(np.triu(distances <= epsilon, 1))
    return Pairs(*ends, distances[ends])


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=40),
    st.sampled_from([1.0, 2.5, 7.0]),
)
@settings(max_examples=60, deadline=None)
def test_groups_are_a_partition_and_lie_within_epsilon(points: list, epsilon: float) -> None:
    rows = np.array(points, float)
    groups = split_chains(rows, all_pairs(rows, epsilon), epsilon, "euclidean")
    assert sorted(np.concatenate([group for _, group in groups]).tolist()) == [*range(len(rows))]
    for exemplar, group in groups:
        assert exemplar in group
        if len(rows) > 2:
            assert distances_to(rows[group], rows[[exemplar]], "euclidean").max() <= epsilon + 1e-5


def test_a_long_chain_is_cut_through_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_MOST_MERGED", 50)
    monkeypatch.setattr(library, "_N_FRAGMENTS", 20)
    rows = np.arange(600.0)[:, None]
    ends = np.arange(599), np.arange(1, 600)
    groups = split_chains(rows, Pairs(*ends, np.ones(599)), 1.0, "euclidean")
    assert sorted(np.concatenate([group for _, group in groups]).tolist()) == [*range(600)]
    assert max(len(group) for _, group in groups) <= 3
    assert len(groups) < 400


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_pairs_are_those_of_the_definition(metric: str) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    epsilon = 0.02 if metric == "cosine" else 0.5
    found = find_neighbors(rows, 59, metric=metric, recall=1)
    pairs = pairs_within(rows, np.arange(60), found, epsilon)
    one, other = np.nonzero(np.triu(distances_to(rows, rows, metric) <= epsilon, 1))
    assert len(one) > 5
    assert sorted(zip(*pairs[:2], strict=True)) == sorted(zip(one, other, strict=True))
    assert np.allclose(pairs.distance, distances_to(rows, rows, metric)[pairs[:2]], atol=1e-5)


def test_a_group_larger_than_the_neighbours_of_a_row_becomes_one() -> None:
    """Tight heaps inside ε fill each other's neighbours: only exemplars see the other heaps."""
    rng = np.random.default_rng(0)
    heaps = np.repeat(rng.normal(size=(30, 8)), 20, axis=0)
    rows = np.concatenate([np.ones((600, 8)) + 0.02 * heaps, -np.ones((1, 8))]).astype(np.float32)
    rows[:600] += 1e-4 * rng.normal(size=(600, 8)).astype(np.float32)
    found = find_neighbors(rows, 5, metric="cosine", recall=1)
    near = found.distances >= 1 - 0.05
    alone = Pairs(np.repeat(np.arange(601), near.sum(1)), found.indices[near], np.zeros(near.sum()))
    assert len(np.unique(alone.components(601))) > 10
    labels = pairs_within(rows, np.arange(601), found, 0.05).components(601)
    assert np.bincount(labels).tolist() == [600, 1]
