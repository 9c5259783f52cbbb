"""What there is to see in a clustering: the figures that plots and reports show.

One pass assigns all rows, another puts them on a map; memory holds a few numbers per row. The
graph of the run, in memory or in blocks, gives the cut between the clusters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from prcut.assigner import Assigner
from prcut.assignment import hidden_rows, rank_clusters
from prcut.blocks import open_blocks
from prcut.certificate import SpectralBound, spectral_lower_bound
from prcut.cluster_cost import ClusterCost
from prcut.coarse_graph import CoarseGraph
from prcut.cuts import cluster_links
from prcut.errors import InvalidInputError
from prcut.fitting import label_edges
from prcut.graph import SimilarityGraph
from prcut.graph_folder import GRAPH_RECORD, load_graph
from prcut.level_assigner import LevelAssigner
from prcut.level_folder import load_levels
from prcut.merging import MergeTree, merge
from prcut.model_folder import load_model
from prcut.progress import Progress, Reporter
from prcut.projection import learn_projection
from prcut.run_folder import check_finished, read_history, read_plan
from prcut.sources import Source, open_source, sample_rows
from prcut.storage import Folder, finite_number, parsing, whole_number

__all__ = ["Inspection", "RowExamples", "RowSource", "inspect_assigner", "inspect_run"]

# rows read at a time, and those that directions and anchors of the map are drawn from
_PIECE_ROWS, _SAMPLE_ROWS = 2**14, 6000
# rows looked at where the graph is on disk: more tell nothing new
_MOST_ROWS = 10_000_000
# links between more clusters would be a table of their own size
_MOST_LINKED = 3000
# what the eigenvectors of the certificate may cost, in edges times vectors: about two minutes
_MOST_CERTIFIED = 250_000_000


class RowExamples(NamedTuple):
    """Rows that show what a cluster is about, the best first; row numbers of the data.

    Attributes
    ----------
    typical : int64 array
        Nearest to the cluster's mean in what the last layer sees.
    ambiguous : int64 array
        With the lowest probability of the cluster, which is still the highest they have.
    runner_up : int64 array
        The next cluster of the ambiguous ones, -1 where it is unknown.
    confidence : float32 array
        Of the ambiguous ones.
    """

    typical: np.ndarray
    ambiguous: np.ndarray
    runner_up: np.ndarray
    confidence: np.ndarray


class RowSource:
    """Rows in memory as a source, also such as an array source refuses: sparse ones."""

    def __init__(self, rows: Any) -> None:
        self.array = rows
        self.n_samples, self.n_features = rows.shape
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        self.fingerprint = ""
        self.group_starts = np.empty(0, np.int64)

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start:stop``."""
        return self.array[start:stop]

    def read_ids(self, start: int, stop: int) -> None:
        """None: there are none."""


