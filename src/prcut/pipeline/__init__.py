"""One fit from end to end: in memory or on disk.

Names are imported when first used: ``import prcut.pipeline`` loads none of the modules.
"""

from typing import TYPE_CHECKING

from prcut.runtime.lazy import import_lazily

if TYPE_CHECKING:
    from prcut.pipeline.config import FitConfig as FitConfig
    from prcut.pipeline.fit import Fit as Fit
    from prcut.pipeline.fit import fit_rows as fit_rows
    from prcut.pipeline.labels import assign_parquet as assign_parquet
    from prcut.pipeline.outofcore.capacity import plan_stages as plan_stages
    from prcut.pipeline.representation import score_representation as score_representation
    from prcut.pipeline.run import fit_run as fit_run
    from prcut.pipeline.run import graph_run as graph_run

_HOME = {
    "Fit": "fit",
    "FitConfig": "config",
    "assign_parquet": "labels",
    "fit_rows": "fit",
    "fit_run": "run",
    "graph_run": "run",
    "plan_stages": "outofcore.capacity",
    "score_representation": "representation",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__, __dir__ = import_lazily(__name__, _HOME)
