"""The table of probabilities moves to the elites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.arguments import InputError
from tf_placer.planners.population import Cem, CemConfig
from tf_placer.problem.problem import Problem


def chain() -> Problem:
    """Eight units, a group each."""
    return problem_of([10] * 8, [(i, i + 1) for i in range(7)], 100)


def test_the_table_moves_to_the_frequencies_of_the_elites() -> None:
    planner = Cem(chain(), CemConfig(samples=10, elites=0.2, smoothing=0.5), None, seed=0)
    rows = planner.propose()
    runtime_s = np.arange(10.0)[::-1]
    planner.learn(rows, runtime_s)
    # Of ten the last two are the elites; (1 - 0.5) * 0.5 + 0.5 * their share.
    share = rows[-2:].mean(axis=0)
    np.testing.assert_allclose(planner.state()["probability"][:, 1], 0.25 + 0.5 * share)
    assert planner.state()["best"].tolist() == rows[-1].tolist()


def test_what_does_not_run_is_no_elite() -> None:
    planner = Cem(chain(), CemConfig(samples=10, elites=0.5, smoothing=0.9), None, seed=0)
    rows = planner.propose()
    planner.learn(rows, np.where(np.arange(10) == 3, 1.0, np.inf))
    # The only elite, and 0.1 of what the table was.
    np.testing.assert_allclose(planner.state()["probability"][:, 1], 0.05 + 0.9 * rows[3])
    before = Cem(chain(), CemConfig(samples=10), None, seed=0)
    before.learn(before.propose(), np.full(10, np.inf))
    assert (before.state()["probability"] == 0.5).all()


def test_the_first_draws_have_each_single_device() -> None:
    assert Cem(chain(), CemConfig(), None, seed=0).propose()[:2].tolist() == [[0] * 8, [1] * 8]


def test_a_table_that_has_converged_goes_on_with_finer_groups() -> None:
    planner = Cem(chain(), CemConfig(samples=2, elites=0.5, smoothing=1.0, parts=2, levels=2), None, seed=0)
    rows = planner.propose()
    planner.learn(rows, np.array([2.0, 1.0]))  # one elite: the table says it and nothing else
    state = planner.state()
    # Uniform, and 0.7 of the way to the best plan: 0.3 * 0.5 + 0.7.
    assert state["level"] == 1 and state["probability"].shape == (4, 2)
    np.testing.assert_allclose(state["probability"][:, 1], 0.85)


@pytest.mark.parametrize(
    "name, value", [("samples", 1), ("elites", 0.0), ("smoothing", 1.5), ("parts", 0), ("levels", 17)]
)
def test_settings_out_of_their_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} is {value}"):
        CemConfig(**{name: value})
