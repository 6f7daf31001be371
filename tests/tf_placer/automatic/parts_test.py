"""auto_place with the batch in parts, on logical devices and on workers."""

import os

import pytest

from tests.logical_devices import outcomes_of
from tests.tf_placer.automatic.parts_process import CHECKS, ON_WORKERS

MODULE = "tests.tf_placer.automatic.parts_process"


def test_a_batch_in_parts_on_logical_devices(tmp_path):
    outcomes = outcomes_of(MODULE, "logical", str(tmp_path))
    assert outcomes == {check.__name__: "ok" for check in CHECKS}


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_a_batch_in_parts_on_workers(tmp_path):
    outcomes = outcomes_of(MODULE, "local", str(tmp_path))
    assert outcomes == {check.__name__: "ok" for check in ON_WORKERS}
