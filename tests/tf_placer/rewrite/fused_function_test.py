"""A function with clusters is the same callable: results, gradients, variables, other sizes, saved and loaded."""

import pytest

from tests.logical_devices import outcomes_of

pytestmark = pytest.mark.medium

CHECKS = (
    "training",
    "other_sizes",
    "gradient_from_outside",
    "nested_and_saved",
    "exported_saved_model",
    "keras_training",
    "built_again",
    "errors_are_raised",
    "cycle_is_refused",
)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What ``fused_function_process`` found."""
    return outcomes_of("tests.tf_placer.rewrite.fused_function_process")


def test_every_check_is_made(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_it_does_what_the_function_does(outcomes, check):
    assert outcomes[check] == "ok"
