"""What rules see of a problem has no unit, and says what it is to say."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import branches_problem, problem_of, small_cluster
from tf_placer.agents.learned_list.learned_list import list_inputs
from tf_placer.grouper.groups import ordered_groups
from tf_placer.ops.list_policy import CONTEXT, ORDER
from tf_placer.problem.problem import Problem

# Op 1 is on the longest way with op 3, op 2 is not.
DIAMOND = problem_of(
    [[100, 200], [600, 600], [300, 300], [100, 100]],
    [(0, 1), (0, 2), (1, 3), (2, 3)],
    [40, 20, 60, 10],
    cluster=small_cluster(2, memory_bytes=1000),
    resident_bytes=[0, 250, 100, 0],
)


def inputs_of(problem: Problem, groups: int | None = None):
    return list_inputs(problem, ordered_groups(problem, groups))


def test_work_is_a_share_of_what_a_fast_device_has_in_the_mean():
    # 1,100 ns on device 0, 1,200 on the other, which is as fast: half of 1,100 each.
    np.testing.assert_allclose(
        inputs_of(DIAMOND).work, np.array([[100, 200], [600, 600], [300, 300], [100, 100]]) / 550
    )
    np.testing.assert_allclose(inputs_of(DIAMOND).slowness, [[0, np.log(2)], [0, 0], [0, 0], [0, 0]])


def test_memory_is_a_share_of_the_device():
    memory = inputs_of(DIAMOND).memory
    assert (memory[:, 0] == memory[:, 1]).all()
    assert memory[1, 0] >= 0.25 and memory[2, 0] >= 0.1 and memory[1, 0] < 1


def test_slack_and_place_are_those_of_the_step():
    inputs = inputs_of(DIAMOND)
    slack = inputs.order_features[:, ORDER.index("slack")]
    # The longest way takes 800 ns, that by op 2 500.
    np.testing.assert_allclose(slack, [0, 0, 3 / 8, 0], atol=1e-9)
    np.testing.assert_allclose(inputs.context[:, CONTEXT.index("slack")], 2 * slack)
    np.testing.assert_array_equal(inputs.order_features[:, ORDER.index("place")], np.arange(4) / 4)


def test_windows_say_when_work_could_be_done():
    inputs = inputs_of(problem_of([100, 300, 300, 100], [(0, 1), (0, 2), (1, 3), (2, 3)], [1] * 4))
    overlap = inputs.window @ inputs.window.T
    assert overlap[0, 3] == overlap[0, 1] == 0, "what follows each other never meets"
    assert overlap[1, 2] == overlap[1, 1] > 0, "what is parallel does"


def test_edges_are_seen_from_both_ends():
    inputs = inputs_of(DIAMOND)
    seen = {
        (v, int(inputs.neighbor[e]), inputs.neighbor_bytes[e])
        for v in range(4)
        for e in range(inputs.neighbor_offset[v], inputs.neighbor_offset[v + 1])
    }
    edges = {(0, 1, 40.0), (0, 2, 40.0), (1, 3, 20.0), (2, 3, 60.0)}
    edges = {(a, b, next(c for x, y, c in seen if (x, y) == (a, b))) for a, b, _ in edges}
    assert seen == edges | {(b, a, c) for a, b, c in edges}


@pytest.mark.parametrize("groups", [None, 3])
def test_nothing_has_a_unit(groups):
    """A machine on which everything takes ten times as long, and the same program, look alike."""
    problem = branches_problem(3, 4)
    links = tuple(
        dataclasses.replace(link, latency_ns=10 * link.latency_ns, bytes_per_s=link.bytes_per_s / 10)
        for link in problem.cluster.links
    )
    slower = dataclasses.replace(
        problem,
        compute_ns=10 * problem.compute_ns,
        cluster=dataclasses.replace(problem.cluster, links=links),
    )
    for one, other in zip(
        inputs_of(problem, groups).tensors.values(), inputs_of(slower, groups).tensors.values(), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_one_op_on_one_device_without_links():
    inputs = inputs_of(problem_of([5], [], [], cluster=small_cluster(1)))
    assert inputs.legal.shape == (1, 1) and np.isfinite(inputs.context).all()


def test_a_step_without_work_is_no_error():
    inputs = inputs_of(problem_of([0, 0], [(0, 1)], [1]))
    assert all(np.isfinite(array).all() for array in inputs.tensors.values())
