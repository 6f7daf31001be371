"""Settings come from command lines: each is taken as it is meant or refused in one line."""

import dataclasses

import numpy as np
import pytest

from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.errors import InputError

WRONG = {
    "preset": 7,
    "groups": "layers",
    "group_probability": 1.0,
    "groups_per_step": 0,
    "loss": "ppo2",
    "epochs": 0,
    "elites": 1.0,
    "incumbent": 1,
    "regroup_after": -1,
    "row_rate": -1.0,
    "row_step": 1.5,
    "standardize": "yes",
    "num_groups": 0,
    "grouper_hidden": 0.5,
    "type_embedding": 0,
    "landmarks": -1,
    "imitation_steps": -1,
    "imitation_rate": -1e-3,
    "grouper_sharpness": 0,
    "start_probability": 1.0,
    "placer_hidden": 7,
    "tanh_constant": 0.0,
    "temperature": -1,
    "groupings": True,
    "placements": 0,
    "learning_rate": "fast",
    "grouper_learning_rate": -1.0,
    "gradient_clip": 0,
    "baseline_decay": 1.1,
    "normalize_advantage": 1,
    "entropy_start": -0.1,
    "entropy_end": -0.1,
    "entropy_updates": 2.5,
    "entropy_rate": float("inf"),
    "noise_amplitude": float("nan"),
    "noise_updates": -3,
    "valid_only_after": None,
    "failing_reward": 0.0,
    "excess_penalty": -1,
    "crossing_penalty": float("nan"),
    "group_order": "backward",
}


def test_every_field_has_a_wrong_value_here():
    assert WRONG.keys() == {field.name for field in dataclasses.fields(HdpConfig)}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_values_are_refused_in_one_line(field):
    with pytest.raises(InputError, match=rf"^{field} is .*; (give|did you mean) ") as caught:
        HdpConfig(**{field: WRONG[field]})
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_are_taken_as_pythons_own():
    config = HdpConfig(
        num_groups=np.int64(8), learning_rate=np.float32(0.5), normalize_advantage=np.bool_(False)
    )
    assert type(config.num_groups) is int and type(config.learning_rate) is float
    assert config.normalize_advantage is False


def test_the_papers_values_are_a_preset():
    paper = HdpConfig(preset="paper")
    # Section 3: 256 groups, hidden 256, one grouping of 4 placements, learning rates 0.1, moving average, no start.
    assert (paper.num_groups, paper.placer_hidden, paper.groupings, paper.placements) == (256, 256, 1, 4)
    assert paper.learning_rate == paper.grouper_learning_rate == 0.1
    assert paper.loss == "reinforce" and paper.groups_per_step == 1
    assert not (paper.standardize or paper.incumbent or paper.row_rate or paper.start_probability)
    assert HdpConfig(preset="paper", placements=8).placements == 8


def test_steering_needs_an_end():
    with pytest.raises(InputError, match=r"^entropy_end is 0; give a number above 0"):
        HdpConfig(entropy_start=0.3, entropy_end=0)


def test_no_steering_needs_no_end():
    assert HdpConfig(entropy_start=0, entropy_end=0).entropy_end == 0
