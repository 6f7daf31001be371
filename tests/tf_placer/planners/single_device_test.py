"""Everything on one device, as far as the kernels allow."""

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.planners.plain import single_device_placements


def test_a_row_per_device_with_first_legal_devices_where_needed():
    allowed = np.array([[True, True, True], [False, True, True], [False, False, True]])
    problem = problem_of([1, 1, 1], [], cluster=small_cluster(3), allowed=allowed)
    # Unit 1 has no kernel on device 0 and goes to its first legal one, 1; unit 2 runs on device 2 only.
    assert single_device_placements(problem).tolist() == [[0, 1, 2], [1, 1, 2], [2, 2, 2]]


def test_type_is_what_the_simulator_takes():
    placements = single_device_placements(problem_of([1], []))
    assert placements.dtype == np.int32 and placements.shape == (2, 1)