@dataclass(frozen=True)
class Inspection:
    """What was found about a clustering of the rows of a source.

    Attributes
    ----------
    name : str
        Of the run.
    source : Source
    about : dict
        What was clustered and how: plan and result.
    rows : int64 array, shape (n_seen,)
        Numbers of the rows that were looked at, ascending: all, unless there are too many.
    labels, runner_up : int32 arrays, shape (n_seen,)
    confidence : float32 array, shape (n_seen,)
    places : float32 array, shape (n_seen, 2)
        On the map.
    distances : float32 array, shape (n_seen,)
        To the mean of the row's cluster, in what the last layer sees.
    n_clusters : int
    links : float64 array, shape (n_clusters, n_clusters), or None
        Weight between and (diagonal, both directions) inside clusters.
    n_components : int or None
        Connected parts of the graph, where it is in memory.
    bound : SpectralBound or None
    history : dict of arrays
    found_labels : array, shape (n_seen,), or None
        The partition that the assigner was taught, where it is known.
    first_level : int64 array, shape (n_clusters,), or None
        Of levels: the cluster of the first level that a cluster lies in.
    seconds : float
        That looking took.
    """

    name: str
    source: Source
    about: Mapping[str, Any]
    rows: np.ndarray
    labels: np.ndarray
    runner_up: np.ndarray
    confidence: np.ndarray
    places: np.ndarray
    distances: np.ndarray
    n_clusters: int
    links: np.ndarray | None = None
    n_components: int | None = None
    bound: SpectralBound | None = None
    history: Mapping[str, np.ndarray] = field(default_factory=dict)
    found_labels: np.ndarray | None = None
    first_level: np.ndarray | None = None
    seconds: float = 0.0

    @cached_property
    def sizes(self) -> np.ndarray:
        """Rows of every cluster, int64."""
        return np.bincount(self.labels, minlength=self.n_clusters)

    @cached_property
    def mean_confidence(self) -> Any:
        """Of the rows of every cluster; NaN for an empty one."""
        total = np.bincount(self.labels, self.confidence, self.n_clusters)
        mean = np.full(self.n_clusters, np.nan)
        return np.divide(total, self.sizes, out=mean, where=self.sizes > 0)

    @cached_property
    def link_shares(self) -> Any:
        """Share of a cluster's weight that goes to each cluster: rows sum to 1."""
        if self.links is None:
            return None
        volume = self.links.sum(1, keepdims=True)
        return np.divide(self.links, volume, out=np.zeros_like(self.links), where=volume > 0)

    @property
    def better_than_chance(self) -> float | None:
        """1 is a perfect cut, 0 that of labels drawn at random: ``PRCut.score``."""
        objective = self.about.get("objective")
        if objective is None or self.n_clusters < 2:
            return None
        return float(1 - objective / (self.n_clusters - 1))

    @property
    def bound_ratio(self) -> float | None:
        """At most so many times the smallest ratio cut is that of the run."""
        cut = self.about.get("ratio_cut")
        return None if self.bound is None or cut is None else self.bound.ratio(float(cut))

    @cached_property
    def merges(self) -> MergeTree | None:
        """How the clusters would merge, the pair that is cut most first; None if one is empty."""
        if self.links is None or not self.sizes.all() or self.n_clusters < 2:
            return None
        between = self.links.copy()
        np.fill_diagonal(between, 0.0)
        # by the cut alone: with the balance the two smallest would merge, alike or not
        total = int(self.sizes.sum()), float(self.links.sum())
        cost = ClusterCost.of(*total, self.n_clusters, balance_weight=0.0)
        return merge(CoarseGraph(between, self.sizes.astype(np.float64)), cost)

    def examples(self, n_rows: int) -> list[RowExamples]:
        """Typical and ambiguous rows of every cluster, at most ``n_rows`` of each."""
        stops = np.cumsum(self.sizes)
        starts = stops - self.sizes
        near = np.lexsort((self.distances, self.labels))
        unsure = np.lexsort((self.confidence, self.labels))
        found = []
        for start, stop in zip(starts, stops, strict=True):
            last = min(start + n_rows, stop)
            doubtful = unsure[start:last]
            found.append(
                RowExamples(
                    self.rows[near[start:last]],
                    self.rows[doubtful],
                    self.runner_up[doubtful],
                    self.confidence[doubtful],
                )
            )
        return found


