r"""Samplers of pairs: what one step of training sees of a graph.

Each sampler draws pairs (i, j) whose weights have the mean :math:`K_{ij} / ‖K‖_1`, K its kernel:

======================  ==============  ================================================
sampler                 K               pairs per draw
======================  ==============  ================================================
:class:`UniformPairs`   W               the edges between two batches, about b²m/n of them
:class:`EdgePairs`      W               b
:class:`WalkPairs`      W(D⁻¹W)^(s−1)   b
======================  ==============  ================================================

with b the batch size, m the mean number of neighbours and n the rows. Every draw puts 2b rows
through the assigner, whatever the sampler, and its cost does not grow with n.
The weighted sum over pairs is unbiased; dividing it by a running mass is only consistent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from prcut.errors import InvalidInputError
from prcut.graph import SimilarityGraph
from prcut.validation import check_positive_int

__all__ = [
    "EdgePairs",
    "GraphPairs",
    "LabelPairs",
    "PairBatch",
    "PairSampler",
    "UniformPairs",
    "WalkPairs",
    "draw_steps",
    "draw_streams",
    "stream_generator",
]


class PairBatch(NamedTuple):
    """Pairs of rows, and the rows to put through the assigner in one call.

    With ``probs = assigner.probs(features[batch.rows])`` and
    ``mass = running_mass(probs, batch.node_weight)`` the loss is
    ``soft_ratio_cut(batch.weight, probs[batch.source], probs[batch.target], mass)``.

    Attributes
    ----------
    rows : int64 tensor, shape (n_rows,)
        Row numbers; a row drawn twice stands here twice, so that n_rows is the same at every step.
    source, target : int64 tensors, shape (n_pairs,)
        Positions in ``rows``.
    weight : float32 tensor, shape (n_pairs,)
        Sums to 1 in the mean over draws.
    node_weight : float32 tensor, shape (n_rows,)
        Makes the weighted mean of ``probs`` an estimate of the cluster mass: p̄, or the
        degree-weighted mean for the normalised cut. Near 1 in the mean, whatever the graph's scale.
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
        """A batch of pairs over ``2 * batch_size`` rows, decided by ``generator`` alone."""

    def draw_batches(
        self, batch_size: int, streams: Sequence[Sequence[Generator]]
    ) -> list[PairBatch]:
        """One batch for each sequence of generators: what :meth:`draw` gives of them, joined."""
        return [_join([self.draw(batch_size, each) for each in batch]) for batch in streams]


