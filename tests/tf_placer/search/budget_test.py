"""Budgets are positive, and there is one."""

import math

import pytest

from tf_placer.errors import InputError
from tf_placer.search.budget import Budget


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


def test_what_is_left():
    assert Budget(1.0).left(10**9) == math.inf
    assert Budget(evaluations=10).left(7) == 3
