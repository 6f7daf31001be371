"""A plan of a function's batch in parts is applied to the function as any plan is."""

import pytest

from tests.logical_devices import outcomes_of

pytestmark = pytest.mark.medium

CHECKS = (
    "outputs_and_updates",
    "ops_kept_whole",
    "gradients_from_outside",
    "a_plan_file",
    "another_batch_or_graph_is_refused_and_nothing_moves",
    "examples_of_any_number",
    "statistics_of_parts",
    "a_saved_model",
    "a_saved_model_of_any_batch",
    "statistics_of_parts_of_any_batch",
    "a_saved_model_of_one_batch_says_why",
    "layers_of_any_batch",
    "models_of_tensorflow_1",
    "a_meta_graph_is_refused",
)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What ``split_plans_process`` found, in a process that has four logical devices."""
    return outcomes_of("tests.tf_placer.rewrite.split_plans_process")


def test_every_check_is_made(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_whole_inputs_go_in_and_whole_outputs_come_out(outcomes, check):
    assert outcomes[check] == "ok"
