"""Settings come from command lines: each is taken as it is meant or refused in one line."""

import dataclasses

import numpy as np
import pytest

from tf_placer.agents.mars.config import PRESETS, MarsConfig
from tf_placer.errors import InputError
from tf_placer.search import methods
from tf_placer.search.settings import configured

WRONG = {
    "preset": "papier",
    "groups": "cut",
    "num_groups": -1,
    "type_embedding": 0,
    "encoder_width": 0.5,
    "encoder_layers": 0,
    "encoder_goes_on": 0,
    "pretrain_iterations": -1,
    "pretrain_rate": "fast",
    "weights": None,
    "hidden": 7,
    "segment": 0,
    "groups_per_step": 0,
    "tanh_constant": 0.0,
    "temperature": -1,
    "start_probability": 1.0,
    "placements": 0,
    "clip": 0,
    "decisions_apart": 1,
    "epochs": 0,
    "minibatches": 33,
    "entropy": -0.1,
    "learning_rate": float("nan"),
    "gradient_clip": 0,
    "standardize": "yes",
    "baseline_decay": 1.1,
    "elites": -1,
    "elite_weight": -1.0,
    "failing_reward": 0.0,
}


def test_every_field_has_a_wrong_value_here():
    assert WRONG.keys() == {field.name for field in dataclasses.fields(MarsConfig)}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_values_are_refused_in_one_line(field):
    with pytest.raises(InputError, match=rf"^{field} is .*; (give |the nearest|did you mean)") as caught:
        MarsConfig(**{field: WRONG[field]})
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_are_taken_as_pythons_own():
    config = MarsConfig(num_groups=np.int64(8), learning_rate=np.float32(0.5), standardize=np.bool_(False))
    assert type(config.num_groups) is int and type(config.learning_rate) is float
    assert config.standardize is False


def test_presets_are_of_the_same_fields():
    assert PRESETS["ours"].keys() == PRESETS["paper"].keys()


def test_the_papers_settings_are_a_preset():
    # Lan et al. 2021: GCN 3 x 256; 1,000 iterations; 512; segments of 128; PPO 0.2, 1e-3, 3e-4, 1.0, 4 minibatches of
    # 10 placements; moving average 0.99; unit by unit.
    paper = configured(methods.find("mars"), {"preset": "paper", "hidden": 16})
    assert (paper.encoder_layers, paper.encoder_width, paper.pretrain_iterations) == (3, 256, 1000)
    assert (paper.segment, paper.groups_per_step, paper.num_groups) == (128, 1, 0)
    assert (paper.clip, paper.entropy, paper.learning_rate, paper.gradient_clip) == (0.2, 1e-3, 3e-4, 1)
    assert (paper.minibatches, paper.placements, paper.baseline_decay) == (4, 10, 0.99)
    assert not paper.standardize and not paper.elites and not paper.start_probability
    assert paper.hidden == 16, "what is given wins"
    assert MarsConfig(preset="paper").hidden == 512
