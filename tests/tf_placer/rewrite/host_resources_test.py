"""A placed function reads the tables, iterators and datasets of this process, whatever its sizes depend on."""

import pytest

from tests.logical_devices import outcomes_of
from tests.tf_placer.rewrite.host_resources_process import CHECKS

pytestmark = pytest.mark.medium

NAMES = tuple(check.__name__ for check in CHECKS)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What ``host_resources_process`` found, in a process that has four logical devices."""
    return outcomes_of("tests.tf_placer.rewrite.host_resources_process")


@pytest.mark.parametrize("check", NAMES)
def test_it_does_what_the_unplaced_function_does(outcomes, check):
    assert outcomes[check] == "ok"
