"""What both reports show: rows, scores and settings in words."""

from typing import Any

import numpy as np
import pytest
import torch

from prcut.numerics.certificate import SpectralBound
from prcut.runtime.sources import ArraySource
from prcut.ui.report.parts import (
    RowContents,
    describe_settings,
    largest_entries,
    list_figures,
    list_headline,
    score_classes,
)
from prcut.ui.report.row_contents import RowLabels
from report_samples import EVEN, made_up

SOURCE = ArraySource(np.arange(40.0).reshape(10, 4))


def test_rows_are_images_or_texts_or_numbers() -> None:
    rows = np.array([7, 2, 7])
    assert RowContents(SOURCE).read(rows) == {2: (None, None), 7: (None, None)}
    texts = RowContents(SOURCE, [f"  line\n {i} " + "long " * 99 for i in range(10)]).read(rows)
    text, _ = texts[2]
    assert text is not None
    assert text.startswith("line 2 long")
    assert len(text) <= 180
    assert text.endswith("…")
    pytest.importorskip("PIL")
    _, image = RowContents(SOURCE, None, "2x2").read(rows)[7]
    assert image is not None
    assert image.startswith("data:image/png;base64,")
    assert RowContents(SOURCE, ["x"] * 10, "2x2").read(np.empty(0, int)) == {}


def test_largest_entries_are_positive() -> None:
    table = np.array([[0, 3, 1], [0, 0, 3], [0, 0, 0]])
    assert largest_entries(table, 9) == [(0, 1), (1, 2), (0, 2)]
    assert largest_entries(table, 1) == [(0, 1)]


def test_scores_are_those_of_the_best_matching() -> None:
    found = made_up(EVEN, 4)
    scores = score_classes(RowLabels((EVEN + 1) % 4, list("abcd")), found)
    assert scores.accuracy == scores.ari == 1
    assert list_headline(found, scores)["accuracy against the classes"] == "100.0%"
    assert list_figures(found, scores)["accuracy"] == 1


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"mode": "disk"}, {"graph kept": "on disk, in blocks"}),
        ({"hidden": [], "bottleneck": 2}, {"hidden layers": "none: linear, bottleneck 2"}),
        ({"hidden": [64, 32]}, {"hidden layers": "64, 32"}),
        ({"n_steps": 1200, "objective": 0.123456}, {"steps": "1,200", "objective": "0.12346"}),
        ({"seconds": {"graph": 1.2, "training": 2000.0}}, {"time": "graph 1 s, training 2,000 s"}),
        (
            {"metric": "cosine", "n_neighbors": 7, "similarity": "mean"},
            {"graph": "7 nearest neighbours, cosine, weights mean"},
        ),
        ({"solver": "train", "seed": 3}, {"seed": "3"}),
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
