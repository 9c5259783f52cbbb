"""One fit in memory: choose a graph, search it, distil an assigner.

:mod:`~prcut.fit.fit` is the method on one page, and :mod:`~prcut.fit.config` its settings.
"""

from typing import TYPE_CHECKING

from prcut.runtime.lazy import import_lazily

if TYPE_CHECKING:
    from prcut.fit.config import FitConfig as FitConfig
    from prcut.fit.fit import Fit as Fit
    from prcut.fit.fit import fit_rows as fit_rows
    from prcut.fit.representation import score_representation as score_representation

_HOME = {
    "Fit": "fit",
    "FitConfig": "config",
    "fit_rows": "fit",
    "score_representation": "representation",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__, __dir__ = import_lazily(__name__, _HOME)
