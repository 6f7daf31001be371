"""Settings come from command lines: each is taken as it is meant or refused in one line."""

import dataclasses

import numpy as np
import pytest

from tf_placer.agents.post.config import PostConfig
from tf_placer.errors import InputError

WRONG = {
    "samples": 1,
    "parts": 0,
    "levels": 17,
    "epochs": -1,
    "learning_rate": "fast",
    "clip": -0.2,
    "decisions_apart": 2,
    "kl_weight": -1,
    "kl_target": float("inf"),
    "entropy_weight": -0.1,
    "baseline_decay": 1.1,
    "normalize_advantage": 1,
    "cross_every": -1,
    "elites": 0,
    "smoothing": 1.1,
    "exploration": 2,
    "exploration_updates": 0.5,
    "failing_reward": 0.0,
    "preset": "papers",
}


def test_every_field_has_a_wrong_value_here():
    assert WRONG.keys() == {field.name for field in dataclasses.fields(PostConfig)}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_values_are_refused_in_one_line(field):
    with pytest.raises(InputError, match=rf"^{field} is ") as caught:
        PostConfig(**{field: WRONG[field]})
    assert "\n" not in str(caught.value)


def test_the_papers_settings_are_a_preset():
    paper = PostConfig(preset="paper", samples=20)
    # Five of fifty: ten samples a batch, five batches a cross-entropy step, a tenth are elites.
    assert PostConfig(preset="paper").samples * paper.cross_every * paper.elites == pytest.approx(5)
    assert (paper.samples, paper.smoothing, paper.clip, paper.kl_target) == (20, 1.0, 0.0, 0.03)


def test_numbers_of_numpy_are_taken_as_pythons_own():
    config = PostConfig(samples=np.int64(8), clip=np.float32(0.5), decisions_apart=np.bool_(False))
    assert type(config.samples) is int and type(config.clip) is float and config.decisions_apart is False
