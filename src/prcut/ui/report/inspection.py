"""Inspect a clustering: the arrays and figures that displays and reports show.

``PRCut.inspect`` and :func:`inspect_run` both call :func:`inspect_assigner`, which reads all rows
once; memory holds some 200 bytes of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array

from prcut.errors import InvalidInputError
from prcut.fit.clusters import score_labels
from prcut.fit.config import FitConfig
from prcut.graph.blocks.read import open_joined
from prcut.graph.similarity_graph import GRAPH_RECORD, SimilarityGraph, load_graph
from prcut.numerics.certificate import SpectralBound, spectral_lower_bound
from prcut.numerics.cuts import cluster_links
from prcut.runs.labels import STATE_FOLDER, RowLabels
from prcut.runs.update import FinishedRun
from prcut.runtime.folder import Folder, finite_number, parsing, whole_number
from prcut.runtime.progress import Progress, Reporter
from prcut.runtime.sources import Source, sample_rows
from prcut.search.fragments import CoarseGraph, contract
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import hidden_rows, rank_clusters
from prcut.ui.report.projection import learn_projection

# links between more clusters would take more memory than the rows
_MOST_LINKED = 3000
# rows read at a time
_RANGE_ROWS = 2**14
# rows from which the map is learned
_SAMPLE_ROWS = 6000
# rows inspected where the graph is on disk: more would not change what is shown
_MOST_ROWS = 2_000_000
# edges times eigenvectors of the largest certificate: about two minutes
_MOST_CERTIFIED = 250_000_000

InspectionPart = Literal["map", "cut"]


class RowExamples(NamedTuple):
    """Numbers of rows near the mean of a cluster, and of rows with a low confidence."""

    typical: np.ndarray
    ambiguous: np.ndarray
    runner_up: np.ndarray  # of the ambiguous rows, −1 where it is unknown
    confidence: np.ndarray  # of the ambiguous rows


@dataclass(frozen=True)
class Inspection:
    """Measurements of how the rows of a source are clustered."""

    name: str  # of the run, or the class of the estimator
    source: Source | RowSource
    about: Mapping[str, Any]  # the plan and the result of a run, or the settings of an estimator
    rows: np.ndarray  # int64, ascending: numbers of the inspected rows, all unless there are many
    labels: np.ndarray  # int32, shape (n_seen,)
    runner_up: np.ndarray  # int32, shape (n_seen,)
    confidence: np.ndarray  # float32, shape (n_seen,)
    coords: np.ndarray  # on the map, float32, shape (n_seen, 2)
    distances: np.ndarray  # to the cluster's mean in the input of the last layer, float32
    n_clusters: int
    links: np.ndarray | None = None  # weight between clusters, and (diagonal, twice) inside them
    n_components: int | None = None  # of the graph, if it is in memory
    bound: SpectralBound | None = None
    partition: np.ndarray | None = None  # that was distilled into the assigner, shape (n_seen,)
    stability: np.ndarray | None = None  # how well restarts agree on each cluster, float64
    inside: np.ndarray | None = None  # fraction of a row's weight that stays in its cluster, or NaN
    seconds: float = 0.0  # duration of the inspection

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of rows in every cluster, int64."""
        return np.bincount(self.labels, minlength=self.n_clusters)

    @property
    def n_used(self) -> int:
        """Number of clusters that have rows."""
        return int((self.sizes > 0).sum())

    @cached_property
    def mean_confidence(self) -> Any:
        """Mean confidence of the rows of every cluster; NaN for an empty one."""
        total = np.bincount(self.labels, self.confidence, self.n_clusters)
        mean = np.full(self.n_clusters, np.nan)
        return np.divide(total, self.sizes, out=mean, where=self.sizes > 0)

    @cached_property
    def link_fractions(self) -> Any:
        """Fraction of a cluster's weight that goes to each cluster: rows sum to 1."""
        if self.links is None:
            return None
        volume = self.links.sum(1, keepdims=True)
        return np.divide(self.links, volume, out=np.zeros_like(self.links), where=volume > 0)

    @property
    def better_than_chance(self) -> float | None:
        """``PRCut.score``: 1 for a perfect cut, 0 for that of random labels."""
        objective = self.about.get("objective")
        if objective is None or self.n_clusters < 2:
            return None
        return float(1 - objective / (self.n_clusters - 1))

    @property
    def bound_ratio(self) -> float | None:
        """Ratio cut of the run over its lower bound: at most this many times the optimum."""
        cut = self.about.get("ratio_cut")
        return None if self.bound is None or cut is None else self.bound.ratio(float(cut))

    def examples(self, n_rows: int) -> list[RowExamples]:
        """Choose typical and ambiguous rows of every cluster, at most ``n_rows`` of each."""
        stops = np.cumsum(self.sizes)
        starts = stops - self.sizes
        near = np.lexsort((self.distances, self.labels))
        unsure = np.lexsort((self.confidence, self.labels))
        examples = []
        for start, stop in zip(starts, np.minimum(starts + n_rows, stops), strict=True):
            typical, ambiguous = self.rows[near[start:stop]], unsure[start:stop]
            doubts = self.runner_up[ambiguous], self.confidence[ambiguous]
            examples.append(RowExamples(typical, self.rows[ambiguous], *doubts))
        return examples


