"""Settings come from command lines: each is taken as it is meant or refused in one line."""

import dataclasses

import numpy as np
import pytest

from tf_placer.agents.placeto.config import PRESETS, PlacetoConfig
from tf_placer.errors import InputError
from tf_placer.search import methods
from tf_placer.search.settings import configured

WRONG = {
    "parts": 0,
    "landmarks": -1,
    "width": 0.5,
    "rounds": 0,
    "relatives": -1,
    "embed_every": "week",
    "device_state": 1,
    "begin": "nowhere",
    "keep_probability": 1.0,
    "exploration": -0.1,
    "episodes": True,
    "reward": "money",
    "discount": 1.1,
    "baseline_episodes": 0,
    "normalize_advantage": "yes",
    "learning_rate": -1e-3,
    "learning_rate_end": float("nan"),
    "learning_rate_updates": 2.5,
    "gradient_clip": 0,
    "entropy": -1,
    "entropy_end": float("inf"),
    "entropy_updates": -1,
    "failing_reward": 0.0,
    "preset": "theirs",
}


def test_every_field_has_a_wrong_value_here():
    assert WRONG.keys() == {field.name for field in dataclasses.fields(PlacetoConfig)}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_values_are_refused_in_one_line(field):
    with pytest.raises(InputError, match=rf"^{field} is .*; \S+") as caught:
        PlacetoConfig(**{field: WRONG[field]})
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_are_taken_as_pythons_own():
    config = PlacetoConfig(parts=np.int64(8), learning_rate=np.float32(0.5), device_state=np.bool_(False))
    assert type(config.parts) is int and type(config.learning_rate) is float
    assert config.device_state is False


def test_a_preset_says_what_is_not_given():
    for name, fields in PRESETS.items():
        config = configured(methods.find("placeto"), {"preset": name})
        assert {field: getattr(config, field) for field in fields} == fields
    # Given to be as ours is, it wins all the same.
    mine = configured(methods.find("placeto"), {"preset": "paper", "rounds": PRESETS["ours"]["rounds"]})
    assert mine.rounds == PRESETS["ours"]["rounds"] and mine.embed_every == "step"
