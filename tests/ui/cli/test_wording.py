"""Messages in the words of the command line."""

from typing import Any

import pytest
import typer

from prcut.ui.cli.commands import app
from prcut.ui.cli.wording import name_options

FLAGS = {"n_clusters": "--clusters", "column": "--column", "memory": "--memory", "top": "--top"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("n_clusters=0 must be >= 1.", "--clusters 0 must be >= 1."),
        ("name one by column=.", "name one by --column."),
        ("such as by column='f*'.", "such as by --column 'f*'."),
        ("raise memory or use less memory.", "raise --memory or use less memory."),
        ("top=9 is over n_clusters=4.", "--top 9 is over --clusters 4."),
        # not of this command, or not parameters
        ("n_samples=3; a column 'top' of x.column=5", "n_samples=3; a column 'top' of x.column=5"),
        ("--column='x' is wrong", "--column='x' is wrong"),
        ("on_top=1, stop=2", "on_top=1, stop=2"),
    ],
)
def test_parameters_become_options_and_words_stay(message: str, expected: str) -> None:
    assert name_options(message, FLAGS) == expected


def test_the_options_that_messages_name_exist() -> None:
    from prcut.ui.cli.wording import find_flags

    group: Any = typer.main.get_command(app)
    for command in app.registered_commands:
        assert command.callback is not None
        flags = find_flags(command.callback.__signature__.parameters.values())  # type: ignore[attr-defined]
        name = command.name or command.callback.__name__
        known = {flag for option in group.commands[name].params for flag in option.opts}
        assert set(flags.values()) <= known, name
        assert flags["json"] == "--json"
