"""Pairs of similar rows train an assigner, which gives every row a probability for each cluster.

Names are imported when first used, so that the command line can list the settings without torch.
"""

from typing import TYPE_CHECKING

from prcut.runtime.lazy import import_lazily

if TYPE_CHECKING:
    from prcut.training.assigner.saved import load_model as load_model
    from prcut.training.assigner.saved import save_model as save_model
    from prcut.training.batches import GatheredPairs as GatheredPairs
    from prcut.training.loss import RunningClusterMass as RunningClusterMass
    from prcut.training.pairs import UniformPairs as UniformPairs
    from prcut.training.pairs import WalkPairs as WalkPairs
    from prcut.training.settings import TrainConfig as TrainConfig
    from prcut.training.state import Record as Record
    from prcut.training.state import TrainState as TrainState

_HOME = {
    "GatheredPairs": "batches",
    "Record": "state",
    "RunningClusterMass": "loss",
    "TrainConfig": "settings",
    "TrainState": "state",
    "UniformPairs": "pairs",
    "WalkPairs": "pairs",
    "load_model": "assigner.saved",
    "save_model": "assigner.saved",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__, __dir__ = import_lazily(__name__, _HOME)
