"""Measure what an assigner makes of rows: clusters, confidence, a map, and the cut of a graph.

One pass assigns all rows, another puts them on the map; memory holds a few numbers per row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from prcut.errors import InvalidInputError
from prcut.graph.similarity_graph import SimilarityGraph
from prcut.numerics.certificate import spectral_lower_bound
from prcut.numerics.cuts import cluster_links
from prcut.pipeline.config import FitConfig
from prcut.pipeline.score import score_labels
from prcut.runtime.progress import Progress, Reporter
from prcut.runtime.sources import Source, sample_rows
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import hidden_rows, rank_clusters
from prcut.ui.report.inspection import Inspection, InspectionPart
from prcut.ui.report.projection import learn_projection

# links between more clusters would take more memory than the rows
MOST_LINKED = 3000
# rows read at a time, and rows from which the map is learned
_RANGE_ROWS, _SAMPLE_ROWS = 2**14, 6000
# edges times eigenvectors that the certificate may cost: about two minutes
_MOST_CERTIFIED = 250_000_000


class RowSource:
    """Rows in memory as a source, including sparse rows, which an array source refuses."""

    def __init__(self, rows: Any) -> None:
        self.array = rows
        self.n_samples, self.n_features = rows.shape
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        self.path: str | None = None
        self.fingerprint = ""
        self.group_starts = np.empty(0, np.int64)

    def read(self, start: int, stop: int) -> Any:
        """Return rows ``start:stop``."""
        return self.array[start:stop]

    def read_ids(self, start: int, stop: int) -> None:
        """Return None: rows in memory have no ids."""


def inspect_fitted(
    model: Any,
    config: FitConfig,
    assigner: Assigner,
    rows: Any,
    graph: SimilarityGraph | None,
    **options: Any,
) -> Inspection:
    """Inspect how a fitted estimator clusters rows; options are those of its ``inspect``."""
    count, stability = (getattr(model, f"cluster_{name}_", None) for name in ("count", "stability"))
    inspection = inspect_assigner(
        assigner,
        RowSource(rows),
        name=type(model).__name__,
        about={
            **asdict(config),
            **asdict(config.in_use),
            # what the caller gave; other seeds are drawn from it
            "seed": model.random_state if isinstance(model.random_state, int) else None,
            "hidden": assigner.hidden,
            "n_neighbors": getattr(model, "n_neighbors_", config.n_neighbors),
            "balance_weight": getattr(model, "balance_weight_", config.training_balance),
            "n_steps": getattr(model, "n_steps_", None),
            "n_outliers": int((model.labels_ < 0).sum()) if config.outliers else None,
        },
        graph=graph,
        history=getattr(model, "history_", None),
        partition=getattr(model, "clusters_", None) if config.solver == "search" else None,
        **options,
    )
    agreement = None if count is None else np.column_stack([count.tried, count.agreement])
    tree, sizes = getattr(model, "merge_tree_", None), getattr(model, "layer_sizes_", [])[1:]
    layers = () if tree is None else tuple(tree.labels(size) for size in sizes)
    return replace(inspection, agreement=agreement, stability=stability, layers=layers)


def inspect_assigner(
    assigner: Assigner,
    source: Source,
    *,
    name: str,
    about: Mapping[str, Any],
    graph: SimilarityGraph | None = None,
    history: Mapping[str, np.ndarray] | None = None,
    partition: np.ndarray | None = None,
    most_rows: int | None = None,
    only: InspectionPart | None = None,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> Inspection:
    """Inspect how an assigner clusters the rows of a source, and how that cuts a graph of them.

    An objective that ``about`` does not hold is computed on the graph.
    """
    began = time.monotonic()
    if assigner.n_features != source.n_features:
        raise InvalidInputError(
            f"the model was fitted to n_features={assigner.n_features}, the data have "
            f"{source.n_features}."
        )
    ranges, n_clusters = _row_ranges(source.n_samples, most_rows), assigner.n_clusters
    n_seen = sum(stop - start for start, stop in ranges)
    row_map = None if only == "cut" else _RowMap(assigner, source, seed)
    report = Reporter("inspect", (1 if row_map is None else 2) * n_seen, on_progress)
    labels, runner_up = np.empty(n_seen, np.int32), np.empty(n_seen, np.int32)
    confidence, distances = np.empty(n_seen, np.float32), np.full(n_seen, np.nan, np.float32)
    coords = np.full((n_seen, 2), np.nan, np.float32)
    for seen, features in _read(source, ranges):
        ranked = rank_clusters(assigner, features)
        labels[seen], confidence[seen], runner_up[seen] = ranked
        if row_map is not None:
            row_map.add(features, ranked.labels)
        report.advance(features.shape[0])
    if row_map is not None:
        for seen, features in _read(source, ranges):
            coords[seen], distances[seen] = row_map.place(features, labels[seen])
            report.advance(features.shape[0])
    measured = {}
    if graph is not None:
        measured = _measure_graph(graph, labels, n_clusters, with_bound=only is None)
        if "objective" not in about:
            score = score_labels(graph, labels, n_clusters, about["balance_weight"])
            about = {**about, "objective": score.objective, "ratio_cut": score.ratio_cut}
    if partition is not None and len(partition) != n_seen:
        partition = None  # it belongs to other rows
    return Inspection(
        name=name,
        source=source,
        about=about,
        rows=np.concatenate([np.arange(start, stop) for start, stop in ranges]),
        labels=labels,
        runner_up=runner_up,
        confidence=confidence,
        coords=coords,
        distances=distances,
        n_clusters=n_clusters,
        history=history or {},
        partition=partition,
        seconds=time.monotonic() - began,
        **measured,
    )


class _RowMap:
    """Coordinates of rows, and distances to the mean of their cluster, in two passes."""

    def __init__(self, assigner: Assigner, source: Source, seed: int) -> None:
        sample = hidden_rows(assigner, _sample(source, seed))
        self._assigner, self._projection = assigner, learn_projection(sample, seed=seed)
        self._rng = np.random.default_rng([seed, 2])
        n_clusters, n_directions = assigner.n_clusters, self._projection.directions.shape[1]
        self._sums = torch.zeros(n_clusters, n_directions, dtype=torch.float64)
        self._sizes = np.zeros(n_clusters, np.int64)

    def add(self, features: Any, labels: np.ndarray) -> None:
        """Add rows to the means of their clusters."""
        reduced = self._projection.reduce(hidden_rows(self._assigner, features))
        self._sums.index_add_(0, torch.from_numpy(labels), torch.from_numpy(reduced).double())
        self._sizes += np.bincount(labels, minlength=len(self._sizes))

    def place(self, features: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coordinates and distances of rows, once all have been added."""
        reduced = self._projection.reduce(hidden_rows(self._assigner, features))
        means = (self._sums.numpy() / np.maximum(self._sizes, 1)[:, None]).astype(np.float32)
        coords = self._projection.place(reduced, self._rng)
        return coords, np.linalg.norm(reduced - means[labels], axis=1)


