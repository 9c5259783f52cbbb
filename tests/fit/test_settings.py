from dataclasses import fields
from typing import get_args

from prcut.fit.config import FitConfig
from prcut.fit.settings import FitSettings
from prcut.graph.build import Similarity
from prcut.graph.neighbors import Metric


def test_the_configuration_adds_only_those_of_training() -> None:
    names = [one.name for one in fields(FitConfig)]
    assert names == [*(one.name for one in fields(FitSettings)), "train", "distil"]


def test_choices_are_the_names_that_the_graph_knows() -> None:
    choices = {one.name: one.metadata.get("choices") for one in fields(FitSettings)}
    assert choices["metric"] == get_args(Metric)
    assert choices["similarity"] == get_args(Similarity)
