"""A placed function is the same callable: arguments, results, gradients, variables, side effects."""

import pytest

from tests.logical_devices import outcomes_of

CHECKS = (
    "structured",
    "loops_and_branches",
    "gradient_from_outside",
    "custom_gradient_from_outside",
    "variable_known_by_its_handle_only",
    "gradient_of_a_loop_that_is_called_twice",
    "elements_of_a_variable",
    "captured_value_that_nothing_needs",
    "gradient_of_a_loop_with_weights",
    "variables_and_older_functions",
    "side_effects",
    "nested_and_saved",
    "gradient_of_a_loop_with_branches_that_take_elements",
    "gradient_of_calls_in_a_branch_and_a_loop",
    "gradient_of_elements_taken_in_a_branch_of_a_branch",
    "result_of_a_branch_named_as_its_input",
    "variable_passed_as_an_argument_is_refused",
    "keras_training",
)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What ``placed_function_process`` found, in a process that has four logical devices."""
    return outcomes_of("tests.tf_placer.rewrite.placed_function_process")


def test_every_check_is_made(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_it_does_what_the_unplaced_function_does(outcomes, check):
    assert outcomes[check] == "ok"
