"""Settings come from command lines: each is taken as it is meant or refused in one line."""

import dataclasses

import pytest

from tf_placer.agents.tabular.config import TabularConfig
from tf_placer.errors import InputError

WRONG = {
    "loss": "ppo",
    "groups": "layers",
    "num_groups": 0,
    "samples": 1,
    "learning_rate": -1.0,
    "elites": 0.0,
    "smoothing": 1.5,
    "exploration": -0.1,
    "start_probability": 1.0,
    "failing_reward": 0.0,
}


def test_every_field_has_a_wrong_value_here():
    assert WRONG.keys() == {field.name for field in dataclasses.fields(TabularConfig)}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_values_are_refused_in_one_line(field):
    with pytest.raises(InputError, match=rf"^{field} is .*; give ") as caught:
        TabularConfig(**{field: WRONG[field]})
    assert "\n" not in str(caught.value)
