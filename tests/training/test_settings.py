from dataclasses import fields

from prcut.training.settings import TrainSettings, setting
from prcut.training.state import TrainConfig


def test_a_setting_is_a_field_with_its_meaning() -> None:
    made = setting(3, "Number of things.", option="things", least=1)
    assert made.default == 3
    assert made.metadata["help"] == "Number of things."
    assert (made.metadata["option"], made.metadata["least"]) == ("things", 1)
    assert made.metadata["panel"] == "Training"


def test_the_configuration_has_these_fields_and_no_others() -> None:
    assert [one.name for one in fields(TrainConfig)] == [one.name for one in fields(TrainSettings)]
    for one in fields(TrainSettings):
        if one.metadata:
            assert one.metadata["help"].endswith("."), one.name
