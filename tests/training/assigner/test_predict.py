import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from prcut import Assigner
from prcut.training.assigner import predict as assignment
from prcut.training.assigner.predict import assign_labels, assign_probs


def assigner(bottleneck: int | None = None) -> Assigner:
    return Assigner(6, 4, (8,), bottleneck, generator=torch.Generator().manual_seed(0))


ROWS = np.random.default_rng(0).normal(size=(101, 6)) * (np.arange(6) % 2)


@pytest.mark.parametrize("numbers", [14, 140, 2**24])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, csr_array, torch.tensor])
def test_chunks_do_not_show(numbers: int, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "_CHUNK_NUMBERS", numbers)
    rows = ROWS.astype(kind) if isinstance(kind, type) and kind is not csr_array else kind(ROWS)
    model = assigner()
    dense = torch.from_numpy(ROWS.astype(np.float16 if kind is np.float16 else np.float32)).float()
    expected = model.probs(dense).detach().numpy()
    np.testing.assert_allclose(assign_probs(model, rows), expected, atol=1e-6)
    np.testing.assert_array_equal(assign_labels(model, rows), expected.argmax(1))


def test_no_rows_and_no_gradients() -> None:
    assert assign_labels(assigner(), ROWS[:0]).shape == (0,)
    assert assign_probs(assigner(), ROWS[:0]).shape == (0, 4)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
