import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from prcut import Assigner
from prcut.training.assigner.saved import load_model, save_model


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("hidden", [(), (16,), (16, 8, 4)])
@pytest.mark.parametrize("bottleneck", [None, 3])
def test_shapes_and_probabilities(hidden: tuple[int, ...], bottleneck: int | None) -> None:
    assigner = Assigner(7, 5, hidden, bottleneck, generator=generator())
    rows = torch.randn(11, 7, generator=generator())
    width = bottleneck or (hidden[-1] if hidden else 7)
    assert assigner.represent(rows).shape == (11, width)
    torch.testing.assert_close(assigner.probs(rows), assigner(rows).softmax(1))
    torch.testing.assert_close(assigner.probs(rows).sum(1), torch.ones(11))


def test_same_seed_same_weights_and_global_state_untouched() -> None:
    before = torch.get_rng_state()
    first, second, other = (
        Assigner(7, 5, (16,), 3, generator=generator(seed)).state_dict() for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in first.items():
        assert torch.equal(value, second[name])
    assert any(not torch.equal(value, other[name]) for name, value in first.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5), "n_features=0 must be a whole number >= 1"),
        ((7, -1), "n_clusters=-1 must"),
        ((7, 5, (16, 0)), "hidden=0 must"),
        ((7, 5, (), 2.5), "bottleneck=2.5 must"),
        ((7, True), "n_clusters=True must"),
        (("7", 5), "n_features='7' must"),
    ],
)
def test_wrong_sizes_are_refused(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Assigner(*arguments)  # type: ignore[arg-type]


def test_wrong_features_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 6\), expected .* with n_features=7"):
        Assigner(7, 5)(torch.zeros(3, 6))


@pytest.mark.parametrize("hidden", [(), (7,)])
def test_divided_columns_are_read_as_they_come(hidden: tuple[int, ...], tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, scales = torch.randn(20, 4, generator=generator), np.float32([1, 1000, 0.1, 3])
    assigner = Assigner(4, 3, hidden, generator=generator)
    assigner.standardize(rows.mean(0), 2.0)
    assert assigner.column_scales is None
    expected = assigner(rows).detach()
    assigner.divide_columns(None)
    assigner.divide_columns(scales)
    raw = rows * torch.from_numpy(scales)
    torch.testing.assert_close(assigner(raw).detach(), expected, rtol=1e-4, atol=1e-5)
    assert assigner.column_scales is not None
    np.testing.assert_allclose(assigner.column_scales, 2 * scales)
    save_model(tmp_path, assigner, {})
    for copy in (pickle.loads(pickle.dumps(assigner)), load_model(tmp_path).assigner):  # noqa: S301
        assert torch.equal(copy(raw), assigner(raw))
