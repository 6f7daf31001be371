"""auto_place on worker processes: plans that run there, and functions that are faster as they were."""

import os

import pytest

from tests.logical_devices import outcomes_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,  # a small budget is a short wait
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers"),
]


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_functions_on_workers(kind, tmp_path):
    outcomes = outcomes_of("tests.tf_placer.automatic.live_process", kind, str(tmp_path))
    checked = [
        "what_is_older_than_the_connection_lives_on",
        "what_is_faster_as_it_was_is_kept",
        "the_first_calls_have_the_last_word",
        "a_verdict_that_is_an_error_runs_no_step_again",
        "a_variable_that_a_dataset_reads_stays_here",
        "inside_another_function_there_is_no_trial",
        "eager_ops_and_placed_calls_keep_their_order",
        "the_plan_runs_on_the_workers",
    ]
    checked += ["only_this_machine_reaches_this_process", "a_small_budget_is_a_short_wait"] * (
        kind == "local"
    )
    assert outcomes == dict.fromkeys(checked, "ok")
