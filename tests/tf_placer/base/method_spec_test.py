"""Settings: what is not given is of the preset, and each value is taken as it is meant or refused in one line."""

import dataclasses
import math

import numpy as np
import pytest

from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Settings, setting


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Settings of a test."""

    rate: float = setting(0.5, paper=0.1, above=0, below=1)
    steps: int = setting(3, paper=0, least=0, most=9)
    width: int = setting(4, even=True)
    most_s: float = setting(60.0, finite=False)
    is_on: bool = setting(True, paper=False)
    loss: str = setting("ppo", words=("ppo", "quantile"))
    file: str = setting("", remedy="give a path")
    preset: str = setting("ours", words=("ours", "paper"))


def test_the_preset_decides_what_is_not_given() -> None:
    assert dataclasses.astuple(Config()) == (0.5, 3, 4, 60.0, True, "ppo", "", "ours")
    assert dataclasses.astuple(Config(preset="paper")) == (0.1, 0, 4, 60.0, False, "ppo", "", "paper")
    # What is given wins, also where it is as the other preset has it.
    assert dataclasses.astuple(Config(preset="paper", rate=0.5))[:2] == (0.5, 0)


def test_values_are_kept_as_pythons_own() -> None:
    config = Config(np.float32(0.5), np.int64(8), is_on=np.bool_(False), most_s=7)
    assert [type(value) for value in (config.rate, config.steps, config.most_s)] == [float, int, float]
    assert config.is_on is False and Config(most_s=math.inf).most_s == math.inf


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rate": 0.0}, "rate is 0.0; give a finite number above 0 and below 1"),
        ({"rate": math.nan}, "rate is nan; give a finite number above 0 and below 1"),
        ({"steps": 10}, "steps is 10; give a whole number from 0 to 9"),
        ({"width": 5}, "width is 5; give an even number"),
        ({"is_on": 1}, "is_on is 1; give True or False"),
        ({"loss": "ppo2"}, "loss is 'ppo2'; give one of ppo, quantile"),
        ({"file": None}, "file is None, not a str; give a path"),
        ({"preset": "papier"}, "preset is 'papier'; give one of ours, paper"),
    ],
)
def test_what_is_not_possible_is_named_with_a_remedy(given: dict, told: str) -> None:
    with pytest.raises(InputError) as caught:
        Config(**given)
    assert str(caught.value) == told
