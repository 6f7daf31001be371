"""A plan's order is written as control inputs: it is kept, and changes nothing of what is computed."""

import pytest

from tests.logical_devices import outcomes_of
from tests.tf1_programs import PROGRAMS as TF1_PROGRAMS
from tests.tf_placer.rewrite.equivalence_programs import PROGRAMS

pytestmark = pytest.mark.medium

CHECKS = ("every_pair_runs_in_order", "a_saved_model_keeps_the_order", *PROGRAMS, *TF1_PROGRAMS)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What ``ordered_plans_process`` found, in a process that has four logical devices."""
    return outcomes_of("tests.tf_placer.rewrite.ordered_plans_process")


def test_every_check_is_made(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_an_order_is_kept_and_changes_no_bit(outcomes, check):
    assert outcomes[check] == "ok"
