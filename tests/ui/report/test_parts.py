"""What both reports show: rows, scores and settings in words."""

from typing import Any

import pytest
import torch

from prcut.numerics.certificate import SpectralBound
from prcut.ui.report.parts import (
    describe_settings,
    list_figures,
    list_headline,
)
from report_samples import EVEN, made_up


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"hidden": [], "bottleneck": 2}, {"hidden layers": "none: linear, bottleneck 2"}),
        ({"n_steps": 1200, "objective": 0.123456}, {"steps": "1,200", "objective": "0.12346"}),
        ({"seconds": {"graph": 1.2, "training": 2000.0}}, {"time": "graph 1 s, training 2,000 s"}),
        (
            {"metric": "cosine", "n_neighbors": 7, "similarity": "mean"},
            {"graph": "7 nearest neighbours, cosine, weights mean"},
        ),
    ],
)
def test_settings_in_words(about: dict[str, Any], expected: dict[str, str]) -> None:
    settings = describe_settings(made_up(EVEN, 4, about=about))
    assert expected.items() <= settings.items()
    assert settings["rows"] == "400 of 2 features"


def test_a_certificate_says_how_far_from_optimal() -> None:
    bound = SpectralBound(1.0, torch.zeros(4), 0.0)
    found = made_up(EVEN, 4, about={"ratio_cut": 3.0}, bound=bound)
    assert "at most 3 times the best" in describe_settings(found)["certificate"]
    assert list_headline(found, None)["times the best cut, at most"] == "3.00×"
    assert list_figures(found, None)["times_the_best_at_most"] == 3
    assert "would take too long" in describe_settings(made_up(EVEN, 4))["certificate"]
