r"""Samplers of pairs of similar rows for one step of training.

Each sampler draws pairs (i, j) whose weights have the mean :math:`K_{ij} / ‖K‖_1`, K its kernel:

======================  ==============  ================================================
sampler                 K               pairs per draw
======================  ==============  ================================================
:class:`UniformPairs`   W               the edges between two batches, about b²m/n of them
:class:`WalkPairs`      W(D⁻¹W)^(s−1)   b
======================  ==============  ================================================

with b the batch size, m the mean number of neighbours, n the rows and s the steps of a walk. Every
draw puts 2b rows through the assigner. Its cost does not grow with n, except for a table of n
numbers in :class:`UniformPairs`.
The weighted sum over pairs is unbiased; dividing it by a running mass is only consistent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from prcut.errors import InvalidInputError, check_positive_int
from prcut.graph.similarity_graph import SimilarityGraph


class PairBatch(NamedTuple):
    """Pairs of rows, and the rows to put through the assigner in one call.

    With ``probs = assigner.probs(features[batch.rows])`` and
    ``mass = running_mass(probs, batch.node_weight)`` the loss is
    ``soft_ratio_cut(batch.weight, probs[batch.source], probs[batch.target], mass)``.

    Attributes
    ----------
    rows : int64 tensor, shape (n_rows,)
        Row numbers; a row drawn twice is listed twice, so that n_rows is the same at every step.
    source, target : int64 tensors, shape (n_pairs,)
        Positions in ``rows``.
    weight : float32 tensor, shape (n_pairs,)
        Sums to 1 in the mean over draws.
    node_weight : float32 tensor, shape (n_rows,)
        Makes the weighted mean of ``probs`` an estimate of the cluster mass p̄. About 1 on average,
        for any scale of the graph.
    """

    rows: Tensor
    source: Tensor
    target: Tensor
    weight: Tensor
    node_weight: Tensor


class PairSampler(ABC):
    """Draws batches of pairs."""

    @abstractmethod
    def draw(self, batch_size: int, generator: Generator) -> PairBatch:
        """Draw pairs of ``2 * batch_size`` rows, which depend on ``generator`` alone."""

    def draw_batches(self, batch_size: int, generators: Sequence[Generator]) -> list[PairBatch]:
        """Draw a batch with each generator."""
        return [self.draw(batch_size, generator) for generator in generators]


@dataclass(frozen=True, eq=False)
class GraphPairs(PairSampler):
    """Base of the samplers over a graph, which must have edges."""

    graph: SimilarityGraph

    def __post_init__(self) -> None:
        if not self._total > 0:
            raise InvalidInputError(
                f"the graph of n_samples={self.graph.n_samples} rows has no edges, so there are "
                "no pairs to draw; raise n_neighbors or check the similarities."
            )

    @cached_property
    def _total(self) -> float:
        return float(self.graph.degree.sum())


@dataclass(frozen=True, eq=False)
class UniformPairs(GraphPairs):
    """The paper's batches: two drawn without replacement, and the part of W between them.

    For fidelity to the paper, and for small graphs: two batches of many rows share few edges, and a
    draw without edges has a loss of 0. The weight n²W/(b²‖W‖₁) of a pair is unbiased; the paper's
    published code divides by the batch's own ΣW instead, which is biased.

    Examples
    --------
    >>> graph = SimilarityGraph.from_neighbors([[1], [2], [3], [0]])
    >>> batch = UniformPairs(graph).draw(4, torch.Generator().manual_seed(0))
    >>> len(batch.rows), len(batch.weight), batch.weight.sum().item()
    (8, 8, 1.0)
    """

    def draw(self, batch_size: int, generator: Generator) -> PairBatch:
        """Draw two batches of ``batch_size`` rows and every edge from the first to the second."""
        check_positive_int("batch_size", batch_size)
        n_samples, weight = self.graph.n_samples, self.graph.weight
        if batch_size > n_samples:
            raise InvalidInputError(
                f"{batch_size=} must be <= {n_samples=} to draw without replacement; "
                "lower batch_size."
            )
        sources = _draw_distinct(n_samples, batch_size, generator).to(weight.device)
        targets = _draw_distinct(n_samples, batch_size, generator).to(weight.device)
        source, target, entry = _edges_between(weight, sources, targets)
        scale = (n_samples / batch_size) ** 2 / self._total
        return PairBatch(
            rows=torch.cat([sources, targets]),
            source=source,
            target=batch_size + target,
            weight=(weight.values().index_select(0, entry).double() * scale).float(),
            node_weight=torch.ones(2 * batch_size, device=weight.device),
        )


@dataclass(frozen=True, eq=False)
class WalkPairs(GraphPairs):
    """Both ends of random walks of ``n_steps`` steps along the edges; of one step, edges.

    The source is drawn in proportion to its degree, every step in proportion to the weight of the
    edge: the kernel is W(D⁻¹W)^(n_steps−1), symmetric, with the degrees of W. Walks of two and more
    steps may end where they began: the kernel then has a diagonal, which adds nothing to the cut of
    hard assignments and draws soft ones towards hard.

    The cost of a draw does not depend on the size of the graph. Both ends of a pair are drawn in
    proportion to their degree, which the node weights correct. Rows without edges are never drawn
    and are missing from the cluster mass, unlike in :class:`UniformPairs`.

    Parameters
    ----------
    graph : SimilarityGraph
    n_steps : int

    Examples
    --------
    >>> graph = SimilarityGraph.from_neighbors([[1], [2], [1]])
    >>> batch = WalkPairs(graph, n_steps=1).draw(4, torch.Generator().manual_seed(0))
    >>> batch.weight.tolist()
    [0.25, 0.25, 0.25, 0.25]
    >>> batch.rows[batch.source].tolist(), batch.rows[batch.target].tolist()
    ([1, 2, 0, 1], [0, 1, 1, 0])
    """

    n_steps: int = 2

    def __post_init__(self) -> None:
        check_positive_int("n_steps", self.n_steps)
        super().__post_init__()
        # tables that grow with the graph are made before the first draw
        _ = self._before, self._relative_degree

    def of_length(self, n_steps: int) -> WalkPairs:
        """Return walks of another length, which share the tables of these."""
        other = copy(self)
        object.__setattr__(other, "n_steps", check_positive_int("n_steps", n_steps))
        return other

    def draw(self, batch_size: int, generator: Generator) -> PairBatch:
        """Draw ``batch_size`` pairs, the rows of their sources before those of their targets."""
        return self.draw_batches(batch_size, [generator])[0]

    def draw_batches(self, batch_size: int, generators: Sequence[Generator]) -> list[PairBatch]:
        """Draw a batch with each generator, which is faster than one after the other."""
        check_positive_int("batch_size", batch_size)
        # 53 random bits to choose among all edges, 24 among those of a row
        edge = torch.cat([_draw_fractions((batch_size,), each) for each in generators])
        size = self.n_steps, batch_size
        steps = [_draw_fractions(size, each, torch.float32) for each in generators]
        rows = self._draw_ends(edge, torch.cat(steps, dim=1))
        node_weight = self._relative_degree.index_select(0, rows).reciprocal_()
        rows, node_weight = (
            ends.view(2, len(generators), -1).transpose(0, 1).flatten(1)
            for ends in (rows, node_weight)
        )
        source, target = torch.arange(2 * batch_size, device=rows.device).split(batch_size)
        weight = torch.full((batch_size,), 1 / batch_size, device=rows.device)
        return [
            PairBatch(one, source, target, weight, of_rows)
            for one, of_rows in zip(rows, node_weight, strict=True)
        ]

    def _draw_ends(self, edge: Tensor, steps: Tensor) -> Tensor:
        """Return the rows of all sources, then of all targets, from numbers in [0, 1)."""
        # W is symmetric, so the column of a drawn entry has the distribution of its row, which
        # would have to be searched for
        edge = edge.to(self.graph.weight.device)
        first, columns = torch.zeros_like(edge, dtype=torch.int64), self.graph.weight.col_indices()
        entry = self._draw_entries(first, first + len(columns), edge)
        sources = columns.index_select(0, entry)
        targets = self._walk(sources, steps.to(sources.device))
        return torch.cat([sources, targets]).long()

    def _walk(self, rows: Tensor, steps: Tensor) -> Tensor:
        """Return where walks from ``rows`` end, given one number per step and walk."""
        indptr, columns = self.graph.weight.crow_indices(), self.graph.weight.col_indices()
        for fraction in steps:
            start, stop = (indptr.index_select(0, ends).long() for ends in (rows, rows + 1))
            rows = columns.index_select(0, self._draw_entries(start, stop, fraction))
        return rows

    def _draw_entries(self, start: Tensor, stop: Tensor, fraction: Tensor) -> Tensor:
        """Choose one stored entry of each range, in proportion to weight."""
        if self._before is None:
            # float32 rounds the last of more than 2²⁴ entries to the first of the next range
            return torch.minimum(start + (fraction * (stop - start)).long(), stop - 1)
        low, high = (self._before.index_select(0, ends) for ends in (start, stop))
        found = torch.searchsorted(self._before, low + fraction * (high - low), right=True) - 1
        # rounding may reach the upper bound, which belongs to the next range
        return found.clamp(start, stop - 1)

    @cached_property
    def _before(self) -> Tensor | None:
        """Sum of the weights before every entry, and of all; None where all weights are equal."""
        values = self.graph.weight.values()
        low, high = torch.aminmax(values)
        # float32 loses whole edges: 2²⁴ + 1 is 2²⁴ there
        return None if low == high else nn.functional.pad(values.double().cumsum(0), (1, 0))

    @cached_property
    def _relative_degree(self) -> Tensor:
        # over the mean degree: 1/degree of weights near 1e-40 would leave the range of float32
        return (self.graph.degree * (self.graph.n_samples / self._total)).float()


def _draw_fractions(
    size: tuple[int, ...], generator: Generator, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Draw numbers in [0, 1) of 53 random bits (24 in float32), wherever the generator lives."""
    return torch.rand(size, dtype=dtype, generator=generator, device=generator.device)


