"""Mean vectors of the clusters of a run as Parquet, for vector indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from prcut.curate.sample import read_labels
from prcut.errors import InvalidInputError
from prcut.fit.saved_fit import coarse_labels
from prcut.runs.folder import read_plan
from prcut.runtime.folder import Folder
from prcut.runtime.parquet import encode_parquet
from prcut.runtime.sources import open_source, rows_per_read

_BATCH_ROWS = 2**14


def write_centroids(run: str | Path, path: str | Path, loaded: Any) -> int:
    """Write the clusters of a run that have rows: id, parent, layer, size, vector; return how many.

    The run is finished, with its labels and its data where they were; ``loaded`` is its model. The
    ids of the finest layer are the labels. Ids of a coarser layer follow, and are the parents of
    the layer before; ``layer`` is the layer's number of clusters.
    """
    plan = read_plan(Folder(run))
    if not plan.get("data"):
        raise InvalidInputError(f"the run {run} was fitted to an array, which is not kept.")
    source = open_source(plan["data"], column=plan.get("column"))
    all_labels = read_labels(run)[1]
    if len(all_labels) != source.n_samples:
        raise InvalidInputError(
            f"{run} has {len(all_labels)} labels for n_samples={source.n_samples} rows; assign "
            "again."
        )
    n_clusters = loaded.assigner.n_clusters
    sums = np.zeros((n_clusters, source.n_features))
    sizes = np.bincount(all_labels[all_labels >= 0], minlength=n_clusters)
    step = rows_per_read(source)
    for start in range(0, source.n_samples, step):
        labels = all_labels[start : start + step]
        rows = source.read(start, start + len(labels)).astype(np.float32)
        known = np.flatnonzero(labels >= 0)  # outliers are in no cluster
        entries = np.ones(len(known), np.float32), (labels[known], known)
        sums += sparse.csr_array(entries, shape=(n_clusters, len(labels))) @ rows

    coarse = coarse_labels(loaded)
    layers = [np.arange(n_clusters), *(coarse[size] for size in sorted(coarse, reverse=True))]
    offset = 0
    columns: list[list[np.ndarray]] = []
    for number, merged in enumerate(layers):
        n_here = int(merged.max()) + 1
        parent = np.full(n_here, -1)
        if number + 1 < len(layers):
            parent[merged] = offset + n_here + layers[number + 1]
        to_layer = sparse.csr_array((np.ones(n_clusters), (merged, np.arange(n_clusters))))
        total = (to_layer @ sizes).astype(np.int64)
        used = np.flatnonzero(total)
        vectors = (to_layer @ sums)[used] / total[used, None]
        layer = np.full(len(used), n_here)
        columns.append([offset + used, parent[used], layer, total[used], vectors])
        offset += n_here
    ids, parents, numbers, totals, vectors = (np.concatenate(c) for c in zip(*columns, strict=True))
    flat = pa.array(vectors.astype(np.float32).reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    about = {"id": ids, "parent": pa.array(parents, mask=parents < 0), "layer": numbers}
    table = pa.table({**about, "size": totals, "vector": lists})
    file = Path(path)
    content = encode_parquet(table.schema, table.to_batches(), _BATCH_ROWS)
    Folder(file.parent).write_bytes(file.name, content)
    return len(table)
