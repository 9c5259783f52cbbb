"""A fit as a folder that resumes: its plan, its stages, and the labels it writes."""

from typing import TYPE_CHECKING

from prcut.runtime.lazy import import_lazily

if TYPE_CHECKING:
    from prcut.runs.labels import assign_parquet as assign_parquet
    from prcut.runs.plan import plan_stages as plan_stages
    from prcut.runs.run import fit_run as fit_run

_HOME = {"assign_parquet": "labels", "fit_run": "run", "plan_stages": "plan"}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__, __dir__ = import_lazily(__name__, _HOME)
