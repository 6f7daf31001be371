"""Inside other functions a placed function keeps the order of reads, writes and other side effects."""

import pytest

from tests.logical_devices import outcomes_of

PROCESS = "tests.tf_placer.rewrite.placed_function_order_process"
CHECKS = (
    "read_before_a_write",
    "read_in_a_nested_function_before_a_write",
    "write_before_a_read_and_a_write",
    "two_placed_functions",
    "in_a_loop_and_a_branch",
    "loops_and_branches_inside",
    "draws_and_tables",
    "prints_and_python",
    "control_dependencies_by_hand",
    "called_under_control_dependencies",
    "waits_for_an_op_of_the_outer_function",
    "tape_around_it",
    "keras_step",
    "signature_of_a_saved_model",
    "as_the_traced_function",
)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What the process found in a few calls of each."""
    return outcomes_of(PROCESS)


@pytest.mark.medium
def test_every_check_is_made(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.medium
@pytest.mark.parametrize("check", CHECKS)
def test_order_is_that_of_the_unplaced_function(outcomes, check):
    assert outcomes[check] == "ok"


@pytest.mark.slow
def test_order_is_kept_in_many_calls():
    assert set(outcomes_of(PROCESS, "300", timeout_s=600).values()) == {"ok"}
