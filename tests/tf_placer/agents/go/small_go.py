"""Small settings and problems that the tests of GO share."""

import dataclasses

import numpy as np

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.go.policy import GoConfig, go_inputs
from tf_placer.agents.weights import Plans
from tf_placer.grouper.groups import ordered_groups

OF_UNITS = GoConfig(
    granularity="units",
    graph_width=8,
    width=8,
    heads=2,
    head_width=4,
    inner_width=8,
    segment=4,
    passes=2,
    keep_probability=0.0,
)
OF_GROUPS = GoConfig(
    num_groups=6,
    graph_width=4,
    width=4,
    head_width=2,
    inner_width=4,
    keep_probability=0.6,
    elite_share=0.0,
    rollouts=6,
    epochs=1,
)
SMALL = branches_problem(2, 2)
WIDE = dataclasses.replace(
    branches_problem(3, 3, num_devices=5), op_types=("Conv3D", "NeverSeenBefore") * 5 + ("X",)
)
# Device 1 takes ten times as long for unit 2.
_FLOWS = problem_of(
    [[100, 100], [300, 300], [600, 6000]],
    [(0, 1), (0, 2), (1, 2)],
    [30, 10, 90],
    cluster=small_cluster(2, memory_bytes=1000),
    resident_bytes=[0, 250, 250],
)
INPUTS = go_inputs(_FLOWS, ordered_groups(_FLOWS, None))


def plans_of(device_of_unit, levels=None):
    """Plans for a student, whose times nobody looks at."""
    count = len(device_of_unit)
    return Plans(device_of_unit, np.ones(count), np.zeros((count, 0, 0), int) if levels is None else levels)
