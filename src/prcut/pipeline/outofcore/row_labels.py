"""The partition of all rows of a run, in the order of the source, and what it costs.

::

    rows-00000.npy   clusters of some million rows, int32, -1 for a row without an edge
    score.json       objective, ratio cut and balance weight; cluster sizes and merge tree as .npy
    manifest.json    written last
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from prcut.errors import CorruptFileError
from prcut.numerics.objective import ClusterCost
from prcut.pipeline.outofcore.parts import Posts
from prcut.pipeline.score import Score
from prcut.runtime.engine import Engine
from prcut.runtime.folder import Folder, parsing, whole_number
from prcut.runtime.shuffle import gather, is_scattered, scatter
from prcut.search.merge import MergeTree
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels

_FORMAT = 1
# rows of a file
_FILE_ROWS = 2**22


class RowLabels:
    """Clusters of all rows of a source, read by ranges of rows."""

    def __init__(self, folder: Folder) -> None:
        manifest = folder.read_manifest(_FORMAT, "fit_run")
        with parsing(f"{folder.path}/manifest.json"):
            self.key = str(manifest["key"])
            self.n_samples = whole_number(manifest["plan"]["n_samples"])
        self._folder = folder

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the clusters of rows ``start:stop``, -1 where a row has none."""
        found = []
        for number in range(start // _FILE_ROWS, -(-stop // _FILE_ROWS)):
            first = number * _FILE_ROWS
            rows = max(start, first) - first, min(stop - first, _FILE_ROWS)
            found.append(self._folder.read_array(f"{_name(number)}.npy", *rows))
        labels = np.concatenate(found) if found else np.empty(0, np.int32)
        if labels.dtype != np.int32 or labels.shape != (stop - start,):
            raise CorruptFileError(f"{self._folder.path} holds no clusters of rows {start}:{stop}.")
        return labels

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Read the clusters of some rows, whose numbers rise, int64; -1 where a row has none."""
        first = np.searchsorted(rows, np.arange(0, self.n_samples + _FILE_ROWS, _FILE_ROWS))
        found = [np.empty(0, np.int64)]
        for start, stop in pairwise(first.tolist()):
            if start < stop:
                of_file = rows[start:stop]
                low, high = int(of_file[0]), int(of_file[-1]) + 1
                found.append(self.read(low, high)[of_file - low].astype(np.int64))
        return np.concatenate(found)


def find_clusters(
    folder: Folder, numbers: np.ndarray, rows: np.ndarray, assigner: Assigner
) -> np.ndarray:
    """Return the clusters of some rows, in order: the partition's, or else the assigner's."""
    found = np.full(len(numbers), -1)
    if folder.exists("manifest.json"):
        found = RowLabels(folder).take(numbers)
    unknown = found < 0
    found[unknown] = assign_labels(assigner, rows[unknown])
    return found


def write_row_labels(
    rows: Posts,
    labels: Posts,
    folder: Folder,
    key: str,
    n_samples: int,
    engine: Engine,
    options: dict[str, Any],
) -> None:
    """Bring the clusters of all parts' nodes into the order of the source."""
    exchange = folder / "exchange"
    n_parts, n_files = rows.level.n_parts, -(-n_samples // _FILE_ROWS)
    send = partial(_send_labels, rows, labels, exchange, key, n_files)
    engine.run("send labels", send, n_parts, **options)
    write = partial(_write_range, folder, exchange, key, n_parts, n_samples)
    engine.run("sort labels", write, n_files, **options | {"total": n_samples})


def _send_labels(
    rows: Posts,
    labels: Posts,
    exchange: Folder,
    key: str,
    n_files: int,
    number: int,
    advance: Callable[[int], None],
) -> None:
    of_part = rows.own(number)
    if not is_scattered(exchange, number, key):
        columns = {"rows": of_part, "labels": labels.own(number)}
        order = np.arange(len(of_part))
        scatter(exchange, number, columns, order, of_part // _FILE_ROWS, n_files, key)
    advance(len(of_part))


def _write_range(
    folder: Folder,
    exchange: Folder,
    key: str,
    n_parts: int,
    n_samples: int,
    number: int,
    advance: Callable[[int], None],
) -> None:
    first, name = number * _FILE_ROWS, _name(number)
    n_rows = min(_FILE_ROWS, n_samples - first)
    if not folder.is_sealed(f"{name}.json", key):
        found = gather(exchange, n_parts, ("rows", "labels"), number)
        labels = np.full(n_rows, -1, np.int32)
        labels[found["rows"] - first] = found["labels"]
        folder.seal(f"{name}.json", {f"{name}.npy": labels}, {"key": key})
    advance(n_rows)


def save_score(
    folder: Folder,
    key: str,
    score: Score,
    balance_weight: float,
    cuts: np.ndarray,
    cost: ClusterCost,
) -> None:
    """Write what the partition costs."""
    arrays = {"sizes.npy": score.cluster_sizes, "cuts.npy": cuts}
    if score.merge_tree is not None:
        arrays |= {f"{name}.npy": values for name, values in score.merge_tree._asdict().items()}
    content = {"key": key, "objective": score.objective, "ratio_cut": score.ratio_cut}
    content |= {"balance_weight": balance_weight, "scale": cost.scale, "factor": cost.factor}
    folder.seal("score.json", arrays, content)


def read_score(folder: Folder) -> tuple[Score, float]:
    """Return what the partition costs, and with which balance weight."""
    found = folder.read_json("score.json")
    tree = None
    if "children.npy" in found["files"]:
        tree = MergeTree(*(folder.read_array(f"{name}.npy") for name in MergeTree._fields))
    sums = float(found["objective"]), float(found["ratio_cut"]), folder.read_array("sizes.npy")
    return Score(*sums, tree), float(found["balance_weight"])


def read_sums(folder: Folder) -> tuple[ClusterCost, np.ndarray, np.ndarray]:
    """Return what clusters cost, and their cuts and sizes."""
    found = folder.read_json("score.json")
    cuts, sizes = folder.read_array("cuts.npy"), folder.read_array("sizes.npy")
    cost = ClusterCost(int(sizes.sum()), found["scale"], found["factor"], len(sizes))
    return cost, cuts, sizes


def finish(folder: Folder, key: str, n_samples: int) -> None:
    """Say that the partition is whole."""
    plan = {"format": _FORMAT, "n_samples": n_samples}
    folder.write_json("manifest.json", {"key": key, "plan": plan, "files": {}})
    (folder / "exchange").delete()


def save_row_labels(folder: Folder, key: str, labels: np.ndarray) -> None:
    """Write the clusters of rows in memory."""
    for number, first in enumerate(range(0, len(labels), _FILE_ROWS)):
        content = labels[first : first + _FILE_ROWS].astype(np.int32)
        folder.seal(f"{_name(number)}.json", {f"{_name(number)}.npy": content}, {"key": key})
    finish(folder, key, len(labels))


def _name(number: int) -> str:
    return f"rows-{number:05d}"