def _row_ranges(n_samples: int, most_rows: int | None) -> list[tuple[int, int]]:
    """Choose the ranges of rows to inspect: all, or some spread evenly."""
    starts = np.arange(0, n_samples, _RANGE_ROWS)
    if most_rows is not None and n_samples > most_rows:
        n_ranges = max(1, most_rows // _RANGE_ROWS)
        starts = starts[np.unique(np.linspace(0, len(starts) - 1, n_ranges).astype(int))]
    return [(start, min(start + _RANGE_ROWS, n_samples)) for start in starts.tolist()]


def _read(source: Source, ranges: list[tuple[int, int]]) -> Iterator[tuple[slice, Any]]:
    """Yield the features of every range, and its positions among the inspected rows."""
    seen = 0
    for start, stop in ranges:
        yield slice(seen, seen + stop - start), source.read(start, stop)
        seen += stop - start


def _sample(source: Source, seed: int) -> Any:
    """Draw rows from all; sparse rows stay sparse."""
    if not isinstance(source, RowSource):
        return sample_rows(source, _SAMPLE_ROWS, [seed, 1])
    n_rows = min(_SAMPLE_ROWS, source.n_samples)
    chosen = np.random.default_rng([seed, 1]).choice(source.n_samples, n_rows, replace=False)
    return source.array[np.sort(chosen)]


def _measure_graph(
    graph: SimilarityGraph, labels: np.ndarray, n_clusters: int, *, with_bound: bool
) -> dict[str, Any]:
    """Measure links between clusters, components and the bound, where they are affordable."""
    measured: dict[str, Any] = {"n_components": graph.n_components}
    measured["inside"] = _measure_inside(graph, labels)
    if n_clusters <= MOST_LINKED:
        links = cluster_links(graph.weight, torch.from_numpy(labels), n_clusters)
        measured["links"] = links.numpy()
    n_used = len(np.unique(labels))
    if with_bound and 2 * graph.n_edges * n_used <= _MOST_CERTIFIED:
        measured["bound"] = spectral_lower_bound(graph.weight, n_used)
    return measured


def _measure_inside(graph: SimilarityGraph, labels: np.ndarray) -> np.ndarray:
    """Measure which fraction of each row's weight stays in its cluster; NaN without edges."""
    source, target, weight = (np.asarray(ends) for ends in graph.edges)
    degree = np.bincount(source, weight, len(labels))
    kept = np.bincount(source, weight * (labels[source] == labels[target]), len(labels))
    inside = np.full(len(labels), np.nan)
    np.divide(kept, degree, out=inside, where=degree > 0)
    return inside.astype(np.float32)
