"""Open a finished run of the command line as an estimator, with the labels of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prcut.errors import CorruptFileError
from prcut.pipeline.labels import STATE_FOLDER
from prcut.pipeline.outofcore.row_labels import RowLabels
from prcut.pipeline.run_folder import check_finished, read_plan
from prcut.pipeline.saved_fit import SaveMixin
from prcut.runtime.folder import Folder, finite_number, parsing

if TYPE_CHECKING:
    from typing_extensions import Self


class RunMixin(SaveMixin):
    """Lets ``load`` open runs, too."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load what :meth:`save` saved, or a finished run of ``prcut fit``.

        Of a run, ``labels_`` are those of the partition it found, if it holds them; rows that
        belong nowhere are −1 where labels were written. Its model alone is in the folder ``model``.
        """
        folder = Folder(path)
        if not folder.exists("plan.json"):
            return super().load(path)
        plan = read_plan(folder)
        check_finished(folder)
        model: Any = super().load(f"{str(path).rstrip('/')}/model")
        with parsing(f"{path}/result.json"):
            result = folder.read_json("result.json")
            for name in ("objective", "ratio_cut"):
                setattr(model, f"{name}_", finite_number(result[name]))
        for name, values in _read_labels(folder, has_outliers=bool(model.outliers)).items():
            if values.shape != (plan["n_samples"],):
                raise CorruptFileError(f"{path} has {name} of shape {values.shape}.")
            setattr(model, name, values)
        return model  # type: ignore[no-any-return]


def _read_labels(folder: Folder, *, has_outliers: bool) -> dict[str, np.ndarray]:
    """Return what a run says of its own rows: the partition, and how sure the assigner is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels = folder / "labels"
    if (labels / STATE_FOLDER).exists("manifest.json"):
        try:
            names = ["label", "confidence", "cluster" if has_outliers else "label"]
            table = pq.read_table(
                labels.path, columns=sorted({*names}), filesystem=labels.filesystem
            )
            found, sure, raw = (table[name].to_numpy() for name in names)
        except (pa.ArrowException, OSError, LookupError, ValueError) as error:
            raise CorruptFileError(f"{labels.path} cannot be read: {error}") from error
        whole = {"labels_": found.astype(np.int64), "clusters_": raw.astype(np.int64)}
        return {**whole, "probabilities_": sure}
    if (folder / "partition").exists("manifest.json"):
        partition = RowLabels(folder / "partition")
        found = partition.read(0, partition.n_samples).astype(np.int64)
        return {"labels_": found, "clusters_": found.copy()}
    return {}
