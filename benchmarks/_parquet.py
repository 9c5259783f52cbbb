"""Planted rows as a folder of Parquet files, made a file at a time."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_planted(
    folder: Path, n_rows: int, n_features: int, n_clusters: int, n_files: int, *, noise: float = 0.5
) -> None:
    """Gaussian rows around random centres: columns ``id``, ``embedding`` and ``planted``."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1, (n_clusters, n_features)).astype(np.float32)
    starts = np.linspace(0, n_rows, n_files + 1).astype(int)
    for number, (start, stop) in enumerate(pairwise(starts)):
        planted = rng.integers(n_clusters, size=stop - start)
        rows = rng.standard_normal((stop - start, n_features), dtype=np.float32)
        rows = noise * rows + centres[planted]
        table = pa.table(
            {
                "id": pa.array(np.arange(start, stop)),
                "embedding": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), n_features),
                "planted": pa.array(planted),
            }
        )
        pq.write_table(table, folder / f"part-{number:04d}.parquet")
