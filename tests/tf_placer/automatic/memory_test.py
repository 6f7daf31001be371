"""After a plan is made no value is kept for it, and who asks for one later gets it all the same."""

import pytest

from tests.logical_devices import outcomes_of

pytestmark = pytest.mark.medium

CHECKS = (
    "values_of_variables_and_inputs",
    "captured_constants",
    "one_copy_of_a_constant_serves_all_signatures",
    "everything_that_a_user_asks_for_later",
)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What the process found."""
    return outcomes_of("tests.tf_placer.automatic.memory_process")


def test_every_check_is_made(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_nothing_large_is_kept(outcomes, check):
    assert outcomes[check] == "ok"
