"""Settings come from command lines: each is taken as it is meant or refused in one line."""

import dataclasses

import numpy as np
import pytest

from tf_placer.agents.colocrl.config import PRESETS, ColocRlConfig
from tf_placer.errors import InputError
from tf_placer.search import methods
from tf_placer.search.settings import configured

WRONG = {
    "max_groups": 0,
    "preset": "papier",
    "colocate": 1,
    "step_pattern": "(",
    "layer_pattern": 3,
    "largest_share": 0,
    "work_features": "yes",
    "hidden": 7,
    "tanh_constant": 0.0,
    "temperature": -1,
    "start_probability": 1.0,
    "controllers": 0,
    "placements": 0.5,
    "learning_rate": "fast",
    "gradient_clip": 0,
    "baseline_decay": 1.1,
    "baseline_starts_failing": 2,
    "standardize": 1,
    "elite_share": 1.5,
    "entropy_start": -0.1,
    "entropy_end": 0,
    "entropy_updates": 2.5,
    "entropy_rate": float("inf"),
    "valid_only_after": -1,
    "failing_reward": 0.0,
}


def test_every_field_has_a_wrong_value_here():
    assert WRONG.keys() == {field.name for field in dataclasses.fields(ColocRlConfig)}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_values_are_refused_in_one_line(field):
    with pytest.raises(InputError, match=rf"^{field} is .*; (give |the nearest|did you mean)") as caught:
        ColocRlConfig(**{field: WRONG[field]})
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_are_taken_as_pythons_own():
    config = ColocRlConfig(max_groups=np.int64(8), learning_rate=np.float32(0.5), colocate=np.bool_(False))
    assert type(config.max_groups) is int and type(config.learning_rate) is float
    assert config.colocate is False


def test_no_steering_needs_no_end():
    assert ColocRlConfig(entropy_start=0, entropy_end=0).entropy_end == 0


def test_presets_are_of_the_same_fields():
    assert PRESETS["ours"].keys() == PRESETS["paper"].keys()


def test_the_papers_settings_are_a_preset():
    # Mirhoseini et al. 2017: Adam 0.1, clipped at 1, C = 5, T = 10; 20 controllers of 8 workers; B begins at the
    # failing signal; after 5,000 steps what fails does not teach.
    paper = configured(methods.find("colocrl"), {"preset": "paper", "placements": 4})
    assert (paper.learning_rate, paper.gradient_clip, paper.tanh_constant, paper.temperature) == (
        0.1,
        1,
        5,
        10,
    )
    assert (paper.controllers, paper.placements) == (20, 4), "what is given wins"
    assert paper.baseline_starts_failing and paper.valid_only_after == 5000 and paper.start_probability == 0
    # What is given wins also where it is what the other preset says.
    ours = ColocRlConfig().learning_rate
    given = configured(methods.find("colocrl"), {"learning_rate": ours, "preset": "paper"})
    assert given.learning_rate == ours and given.controllers == 20
