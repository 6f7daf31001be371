"""What groups are to devices, by hand."""

import numpy as np

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.agents.features import load_and_slowness
from tf_placer.grouper.groups import Groups


def test_load_and_slowness_by_hand():
    # Units 0 and 1 are a group, of 10 + 20 ns on device 0 and 100 + 200 on device 1; the other one takes 70 and 6.
    problem = problem_of(
        [[10, 100], [20, 200], [70, 6]], [], cluster=sized_cluster([100, 50]), resident_bytes=[5, 5, 20]
    )
    load, slowness = load_and_slowness(Groups.of(problem, np.array([0, 0, 1])))
    # All work is 10 + 20 + 6 ns; nothing is held, as nothing is sent.
    np.testing.assert_allclose(load[:, :, 0], np.array([[30, 300], [70, 6]]) / 36, rtol=1e-6)
    np.testing.assert_allclose(load[:, :, 1], [[0.1, 0.2], [0.2, 0.4]], rtol=1e-6)
    np.testing.assert_allclose(slowness, np.log10([[1, 301 / 31], [71 / 7, 1]]), rtol=1e-6)
