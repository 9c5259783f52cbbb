"""Warnings: given where something is wrong, each with its remedy, and nowhere else."""

import numpy as np
import pytest
import torch

from prcut.numerics.certificate import SpectralBound
from prcut.ui.report.diagnostics import diagnose
from prcut.ui.report.inspection import Inspection
from report_samples import EVEN, made_up


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (made_up(EVEN % 3, 4), ["1 of 4 clusters have no rows (3)", "Ask for 3 clusters"]),
        (made_up(EVEN, 4, confidence=np.full(400, 0.4)), ["100% of the rows", "fewer clusters"]),
        (
            made_up(EVEN, 4, about={"objective": 2.7}),
            ["only 10% better than that of random"],
        ),
        (
            made_up(EVEN, 4, links=np.eye(4) + np.eye(4)[[1, 0, 2, 3]]),
            ["0 to 1 (50%), 1 to 0 (50%)", "fewer clusters"],
        ),
        (made_up(EVEN, 4, n_components=9), ["has 9 connected components", "--neighbors"]),
        (made_up(EVEN, 4, partition=np.zeros(400)), ["25% of the rows", "--steps"]),
    ],
)
def test_every_warning_is_given_and_says_what_to_do(found: Inspection, words: list[str]) -> None:
    (advice,) = [*diagnose(found)]
    for word in words:
        assert word in advice


def test_a_good_clustering_is_not_warned_of() -> None:
    good = made_up(
        EVEN,
        4,
        about={"objective": 0.1},
        links=np.eye(4) + 0.01,
        n_components=4,
        partition=EVEN,
        bound=SpectralBound(1.0, torch.zeros(4), 0.0),
    )
    assert [*diagnose(good)] == []
