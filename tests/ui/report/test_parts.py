"""Parts of reports: scores and settings in words."""

import torch

from prcut.numerics.certificate import SpectralBound
from prcut.ui.report.report import list_headline
from report_samples import EVEN, made_up


def test_a_certificate_says_how_far_from_optimal() -> None:
    bound = SpectralBound(1.0, torch.zeros(4), 0.0)
    found = made_up(EVEN, 4, about={"ratio_cut": 3.0}, bound=bound)
    assert list_headline(found, None)["ratio cut over its lower bound"] == "3.00"
    assert "ratio cut over its lower bound" not in list_headline(made_up(EVEN, 4), None)
