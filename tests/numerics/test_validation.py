from typing import Any

import numpy as np
import pytest
import torch

from prcut.errors import InvalidInputError, check_positive_int
from prcut.numerics.validation import (
    check_node_weight,
    check_probs,
)


@pytest.mark.parametrize("value", [1, np.int32(1), np.uint8(1)])
def test_whole_numbers_of_any_type_become_int(value: Any) -> None:
    assert type(check_positive_int("n", value)) is int


@pytest.mark.parametrize("value", [0, -3, 1.0, True, "1", None])
def test_other_numbers_are_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^n_nodes=.* must be a whole number >= 1\.$"):
        check_positive_int("n_nodes", value)


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([[1.0]], r"probs is of type list, expected a torch tensor; use torch\.as_tensor\(probs\)"),
        (
            torch.ones(3, 2, dtype=torch.int64),
            "probs have dtype torch.int64 .* expected a floating",
        ),
        (torch.ones(3), r"shape \(3,\), expected .*\(n_samples, n_clusters\)"),
        (torch.ones(2, 2), r"shape \(2, 2\), .* with n_samples=3"),
    ],
)
def test_wrong_probs_are_refused(probs: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_probs(probs, 3)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_wrong_node_weights_are_refused(value: float) -> None:
    check_node_weight(torch.tensor([0.0, 2.0]), 2)
    with pytest.raises(InvalidInputError, match="node_weight must be finite and >= 0"):
        check_node_weight(torch.tensor([1.0, value]), 2)
