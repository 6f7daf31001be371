"""A placed program computes the same numbers, bit for bit, and runs where it was put."""

import pytest

from tests.logical_devices import outcomes_of

pytestmark = pytest.mark.medium

PROGRAMS = ("dense", "branch_and_loop", "random_numbers", "convolution_with_a_nested_function")


@pytest.fixture(scope="module")
def reports() -> dict[str, dict]:
    """What ``equivalence_process`` found for 20 random placements of each program."""
    return outcomes_of("tests.tf_placer.rewrite.equivalence_process", timeout_s=600)


def test_every_program_is_checked(reports):
    assert set(reports) == set(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_losses_and_variables_are_bitwise_equal(reports, program):
    report = reports[program]
    assert report["different"] == []
    # Three losses and each variable; and the steps do something, or equality would mean little.
    assert report["compared"] == 3 + report["variables"] and report["variables"] > 0
    assert report["losses_differ"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_op_ran_where_it_was_put(reports, program):
    report = reports[program]
    assert report["misplaced"] == []
    assert min(report["devices_used"]) > 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_item_is_left_alone(reports, program):
    assert reports[program]["graph_untouched"]
