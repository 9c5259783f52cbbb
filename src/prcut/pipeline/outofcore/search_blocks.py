"""The multilevel search of a graph in blocks: fragments → contract → search → refine.

::

    level-0/    the graph of all rows, a part for every block, and rounds of refinement
    level-1/    fragments of its nodes; as many levels as it takes until one process can search
    search.json labels of the nodes of the coarsest level
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prcut.errors import InvalidInputError
from prcut.numerics.objective import ClusterCost
from prcut.pipeline.config import FitConfig
from prcut.pipeline.outofcore.blocks import Blocks
from prcut.pipeline.outofcore.coarsen import coarsen
from prcut.pipeline.outofcore.link import link_blocks
from prcut.pipeline.outofcore.parts import Level, Posts, join_parts
from prcut.pipeline.outofcore.rounds import State, refine_level
from prcut.pipeline.score import MOST_LINKED, Score, score_sums
from prcut.runtime.engine import Engine
from prcut.runtime.folder import Folder
from prcut.search.limits import Limits, limit_sizes
from prcut.search.partition import find_partition
from prcut.search.problem import Problem

# nodes per cluster on the coarsest level, at least; nodes of a level over those of the one below,
# less than this; over those of the one refined before, at least this if it is refined too
_NODES_PER_CLUSTER, _LEAST_FALL, _LEAST_GROWTH = 16, 0.75, 4
_SEARCH = "search.json"
# returns the labels of a part's own nodes
_Label = Callable[[int], np.ndarray]


class BlockPartition(NamedTuple):
    """The labels of all nodes, and their rows in the source."""

    rows: Posts
    state: State
    cost: ClusterCost
    balance_weight: float
    limits: Limits | None


@dataclass(frozen=True)
class BlockSearch:
    """What every stage of the search needs to know."""

    folder: Folder
    config: FitConfig
    most_nodes: int
    engine: Engine
    options: dict[str, Any]

    def run(self, blocks: Blocks) -> BlockPartition:
        """Search, or finish what an earlier run began."""
        similarity: Any = self.config.similarity
        folder, options = self.folder / "level-0", self.options | {"total": blocks.n_samples}
        is_whole = self.config.weight_column is None
        weights = None if is_whole else self.folder
        linked = link_blocks(blocks, folder, similarity, self.engine, options, weights)
        n_samples, total = (_add_up(linked.level, name) for name in ("size", "total"))
        limits = self.config.limits(n_samples, is_whole=is_whole)
        self.options["total"] = max(1, int(n_samples))  # rows with an edge
        how = self.engine, self.options
        if not total > 0:
            raise InvalidInputError(
                f"the graph of n_samples={blocks.n_samples} rows has no edges, so there is nothing "
                "to cut; raise n_neighbors or check the similarities."
            )
        levels, fragments = self._coarsen(linked.level)
        edge_weight = _add_up(linked.level, "squares") / total
        found = self._search(levels[-1], total, edge_weight, limits)
        balance_weight = float(found["balance_weight"])
        n_clusters = self.config.n_clusters
        cost = ClusterCost.of(n_samples, total, n_clusters, balance_weight=balance_weight)
        labels: _Label = partial(_read_labels, self.folder, levels[-1].first_nodes())
        n_refined = levels[-1].first_nodes()[-1]
        for level in reversed(range(max(1, len(levels) - 1))):
            if level < len(fragments):
                labels = partial(_label_fragments, fragments[level], labels)
            n_nodes = levels[level].first_nodes()[-1]
            if level and n_nodes < _LEAST_GROWTH * n_refined:
                continue
            n_refined, folder = n_nodes, self.folder / f"level-{level}"
            state = refine_level(levels[level], folder, labels, cost, *how, limits)
            labels = state.labels.own
        return BlockPartition(linked.rows, state, cost, balance_weight, limits)

    def score(self, found: BlockPartition) -> Score:
        """Score a partition, with the links between its clusters."""
        labels, (_, _, _, n_clusters) = found.state.labels, found.cost
        links = None
        if n_clusters <= MOST_LINKED:
            sums = self.folder / "links"
            add = partial(_link_clusters, labels, n_clusters, sums)
            self.engine.run("score", add, labels.level.n_parts, **self.options)
            numbers = range(labels.level.n_parts)
            tables = (_read_links(sums, number, n_clusters) for number in numbers)
            links = csr_array(sum(tables, start=csr_array((n_clusters, n_clusters))))
        state, layer_sizes = found.state, self.config.layer_sizes
        return score_sums(state.cuts, state.sizes, links, found.cost, layer_sizes)

    def _coarsen(self, level: Level) -> tuple[list[Level], list[Posts]]:
        """Contract the graph until one process can search it, at least once if it is large."""
        levels, fragments = [level], []
        n_nodes, least = level.first_nodes()[-1], _NODES_PER_CLUSTER * self.config.n_clusters
        while n_nodes > max(least, self.most_nodes if len(levels) > 1 else 0):
            folder = self.folder / f"level-{len(levels)}"
            coarse, of_nodes = coarsen(
                levels[-1], folder, self.config.seed, self.engine, self.options
            )
            n_before, n_nodes = n_nodes, coarse.first_nodes()[-1]
            if not least <= n_nodes < _LEAST_FALL * n_before:
                break
            levels.append(coarse)
            fragments.append(of_nodes)
        return levels, fragments

    def _search(
        self, level: Level, total: float, edge_weight: float, limits: Limits | None
    ) -> dict[str, Any]:
        if not self.folder.is_sealed(_SEARCH, level.key):
            task = partial(
                _search_level, self.folder, level, self.config, total, edge_weight, limits
            )
            self.engine.run("search", task, 1, **self.options | {"total": 1})
        found: dict[str, Any] = self.folder.read_json(_SEARCH)
        return found


def _search_level(
    folder: Folder,
    level: Level,
    config: FitConfig,
    total: float,
    edge_weight: float,
    limits: Limits | None,
    _: int,
    advance: Callable[[int], None],
) -> None:
    """Search the coarsest level in this process."""
    coarse = join_parts(level)
    inner = total - float(coarse.links.data.sum(dtype=np.float64))
    coarse = coarse._replace(inner=inner, edge_weight=edge_weight)
    how: Any = {"n_init": config.n_starts, "seed": config.seed, "n_jobs": config.n_threads}
    search = partial(find_partition, coarse, config.n_clusters, **how)
    partition = search(balance_weight=config.balance_weight)
    if limits is not None:
        problem = Problem.of(coarse, config.n_clusters, partition.balance_weight)
        limited = limit_sizes(problem, [partition.labels], limits, search)
        partition = partition._replace(labels=limited.labels, objective=limited.objective)
    content = {
        "key": level.key,
        "balance_weight": partition.balance_weight,
        "objective": partition.objective,
        "agreement": partition.agreement,
    }
    folder.seal(_SEARCH, {"labels.npy": partition.labels.astype(np.int32)}, content)
    advance(1)


def _read_labels(folder: Folder, first: np.ndarray, number: int) -> np.ndarray:
    """Return the labels that the search gave to a part of the coarsest level."""
    return folder.read_array("labels.npy", int(first[number]), int(first[number + 1]))


def _label_fragments(fragments: Posts, labels: _Label, number: int) -> np.ndarray:
    """Return the labels of a part's nodes, those of their fragments."""
    of_nodes: np.ndarray = labels(number)[fragments.own(number)]
    return of_nodes


