"""Traced times are brought to the untraced step."""

import numpy as np
import pytest

from tf_placer.calibration.build_problem import corrected


@pytest.mark.parametrize("step_ns", [100_000, 60_000, 160_000])
def test_the_sum_is_the_untraced_step_and_every_op_changes_alike(step_ns):
    traced = {"long": 70_000.0, "short": 20_000.0, "shorter": 10_000.0}
    times = corrected(traced, step_ns / 1e9, ("long", "short", "shorter", "folded"))
    assert sum(times.op_ns.values()) == pytest.approx(step_ns, abs=3)
    changes = [traced[name] - ns for name, ns in times.op_ns.items()]
    if step_ns >= 70_000:
        np.testing.assert_allclose(changes, changes[0], atol=2)
    assert times.unmeasured == ("folded",)


def test_no_time_becomes_negative():
    times = corrected({"long": 90_000.0, "tiny": 100.0}, 50e-6, ("long", "tiny"))
    assert times.op_ns["tiny"] == 0
    assert times.op_ns["long"] == pytest.approx(50_000, abs=2)


def test_a_program_that_runs_nothing_has_no_times():
    assert corrected({}, 1e-3, ("a",)).op_ns == {}
