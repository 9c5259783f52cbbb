"""Parts of reports: scores and settings in words."""

import torch

from prcut.numerics.certificate import SpectralBound
from prcut.ui.report.report import (
    describe_settings,
    list_headline,
)
from report_samples import EVEN, made_up


def test_a_certificate_says_how_far_from_optimal() -> None:
    bound = SpectralBound(1.0, torch.zeros(4), 0.0)
    found = made_up(EVEN, 4, about={"ratio_cut": 3.0}, bound=bound)
    assert "at most 3 times the best" in describe_settings(found)["certificate"]
    assert list_headline(found, None)["times the best cut, at most"] == "3.00×"
    assert "would take too long" in describe_settings(made_up(EVEN, 4))["certificate"]
