"""Errors of placed functions name the lines of a person's program."""

import pytest

from tests.logical_devices import outcomes_of

CHECKS = (
    "in_the_function",
    "in_a_call",
    "in_a_loop",
    "in_a_branch_of_a_call_in_a_loop",
    "under_a_tape",
)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What the process found."""
    return outcomes_of("tests.tf_placer.rewrite.stack_traces_process")


def test_every_check_is_made(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_errors_name_the_line(outcomes, check):
    assert outcomes[check] == "ok"
