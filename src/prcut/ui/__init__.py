"""Reports, displays, the command line, progress bars and notebooks.

Names are imported when first used: the command line starts fast.
"""

from typing import TYPE_CHECKING

from prcut.runtime.lazy import import_lazily

if TYPE_CHECKING:
    from prcut.ui.plot import ClusterMapDisplay as ClusterMapDisplay
    from prcut.ui.plot import ClusterSizesDisplay as ClusterSizesDisplay
    from prcut.ui.plot import ConfusionDisplay as ConfusionDisplay
    from prcut.ui.plot import CutMatrixDisplay as CutMatrixDisplay
    from prcut.ui.report.inspection import Inspection as Inspection
    from prcut.ui.report.inspection import inspect_run as inspect_run
    from prcut.ui.report.report import write_report as write_report

_HOME = {
    "ClusterMapDisplay": "plot",
    "ClusterSizesDisplay": "plot",
    "ConfusionDisplay": "plot",
    "CutMatrixDisplay": "plot",
    "Inspection": "report.inspection",
    "inspect_run": "report.inspection",
    "write_report": "report.report",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__, __dir__ = import_lazily(__name__, _HOME)
