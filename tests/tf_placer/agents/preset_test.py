"""A preset gives values; what somebody set stays."""

from __future__ import annotations

import dataclasses

import pytest

from tf_placer.agents.preset import take_preset
from tf_placer.errors import InputError


@dataclasses.dataclass(frozen=True)
class Settings:
    """Two numbers."""

    width: int = 1
    depth: int = 2
    preset: str = "ours"

    def __post_init__(self) -> None:
        take_preset(self, {"paper": {"width": 10}})


def test_the_defaults_are_ours() -> None:
    assert dataclasses.astuple(Settings()) == (1, 2, "ours")


def test_a_preset_gives_what_nobody_set() -> None:
    assert dataclasses.astuple(Settings(preset="paper")) == (10, 2, "paper")
    assert dataclasses.astuple(Settings(width=3, depth=4, preset="paper")) == (3, 4, "paper")
    assert dataclasses.replace(Settings(), preset="paper").width == 10


def test_an_unknown_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"preset is 'papers'; .*paper"):
        Settings(preset="papers")
    with pytest.raises(InputError, match="preset is 3; give the name"):
        Settings(preset=3)  # type: ignore[arg-type]
