"""auto_place with the batch in parts or whole, on logical devices and on workers, each in a process of its own."""

import os

import pytest

from tests.logical_devices import outcomes_of
from tests.tf_placer.automatic import live_process, parts_process

ON_WORKERS = (
    pytest.mark.slow,
    pytest.mark.alone,  # a small budget is a short wait
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers"),
)


@pytest.mark.parametrize(
    ("kind", "checks"),
    [
        pytest.param("logical", parts_process.CHECKS, marks=pytest.mark.medium),
        pytest.param("local", parts_process.ON_WORKERS, marks=ON_WORKERS),
    ],
    ids=["logical", "local"],
)
def test_a_batch_in_parts_and_in_a_second_process_by_the_plans_of_the_first(kind, checks, tmp_path):
    for given, made in (([], checks), (["again"], parts_process.AGAIN)):
        outcomes = outcomes_of(parts_process.__name__, kind, str(tmp_path), *given)
        assert outcomes == {check.__name__: "ok" for check in made}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=ON_WORKERS) for kind in ("local", "remote")])
def test_functions_on_workers(kind, tmp_path):
    outcomes = outcomes_of(live_process.__name__, kind, str(tmp_path))
    assert outcomes == {check.__name__: "ok" for check in live_process.checks(kind)}
