"""Budgets are positive, and there is one."""

import math

import numpy as np
import pytest

from tf_placer.base.arguments import InputError
from tf_placer.search.known import Budget


@pytest.mark.parametrize(
    ("seconds", "evaluations", "message"),
    [
        (math.inf, None, "no budget"),
        (0.0, None, "budget_s is 0"),
        (-1.0, 10, "budget_s is -1"),
        (math.nan, 10, "budget_s is nan"),
        (1.0, 0, "budget_evaluations is 0"),
        (math.inf, -3, "budget_evaluations is -3"),
    ],
)
def test_no_positive_budget_is_refused(seconds, evaluations, message):
    with pytest.raises(InputError, match=message):
        Budget(seconds, evaluations)


@pytest.mark.parametrize(
    ("seconds", "evaluations", "message"),
    [
        ("5", None, "budget_s is '5'; give a number above 0"),
        (None, 5, "budget_s is None"),
        (True, None, "budget_s is True"),
        (1 + 2j, None, "budget_s is"),
        (1.0, 1.5, "budget_evaluations is 1.5; give a whole number"),
        (1.0, "7", "budget_evaluations is '7'"),
    ],
)
def test_what_is_no_number_is_refused(seconds, evaluations, message):
    with pytest.raises(InputError, match=message) as error:
        Budget(seconds, evaluations)
    assert "\n" not in str(error.value)


def test_numbers_of_numpy_become_plain_ones():
    budget = Budget(np.float32(1.5), np.int64(3))
    assert type(budget.seconds) is float and type(budget.evaluations) is int
    assert budget == Budget(1.5, 3)


def test_what_is_left():
    assert Budget(1.0).left(10**9) == math.inf
    assert Budget(evaluations=10).left(7) == 3


def test_a_control_has_as_many_evaluations_and_no_more_time():
    assert Budget(60.0).capped(500) == Budget(60.0, 500)
    assert Budget(evaluations=700).capped(500) == Budget(math.inf, 500)
