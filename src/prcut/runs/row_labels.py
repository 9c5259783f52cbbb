"""The partition of all rows of a run, in the order of the source, and what it costs.

::

    labels.npy      cluster of every row, int32, -1 for a row without an edge
    manifest.json   written after it
    score.json      objective, ratio cut and balance weight; cluster sizes and merge tree as .npy
"""

from __future__ import annotations

import numpy as np

from prcut.errors import CorruptFileError
from prcut.fit.clusters import Score
from prcut.runtime.folder import Folder, parsing, whole_number
from prcut.search.merge import MergeTree
from prcut.training.assigner.network import Assigner
from prcut.training.assigner.predict import assign_labels

SCORE_RECORD = "score.json"
_FORMAT = 1
_LABELS = "labels.npy"


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
        labels = self._folder.read_array(_LABELS, start, stop)
        if labels.dtype != np.int32 or labels.shape != (stop - start,):
            raise CorruptFileError(f"{self._folder.path} holds no clusters of rows {start}:{stop}.")
        return labels

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Read the clusters of some rows, int64; -1 where a row has none."""
        found: np.ndarray = self.read(0, self.n_samples)[rows].astype(np.int64)
        return found


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


def save_score(folder: Folder, key: str, score: Score, balance_weight: float) -> None:
    """Write what the partition costs."""
    arrays = {"sizes.npy": score.cluster_sizes}
    if score.merge_tree is not None:
        arrays |= {f"{name}.npy": values for name, values in score.merge_tree._asdict().items()}
    content = {"key": key, "objective": score.objective, "ratio_cut": score.ratio_cut}
    folder.seal(SCORE_RECORD, arrays, {**content, "balance_weight": balance_weight})


def read_score(folder: Folder) -> tuple[Score, float]:
    """Return what the partition costs, and with which balance weight."""
    found = folder.read_json(SCORE_RECORD)
    tree = None
    if "children.npy" in found["files"]:
        tree = MergeTree(*(folder.read_array(f"{name}.npy") for name in MergeTree._fields))
    sums = float(found["objective"]), float(found["ratio_cut"]), folder.read_array("sizes.npy")
    return Score(*sums, tree), float(found["balance_weight"])


def save_row_labels(folder: Folder, key: str, labels: np.ndarray) -> None:
    """Write the clusters of all rows."""
    plan = {"format": _FORMAT, "n_samples": len(labels)}
    arrays = {_LABELS: labels.astype(np.int32, copy=False)}
    folder.seal("manifest.json", arrays, {"key": key, "plan": plan})
