"""A preset fills in what is not given."""

import dataclasses

import pytest

from tf_placer.agents.presets import OF_PRESET, fill_in
from tf_placer.errors import InputError

PRESETS = {"ours": {"rate": 0.5, "steps": 3}, "paper": {"rate": 0.1, "steps": 9}}


@dataclasses.dataclass(frozen=True)
class Config:
    preset: str = "ours"
    rate: float = OF_PRESET
    steps: int = OF_PRESET
    other: int = 7

    def __post_init__(self) -> None:
        fill_in(self, PRESETS)


def test_the_preset_decides_what_is_not_given():
    assert Config() == Config("ours", 0.5, 3, 7)
    assert dataclasses.astuple(Config("paper")) == ("paper", 0.1, 9, 7)


def test_what_is_given_wins():
    assert dataclasses.astuple(Config("paper", steps=3)) == ("paper", 0.1, 3, 7)
    assert dataclasses.astuple(Config(rate=0.0)) == ("ours", 0.0, 3, 7)


def test_an_unknown_preset_is_refused():
    with pytest.raises(InputError, match=r"^preset is 'papier'; .*paper"):
        Config("papier")
    with pytest.raises(InputError, match=r"^preset is 3; give the name of one$"):
        Config(3)