def _add_up(level: Level, name: str) -> float:
    return float(sum(record.get(name, record["n_own"]) for record in level.records()))


def _link_clusters(
    labels: Posts, n_clusters: int, sums: Folder, number: int, advance: Callable[[int], None]
) -> None:
    """Add up the weights between clusters over the edges of a part's own nodes."""
    part, name = labels.level.load(number), f"links-{number:05d}"
    if not sums.is_sealed(f"{name}.json", labels.key):
        cluster, links = labels.all(number, part), part.graph.links.tocoo()
        pair = cluster[links.row].astype(np.int64) * n_clusters + cluster[links.col]
        pairs, first = np.unique(pair, return_inverse=True)
        table = np.stack([pairs.astype(np.float64), np.bincount(first.reshape(-1), links.data)])
        sums.seal(f"{name}.json", {f"{name}.npy": table}, {"key": labels.key})
    advance(int(part.sizes.sum()))


def _read_links(sums: Folder, number: int, n_clusters: int) -> csr_array:
    pair, weight = sums.read_array(f"links-{number:05d}.npy")
    source, target = np.divmod(pair.astype(np.int64), n_clusters)
    is_between = source != target
    entries = weight[is_between], (source[is_between], target[is_between])
    return csr_array(entries, shape=(n_clusters, n_clusters))
