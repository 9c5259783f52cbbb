"""Chains are cut until one row stands for all of a group."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prcut.curate import dedup as library
from prcut.curate.dedup import split_chains
from prcut.graph.within import Pairs, distances_to


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
