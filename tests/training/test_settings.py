from dataclasses import fields

from prcut.training.settings import TrainConfig, setting


def test_a_setting_is_a_field_with_its_meaning() -> None:
    made = setting(3, "Number of things.", option="things", least=1)
    assert made.default == 3
    assert made.metadata["help"] == "Number of things."
    assert (made.metadata["option"], made.metadata["least"]) == ("things", 1)
    assert made.metadata["panel"] == "Training"


def test_the_settings_of_the_command_line_say_what_they_mean() -> None:
    for one in fields(TrainConfig):
        if one.metadata:
            assert one.metadata["help"].endswith("."), one.name
