"""Options made from settings."""

from dataclasses import fields
from typing import Any, get_args

import pytest
import typer
from typer.testing import CliRunner

from prcut.errors import InvalidInputError
from prcut.graph.build import Similarity
from prcut.graph.neighbors import Metric
from prcut.pipeline.config import FitConfig
from prcut.training.state import TrainConfig
from prcut.ui.cli.commands import app
from prcut.ui.cli.options import SETTINGS, parse_numbers, with_options


def options_of(command: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return {option.name: option for option in group.commands[command].params}


def test_every_setting_of_a_fit_is_an_option_with_its_help_and_default() -> None:
    names = {field.name for config in (FitConfig, TrainConfig) for field in fields(config)}
    assert set(SETTINGS) <= names
    options = options_of("fit")
    for name, setting in SETTINGS.items():
        assert options[name].help.startswith(setting.metadata["help"]), name
        assert options[name].default is None, name  # the preset states it
    expected = {
        "n_neighbors": "--neighbors",
        "balance_weight": "--balance",
        "max_steps": "--steps",
        "checkpoint_every": "--save-every",
        "walk_length": "--walk-length",
        "n_init": "--n-init",
    }
    assert {name: options[name].opts[0] for name in expected} == expected
    assert "default: 8]" in options["walk_length"].help
    assert "default: 4 to search, 1 to train]" in options["n_init"].help
    assert "default" not in options["bottleneck"].help


def test_options_stand_under_their_headings() -> None:
    panels = [option.rich_help_panel for option in options_of("fit").values()]
    order = [panel for number, panel in enumerate(panels) if panel not in panels[:number]]
    assert order == [None, "Graph", "Known", "Training", "Running"]
    assert {"metric", "similarity", "seed"} < set(options_of("graph"))
    assert "max_steps" not in options_of("graph")


def test_a_shell_completes_the_names_that_the_library_knows() -> None:
    assert SETTINGS["metric"].metadata["choices"] == get_args(Metric)
    assert SETTINGS["similarity"].metadata["choices"] == get_args(Similarity)
    assert SETTINGS["solver"].metadata["choices"] == ("search", "train")
    option = options_of("fit")["metric"]
    group: Any = typer.main.get_command(app)
    context = group.make_context("prcut", ["fit", "x"], resilient_parsing=True)
    assert [item.value for item in option.shell_complete(context, "c")] == ["cosine"]


def test_a_command_receives_the_settings_that_were_given() -> None:
    seen: dict[str, Any] = {}
    small = typer.Typer()

    @small.command()
    @with_options(*SETTINGS)
    def fit(quiet: bool = False, **settings: Any) -> None:
        seen.update(settings, quiet=quiet)

    arguments = ["--hidden", "64,32", "--balance", "0", "-q", "--seed", "3", "--metric", "cosine"]
    done = CliRunner().invoke(small, arguments)
    assert done.exit_code == 0, done.output
    expected = {"hidden": (64, 32), "balance_weight": 0.0, "seed": 3, "metric": "cosine"}
    assert seen == {**expected, "quiet": True}
    assert CliRunner().invoke(small, ["--seed", "-1"]).exit_code == 2


@pytest.mark.parametrize("text", ["", "5,x", "0", "-1", "1,,2", "2.5"])
def test_numbers_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"--hidden '.*' must be whole numbers >= 1"):
        parse_numbers("--hidden", text)
