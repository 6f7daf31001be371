"""Small settings and problems that the tests of GO share."""

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.agents.go.policy import GoConfig, go_inputs
from tf_placer.grouper.groups import ordered_groups
from tf_placer.training.teach import Plans

OF_UNITS = GoConfig(
    granularity="units", graph_width=8, width=8, heads=2, head_width=4, inner_width=8, segment=4, passes=2,
    keep_probability=0.0,
)  # fmt: skip
# Device 1 takes ten times as long for unit 2.
_FLOWS = problem_of(
    [[100, 100], [300, 300], [600, 6000]],
    [(0, 1), (0, 2), (1, 2)],
    [30, 10, 90],
    cluster=small_cluster(2, memory_bytes=1000),
    resident_bytes=[0, 250, 250],
)
INPUTS = go_inputs(ordered_groups(_FLOWS, None))


def plans_of(device_of_unit, levels=None):
    """Plans for a student, whose times nobody looks at."""
    count = len(device_of_unit)
    return Plans(device_of_unit, np.ones(count), np.zeros((count, 0, 0), int) if levels is None else levels)
