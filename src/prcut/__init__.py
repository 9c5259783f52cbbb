"""Clustering by the probabilistic ratio cut of a similarity graph.

Names are imported when first used, so that ``import prcut`` itself costs nothing.
"""

from typing import TYPE_CHECKING

from prcut.runtime.lazy import import_lazily

if TYPE_CHECKING:
    from prcut.curate.embed import embed as embed
    from prcut.errors import PRCutError as PRCutError
    from prcut.estimator import PRCut as PRCut
    from prcut.graph.blocks.build import build_blocks as build_blocks
    from prcut.graph.build import build_graph as build_graph
    from prcut.graph.similarity_graph import SimilarityGraph as SimilarityGraph
    from prcut.numerics.certificate import spectral_lower_bound as spectral_lower_bound
    from prcut.numerics.cuts import normalized_cut as normalized_cut
    from prcut.numerics.cuts import ratio_cut as ratio_cut
    from prcut.numerics.expectation import expected_ratio_cut as expected_ratio_cut
    from prcut.numerics.objective import cluster_imbalance as cluster_imbalance
    from prcut.numerics.objective import soft_ratio_cut as soft_ratio_cut
    from prcut.training.assigner.network import Assigner as Assigner
    from prcut.training.loop import train as train
    from prcut.training.loss import RatioCutLoss as RatioCutLoss

__version__ = "0.2.0"

_HOME = {
    "Assigner": "training.assigner.network",
    "PRCut": "estimator",
    "PRCutError": "errors",
    "RatioCutLoss": "training.loss",
    "SimilarityGraph": "graph.similarity_graph",
    "build_blocks": "graph.blocks.build",
    "build_graph": "graph.build",
    "cluster_imbalance": "numerics.objective",
    "embed": "curate.embed",
    "expected_ratio_cut": "numerics.expectation",
    "normalized_cut": "numerics.cuts",
    "ratio_cut": "numerics.cuts",
    "soft_ratio_cut": "numerics.objective",
    "spectral_lower_bound": "numerics.certificate",
    "train": "training.loop",
}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604
__getattr__, _ = import_lazily(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
