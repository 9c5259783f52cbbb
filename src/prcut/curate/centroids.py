"""Mean vectors of the clusters of a run as Parquet, for vector indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from prcut.curate.sample import read_labels, read_layers
from prcut.errors import InvalidInputError
from prcut.runs.folder import read_plan
from prcut.runtime.folder import Folder
from prcut.runtime.parquet import encode_parquet
from prcut.runtime.sources import open_source, rows_per_read

_BATCH_ROWS = 2**14


def write_centroids(run: str | Path, path: str | Path, loaded: Any) -> int:
    """Write the clusters of a run that have rows: id, parent, layer, size, vector; return how many.

    The run is finished, with its labels and its data where they were; ``loaded`` is its model. The
    ids of the finest layer are the labels. Those of a coarser one follow, and are the parents of
    those before; ``layer`` is the layer's number of clusters.
    """
    n_clusters = loaded.assigner.n_clusters
    sums, sizes = _add_up(run, n_clusters)
    names, offset = [np.arange(n_clusters), *read_layers(loaded)[::-1]], 0
    columns: list[list[np.ndarray]] = []
    for number, merged in enumerate(names):
        n_here = int(merged.max()) + 1
        parent = np.full(n_here, -1)
        if number + 1 < len(names):
            parent[merged] = offset + n_here + names[number + 1]
        to_layer = sparse.csr_array((np.ones(n_clusters), (merged, np.arange(n_clusters))))
        total, summed = to_layer @ sizes, to_layer @ sums
        used = np.flatnonzero(total)
        vectors = summed[used] / total[used, None]
        layer = np.full(len(used), n_here)
        columns.append([offset + used, parent[used], layer, total[used].astype(int), vectors])
        offset += n_here
    ids, parents, layers, totals, vectors = (np.concatenate(c) for c in zip(*columns, strict=True))
    flat = pa.array(vectors.astype(np.float32).reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    about = {"id": ids, "parent": pa.array(parents, mask=parents < 0), "layer": layers}
    table = pa.table({**about, "size": totals, "vector": lists})
    where = Path(path)
    content = encode_parquet(table.schema, table.to_batches(), _BATCH_ROWS)
    Folder(where.parent).write_bytes(where.name, content)
    return len(table)


def _add_up(run: str | Path, n_clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of the rows of every cluster, and their number."""
    folder = Folder(run)
    if not folder.exists("plan.json"):
        raise InvalidInputError(f"{folder.path} is not a run; centroids need its data and labels.")
    plan = read_plan(folder)
    if not plan.get("data"):
        raise InvalidInputError(f"the run {folder.path} was fitted to an array, which is not kept.")
    source = open_source(plan["data"], column=plan.get("column"))
    sums = np.zeros((n_clusters, source.n_features))
    sizes = np.zeros(n_clusters)
    all_labels = read_labels(run)[1]
    if len(all_labels) != source.n_samples:
        raise InvalidInputError(
            f"{folder.path} has {len(all_labels)} labels for n_samples={source.n_samples} rows; "
            "assign again."
        )
    step = rows_per_read(source)
    for start in range(0, source.n_samples, step):
        labels = all_labels[start : start + step]
        rows = source.read(start, start + len(labels)).astype(np.float32)
        known = np.flatnonzero(labels >= 0)  # others belong nowhere
        entries = np.ones(len(known), np.float32), (labels[known], known)
        sums += sparse.csr_array(entries, shape=(n_clusters, len(labels))) @ rows
        sizes += np.bincount(labels[known], minlength=n_clusters)
    return sums, sizes
