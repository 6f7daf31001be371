"""Settings come from command lines: each is taken as it is meant or refused in one line."""

import dataclasses

import numpy as np
import pytest

from tf_placer.agents.go.config import PRESETS, GoConfig
from tf_placer.errors import InputError
from tf_placer.search import methods
from tf_placer.search.settings import configured

WRONG = {
    "granularity": "ops",
    "num_groups": 0,
    "type_embedding": 0.5,
    "graph_width": -1,
    "graph_layers": 0,
    "width": "wide",
    "layers": 0,
    "heads": 0,
    "head_width": 0,
    "inner_width": 0,
    "segment": 0,
    "modulation": "sum",
    "passes": 0,
    "device_state": 1,
    "begin": "here",
    "keep_probability": 1.0,
    "exploration": -0.1,
    "rollouts": 0,
    "minibatches": 0,
    "epochs": 0,
    "clip": 0,
    "learning_rate": "fast",
    "gradient_clip": 0,
    "entropy": float("nan"),
    "standardize": "yes",
    "elite_share": 1.5,
    "failing_reward": 0.0,
    "weights": None,
    "preset": "papier",
}


def test_every_field_has_a_wrong_value_here():
    assert WRONG.keys() == {field.name for field in dataclasses.fields(GoConfig)}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_values_are_refused_in_one_line(field):
    with pytest.raises(InputError, match=rf"^{field} is .*; (give |the nearest|did you mean)") as caught:
        GoConfig(**{field: WRONG[field]})
    assert "\n" not in str(caught.value)


def test_minibatches_divide_the_rollouts():
    with pytest.raises(InputError, match=r"^minibatches is 3; give a divisor of rollouts, which is 32$"):
        GoConfig(rollouts=32, minibatches=3)


def test_numbers_of_numpy_are_taken_as_pythons_own():
    config = GoConfig(width=np.int64(8), learning_rate=np.float32(0.5), standardize=np.bool_(False))
    assert type(config.width) is int and type(config.learning_rate) is float and config.standardize is False


def test_presets_are_of_the_same_fields():
    assert PRESETS["ours"].keys() == PRESETS["paper"].keys()


def test_the_papers_settings_are_a_preset():
    # Zhou et al. 2020: ops one by one, 800 rollouts, 40 minibatches, 20 epochs, clip 0.2, GraphSAGE of width 128, two
    # layers of three heads of 25 on width 64, inner width 256; what fails is worth -10; a mean of all trials before.
    paper = configured(methods.find("go"), {"preset": "paper", "minibatches": 80})
    assert (paper.granularity, paper.rollouts, paper.epochs, paper.clip) == ("units", 800, 20, 0.2)
    assert (paper.graph_width, paper.layers, paper.heads, paper.head_width) == (128, 2, 3, 25)
    assert (paper.width, paper.inner_width, paper.failing_reward) == (64, 256, -10)
    assert not paper.standardize and paper.begin == "nothing" and paper.elite_share == 0
    assert paper.minibatches == 80, "what is given wins"
