"""Messages in the words of the command line."""

import pytest

from prcut.ui.cli.shared import name_options

FLAGS = {"n_clusters": "--clusters", "column": "--column", "memory": "--memory", "top": "--top"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("n_clusters=0 must be >= 1.", "--clusters 0 must be >= 1."),
        ("such as by column='f*'.", "such as by --column 'f*'."),
        ("raise memory or use less memory.", "raise --memory or use less memory."),
        ("top=9 is over n_clusters=4.", "--top 9 is over --clusters 4."),
        # not of this command, or not parameters
        ("n_samples=3; a column 'top' of x.column=5", "n_samples=3; a column 'top' of x.column=5"),
    ],
)
def test_parameters_become_options_and_words_stay(message: str, expected: str) -> None:
    assert name_options(message, FLAGS) == expected
