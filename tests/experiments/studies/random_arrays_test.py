"""Random layered graphs: repeatable, of the size and kind they promise, and fit to be simulated."""

import numpy as np
import pytest

from experiments.studies.random_arrays import FREE_FRACTION, random_layered_arrays
from tf_placer.ops.simulator import SimulatorInputs, simulate


@pytest.mark.parametrize(("num_ops", "num_devices"), [(1, 1), (2, 3), (1000, 4)])
def test_arrays_can_be_simulated(num_ops, num_devices):
    arrays = random_layered_arrays(num_ops, num_devices, seed=0)
    # The op refuses arrays that are out of range, unsorted or not in topological order.
    cost = simulate(SimulatorInputs(**arrays._asdict()), np.zeros((1, num_ops), np.int32))
    assert cost.peak_bytes.shape == (1, num_devices)
    # One device of 8 streams is busy at least an eighth of the total work, and no longer than all of it.
    work_ns = int(arrays.compute_ns[:, 0].sum())
    assert work_ns / 8 <= int(cost.runtime_ns[0]) <= work_ns


def test_equal_seeds_give_equal_arrays():
    first, again, other = (random_layered_arrays(500, 2, seed) for seed in (3, 3, 4))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert first.compute_ns.tolist() != other.compute_ns.tolist()


def test_shape_of_the_graph():
    arrays = random_layered_arrays(20_000, 3, seed=0)
    free = (arrays.compute_ns == 0).all(axis=1).mean()
    # 20,000 independent draws: the standard error is 0.0035.
    assert abs(free - FREE_FRACTION) < 0.015
    # A fifth of the ops are constants and read nothing; the others ask for two tensors on average, and lose
    # the few that they ask for twice or that lie before the beginning: 0.8 * 2 = 1.6 at most.
    assert 1.5 < len(arrays.consumer_op) / 20_000 < 1.6
