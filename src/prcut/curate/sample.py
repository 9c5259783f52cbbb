"""Balanced samples of clustered rows: a quota for every cluster, filled at random."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from prcut.errors import InvalidInputError, check_positive_int
from prcut.fit.saved_fit import coarse_labels, parse_fit
from prcut.runs.folder import check_finished, read_plan
from prcut.runs.labels import STATE_FOLDER
from prcut.runtime.folder import Folder
from prcut.training.assigner.saved import load_model

if TYPE_CHECKING:
    from pyarrow import dataset

# rows of a row group in the file that is written
_GROUP_ROWS = 2**18


def draw_sample(
    labels: np.ndarray,
    size: int,
    balance: str = "tree",
    *,
    layers: Sequence[np.ndarray] = (),
    seed: int = 0,
) -> np.ndarray:
    """Draw rows by the quotas of their clusters; return their numbers, int64, ascending.

    Parameters
    ----------
    labels : int array, shape (n_samples,)
        The cluster of every row; rows of −1 are never drawn.
    size : int
        Number of rows to draw.
    balance : str
        ``"uniform"``: equal quotas for all clusters. ``"tree"``: equal quotas for the groups of the
        coarsest layer, then inside each. ``"temperature:τ"``: quotas proportional to (rows of the
        cluster)^(1/τ). A cluster with fewer rows than its quota gives all it has, and the others
        share the rest.
    layers : sequence of int arrays, shape (n_clusters,)
        The group of every cluster, the coarsest layer first, for ``"tree"``.
    seed : int
        A smaller uniform sample with the same seed is part of a larger one.

    Examples
    --------
    >>> labels = np.repeat([0, 1, 2], [100, 10, 2])
    >>> rows = draw_sample(labels, 12, "uniform")
    >>> np.bincount(labels[rows]).tolist()
    [5, 5, 2]
    """
    check_positive_int("size", size)
    temperature = np.inf
    if balance not in ("tree", "uniform"):
        kind, _, number = balance.partition(":")
        with suppress(ValueError):
            temperature = float(number)
        if kind != "temperature" or not 0 < temperature < np.inf:
            raise InvalidInputError(f"{balance=} must be tree, uniform, or such as temperature:2.")
    labels = np.asarray(labels)
    known = np.flatnonzero(labels >= 0)
    if size > len(known):
        raise InvalidInputError(f"{size=} must be at most {len(known)}, the rows with a cluster.")
    clusters = labels[known]
    sizes = np.bincount(clusters, minlength=len(layers[0]) if layers else 0)
    if balance == "tree":
        quotas = share_down(size, sizes, layers)
    else:
        quotas = share_out(size, sizes, np.maximum(sizes, 1) ** (1 / temperature))
    # one number for every row: the rows of a cluster have the same order in every sample
    order = np.lexsort((np.random.default_rng(seed).random(len(labels))[known], clusters))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    drawn: np.ndarray = np.sort(known[order[rank < quotas[clusters[order]]]])
    return drawn


def write_sample(
    run: str | Path, path: str | Path, size: int, balance: str = "tree", *, seed: int = 0
) -> tuple[int, int]:
    """Write ids and labels of a sample of a finished run to a Parquet file.

    The tree is the layers of the run, or else √k groups of its merge tree. Return the numbers of
    rows and of clusters in the sample; see :func:`draw_sample` for the parameters.
    """
    from prcut.runtime.parquet import encode_parquet

    if not 0 <= seed < 2**63:
        raise InvalidInputError(f"{seed=} must be from 0 to 2^63 - 1.")
    written, labels = read_labels(run)
    loaded = load_model(f"{str(run).rstrip('/')}/model")
    n_clusters = int(loaded.assigner.n_clusters)
    if labels.max(initial=0) >= n_clusters:
        raise InvalidInputError(f"{run} has labels of another model; assign again.")
    coarse = coarse_labels(loaded)
    layers = [coarse[size] for size in sorted(coarse)]
    if not layers and (tree := parse_fit(loaded).fitted.get("merge_tree_")) is not None:
        layers = [tree.labels(round(n_clusters**0.5))]
    rows = draw_sample(labels, size, balance, layers=layers, seed=seed)
    table = written.take(rows, columns=written.schema.names[:2])
    home, _, name = str(path).rpartition("/")
    content = encode_parquet(table.schema, table.to_batches(), _GROUP_ROWS)
    Folder(home or ".").write_bytes(name, content)
    return size, len(np.unique(labels[rows]))


def read_labels(run: str | Path) -> tuple[dataset.Dataset, np.ndarray]:
    """Open the labels that ``prcut fit`` wrote for all rows of a run, and read the clusters."""
    from pyarrow import dataset

    read_plan(Folder(run))
    check_finished(Folder(run))
    folder = Folder(f"{str(run).rstrip('/')}/labels")
    if not (folder / STATE_FOLDER).exists("manifest.json"):
        raise InvalidInputError(
            f"{run} has no finished labels; resume it with `prcut fit … --resume`, without "
            "--no-assign."
        )
    # files come in the order of their paths, as the files of the data do
    written = dataset.dataset(folder.path, filesystem=folder.filesystem, format="parquet")
    labels = written.to_table(columns=[written.schema.names[1]]).column(0).to_numpy()
    return written, labels


# -- quotas ----------------------------------------------------------------------------------------


def share_out(total: int, rooms: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Share ``total`` by weight among rooms of limited size; return whole numbers, int64.

    Full rooms take no more, and the others share the rest.

    >>> share_out(10, np.array([1, 100, 100]), np.ones(3)).tolist()
    [1, 5, 4]
    """
    exact = np.zeros(len(rooms))
    is_open = rooms > 0
    while is_open.any():
        level = (total - exact[~is_open].sum()) / weights[is_open].sum()
        full = is_open & (level * weights >= rooms)
        exact[is_open] = level * weights[is_open]
        exact[full] = rooms[full]
        if not full.any():
            break
        is_open &= ~full
    shares: np.ndarray = np.floor(exact + 1e-9).astype(np.int64)
    # the remainder of rounding goes to the largest fractions
    left = np.argsort(shares - exact, kind="stable")
    left = left[shares[left] < rooms[left]][: total - int(shares.sum())]
    shares[left] += 1
    return shares


def share_down(total: int, sizes: np.ndarray, layers: Sequence[np.ndarray]) -> np.ndarray:
    """Share ``total`` out equally among the groups of the coarsest layer, then inside each.

    >>> share_down(12, np.full(3, 100), [np.array([0, 0, 1])]).tolist()
    [3, 3, 6]
    """
    groups = layers[0] if layers else np.arange(len(sizes))
    rooms = np.bincount(groups, sizes).astype(np.int64)
    quotas = share_out(total, rooms, np.ones(len(rooms)))
    if not layers:
        return quotas
    shares = np.zeros(len(sizes), np.int64)
    for group, quota in enumerate(quotas.tolist()):
        inside = np.flatnonzero(groups == group)
        finer = [np.unique(one[inside], return_inverse=True)[1] for one in layers[1:]]
        shares[inside] = share_down(quota, sizes[inside], finer)
    return shares
