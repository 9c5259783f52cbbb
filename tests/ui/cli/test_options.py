"""Options made from settings."""

from dataclasses import fields
from typing import Any, get_args

import typer

from prcut.fit.config import FitConfig
from prcut.graph.build import Similarity
from prcut.graph.neighbors import Metric
from prcut.training.state import TrainConfig
from prcut.ui.cli.commands import app
from prcut.ui.cli.options import SETTINGS


def test_every_setting_of_a_fit_is_an_option_with_its_help_and_default() -> None:
    names = {field.name for config in (FitConfig, TrainConfig) for field in fields(config)}
    assert set(SETTINGS) <= names
    group: Any = typer.main.get_command(app)
    options = {option.name: option for option in group.commands["fit"].params}
    for name, setting in SETTINGS.items():
        assert options[name].help.startswith(setting.metadata["help"]), name
        assert options[name].default is None, name  # the preset states it
    assert options["checkpoint_every"].opts[0] == "--save-every"
    assert "default: 8]" in options["walk_length"].help
    assert "default" not in options["bottleneck"].help
    # a shell completes the names that the library knows
    assert SETTINGS["metric"].metadata["choices"] == get_args(Metric)
    assert SETTINGS["similarity"].metadata["choices"] == get_args(Similarity)
    context = group.make_context("prcut", ["fit", "x"], resilient_parsing=True)
    found = options["metric"].shell_complete(context, "c")
    assert [item.value for item in found] == ["cosine"]
