"""A placed function has the gradients of the function that was traced, whatever kinds of functions it calls."""

import pytest

from tests.logical_devices import outcomes_of

pytestmark = pytest.mark.medium

CHECKS = (
    "results_and_residuals",
    "in_calls_loops_and_branches",
    "several_arguments_and_results",
    "recomputed",
    "ctc_loss",
    "compiled_by_xla",
    "loaded",
    "saved_when_placed",
    "residual_that_cannot_be_computed_again_is_refused",
    "arguments_that_are_waited_for",
    "loops_and_branches_of_a_defun",
    "python_gradient_of_a_defun_is_refused",
)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What the process found, over four logical devices."""
    return outcomes_of("tests.tf_placer.rewrite.custom_gradients_process")


def test_every_check_is_made(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_gradient_is_that_of_the_unplaced_function(outcomes, check):
    assert outcomes[check] == "ok"