class RowSource:
    """Rows in memory as a source, including sparse rows, which an array source rejects."""

    path = None

    def __init__(self, rows: Any) -> None:
        self.array = rows
        self.n_samples, self.n_features = rows.shape

    def read(self, start: int, stop: int) -> Any:
        """Return rows ``start:stop``."""
        return self.array[start:stop]

    def draw(self, n_rows: int, seed: list[int]) -> Any:
        """Draw rows from all; sparse rows stay sparse."""
        rng = np.random.default_rng(seed)
        chosen = rng.choice(self.n_samples, min(n_rows, self.n_samples), replace=False)
        return self.array[np.sort(chosen)]


def inspect_fitted(
    model: Any,
    config: FitConfig,
    assigner: Assigner,
    rows: Any,
    graph: SimilarityGraph | None,
    **options: Any,
) -> Inspection:
    """Inspect how a fitted estimator clusters rows; for options, see ``PRCut.inspect``."""
    inspection = inspect_assigner(
        assigner,
        RowSource(rows),
        name=type(model).__name__,
        about={
            **asdict(config),
            **asdict(config.in_use),
            # as the caller gave it, not the number drawn from it
            "seed": model.random_state if isinstance(model.random_state, Integral) else None,
            "hidden": assigner.hidden,
            "n_neighbors": getattr(model, "n_neighbors_", config.n_neighbors),
            "balance_weight": getattr(model, "balance_weight_", config.training_balance),
            "n_outliers": int((model.labels_ < 0).sum()) if config.outliers else None,
        },
        graph=graph,
        **options,
    )
    partition = getattr(model, "clusters_", None) if config.solver == "search" else None
    if partition is not None and len(partition) != len(inspection.labels):
        partition = None  # it belongs to other rows
    stability = getattr(model, "cluster_stability_", None)
    return replace(inspection, partition=partition, stability=stability)


