"""Settings come from command lines: each is taken as it is meant or refused in one line."""

import dataclasses

import pytest

from tf_placer.agents.regal.config import RegalConfig
from tf_placer.errors import InputError

WRONG = {
    "population": 3,
    "generations": 0,
    "plain_runs": 0,
    "parts": 0.5,
    "elites": 0.6,
    "mutants": 0.5,
    "bias": 0.4,
    "mutation": 2,
    "hidden": 0,
    "rounds": -1,
    "learning_rate": "fast",
    "gradient_clip": 0,
    "entropy_weight": -1,
    "actions_apart": 2,
    "keep_elites": 1,
    "baseline_decay": 1.5,
    "preset": "papers",
}


def test_every_field_has_a_wrong_value_here():
    assert WRONG.keys() == {field.name for field in dataclasses.fields(RegalConfig)}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_values_are_refused_in_one_line(field):
    with pytest.raises(InputError, match=rf"^{field} is ") as caught:
        RegalConfig(**{field: WRONG[field]})
    assert "\n" not in str(caught.value)


def test_the_papers_settings_are_a_preset():
    paper = RegalConfig(preset="paper", population=20)
    assert (paper.population, paper.actions_apart, paper.keep_elites) == (20, False, False)
    assert paper.num_elites == 4  # 0.2 of 20
