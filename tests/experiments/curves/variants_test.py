"""The same program with coarser units takes as long."""

import numpy as np

import tf_placer
from experiments.curves.variants import VARIANTS
from tf_placer import workloads
from tf_placer.evaluation.simulated import SimulatedEvaluator


def test_colocation_groups_hold_whole_units_and_cost_nothing():
    item, cluster = workloads.build("dense_small"), tf_placer.Cluster.preset("k40x2")
    shipped, grouped = (VARIANTS[name](item, cluster) for name in ("as_shipped", "colocation_groups"))
    assert grouped.num_units < shipped.num_units
    group_of_unit = np.zeros(shipped.num_units, np.int64)
    group_of_unit[shipped.unit_of_op] = grouped.unit_of_op
    np.testing.assert_array_equal(group_of_unit[shipped.unit_of_op], grouped.unit_of_op)
    rows = np.random.default_rng(0).integers(0, 2, (5, grouped.num_units)).astype(np.int32)
    rows = grouped.legalized(rows)
    coarse, fine = SimulatedEvaluator(grouped), SimulatedEvaluator(shipped)
    np.testing.assert_array_equal(
        coarse.evaluate(rows).runtime_s, fine.evaluate(rows[:, group_of_unit]).runtime_s
    )