def inspect_run(
    path: str | Path | FinishedRun,
    *,
    data: Any = None,
    most_rows: int = _MOST_ROWS,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> Inspection:
    """Inspect a finished run.

    ``data`` are the clustered rows, if the run does not record where they are, or they have moved.
    Where the graph is on disk, at most ``most_rows`` rows are inspected, spread over all. ``seed``
    is that of the map.
    """
    run = path if isinstance(path, FinishedRun) else FinishedRun.open(path, data)
    folder, assigner = run.folder, run.fit.assigner
    with parsing(f"{folder.path}/result.json"):
        # the result holds the settings that were chosen during the run
        about = {**run.plan, **dict(folder.read_json("result.json")), "mode": run.plan["mode"]}
        if about.get("balance_weight") is not None:
            finite_number(about["balance_weight"])
    # the result scores the partition, the report the labels that the model gives
    about |= {"hidden": assigner.hidden, "objective": None, "ratio_cut": None}
    if (state := folder / "labels" / STATE_FOLDER).exists("manifest.json"):
        with parsing(f"{state.path}/manifest.json"):
            n_outliers = state.read_json("manifest.json").get("n_outliers")
            about["n_outliers"] = None if n_outliers is None else whole_number(n_outliers)
    graph = None
    if about["mode"] == "memory":
        graph = load_graph(folder / "graph")
        with parsing(f"{folder.path}/graph/{GRAPH_RECORD}"):
            record = (folder / "graph").read_json(GRAPH_RECORD)
            about["n_neighbors"] = whole_number(record["n_neighbors"])
    inspection = inspect_assigner(
        assigner,
        run.source,
        name=folder.path.rstrip("/").rsplit("/", 1)[-1],
        about=about,
        graph=graph,
        most_rows=None if graph is not None else most_rows,
        seed=seed,
        on_progress=on_progress,
    )
    if about["mode"] == "disk" and assigner.n_clusters <= _MOST_LINKED:
        inspection = replace(inspection, links=_link_clusters(folder, assigner.n_clusters))
    return inspection


def inspect_assigner(
    assigner: Assigner,
    source: Source | RowSource,
    *,
    name: str,
    about: Mapping[str, Any],
    graph: SimilarityGraph | None = None,
    most_rows: int | None = None,
    only: InspectionPart | None = None,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> Inspection:
    """Inspect how an assigner clusters the rows of a source, and how that cuts a graph of them."""
    began = time.monotonic()
    if assigner.n_features != source.n_features:
        raise InvalidInputError(
            f"the model was fitted to n_features={assigner.n_features}, the data have "
            f"{source.n_features}."
        )
    projection = None
    if only != "cut":
        draw = source.draw if isinstance(source, RowSource) else partial(sample_rows, source)
        sample = draw(_SAMPLE_ROWS, [seed, 1])
        projection = learn_projection(hidden_rows(assigner, sample), seed=seed)
    ranges = choose_ranges(source.n_samples, most_rows, _RANGE_ROWS)
    rows = np.concatenate([np.arange(start, stop) for start, stop in ranges])
    report = Reporter("inspect", len(rows), on_progress)
    ranked, reduced = [], []
    for start, stop in ranges:
        features = source.read(start, stop)
        ranked.append(rank_clusters(assigner, features))
        if projection is not None:
            reduced.append(projection.reduce(hidden_rows(assigner, features)))
        report.advance(stop - start)
    labels, confidence, runner_up = map(np.concatenate, zip(*ranked, strict=True))
    n_clusters = assigner.n_clusters
    distances = np.full(len(rows), np.nan, np.float32)
    coords = np.full((len(rows), 2), np.nan, np.float32)
    if projection is not None:
        inputs = np.concatenate(reduced)
        entries = np.ones(len(rows)), (labels, np.arange(len(rows)))
        members = csr_array(entries, shape=(n_clusters, len(rows)))
        means = (members @ inputs) / np.maximum(np.bincount(labels, minlength=n_clusters), 1)[
            :, None
        ]
        distances = np.linalg.norm(inputs - means.astype(np.float32)[labels], axis=1)
        coords = projection.place(inputs, np.random.default_rng([seed, 2]))
    measured: dict[str, Any] = {}
    if graph is not None:
        measured = _measure_graph(graph, labels, n_clusters, with_bound=only is None)
        score = score_labels(graph, labels, n_clusters, about["balance_weight"])
        about = {**about, "objective": score.objective, "ratio_cut": score.ratio_cut}
    return Inspection(
        name=name,
        source=source,
        about=about,
        rows=rows,
        labels=labels,
        runner_up=runner_up,
        confidence=confidence,
        coords=coords,
        distances=distances,
        n_clusters=n_clusters,
        seconds=time.monotonic() - began,
        **measured,
    )


def choose_ranges(n_samples: int, most_rows: int | None, step: int) -> list[tuple[int, int]]:
    """Choose ranges of rows to read: all, or some spread evenly."""
    starts = np.arange(0, n_samples, step)
    if most_rows is not None and n_samples > most_rows:
        n_ranges = max(1, most_rows // step)
        starts = starts[np.unique(np.linspace(0, len(starts) - 1, n_ranges).astype(int))]
    return [(start, min(start + step, n_samples)) for start in starts.tolist()]


def _measure_graph(
    graph: SimilarityGraph, labels: np.ndarray, n_clusters: int, *, with_bound: bool
) -> dict[str, Any]:
    """Measure links between clusters, components and the bound, where they are affordable."""
    source, target, weight = (np.asarray(ends) for ends in graph.edges)
    degree = np.bincount(source, weight, len(labels))
    kept = np.bincount(source, weight * (labels[source] == labels[target]), len(labels))
    inside = np.full(len(labels), np.nan)
    np.divide(kept, degree, out=inside, where=degree > 0)
    measured: dict[str, Any] = {"n_components": graph.n_components}
    measured["inside"] = inside.astype(np.float32)
    if n_clusters <= _MOST_LINKED:
        links = cluster_links(graph.weight, torch.from_numpy(labels), n_clusters)
        measured["links"] = links.numpy()
    n_used = len(np.unique(labels))
    if with_bound and 2 * graph.n_edges * n_used <= _MOST_CERTIFIED:
        measured["bound"] = spectral_lower_bound(graph.weight, n_used)
    return measured


def _link_clusters(folder: Folder, n_clusters: int) -> np.ndarray:
    """Sum the links between the clusters of a run on disk, and within them."""
    joined = open_joined(folder / "graph")
    clusters = RowLabels(folder / "partition")
    labels = clusters.read(0, clusters.n_samples)[joined.rows].astype(np.int64)
    found = np.zeros((n_clusters, n_clusters))
    between = contract(CoarseGraph.of_arrays(*joined[1:]).links, labels, inner=True).links
    found[: between.shape[0], : between.shape[0]] = between.toarray()
    return found