def inspect_run(
    path: str | Path,
    *,
    data: Any = None,
    most_rows: int = _MOST_ROWS,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> Inspection:
    """Look at a finished run.

    Parameters
    ----------
    path : str or path
        Of the run folder, of :func:`prcut.runs.fit_run` or :func:`prcut.levels.fit_levels`.
    data : array, or path or URI, optional
        What was clustered, where the run does not say or it has moved.
    most_rows : int
        Rows to look at where the graph is on disk: some of them, spread over all.
    seed : int
        Of the map.
    on_progress : callable, optional
        Called with a :class:`prcut.progress.Progress`.
    """
    folder = Folder(path)
    plan = read_plan(folder)
    check_finished(folder)
    with parsing(f"{path}/result.json"):
        result = dict(folder.read_json("result.json"))
        _check_figures(result)
    with parsing(f"{path}/plan.json"):
        _check_settings(plan)
    name = str(path).rstrip("/").rsplit("/", 1)[-1]
    data = data if data is not None else plan.get("data") or result.get("data")
    if data is None:
        raise InvalidInputError(f"{path} does not say where its data are: give data (--data PATH).")
    source = open_source(data, column=plan["column"], id_column=plan["id_column"])
    if source.fingerprint != plan["fingerprint"]:
        raise InvalidInputError(
            f"{data if isinstance(data, str | Path) else 'data'} is not what {path} was fitted to; "
            "give that by data (--data PATH)."
        )
    is_levels = plan["kind"] == "levels"
    model = f"{str(path).rstrip('/')}/model"
    assigner: Any = (load_levels if is_levels else load_model)(model).assigner
    # what was settled in the end is in the result
    about = {**plan, **result, "mode": "levels" if is_levels else plan["mode"]}
    if isinstance(assigner, Assigner):
        about["hidden"] = assigner.hidden
    graph = None
    if about["mode"] == "memory":
        graph = load_graph(folder / "graph")
        with parsing(f"{path}/graph/{GRAPH_RECORD}"):
            record = (folder / "graph").read_json(GRAPH_RECORD)
            about["n_neighbors"] = whole_number(record["n_neighbors"])
    inspection = inspect_assigner(
        assigner,
        source,
        name=name,
        about=about,
        graph=graph,
        history={} if is_levels else read_history(folder),
        most_rows=None if graph is not None else most_rows,
        seed=seed,
        on_progress=on_progress,
    )
    if about["mode"] != "disk" or inspection.n_clusters > _MOST_LINKED:
        return inspection
    links = _links_of_blocks(f"{path}/blocks", assigner, plan["similarity"], most_rows)
    return replace(inspection, links=links)


def _check_figures(result: dict[str, Any]) -> None:
    """Whether what is shown of a result are numbers."""
    seconds = result["seconds"]
    for value in seconds.values() if isinstance(seconds, dict) else [seconds]:
        finite_number(value)
    for name in ("objective", "ratio_cut", "balance_weight", "n_steps", "cut_share"):
        if name in result:
            finite_number(result[name])


def _check_settings(plan: dict[str, Any]) -> None:
    """Whether what is read or shown of a plan is of its kind."""
    config = plan["config"] if plan["kind"] == "levels" else plan
    for name in ("column", "id_column", "data"):
        if not isinstance(plan.get(name), str | None):
            raise TypeError(f"{name} is not a name")
    for name in ("seed", "balance_weight", "max_steps"):
        if config.get(name) is not None:
            finite_number(config[name])
    for size in (*(config.get("hidden") or ()), *plan.get("levels", ())):
        whole_number(size)


def inspect_assigner(
    assigner: Assigner | LevelAssigner,
    source: Source,
    *,
    name: str,
    about: Mapping[str, Any],
    graph: SimilarityGraph | None = None,
    history: Mapping[str, np.ndarray] | None = None,
    found_labels: np.ndarray | None = None,
    most_rows: int | None = None,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> Inspection:
    """Look at what an assigner makes of the rows of a source, and how that cuts a graph of them.

    Parameters are attributes of :class:`Inspection` or as for :func:`inspect_run`.
    """
    began = time.monotonic()
    if assigner.n_features != source.n_features:
        raise InvalidInputError(
            f"the model was fitted to n_features={assigner.n_features}, the data have "
            f"{source.n_features}."
        )
    pieces = _pieces(source.n_samples, most_rows)
    n_seen = sum(stop - start for start, stop in pieces)
    projection = learn_projection(hidden_rows(assigner, _sample(source, seed)), seed=seed)
    report = Reporter("look", 2 * n_seen, on_progress)
    labels, runner_up = np.empty(n_seen, np.int32), np.empty(n_seen, np.int32)
    confidence, distances = np.empty(n_seen, np.float32), np.empty(n_seen, np.float32)
    places = np.empty((n_seen, 2), np.float32)
    sums = torch.zeros(assigner.n_clusters, projection.directions.shape[1], dtype=torch.float64)
    for seen, features in _read(source, pieces):
        ranked = rank_clusters(assigner, features)
        labels[seen], confidence[seen], runner_up[seen] = ranked
        reduced = projection.reduce(hidden_rows(assigner, features))
        sums.index_add_(0, torch.from_numpy(ranked.labels), torch.from_numpy(reduced).double())
        report.advance(features.shape[0])
    sizes = np.bincount(labels, minlength=assigner.n_clusters)
    means = (sums.numpy() / np.maximum(sizes, 1)[:, None]).astype(np.float32)
    rng = np.random.default_rng([seed, 2])
    for seen, features in _read(source, pieces):
        reduced = projection.reduce(hidden_rows(assigner, features))
        places[seen] = projection.place_reduced(reduced, rng)
        distances[seen] = np.linalg.norm(reduced - means[labels[seen]], axis=1)
        report.advance(features.shape[0])
    return Inspection(
        name=name,
        source=source,
        about=about,
        rows=np.concatenate([np.arange(start, stop) for start, stop in pieces]),
        labels=labels,
        runner_up=runner_up,
        confidence=confidence,
        places=places,
        distances=distances,
        n_clusters=assigner.n_clusters,
        history=history or {},
        found_labels=found_labels,
        first_level=_first_level(assigner),
        seconds=time.monotonic() - began,
        **_of_graph(graph, labels, assigner.n_clusters),
    )


# -- rows ------------------------------------------------------------------------------------


def _pieces(n_samples: int, most_rows: int | None) -> list[tuple[int, int]]:
    """Ranges of rows to look at: all, or some spread over all."""
    starts = np.arange(0, n_samples, _PIECE_ROWS)
    if most_rows is not None and n_samples > most_rows:
        n_pieces = max(1, most_rows // _PIECE_ROWS)
        starts = starts[np.unique(np.linspace(0, len(starts) - 1, n_pieces).astype(int))]
    return [(start, min(start + _PIECE_ROWS, n_samples)) for start in starts.tolist()]


def _read(source: Source, pieces: list[tuple[int, int]]) -> Iterator[tuple[slice, Any]]:
    """Features of the pieces, and where they stand among the rows that are looked at."""
    seen = 0
    for start, stop in pieces:
        yield slice(seen, seen + stop - start), source.read(start, stop)
        seen += stop - start


def _sample(source: Source, seed: int) -> Any:
    """Some rows of all; of sparse ones, as they are."""
    if not isinstance(source, RowSource):
        return sample_rows(source, _SAMPLE_ROWS, [seed, 1])
    n_rows = min(_SAMPLE_ROWS, source.n_samples)
    chosen = np.random.default_rng([seed, 1]).choice(source.n_samples, n_rows, replace=False)
    return source.array[np.sort(chosen)]


# -- the graph -------------------------------------------------------------------------------


def _of_graph(graph: SimilarityGraph | None, labels: np.ndarray, n_clusters: int) -> dict[str, Any]:
    """Links between the clusters, connected parts, and the bound, where they can be had."""
    if graph is None:
        return {}
    found: dict[str, Any] = {"n_components": graph.n_components}
    if n_clusters <= _MOST_LINKED:
        links = cluster_links(graph.weight, torch.from_numpy(labels), n_clusters)
        found["links"] = links.numpy()
    n_used = len(np.unique(labels))
    if 2 * graph.n_edges * n_used <= _MOST_CERTIFIED:
        found["bound"] = spectral_lower_bound(graph.weight, n_used)
    return found


def _links_of_blocks(path: str, assigner: Assigner, similarity: Any, most_rows: int) -> np.ndarray:
    """Links between the clusters, summed over blocks: all, or some spread over all."""
    blocks = open_blocks(path)
    links = torch.zeros(assigner.n_clusters, assigner.n_clusters, dtype=torch.float64)
    n_blocks = max(1, len(blocks) * min(most_rows, blocks.n_samples) // blocks.n_samples)
    for number in np.unique(np.linspace(0, len(blocks) - 1, n_blocks).astype(int)).tolist():
        block = blocks[number]
        labels = torch.from_numpy(label_edges(assigner, block))
        links += cluster_links(block.graph(similarity).weight, labels, assigner.n_clusters)
    found: np.ndarray = links.numpy()
    return found


def _first_level(assigner: Assigner | LevelAssigner) -> np.ndarray | None:
    if not isinstance(assigner, LevelAssigner):
        return None
    starts = assigner.first_leaf.cpu().numpy()
    return np.searchsorted(starts, np.arange(assigner.n_clusters), side="right") - 1
