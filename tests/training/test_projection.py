import numpy as np
import torch
from scipy.sparse import csr_array

from prcut import Assigner
from prcut.training.batches import LabelledRows
from prcut.training.loop import train
from prcut.training.projection import Projection
from prcut.training.settings import TrainConfig


def correlated(n_samples: int = 500) -> np.ndarray:
    """Rows of 12 columns near a plane of three directions, far from 0."""
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(n_samples, 3)) * (9, 3, 1) @ rng.normal(size=(3, 12))
    return (plane + 0.01 * rng.normal(size=plane.shape) + 20).astype(np.float32)


def test_main_directions_are_uncorrelated_and_together_of_unit_deviation() -> None:
    rows = correlated()
    coordinates = Projection.of(rows, 3)(rows)
    covariance = coordinates.T @ coordinates / len(rows)
    assert coordinates.mean(0).abs().max() < 1e-3
    torch.testing.assert_close(covariance.trace(), torch.tensor(3.0), rtol=1e-2, atol=0)
    off_diagonal = covariance - covariance.diag().diag()
    assert off_diagonal.abs().max() < 1e-2
    # nothing but noise is lost: the rows are linear in their coordinates
    known = np.column_stack([coordinates.numpy(), np.ones(len(rows))])
    rest = rows - known @ np.linalg.lstsq(known, rows, rcond=None)[0]
    assert rest.std() < 0.02


def test_sparse_rows_and_rows_of_few_columns() -> None:
    rows = correlated()
    dense, sparse = (Projection.of(one, 3) for one in (rows, csr_array(rows)))
    torch.testing.assert_close(dense(rows), sparse(csr_array(rows)), rtol=1e-2, atol=1e-2)
    assert Projection.of(rows, 64).basis.shape == (12, 12)
    constant = Projection.of(np.ones((5, 2)), 64)
    assert constant(np.ones((5, 2))).isfinite().all()


def test_an_assigner_of_coordinates_is_folded() -> None:
    rows = correlated()
    labels = torch.from_numpy((rows.mean(1) > 20).astype(np.int64))
    projection = Projection.of(rows, 3)
    assigner = Assigner(3, 2, (8,), weight_norm=False)
    lesson = LabelledRows(projection(rows), labels)
    state = train(lesson, assigner, TrainConfig(max_steps=60, batch_size=128, learning_rate=0.01))
    folded = projection.fold(assigner, state)
    assert folded.n_features == 12
    expected = assigner(projection(rows))
    torch.testing.assert_close(folded(torch.from_numpy(rows)), expected, rtol=1e-3, atol=1e-3)
    assert state.optimizer.parameters[0] is next(folded.parameters())
