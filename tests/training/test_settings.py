from dataclasses import fields

from prcut.training.settings import TrainConfig


def test_the_settings_of_the_command_line_say_what_they_mean() -> None:
    for one in fields(TrainConfig):
        if one.metadata:
            assert one.metadata["help"].endswith("."), one.name
