"""Placements by weights that come with tf_placer: of any problem, within memory, and better than chance."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer import workloads
from tf_placer.agents.go.learner import GoZeroShotConfig, go_zero_shot
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.unit_graph import held_bytes

FEW = GoZeroShotConfig(samples=4, steps=3)


@pytest.mark.medium
def test_any_problem_is_placed_the_same_each_time():
    for problem in (branches_problem(3, 4), branches_problem(5, 2)):
        rows = go_zero_shot(problem, FEW, seed=3)
        assert rows.dtype == np.int32 and 1 <= len(rows) <= 4
        for row in rows:
            problem.check_legal(row)
        assert len(np.unique(rows, axis=0)) == len(rows)
        np.testing.assert_array_equal(go_zero_shot(problem, FEW, seed=3), rows)


def test_the_first_is_the_likeliest_whatever_the_seed():
    problem = branches_problem(4, 6)
    one, *_ = go_zero_shot(problem, FEW, seed=1)
    alone = go_zero_shot(problem, dataclasses.replace(FEW, samples=1), seed=2)
    np.testing.assert_array_equal(alone, [one])


def test_no_device_holds_more_than_it_can():
    problem = branches_problem(4, 6, num_devices=4)
    problem = dataclasses.replace(problem, resident_bytes=np.full(problem.num_units, 10_000))
    need = problem.resident_bytes + held_bytes(problem)
    # Half of all on each of four devices: what goes to one of them together has to leave it again.
    size = int(need.sum()) // 2
    devices = tuple(dataclasses.replace(device, memory_bytes=size) for device in problem.cluster.devices)
    tight = dataclasses.replace(problem, cluster=dataclasses.replace(problem.cluster, devices=devices))
    for row in go_zero_shot(tight, FEW):
        assert (np.bincount(row, need, len(devices)) <= size).all()


def test_more_devices_than_were_taught():
    problem = branches_problem(6, 4, num_devices=24)  # of the course none has more than nine
    for row in go_zero_shot(problem, FEW):
        problem.check_legal(row)


def test_slower_links_than_were_taught_and_types_of_ops_that_nobody_has_seen():
    item, cluster = workloads.build("dense_small"), Cluster.preset("h100x8")
    links = tuple(
        dataclasses.replace(link, bytes_per_s=link.bytes_per_s / 1000, latency_ns=link.latency_ns * 1000)
        for link in cluster.links
    )
    problem = analytic_problem(item, dataclasses.replace(cluster, links=links))
    types = tuple(f"Never{number}" for number in range(problem.num_ops))
    for one in (problem, dataclasses.replace(problem, op_types=types)):
        for row in go_zero_shot(one, FEW):
            one.check_legal(row)


@pytest.mark.slow
def test_the_best_of_64_is_faster_than_one_device_on_a_step_that_is_worth_splitting():
    problem = analytic_problem(workloads.build("transformer_xl_2"), Cluster.preset("p100x2"))
    simulator = SimulatedEvaluator(problem)
    single = simulator.evaluate(problem.legalized(np.zeros((1, problem.num_units), int))).runtime_s[0]
    drawn = simulator.evaluate(go_zero_shot(problem)).runtime_s
    assert drawn.min() < 0.97 * single


def test_weights_that_are_none_are_told(tmp_path):
    path = tmp_path / "weights.npz"
    path.write_bytes(b"none")
    with pytest.raises(InputError, match=r"weights\.npz"):
        go_zero_shot(branches_problem(2, 2), dataclasses.replace(FEW, weights=str(path)))
