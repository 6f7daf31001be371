"""auto_place in all the ways that users will use it, and what it refuses."""

import pytest
import tensorflow as tf

import tf_placer
from tests.logical_devices import outcomes_of

CHECKS = (
    "as_a_decorator_with_arguments",
    "as_a_call_on_a_python_function",
    "as_a_method",
    "signatures_and_unknown_sizes",
    "inside_another_function",
    "under_a_tape",
    "structures_in_and_out",
    "conditionals_loops_and_random_numbers",
    "side_effects_happen_once_and_in_order",
    "pinned_ops",
    "a_plan_is_made",
    "calls_cost_no_more",
    "variables_made_at_the_first_call",
    "variables_that_stay",
    "checkpoints_before_and_after",
    "keras_fit_with_a_train_step",
    "keras_saves_and_loads",
)


_PROCESS = "tests.tf_placer.automatic.auto_place_process"


@pytest.fixture(scope="module")
def plans(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("plans"))


@pytest.fixture(scope="module")
def outcomes(plans) -> dict[str, str]:
    """What ``auto_place_process`` found, in a process that has four logical devices."""
    return outcomes_of(_PROCESS, plans)


def test_every_check_is_made(outcomes):
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_it_is_the_same_function(outcomes, check):
    assert outcomes[check] == "ok"


def test_the_next_process_needs_no_search(outcomes, plans):
    assert outcomes["a_plan_is_made"] == "ok"
    assert outcomes_of(_PROCESS, plans, "again") == {"a_plan_of_an_earlier_process_is_used": "ok"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clusters": "local"}, "no setting 'clusters'; did you mean 'cluster'"),
        (
            {"cluster": "p100x2"},
            "cluster 'p100x2' is only described, so nothing can run on it; auto_place on",
        ),
        ({"variables": "swap"}, "variables is 'swap'; give one of move, stay"),
        ({"budget_s": 0}, "budget_s is 0; give a finite number above 0"),
        ({"batch_size": 0}, "batch_size is 0; give a whole number of at least 1"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(tf_placer.InputError, match=message):
        tf_placer.auto_place(tf.function(lambda x: x), **settings)


def test_what_is_no_function_is_refused():
    with pytest.raises(tf_placer.InputError, match="fn is 3; give a tf"):
        tf_placer.auto_place(3)
    once = tf_placer.auto_place(tf.function(lambda x: x))
    with pytest.raises(tf_placer.InputError, match="auto-placed already"):
        tf_placer.auto_place(once)


def test_a_described_cluster_is_refused():
    with pytest.raises(tf_placer.InputError, match="'p100x2' is only described, so nothing can run on it"):
        tf_placer.auto_place(tf.function(lambda x: x + 1.0), cluster=tf_placer.Cluster.preset("p100x2"))


def test_a_function_that_was_not_called_has_no_placement():
    with pytest.raises(tf_placer.InputError, match="call it first"):
        _ = tf_placer.auto_place(tf.function(lambda x: x)).placement
