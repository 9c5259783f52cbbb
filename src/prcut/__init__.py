"""Clustering by the probabilistic ratio cut of a similarity graph.

Names are imported when first used, so that ``import prcut`` itself costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prcut.assigner import Assigner as Assigner
    from prcut.blocks import build_blocks as build_blocks
    from prcut.certificate import spectral_lower_bound as spectral_lower_bound
    from prcut.cuts import normalized_cut as normalized_cut
    from prcut.cuts import ratio_cut as ratio_cut
    from prcut.errors import PRCutError as PRCutError
    from prcut.estimator import PRCut as PRCut
    from prcut.expectation import expected_ratio_cut as expected_ratio_cut
    from prcut.graph import SimilarityGraph as SimilarityGraph
    from prcut.loss import RatioCutLoss as RatioCutLoss
    from prcut.objective import cluster_imbalance as cluster_imbalance
    from prcut.objective import soft_ratio_cut as soft_ratio_cut
    from prcut.running_mass import RunningClusterMass as RunningClusterMass
    from prcut.similarity import build_graph as build_graph
    from prcut.training import train as train

__version__ = "0.1.0"

_HOME = {
    "Assigner": "assigner",
    "PRCut": "estimator",
    "PRCutError": "errors",
    "RatioCutLoss": "loss",
    "RunningClusterMass": "running_mass",
    "SimilarityGraph": "graph",
    "build_blocks": "blocks",
    "build_graph": "similarity",
    "cluster_imbalance": "objective",
    "expected_ratio_cut": "expectation",
    "normalized_cut": "cuts",
    "ratio_cut": "cuts",
    "soft_ratio_cut": "objective",
    "spectral_lower_bound": "certificate",
    "train": "training",
}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'prcut' has no attribute {name!r}")
    value = getattr(import_module(f"prcut.{_HOME[name]}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
