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
from prcut import SimilarityGraph
from prcut.errors import InvalidInputError
from prcut.numerics.objective import soft_ratio_cut
from prcut.training.batches import (
    FeatureBatch,
    GatheredPairs,
    LabelledRows,
    draw_steps,
    pair_sums,
    step_generator,
)
from prcut.training.pairs import GraphPairs, WalkPairs
from training.test_pairs import samplers, weighted_graph

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


def test_every_step_of_every_seed_has_a_generator_of_its_own() -> None:
    states = {
        step_generator(*pair).initial_seed() for pair in itertools.product(range(20), repeat=2)
    }
    assert len(states) == 20**2
    with pytest.raises(InvalidInputError, match="seed=-1 must be a whole number >= 0"):
        step_generator(-1, 0)


@samplers
def test_steps_drawn_together_are_those_drawn_alone(
    make_sampler: Callable[..., GraphPairs],
) -> None:
    sampler = make_sampler(weighted_graph())
    for step, batch in zip((2, 3, 7), draw_steps(sampler, 4, 1, [2, 3, 7]), strict=True):
        alone = sampler.draw(4, step_generator(1, step))
        assert all(torch.equal(*both) for both in zip(batch, alone, strict=True))


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
        (pairs,) = draw_steps(walk, 32, seed=7, steps=[step])
        for ours, theirs in zip(batch[1:5], pairs[1:], strict=True):
            assert torch.equal(ours, theirs)
        assert batch.features.dtype == torch.float32
        is_sparse = batch.features.layout == torch.sparse_csr
        assert is_sparse == sparse.issparse(features)
        found = batch.features.to_dense() if is_sparse else batch.features
        np.testing.assert_array_equal(found, dense.astype(np.float32)[pairs.rows])


def test_every_row_comes_with_its_label_before_one_comes_again() -> None:
    lesson = LabelledRows(ROWS, torch.arange(N_SAMPLES))
    with closing(lesson.stream(8, seed=7)) as stream:
        batches = list(itertools.islice(stream, 10))
    for epoch in (batches[:5], batches[5:]):
        assert sorted(int(label) for batch in epoch for label in batch.labels) == [*range(40)]
    assert not torch.equal(batches[0].labels, batches[5].labels)
    np.testing.assert_array_equal(batches[0].features, ROWS[batches[0].labels])


@pytest.mark.parametrize("batch_size", [16, 64])  # also more than there are rows
def test_labelled_rows_are_resumed(batch_size: int) -> None:
    lesson = LabelledRows(ROWS, torch.arange(N_SAMPLES))

    with closing(lesson.stream(batch_size)) as stream:
        through = list(itertools.islice(stream, 4))
    with closing(lesson.stream(batch_size, start_step=3)) as stream:
        resumed = next(stream)
    assert resumed.labels.shape == (batch_size,)
    assert torch.equal(resumed.labels, through[3].labels)


def gathering_threads() -> int:
    return sum(thread.name.startswith("prcut-read-ahead") for thread in threading.enumerate())


def test_errors_of_a_draw_reach_the_reader(tmp_path: Path) -> None:
    for rows in (ROWS[:3], memory_map(tmp_path)[:3]):
        with pytest.raises(IndexError), closing(GatheredPairs(sampler(), rows).stream(32)) as batch:
            next(batch)
        assert gathering_threads() == 0


def test_a_sampler_may_depend_on_the_step() -> None:
    rows, graph = torch.arange(6.0)[:, None], SimilarityGraph.from_labels([0, 0, 0, 1, 1, 1])
    longest = WalkPairs(graph, n_steps=4)
    walks = {n_steps: longest.of_length(n_steps) for n_steps in (1, 4)}
    scheduled = GatheredPairs(lambda step: walks[4 if step < 5 else 1], rows)
    for first in (0, 3):  # whichever steps are drawn together
        with closing(scheduled.stream(32, start_step=first)) as stream:
            for step, batch in zip(range(first, 10), stream, strict=False):
                sampler = WalkPairs(graph, n_steps=1) if step >= 5 else longest
                (expected,) = draw_steps(sampler, 32, 0, [step])
                assert torch.equal(batch.features[:, 0].long(), expected.rows)


@pytest.mark.parametrize("n_heads", [0, 3])
def test_more_pairs_than_rows_have_the_cut_and_slopes_of_gathered_ends(n_heads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    heads = (n_heads,) if n_heads else ()
    logits = torch.randn(20, 4, *heads, generator=generator, dtype=torch.float64)
    probs = logits.softmax(1).requires_grad_()
    source, target = (torch.randint(0, 20, (90,), generator=generator) for _ in range(2))
    weight = torch.rand(90, generator=generator, dtype=torch.float64)
    batch = FeatureBatch(torch.empty(20, 0), source, target, weight, torch.ones(20))
    mass = 1 + torch.rand(4, *heads, generator=generator, dtype=torch.float64)
    gathered = soft_ratio_cut(weight, probs[source], probs[target], mass)
    product = (pair_sums(probs, batch)[0] / mass).sum(0)
    torch.testing.assert_close(product, gathered)
    ours, theirs = (torch.autograd.grad(cut.sum(), probs)[0] for cut in (product, gathered))
    torch.testing.assert_close(ours, theirs)
