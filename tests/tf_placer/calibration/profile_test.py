"""A profile put into a problem: times and links change, and nothing else does."""

import dataclasses

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.calibration.op_times import OpTimes
from tf_placer.calibration.profile import Profile, calibrated
from tf_placer.costs.op_work import OpWork


def test_op_times_replace_estimates_and_work_stays():
    work = OpWork(flops=np.array([1e9, 0]), num_bytes=np.array([8e6, 4e6]), launches=np.array([1, 0]))
    estimated = dataclasses.replace(
        problem_of([10, 20], [(0, 1)], 4, names=["a", "b"]), work=work, guessed_op_types={"Cholesky": 1}
    )
    times = OpTimes(op_ns={"a": 700}, step_s=7e-7, tracing_ns=0.0, unmeasured=("b",))
    profiled = calibrated(estimated, Profile({"toy": times}, pair=None, traffic=None))
    # What no trace shows is free; both devices are of one model.
    assert profiled.compute_ns.tolist() == [[700, 700], [0, 0]]
    assert profiled.guessed_op_types == {}
    assert profiled.work is work
    # The graph between ops is of the new times.
    assert estimated.op_graph.bottom_level_ns.tolist() == [30, 20]
    assert profiled.op_graph.bottom_level_ns.tolist() == [700, 0]
