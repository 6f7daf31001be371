"""Who splits the batch by a strategy is told so, and the function runs as it is."""

import pytest

from tests.logical_devices import outcomes_of

CHECKS = (
    "in_scope",
    "run_in_each_replica",
    "called_by_a_function_in_each_replica",
    "variables_of_a_strategy",
    "a_keras_model_of_a_strategy",
    "values_of_several_replicas",
    "strict_is_an_error",
    "outside_of_the_scope_it_is_placed",
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    plans = tmp_path_factory.mktemp("plans")
    return outcomes_of("tests.tf_placer.automatic.strategies_process", str(plans))


def test_every_check_is_made(outcomes: dict[str, str]) -> None:
    assert set(outcomes) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_it_is_told_and_runs(outcomes: dict[str, str], check: str) -> None:
    assert outcomes[check] == "ok"