def _draw_distinct(count: int, size: int, generator: Generator) -> Tensor:
    """Draw ``size`` different numbers below ``count`` uniformly, sorted, in about O(size)."""
    if 2 * size > count:
        order = torch.randperm(count, generator=generator, device=generator.device)
        return order[:size].sort().values
    drawn = torch.empty(0, dtype=torch.int64, device=generator.device)
    # each round draws as many numbers as are missing, since dropping some would bias the draw. Not
    # torch.randint: it takes 32 bits modulo count and, with 2·10⁸ rows, draws some 5 % more often
    while len(drawn) < size:
        more = (_draw_fractions((size - len(drawn),), generator) * count).long()
        drawn = torch.cat([drawn, more]).unique()
    return drawn


def _edges_between(
    weight: Tensor, sources: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the stored entries from rows of ``sources`` to rows of ``targets``.

    Return the positions of their ends in both, and their own among all entries.
    """
    indptr = weight.crow_indices()
    start, stop = indptr[sources].long(), indptr[sources + 1].long()
    end = (stop - start).cumsum(0)
    # entries are consecutive except where a row begins. Not repeat_interleave: it wakes all threads
    # for three numbers, which takes 8 ms instead of 12 µs on a busy machine
    entry = torch.ones(int(end[-1]) + 1, dtype=torch.int64, device=sources.device)
    entry[0] = 0
    entry.index_add_(0, end + start - stop, (stop - end).diff(prepend=stop.new_zeros(1)))
    entry = entry[:-1].cumsum(0)
    # a table in place of a search for every neighbour: 9 ms, not 46, for 2,048 rows of 230
    # neighbours
    position = torch.full((weight.shape[0],), -1, dtype=torch.int32, device=sources.device)
    position[targets] = torch.arange(len(targets), dtype=torch.int32, device=sources.device)
    target = position.index_select(0, weight.col_indices().index_select(0, entry))
    (met,) = (target >= 0).nonzero(as_tuple=True)
    source = torch.searchsorted(end, met, right=True)
    return source, target.index_select(0, met).long(), entry.index_select(0, met)
