"""Open a finished run of the command line as an estimator, with the labels of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prcut.errors import CorruptFileError, InvalidInputError
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

        Of a run, ``labels_`` are those of the partition it found, if it holds them; its model alone
        is in the folder ``model``.
        """
        folder = Folder(path)
        if not folder.exists("plan.json"):
            return super().load(path)
        plan = read_plan(folder)
        check_finished(folder)
        if plan["kind"] == "levels":
            raise InvalidInputError(
                f"{path} is a run of levels, which PRCut cannot hold; use `prcut assign {path}`."
            )
        model: Any = super().load(f"{str(path).rstrip('/')}/model")
        with parsing(f"{path}/result.json"):
            result = folder.read_json("result.json")
            for name in ("objective", "ratio_cut"):
                setattr(model, f"{name}_", finite_number(result[name]))
        for name, values in _read_labels(folder).items():
            if values.shape != (plan["n_samples"],):
                raise CorruptFileError(f"{path} has {name} of shape {values.shape}.")
            setattr(model, name, values)
        if hasattr(model, "labels_"):
            model.clusters_ = model.labels_.copy()
        return model  # type: ignore[no-any-return]


def _read_labels(folder: Folder) -> dict[str, np.ndarray]:
    """Return what a run says of its own rows: the partition, and how sure the assigner is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels = folder / "labels"
    if (labels / STATE_FOLDER).exists("manifest.json"):
        try:
            names = ["label", "confidence"]
            table = pq.read_table(labels.path, columns=names, filesystem=labels.filesystem)
            found, sure = (table[name].to_numpy() for name in names)
        except (pa.ArrowException, OSError, LookupError, ValueError) as error:
            raise CorruptFileError(f"{labels.path} cannot be read: {error}") from error
        return {"labels_": found.astype(np.int64), "probabilities_": sure}
    if (folder / "partition").exists("manifest.json"):
        partition = RowLabels(folder / "partition")
        return {"labels_": partition.read(0, partition.n_samples).astype(np.int64)}
    return {}
