"""Refinement of a partition of a graph in parts: rounds in which all parts move nodes.

In a round every part moves its own nodes, one after the other, as if no other part did. Because
others do, only a damped fraction of the moves is made, chosen by a hash of node and round; then the
objective is summed over the parts. A round that does not lower it is taken back, and the next one
makes fewer moves. What a round does depends on nothing but its number and the labels before it::

    round-003/        labels of every part, kept while they are the lowest
    round-003.json    cuts and sizes of the clusters, the objective, and what comes of the round

Where sizes have limits, rounds of flow come last: parts write their cheapest moves, of all these
the paths are chosen that bring sizes within the limits, and parts make the moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from prcut.numerics.objective import ClusterCost
from prcut.pipeline.outofcore.parts import Level, Posts
from prcut.runtime.engine import Engine
from prcut.runtime.folder import Folder
from prcut.search.limits import Limits, Moves, Needs, choose_moves, price_moves
from prcut.search.prices import Prices
from prcut.search.problem import Problem
from prcut.search.sweep import cluster_sums, sweep

_LOG = logging.getLogger(__name__)
_N_ROUNDS, _N_SWEEPS = 14, 2
# relative fall of the objective by a round that is worth another one
_LEAST_FALL = 1e-4
# fraction of the moves that the first round makes, and the one where clusters are many: there a
# cluster has few nodes in a part, and moves of several parts meet in it
_FRACTION, _SMALL_FRACTION, _MANY_CLUSTERS = 0.5, 0.25, 250
# how far sizes may leave their limits before rows flow, as a fraction of their mean; the first of
# the rounds of flow, how many there are, and moves between two clusters that one chooses from
_DRIFT, _FIRST_FLOW, _N_FLOWS, _MOVES_PER_PAIR = 0.05, _N_ROUNDS + 1, 30, 1024
# fraction of what lies outside that a round brings inside, if moves of any kind do
_LEAST_FLOW = 0.1
# shifts and factors of splitmix64
_MIXING = ((30, 0x9E3779B97F4A7C15), (27, 0xBF58476D1CE4E5B9), (31, 0x94D049BB133111EB))
# makes labels of a part's own nodes: from a coarser level, or by moves
_Label = Callable[[int], np.ndarray]


class State(NamedTuple):
    """The partition that has the lowest objective so far, and what the next round does."""

    labels: Posts
    cuts: np.ndarray
    sizes: np.ndarray
    objective: float
    fraction: float
    is_over: bool = False


def refine_level(
    level: Level,
    folder: Folder,
    label: _Label,
    cost: ClusterCost,
    engine: Engine,
    options: dict[str, Any],
    limits: Limits | None = None,
) -> State:
    """Refine the labels that a coarser level, or a search, gives the nodes of this one."""
    how = engine, options

    def play(number: int, state: State | None, make: Callable[[Folder], _Label | None]) -> State:
        labels = Posts(level, folder / f"round-{number:03d}", level.key)
        round_ = _Round(folder, number, labels, cost, state)
        if not folder.is_sealed(round_.record, level.key):
            if (label := make(labels.folder)) is None:
                assert state is not None  # noqa: S101
                return state._replace(is_over=True)
            engine.run("refine", partial(_post_labels, labels, label), level.n_parts, **options)
            measure = partial(_measure, labels, cost.n_clusters)
            engine.run("measure", measure, level.n_parts, **options)
            round_.decide()
        state = round_.read()
        for earlier in (folder / f"round-{other:03d}" for other in range(number + 1)):
            if earlier.path != state.labels.folder.path:
                earlier.delete()
        return state

    state = play(0, None, partial(_as_given, label))
    bounds = None if limits is None else limits.widen(_DRIFT * cost.n_samples / cost.n_clusters)
    for number in range(1, _N_ROUNDS + 1):
        if not state.is_over:
            propose = partial(_propose, state, cost, bounds, number)
            state = play(number, state, partial(_as_given, propose))
    state = state._replace(is_over=False)
    for number in range(_FIRST_FLOW, _FIRST_FLOW + _N_FLOWS):
        if limits is None or limits.hold(state.sizes) or state.is_over:
            break
        state = play(number, state, partial(_choose_flow, state, cost, limits, how))
    return state


def _as_given(label: _Label, _: Folder) -> _Label:
    return label


class _Round(NamedTuple):
    """One round, the state before it, and the decision about it."""

    folder: Folder
    number: int
    labels: Posts
    cost: ClusterCost
    before: State | None

    @property
    def record(self) -> str:
        return f"round-{self.number:03d}.json"

    def decide(self) -> None:
        """Add up what the parts measured, and write whether the round is kept; a flow always is."""
        cuts, sizes = _sum_parts(self.labels, self.cost.n_clusters)
        objective = self.cost.objective(cuts, sizes)
        before, fraction, is_over = self.before, self._first_fraction(), False
        is_kept = before is None or self.number >= _FIRST_FLOW
        if before is not None and not is_kept:
            fall = before.objective - objective
            is_kept = fall > 0 and bool(sizes[before.sizes > 0].all())
            is_over = 0 <= fall < _LEAST_FALL * before.objective
            fraction = before.fraction * 1.5 if is_kept else before.fraction / 2
        undone = "" if is_kept else ", undone"
        _LOG.info("round %d: objective %.6f%s", self.number, objective, undone)
        content = {
            "key": self.labels.key,
            "objective": objective,
            "is_kept": is_kept,
            "fraction": min(1.0, fraction),
            "is_over": is_over,
        }
        arrays = {"cuts": cuts, "sizes": sizes}
        name = f"round-{self.number:03d}"
        self.folder.seal(self.record, {f"{name}.{one}.npy": arrays[one] for one in arrays}, content)

    def _first_fraction(self) -> float:
        if self.labels.level.n_parts == 1:
            return 1.0
        return _SMALL_FRACTION if self.cost.n_clusters > _MANY_CLUSTERS else _FRACTION

    def read(self) -> State:
        """Return the state after the round."""
        record, name = self.folder.read_json(self.record), f"round-{self.number:03d}"
        then: dict[str, Any] = {name: record[name] for name in ("fraction", "is_over")}
        if not record["is_kept"]:
            assert self.before is not None  # noqa: S101
            return self.before._replace(**then)
        cuts, sizes = (self.folder.read_array(f"{name}.{one}.npy") for one in ("cuts", "sizes"))
        return State(self.labels, cuts, sizes, float(record["objective"]), **then)


def _post_labels(labels: Posts, make: _Label, number: int, advance: Callable[[int], None]) -> None:
    part = labels.level.load(number)
    if not labels.has(number):
        labels.post(number, part, make(number).astype(np.int32))
    advance(int(part.sizes.sum()))


def _choose_flow(
    state: State,
    cost: ClusterCost,
    limits: Limits,
    how: tuple[Engine, dict[str, Any]],
    folder: Folder,
) -> _Label | None:
    """Choose moves that bring sizes nearer to their limits; return what makes them, if any."""
    (engine, options), level = how, state.labels.level
    outside = np.abs(limits.excess(state.sizes))
    needs, largest, least_outside = limits.needs(state.sizes), float(outside.max()), outside.sum()
    # to clusters of neighbours, or to any; also without nodes that are too large to have room
    for number, which in enumerate(product((None, needs), (np.inf, largest))):
        place = folder / f"moves-{number}"
        engine.run("price", partial(_price, state, cost, which, place), level.n_parts, **options)
        tables = [place.read_array(f"{number:05d}.npy") for number in range(level.n_parts)]
        row, before, after, *others = np.concatenate(tables, axis=1)
        part = np.repeat(np.arange(level.n_parts), [table.shape[1] for table in tables])
        row, before, after = (values.astype(np.int64) for values in (row, before, after))
        moves = Moves(row + (part << 32), before, after, *others)
        chosen = moves.take(choose_moves(moves, state.sizes, limits, at_once=0.5, at_least=0.2))
        sizes = state.sizes.copy()
        np.subtract.at(sizes, chosen.before, chosen.size)
        np.add.at(sizes, chosen.after, chosen.size)
        still_outside = np.abs(limits.excess(sizes)).sum()
        if still_outside < least_outside:
            least_outside = still_outside
            folder.write_array("chosen.npy", np.stack([chosen.row, chosen.after]))
        if least_outside < (1 - _LEAST_FLOW) * outside.sum():
            break
    return partial(_make_moves, state, folder) if least_outside < outside.sum() else None


def _price(
    state: State,
    cost: ClusterCost,
    which: tuple[Needs | None, float],
    place: Folder,
    number: int,
    advance: Callable[[int], None],
) -> None:
    """Write the cheapest moves of own nodes between each two clusters."""
    level, name = state.labels.level, f"{number:05d}"
    part = level.load(number)
    if not place.is_sealed(f"{name}.json", level.key):
        labels = state.labels.all(number, part).astype(np.int64)
        moves = price_moves(Problem(part.graph, cost), labels, (state.cuts, state.sizes), *which)
        order, rank = moves.rank(cost.n_clusters)
        cheap = moves.take(order[rank < max(2, _MOVES_PER_PAIR // level.n_parts)])
        place.seal(f"{name}.json", {f"{name}.npy": np.stack(cheap)}, {"key": level.key})
    advance(int(part.sizes.sum()))


def _make_moves(state: State, folder: Folder, number: int) -> np.ndarray:
    """Make the moves of own nodes that were chosen."""
    labels = np.array(state.labels.own(number))
    rows, after = folder.read_array("chosen.npy")
    is_own = rows >> 32 == number
    labels[rows[is_own] & 0xFFFFFFFF] = after[is_own]
    return labels


def _propose(
    state: State, cost: ClusterCost, bounds: Limits | None, round_number: int, number: int
) -> np.ndarray:
    """Move own nodes, and take back all but a damped fraction of the moves."""
    part = state.labels.level.load(number)
    before = state.labels.all(number, part).astype(np.int64)
    sums, prices = (state.cuts, state.sizes), None
    if bounds is not None:
        least = max(bounds.least, 0.5 * part.sizes.min(initial=1))  # none becomes empty
        least, most = (np.full(cost.n_clusters, size) for size in (least, bounds.most))
        prices = Prices(least=least, most=most)
    after = sweep(part.graph, before, cost, sums, _N_SWEEPS, prices)[: part.n_own]
    before = before[: part.n_own]
    moved = np.flatnonzero(after != before)
    made = moved[draw_fractions(moved + (number << 32), round_number) < state.fraction]
    before[made] = after[made]
    return before


def draw_fractions(nodes: np.ndarray, round_number: int) -> np.ndarray:
    """Hash nodes and a round to numbers in [0, 1) (splitmix64)."""
    hashed = (nodes.astype(np.uint64) << np.uint64(8)) + np.uint64(round_number)
    for shift, factor in _MIXING:
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * np.uint64(factor)
    drawn: np.ndarray = (hashed >> np.uint64(11)) * 2.0**-53
    return drawn


def _measure(labels: Posts, n_clusters: int, number: int, advance: Callable[[int], None]) -> None:
    """Write the cuts and sizes of the clusters in a part, without those that are not in it."""
    folder, name = labels.folder, f"sums-{number:05d}"
    part = labels.level.load(number)
    if not folder.is_sealed(f"{name}.json", labels.key):
        cuts, sizes = cluster_sums(part.graph, labels.all(number, part), n_clusters)
        clusters = np.flatnonzero((cuts > 0) | (sizes > 0))
        sums = np.stack([clusters, cuts[clusters], sizes[clusters]])
        folder.seal(f"{name}.json", {f"{name}.npy": sums}, {"key": labels.key})
    advance(int(part.sizes.sum()))


def _sum_parts(labels: Posts, n_clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Add up cuts and sizes, in the order of the parts: the same bits whoever measured them."""
    cuts, sizes = np.zeros((2, n_clusters))
    for number in range(labels.level.n_parts):
        clusters, cut, size = labels.folder.read_array(f"sums-{number:05d}.npy")
        cuts[clusters.astype(np.int64)] += cut
        sizes[clusters.astype(np.int64)] += size
    return cuts, sizes
