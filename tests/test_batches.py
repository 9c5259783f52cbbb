"""Gathered pairs: what the sampler draws, with the right rows, ahead of time and no longer."""

import itertools
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import reference
from prcut.batches import FeatureBatch, GatheredPairs, as_features, gather_rows, pair_ends
from prcut.pairs import PairSampler, UniformPairs, WalkPairs, draw_streams

N_SAMPLES = 40
ROWS = np.random.default_rng(0).standard_normal((N_SAMPLES, 5)).astype(np.float32)


def sampler() -> WalkPairs:
    return WalkPairs(reference.random_graph(N_SAMPLES, density=0.2), n_steps=3)


def first_batches(pairs: GatheredPairs, count: int, **options: int) -> list[FeatureBatch]:
    with closing(pairs.stream(32, **options)) as stream:
        return list(itertools.islice(stream, count))


def memory_map(folder: Path) -> np.ndarray:
    np.save(folder / "rows.npy", ROWS)
    return np.load(folder / "rows.npy", mmap_mode="r")


FEATURES: dict[str, Callable[[Path], Any]] = {
    "tensor": lambda folder: torch.from_numpy(ROWS),
    "array": lambda folder: ROWS,
    "memory map": memory_map,
    "float16": lambda folder: ROWS.astype(np.float16),
    "float64": lambda folder: ROWS.astype(np.float64),
    "big-endian": lambda folder: ROWS.astype(">f4"),
    "reversed": lambda folder: ROWS[::-1].copy()[::-1],
    "integers": lambda folder: (10 * ROWS).astype(np.int16),
    "list": lambda folder: ROWS.tolist(),
    "sparse CSR": lambda folder: sparse.csr_array(ROWS * (ROWS > 0)),
    "sparse COO": lambda folder: sparse.coo_matrix(ROWS * (ROWS > 0)),
}


@pytest.mark.parametrize("make", FEATURES.values(), ids=FEATURES)
def test_batches_are_drawn_pairs_with_their_rows(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    features = make(tmp_path)
    dense = features.toarray() if sparse.issparse(features) else np.asarray(features)
    walk = sampler()
    for step, batch in enumerate(first_batches(GatheredPairs(walk, features), 3, seed=7)):
        pairs = draw_streams(walk, 32, seed=7, step=step)
        for ours, theirs in zip(batch[1:5], pairs[1:], strict=True):
            assert torch.equal(ours, theirs)
        assert batch.features.dtype == torch.float32
        is_sparse = batch.features.layout == torch.sparse_csr
        assert is_sparse == sparse.issparse(features)
        found = batch.features.to_dense() if is_sparse else batch.features
        np.testing.assert_array_equal(found, dense.astype(np.float32)[pairs.rows])


def test_without_features_rows_are_their_numbers() -> None:
    (batch,) = first_batches(GatheredPairs(sampler()), 1)
    assert torch.equal(batch.features, draw_streams(sampler(), 32, seed=0, step=0).rows)


def test_features_share_memory_where_they_can(tmp_path: Path) -> None:
    array = ROWS.copy()
    for features, base in ((array, array), (mapped := memory_map(tmp_path), mapped)):
        assert as_features(features).data_ptr() == base.ctypes.data
    tensor = torch.from_numpy(ROWS)
    assert as_features(tensor) is tensor


def test_rows_by_slice() -> None:
    for features in (ROWS, sparse.csr_array(ROWS)):
        part = gather_rows(as_features(features), slice(3, 9))
        np.testing.assert_array_equal(part.to_dense(), ROWS[3:9])


def test_resuming_at_a_step_draws_what_would_have_come() -> None:
    pairs = GatheredPairs(sampler(), ROWS)
    through = first_batches(pairs, 6)
    for ours, theirs in zip(first_batches(pairs, 3, start_step=3), through[3:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours[:5], theirs[:5], strict=True))
    assert not torch.equal(first_batches(pairs, 1, seed=1)[0].features, through[0].features)


@pytest.mark.parametrize("make_sampler", [sampler, lambda: UniformPairs(sampler().graph)])
def test_processes_draw_the_batch_of_one(make_sampler: Callable[[], PairSampler]) -> None:
    pairs = GatheredPairs(make_sampler(), ROWS)
    (whole,) = first_batches(pairs, 1)
    ranks = [first_batches(pairs, 1, rank=rank, world_size=4)[0] for rank in range(4)]
    joined = torch.cat([part.features for part in ranks])
    assert sorted(joined.tolist()) == sorted(whole.features.tolist())
    ends = [
        sorted(torch.cat([b.features[b.source], b.features[b.target]], 1).tolist()) for b in ranks
    ]
    expected = torch.cat([whole.features[whole.source], whole.features[whole.target]], 1)
    assert sorted(itertools.chain(*ends)) == sorted(expected.tolist())


def gathering_threads() -> int:
    return sum(thread.name.startswith("prcut-read-ahead") for thread in threading.enumerate())


def test_closing_ends_the_thread(tmp_path: Path) -> None:
    stream = GatheredPairs(sampler(), memory_map(tmp_path)).stream(32)
    assert gathering_threads() == 0
    next(stream)
    assert gathering_threads() == 2
    stream.close()
    assert gathering_threads() == 0


@pytest.mark.parametrize("n_idle", [0, 1])
def test_rows_in_memory_are_drawn_ahead_where_a_core_is_idle(
    n_idle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: torch.get_num_threads() + n_idle)
    with closing(GatheredPairs(sampler(), ROWS).stream(32)) as stream:
        next(stream)
        assert gathering_threads() == 2 * n_idle


def test_errors_of_a_draw_reach_the_reader(tmp_path: Path) -> None:
    for rows in (ROWS[:3], memory_map(tmp_path)[:3]):
        with pytest.raises(IndexError), closing(GatheredPairs(sampler(), rows).stream(32)) as batch:
            next(batch)
        assert gathering_threads() == 0


@pytest.mark.parametrize("make_sampler", [sampler, lambda: UniformPairs(sampler().graph)])
def test_ends_of_pairs_and_their_gradient(make_sampler: Callable[[], PairSampler]) -> None:
    """Halves, and positions anywhere: the same numbers and gradients as plain indexing."""
    (batch,) = first_batches(GatheredPairs(make_sampler()), 1)
    probs = reference.random_probs(64, 3).requires_grad_()
    slope = reference.random_probs(len(batch.weight), 3)
    found = []
    for source, target in (pair_ends(probs, batch), (probs[batch.source], probs[batch.target])):
        (gradient,) = torch.autograd.grad((slope * (source - 2 * source * target)).sum(), probs)
        found.append([source, target, gradient])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)
    is_view = pair_ends(probs, batch)[0].data_ptr() == probs.data_ptr()
    assert is_view == isinstance(make_sampler(), WalkPairs)
