"""Principal directions of the rows: well-conditioned inputs for training, folded in afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prcut.graph.rows import as_features, gather_rows, measure_features
from prcut.training.adam import Adam
from prcut.training.assigner.network import Assigner
from prcut.training.state import TrainState

# rows of the sample in which directions are found, and rounds of subspace iteration
_SAMPLE_ROWS = 2**13
_ROUNDS = 4
# a direction is divided by this power of its deviation: 0 rotates, 1 whitens
_WHITENING = 0.5
# numbers that are projected at a time
_CHUNK_NUMBERS = 2**24


@dataclass(frozen=True)
class Projection:
    """Rows as ``(rows - origin) / scale @ basis``, whose columns together have unit deviation.

    Without it, descent takes many steps on correlated columns such as neighbouring pixels.
    """

    origin: Tensor
    scale: float
    basis: Tensor

    @classmethod
    def of(cls, features: Any, n_columns: int, seed: int = 0) -> Projection:
        """Find at most ``n_columns`` principal directions of a sample of the rows."""
        features = as_features(features)
        origin, scale = measure_features(features, seed)
        rng = np.random.default_rng([seed, 8])
        size = min(features.shape[0], _SAMPLE_ROWS)
        drawn = np.sort(rng.choice(features.shape[0], size, replace=False))
        sample = gather_rows(features, torch.from_numpy(drawn))
        shape = len(origin), min(n_columns, len(origin))
        basis = torch.from_numpy(rng.standard_normal(shape, np.float32))
        # Halko, Martinsson and Tropp, Finding structure with randomness (2011)
        for _ in range(_ROUNDS):
            basis = torch.linalg.qr(basis).Q
            coordinates = (sample @ basis - origin @ basis) / scale
            basis = sample.transpose(0, 1) @ coordinates
            basis -= torch.outer(origin, coordinates.sum(0))
        basis = torch.linalg.qr(basis).Q
        coordinates = (sample @ basis - origin @ basis) / scale
        return cls(origin, scale, basis @ _whiten(coordinates.T @ coordinates / size))

    def __call__(self, features: Any) -> Tensor:
        """Return the coordinates of rows, dense or sparse, float32."""
        features, matrix = as_features(features), self.basis / self.scale
        n_samples, n_columns = features.shape[0], matrix.shape[1]
        projected = torch.empty(n_samples, n_columns)
        step = max(1, _CHUNK_NUMBERS // max(1, features.shape[1]))
        for start in range(0, n_samples, step):
            rows = slice(start, start + step)
            projected[rows] = gather_rows(features, rows) @ matrix
        return projected.sub_(self.origin @ matrix)

    def fold(self, assigner: Assigner, state: TrainState) -> Assigner:
        """Return the equivalent assigner of the rows themselves; ``state`` becomes its state."""
        device = next(assigner.parameters()).device
        folded = assigner.fold(self.basis.to(device), self.origin, self.scale)
        # averages of gradients in coordinates are useless for the features
        state.optimizer = Adam(folded.parameters(), state.optimizer.weight_decay)
        return folded


def _whiten(covariance: Tensor) -> Tensor:
    """Return a matrix that makes coordinates uncorrelated, with more similar deviations."""
    variance, turn = torch.linalg.eigh(covariance)
    least = variance.max().clamp_min(1e-12) * 1e-6  # rows may span fewer directions
    factor = variance.clamp_min(least) ** (-_WHITENING / 2)
    length = (variance.clamp_min(0) * factor**2).mean().sqrt().clamp_min(1e-6)
    whitened: Tensor = turn * (factor / length)
    return whitened
