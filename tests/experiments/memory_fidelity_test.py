"""The table of peaks in small: one step on two workers."""

import os
import types

import pytest

from tests.experiments.without_flags import loaded
from tests.tf_placer.base.warm_workers import WarmWorkers


@pytest.fixture(scope="module")
def experiment() -> types.ModuleType:
    module, _ = loaded("memory_fidelity")
    return module


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_a_row_for_each_device_that_a_placement_uses(
    experiment: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = WarmWorkers()
    monkeypatch.setattr(experiment, "FLAGS", types.SimpleNamespace(steps=1))
    monkeypatch.setattr(experiment, "workers_of", warm.lend)
    try:
        found = list(experiment.peaks("dense_small", warm.cluster))
    finally:
        warm.close()
    rows = [(peak.placement, peak.device) for peak in found]
    workers = [device.name for device in warm.cluster.devices]
    as_it_is = [("one worker", workers[0]), *(("min-cut", name) for name in workers)]
    assert rows == as_it_is + [(f"{placement}, recomputed", name) for placement, name in as_it_is]
    assert all(peak.predicted > 0 and peak.measured > 0 for peak in found)
    for peak in found:
        assert peak.error == peak.predicted / peak.measured - 1
        assert abs(peak.error) < 0.5, peak