class _SharePairs(PairSampler):
    """Samplers that make a pair of so many random numbers: any number of streams at one go."""

    @property
    @abstractmethod
    def _n_shares(self) -> tuple[int, int]:
        """Numbers per pair: of 53 bits, for choices among all, and of 24, among a row's."""

    @abstractmethod
    def _ends(self, fine: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the sources, then of the targets, and their node weights.

        ``fine`` and ``coarse`` are numbers in [0, 1), a row of n_pairs for each of ``_n_shares``.
        """

    def draw(self, batch_size: int, generator: Generator) -> PairBatch:
        """``batch_size`` pairs, the rows of their sources before those of their targets."""
        return self.draw_batches(batch_size, [[generator]])[0]

    def draw_batches(
        self, batch_size: int, streams: Sequence[Sequence[Generator]]
    ) -> list[PairBatch]:
        """As in :class:`PairSampler`, the rows of all sources before those of the targets."""
        check_positive_int("batch_size", batch_size)
        # one walk over all: a few hundred pairs take torch about as long as a few thousand
        fine, coarse = (
            torch.cat(
                [_draw_shares((n, batch_size), each, dtype) for batch in streams for each in batch],
                dim=1,
            )
            for n, dtype in zip(self._n_shares, (torch.float64, torch.float32), strict=True)
        )
        rows, node_weight = (
            ends.view(2, len(streams), -1).transpose(0, 1).flatten(1)
            for ends in self._ends(fine, coarse)
        )
        n_pairs = rows.shape[1] // 2
        position = torch.arange(2 * n_pairs, device=rows.device)
        source, target = position.split(n_pairs)
        weight = torch.full((n_pairs,), 1 / n_pairs, device=rows.device)
        return [
            PairBatch(rows[i], source, target, weight, node_weight[i].float())
            for i in range(len(streams))
        ]


@dataclass(frozen=True, eq=False)
class GraphPairs(PairSampler):
    """What samplers over a graph share: its edges, and which cut the cluster mass is for.

    Parameters
    ----------
    graph : SimilarityGraph
    normalize : bool
        Node weights for the normalised cut instead of the ratio cut.
    """

    graph: SimilarityGraph
    normalize: bool = False

    def __post_init__(self) -> None:
        if not self._total > 0:
            raise InvalidInputError(
                f"the graph of n_samples={self.graph.n_samples} rows has no edges, so there are "
                "no pairs to draw; raise n_neighbors or check the similarities."
            )

    def kernel_product(self, values: Tensor) -> Tensor:
        """The normalised kernel times ``values``, shape (n_samples, n_columns), in float64."""
        product: Tensor = self.graph.weight.double() @ values.double()
        return product / self._total

    def kernel(self) -> Tensor:
        """The normalised kernel as a dense float64 table that sums to 1, for small graphs."""
        return self.kernel_product(torch.eye(self.graph.n_samples, dtype=torch.float64))

    @cached_property
    def _total(self) -> float:
        return float(self.graph.degree.sum())

    @cached_property
    def _relative_degree(self) -> Tensor:
        # over the mean degree: 1/degree of weights near 1e-40 would leave the range of float32
        return (self.graph.degree * (self.graph.n_samples / self._total)).float()


@dataclass(frozen=True, eq=False)
class UniformPairs(GraphPairs):
    """The paper's batches: two drawn without replacement, and the part of W between them.

    Kept for fidelity and small graphs: at many rows two batches hardly ever meet, and a draw may
    hold no pair at all (its loss is then 0). A pair weighs n²W/(b²‖W‖₁), which is right in the
    mean; the paper's published code divides by the batch's own ΣW instead, which is not.

    Examples
    --------
    >>> graph = SimilarityGraph.from_neighbors([[1], [2], [3], [0]])
    >>> batch = UniformPairs(graph).draw(4, torch.Generator().manual_seed(0))
    >>> len(batch.rows), len(batch.weight), batch.weight.sum().item()
    (8, 8, 1.0)
    """

    def draw(self, batch_size: int, generator: Generator) -> PairBatch:
        """Two batches of ``batch_size`` rows and every edge from the first to the second."""
        check_positive_int("batch_size", batch_size)
        n_samples, weight = self.graph.n_samples, self.graph.weight
        if batch_size > n_samples:
            raise InvalidInputError(
                f"{batch_size=} must be <= {n_samples=} to draw without replacement; "
                "lower batch_size."
            )
        sources = _draw_distinct(n_samples, batch_size, generator).to(weight.device)
        targets = _draw_distinct(n_samples, batch_size, generator).to(weight.device)
        position, entry = _entries_of(weight, sources)
        neighbor = weight.col_indices()[entry].long()
        place = torch.searchsorted(targets, neighbor).clamp_max(batch_size - 1)
        met = targets[place] == neighbor
        scale = (n_samples / batch_size) ** 2 / self._total
        rows = torch.cat([sources, targets])
        node_weight = self._relative_degree[rows] if self.normalize else torch.ones(len(rows))
        return PairBatch(
            rows=rows,
            source=position[met],
            target=batch_size + place[met],
            weight=(weight.values()[entry[met]].double() * scale).float(),
            node_weight=node_weight.float().to(weight.device),
        )


@dataclass(frozen=True, eq=False)
class EdgePairs(_SharePairs, GraphPairs):
    """Directed edges drawn in proportion to their weight, with replacement.

    A draw costs the same at any size of the graph. Both ends of a pair come up in
    proportion to their degree, which the node weights undo. Rows without edges are never drawn:
    their share is missing from the cluster mass, and only :class:`UniformPairs` counts it.

    Examples
    --------
    >>> graph = SimilarityGraph.from_neighbors([[1], [2], [1]])
    >>> batch = EdgePairs(graph).draw(4, torch.Generator().manual_seed(0))
    >>> batch.weight.tolist()
    [0.25, 0.25, 0.25, 0.25]
    >>> batch.rows[batch.source].tolist(), batch.rows[batch.target].tolist()
    ([1, 2, 0, 1], [0, 1, 1, 0])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        # what grows with the graph is made before the first draw
        _ = self._cumulated, self._relative_degree

    @property
    def _walk_length(self) -> int:
        return 1

    @property
    def _n_shares(self) -> tuple[int, int]:
        return 1, self._walk_length

    def _ends(self, fine: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:
        # W is symmetric: the column of a drawn entry has the law of its row, which would have to
        # be searched for
        share = fine[0].to(self.graph.weight.device)
        first, columns = torch.zeros_like(share, dtype=torch.int64), self.graph.weight.col_indices()
        entry = self._draw_entries(first, first + len(columns), share)
        sources = columns.index_select(0, entry)
        targets = self._walk(sources, coarse.to(sources.device))
        rows = torch.cat([sources, targets]).long()
        if self.normalize:
            return rows, torch.ones(len(rows), device=rows.device)
        return rows, self._relative_degree.index_select(0, rows).reciprocal_()

    def _walk(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Where walks from ``rows`` end, with one number per step and walk."""
        indptr, columns = self.graph.weight.crow_indices(), self.graph.weight.col_indices()
        for share in shares:
            start, stop = (indptr.index_select(0, ends).long() for ends in (rows, rows + 1))
            rows = columns.index_select(0, self._draw_entries(start, stop, share))
        return rows

    def _draw_entries(self, start: Tensor, stop: Tensor, share: Tensor) -> Tensor:
        """Of each range of stored entries one, in proportion to weight."""
        if self._cumulated is None:
            # float32 cannot tell the last of more than 2²⁴ entries from the next range's first
            return torch.minimum(start + (share * (stop - start)).long(), stop - 1)
        low, high = (self._cumulated.before.index_select(0, ends) for ends in (start, stop))
        return self._cumulated.find(low + share * (high - low), start, stop)

    @cached_property
    def _cumulated(self) -> _CumulatedWeight | None:
        """None where all weights are equal."""
        values = self.graph.weight.values()
        low, high = torch.aminmax(values)
        return None if low == high else _CumulatedWeight(values)


@dataclass(frozen=True, eq=False)
class WalkPairs(EdgePairs):
    """Both ends of random walks of ``n_steps`` steps along the edges.

    The source is drawn in proportion to its degree, every step in proportion to the weight of the
    edge: the kernel is W(D⁻¹W)^(n_steps−1), symmetric, with the degrees of W. One step gives
    :class:`EdgePairs`. Two steps and more may end where they began: the kernel then has a diagonal,
    which cuts nothing for hard assignments and draws soft ones towards hard.

    Parameters
    ----------
    graph : SimilarityGraph
    normalize : bool
        As in :class:`EdgePairs`: the walk is reversible, so its end is met like its source.
    n_steps : int

    Examples
    --------
    >>> path = SimilarityGraph.from_neighbors([[1], [2], [1]])
    >>> WalkPairs(path, n_steps=2).kernel().tolist()  # two steps lead from the middle back to it
    [[0.125, 0.0, 0.125], [0.0, 0.5, 0.0], [0.125, 0.0, 0.125]]
    """

    n_steps: int = 2

    def __post_init__(self) -> None:
        check_positive_int("n_steps", self.n_steps)
        super().__post_init__()

    def kernel_product(self, values: Tensor) -> Tensor:
        """As in :class:`GraphPairs`, by ``n_steps`` sparse products."""
        weight = self.graph.weight.double()
        # rows without edges stay out of every product: their divisor is never used
        degree = torch.where(self.graph.degree > 0, self.graph.degree, 1.0)[:, None]
        values = values.double()
        for _ in range(self.n_steps - 1):
            values = (weight @ values) / degree
        return super().kernel_product(values)

    @property
    def _walk_length(self) -> int:
        return self.n_steps


class LabelPairs(_SharePairs):
    """Pairs of different rows with the same label: :meth:`SimilarityGraph.from_labels` unstored.

    A row of a class of c rows has degree c − 1; rows labelled -1, or alone in their class, are
    never drawn. A draw costs the same for a million rows as for a hundred.

    Parameters
    ----------
    labels : integer tensor, shape (n_samples,)
    normalize : bool
        Node weights for the normalised cut instead of the ratio cut.

    Examples
    --------
    >>> labels = torch.tensor([0, 1, 0, 1, -1, 2])
    >>> batch = LabelPairs(labels).draw(3, torch.Generator().manual_seed(0))
    >>> bool((labels[batch.rows[batch.source]] == labels[batch.rows[batch.target]]).all())
    True
    """

    def __init__(self, labels: Tensor, *, normalize: bool = False) -> None:
        if labels.ndim != 1 or labels.is_floating_point():
            raise InvalidInputError(
                f"labels have shape {tuple(labels.shape)} and dtype {labels.dtype}, "
                "expected one integer per row."
            )
        self.normalize = normalize
        rows = torch.nonzero(labels != -1)[:, 0]
        _, members, self._count = labels[rows].unique(return_inverse=True, return_counts=True)
        self._rows = rows[members.argsort(stable=True)]
        self._start = self._count.cumsum(0) - self._count
        pairs = self._count * (self._count - 1)
        if not len(pairs) or pairs.sum() == 0:
            raise InvalidInputError(
                f"no two of the n_samples={len(labels)} rows have the same label, so there are no "
                "pairs to draw."
            )
        self._bounds = pairs.double().cumsum(0)
        self._mean_degree = float(self._bounds[-1]) / len(self._rows)

    _n_shares = 3, 0

    def _ends(self, fine: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        share, first, step = fine.to(self._rows.device)
        which = torch.searchsorted(self._bounds, share * self._bounds[-1], right=True)
        count = self._count[which]
        source = (first * count).long()
        target = (source + 1 + (step * (count - 1)).long()) % count  # any other row of the class
        rows = self._rows[torch.cat([source, target]) + self._start[which].repeat(2)]
        node_weight = self._mean_degree / (count.repeat(2) - 1)
        return rows, torch.ones_like(node_weight) if self.normalize else node_weight


class _CumulatedWeight:
    """Sums of the weights before every entry, and a table that says where to look in them.

    The sums are cut into equal cells of about 8 entries each. A search then takes a few rounds over
    one cell, not one per doubling of the graph: 5 ms instead of 13 for the 2048 walks of 8 steps of
    one batch on 13M entries.
    """

    def __init__(self, values: Tensor) -> None:
        # float32 loses whole edges: 2²⁴ + 1 is 2²⁴ there
        zero = torch.zeros(1, dtype=torch.float64, device=values.device)
        self.before = torch.cat([zero, values.double().cumsum(0)])
        self._n_cells = len(values) // 8 + 1
        in_cell = self._cell(self.before).bincount(minlength=self._n_cells + 1)
        before_cell = torch.cat([zero.long(), in_cell.cumsum(0)])
        self._cell_bounds = (before_cell - 1).unfold(0, 2, 1)

    def find(self, weight: Tensor, start: Tensor, stop: Tensor) -> Tensor:
        """The last entry of [start, stop) that no more than ``weight`` lies before."""
        low, high = self._cell_bounds.index_select(0, self._cell(weight)).unbind(1)
        # rounding may reach the upper bound, which belongs to the next range
        low, high = low.clamp(start, stop - 1), high.clamp(start, stop - 1)
        for _ in range(int((high - low).max()).bit_length()):
            middle = (low + high + 1) >> 1
            beyond = self.before.index_select(0, middle) > weight
            low, high = torch.where(beyond, low, middle), torch.where(beyond, middle - 1, high)
        return low

    def _cell(self, weight: Tensor) -> Tensor:
        return (weight / self.before[-1] * self._n_cells).long()


def stream_generator(seed: int, step: int, stream: int) -> Generator:
    """The generator of one logical stream at one step, on the CPU.

    Nothing else enters: a run that starts again at ``step``, or on another number of processes,
    draws what the first would have drawn.

    >>> draws = [torch.rand(1, generator=stream_generator(0, 7, stream)) for stream in (1, 1, 2)]
    >>> bool(draws[0] == draws[1]), bool(draws[0] == draws[2])
    (True, False)
    """
    for name, value in (("seed", seed), ("step", step), ("stream", stream)):
        if value < 0:
            raise InvalidInputError(f"{name}={value} must be a whole number >= 0.")
    # hashed, because neighbouring seeds would start related streams; 32 bits are all that torch's
    # generator on the CPU keeps of a seed. NumPy's SeedSequence takes ten times as long
    digest = blake2b(f"{seed} {step} {stream}".encode(), digest_size=4).digest()
    return Generator().manual_seed(int.from_bytes(digest, "little"))


def draw_streams(
    sampler: PairSampler,
    batch_size: int,
    seed: int,
    step: int,
    *,
    n_streams: int = 8,
    rank: int = 0,
    world_size: int = 1,
) -> PairBatch:
    """The part of a step's batch that process ``rank`` of ``world_size`` draws.

    :func:`draw_steps` gives the batches of several steps, sooner than one by one.

    The batch is made of ``n_streams`` logical streams, each ``batch_size / n_streams`` large and
    seeded by (seed, step, stream); process ``rank`` draws the streams ``rank, rank + world_size,
    …``. The union over processes is therefore the same for every ``world_size``, and the mean of
    their losses, given a common cluster mass, is the loss of one process that draws them all.

    :class:`UniformPairs` meets edges within a stream only, ``n_streams`` times fewer than in one
    piece: take ``n_streams=1`` for the paper's batches.

    Parameters
    ----------
    sampler : PairSampler
    batch_size : int
        Of all processes together, in the sense of :meth:`PairSampler.draw`.
    seed, step : int
    n_streams : int
        A multiple of ``world_size`` that divides ``batch_size``; part of a run's configuration,
        since other streams are other pairs.
    rank, world_size : int

    Examples
    --------
    >>> sampler = EdgePairs(SimilarityGraph.from_neighbors([[1], [2], [1]]))
    >>> batch = draw_streams(sampler, 16, seed=0, step=3, rank=1, world_size=2)
    >>> batch.rows.shape, batch.weight.sum().item()
    (torch.Size([16]), 1.0)
    """
    (batch,) = draw_steps(
        sampler, batch_size, seed, [step], n_streams=n_streams, rank=rank, world_size=world_size
    )
    return batch


def draw_steps(
    sampler: PairSampler,
    batch_size: int,
    seed: int,
    steps: Sequence[int],
    *,
    n_streams: int = 8,
    rank: int = 0,
    world_size: int = 1,
) -> list[PairBatch]:
    """What :func:`draw_streams` gives at each of some steps."""
    _check_streams(batch_size, n_streams, rank, world_size)
    mine = range(rank, n_streams, world_size)
    streams = [[stream_generator(seed, step, stream) for stream in mine] for step in steps]
    return sampler.draw_batches(batch_size // n_streams, streams)


def _join(parts: list[PairBatch]) -> PairBatch:
    n_rows = len(parts[0].rows)  # the same in every part
    return PairBatch(
        rows=torch.cat([part.rows for part in parts]),
        source=torch.cat([i * n_rows + part.source for i, part in enumerate(parts)]),
        target=torch.cat([i * n_rows + part.target for i, part in enumerate(parts)]),
        weight=torch.cat([part.weight for part in parts]) / len(parts),
        node_weight=torch.cat([part.node_weight for part in parts]),
    )


def _check_streams(batch_size: int, n_streams: int, rank: int, world_size: int) -> None:
    for name, value in (
        ("batch_size", batch_size),
        ("n_streams", n_streams),
        ("world_size", world_size),
    ):
        check_positive_int(name, value)
    if not 0 <= rank < world_size:
        raise InvalidInputError(f"{rank=} must be >= 0 and < {world_size=}.")
    if n_streams % world_size:
        raise InvalidInputError(
            f"{n_streams=} must be a multiple of {world_size=}, so that every process draws as "
            "many streams; change the number of processes."
        )
    if batch_size % n_streams:
        raise InvalidInputError(
            f"{batch_size=} must be a multiple of {n_streams=}, so that streams are equally "
            f"large; {batch_size + -batch_size % n_streams} is."
        )


def _draw_shares(
    size: int | tuple[int, ...], generator: Generator, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Numbers in [0, 1) of 53 random bits (24 in float32), wherever the generator lives."""
    return torch.rand(size, dtype=dtype, generator=generator, device=generator.device)


def _draw_distinct(count: int, size: int, generator: Generator) -> Tensor:
    """A uniform sample of ``size`` of the numbers below ``count``, sorted, in about O(size)."""
    if 2 * size > count:
        order = torch.randperm(count, generator=generator, device=generator.device)
        return order[:size].sort().values
    found = torch.empty(0, dtype=torch.int64, device=generator.device)
    # numbers are drawn until ``size`` of them are different: a round asks for no more than are
    # missing, so none is ever thrown away, which would favour some. Not torch.randint: it takes
    # 32 bits modulo count, and of 2·10⁸ rows draws some 5 % more often than others
    while len(found) < size:
        drawn = (_draw_shares(size - len(found), generator) * count).long()
        found = torch.cat([found, drawn]).unique()
    return found


def _entries_of(weight: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Every stored entry of some rows: the position of its row in ``rows``, and its own."""
    indptr = weight.crow_indices()
    start, stop = indptr[rows].long(), indptr[rows + 1].long()
    end = (stop - start).cumsum(0)
    n_entries = int(end[-1])
    # the rows that end at or before an entry, counted. Not repeat_interleave: it wakes every
    # thread for three numbers, 8 ms instead of 12 µs on a busy machine
    position = end.bincount(minlength=n_entries + 1)[:n_entries].cumsum(0)
    entry = torch.arange(n_entries, device=rows.device) + (stop - end)[position]
    return position, entry
