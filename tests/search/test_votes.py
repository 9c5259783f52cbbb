import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs

from prcut import SimilarityGraph
from prcut.graph.build import build_graph
from prcut.search import votes
from prcut.search.partition import find_partition
from prcut.search.votes import N_VOTES, Votes

pytestmark = pytest.mark.filterwarnings("ignore::prcut.errors.DataWarning")
RNG = np.random.default_rng(0)


def overlapping_blobs() -> tuple[SimilarityGraph, np.ndarray]:
    rows, _ = make_blobs(400, 2, centers=[[0, 0], [3, 0], [0, 3]], random_state=0)
    return build_graph(rows, 10), rows


def test_clusters_of_starts_are_matched_whatever_their_numbers() -> None:
    graph, _ = overlapping_blobs()
    labels = find_partition(graph, 3).labels
    other = np.array([2, 0, 1])[labels]
    assert (Votes.of(graph, labels, (other, labels), 3).starts == labels).all()


def test_rows_between_clusters_have_fewer_votes() -> None:
    graph, rows = overlapping_blobs()
    found = find_partition(graph, 3)
    assert len(found.starts) > 1
    shares = Votes.of(graph, found.labels, found.starts, 3).shares()
    assert shares.dtype == np.float32
    assert shares.min() >= 0.6
    assert shares.max() == 1
    between = np.abs(rows - [1.5, 1.5]).max(1) < 0.5
    assert shares[between].mean() < shares[~between].mean() - 0.02


def test_votes_are_drawn_by_their_shares() -> None:
    graph, _ = overlapping_blobs()
    found = find_partition(graph, 3)
    ballot = Votes.of(graph, found.labels, found.starts, 3)
    drawn = [ballot.draw(np.arange(400), np.random.default_rng(seed)) for seed in range(200)]
    assert drawn[0].shape == (400, N_VOTES)
    share = np.mean([(one == found.labels[:, None]).mean(1) for one in drawn], 0)
    np.testing.assert_allclose(share, ballot.shares(), atol=0.03)


def test_a_row_without_neighbours_asks_its_starts_only() -> None:
    graph = SimilarityGraph.from_scipy(csr_array(([1.0] * 4, ([0, 1, 1, 2], [1, 0, 2, 1])), (4, 4)))
    labels, other = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0])
    ballot = Votes.of(graph, labels, (other,), 2)
    assert ballot.shares()[3] == pytest.approx(0.6)
    assert (ballot.draw(np.array([3]), RNG)[0, 12:] == 0).all()


def test_only_neighbours_vote_on_very_many_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(votes, "_MAX_MATCHED", 2)
    graph, _ = overlapping_blobs()
    labels = find_partition(graph, 3).labels
    assert (Votes.of(graph, labels, (labels[::-1],), 3).starts == labels).all()
