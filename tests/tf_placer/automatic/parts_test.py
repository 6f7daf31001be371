"""auto_place with the batch in parts, on logical devices and on workers."""

import os

import pytest

from tests.logical_devices import outcomes_of
from tests.tf_placer.automatic.parts_process import AGAIN, CHECKS, ON_WORKERS

MODULE = "tests.tf_placer.automatic.parts_process"


def check_both_processes(kind: str, checks: tuple, folder: str) -> None:
    """The second one finds the plans of the first."""
    for given, made in (([], checks), (["again"], AGAIN)):
        assert outcomes_of(MODULE, kind, folder, *given) == {check.__name__: "ok" for check in made}


@pytest.mark.medium
def test_a_batch_in_parts_on_logical_devices(tmp_path):
    check_both_processes("logical", CHECKS, str(tmp_path))


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_a_batch_in_parts_on_workers(tmp_path):
    check_both_processes("local", ON_WORKERS, str(tmp_path))
