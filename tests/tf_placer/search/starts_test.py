"""Where searches begin: the best of what costs nothing, and the room that a step needs where that fits nowhere."""

import numpy as np
import pytest

import tf_placer
from tests.tf_placer.planners.full_devices import full_problem, sized_cluster
from tests.tf_placer.problem.small_problems import branches_problem, problem_of
from tests.tf_placer.search.other_machine import OtherMachine
from tf_placer.base.method_spec import Role
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.search import methods
from tf_placer.search.memory import room_needed
from tf_placer.search.round import Starts
from tf_placer.search.search import NothingFits

PLANNERS = methods.having(Role.BESIDE)


def test_the_fastest_plan_is_first_and_rewards_are_relative_to_it():
    problem = branches_problem(4, 6)
    simulator = SimulatedEvaluator(problem)
    starts = Starts(problem, simulator, PLANNERS)
    times_s = simulator.evaluate(starts.plans).runtime_s
    assert (np.diff(times_s) >= 0).all()
    assert starts.reference_s == times_s[0] < 0.6 * starts.single_device_s


def test_a_single_device_wins_a_tie():
    problem = problem_of([[200, 100]] * 3, [(0, 1), (1, 2)], 1000)
    starts = Starts(problem, SimulatedEvaluator(problem), PLANNERS)
    assert starts.plans[0].tolist() == [1, 1, 1]
    assert starts.reference_s == starts.single_device_s == pytest.approx(300e-9)


@pytest.mark.parametrize(("devices", "fill"), [(2, 0.9), (3, 0.6), (3, 0.9), (4, 0.6), (4, 0.9)])
def test_where_no_single_device_fits_the_plans_do(devices, fill):
    for seed in range(5):
        problem = full_problem(devices, fill, seed, more_bytes=2000)
        starts = Starts(problem, SimulatedEvaluator(problem), PLANNERS)
        assert starts.single_device_s is None
        assert (SimulatedEvaluator(problem).evaluate(starts.plans).status == 0).all()


def test_where_nothing_fits_it_is_the_plan_that_exceeds_memory_least():
    problem = problem_of([1] * 3, [], cluster=sized_cluster([17, 19]), resident_bytes=10)
    starts = Starts(problem, SimulatedEvaluator(problem), PLANNERS)
    assert starts.single_device_s is None and len(starts.plans) == 1
    load = np.bincount(starts.plans[0], minlength=2) * 10
    assert load.tolist() == [10, 20], "1 byte over on the second, not 3 on the first"
    assert starts.reference_s > 0


def test_on_the_runtime_only_the_single_devices_are_measured():
    problem = branches_problem(4, 6)
    machine = OtherMachine(problem, alone=3.0)
    starts = Starts(problem, machine, PLANNERS)
    assert len(np.unique(starts.plans[0])) == 2
    assert machine.evaluated == problem.num_devices
    # The machine takes three times as long as the simulator, for the plan that it has not measured, too.
    expected_s = 3.0 * SimulatedEvaluator(problem).evaluate(starts.plans[:1]).runtime_s[0]
    assert starts.reference_s == pytest.approx(expected_s, rel=0.05)


def test_a_device_on_which_the_step_failed_is_no_place_to_begin():
    problem = problem_of([[200, 100]] * 3, [(0, 1), (1, 2)], 1000)
    machine = OtherMachine(problem, fails=lambda row: row[0] == 1)
    assert not (Starts(problem, machine, PLANNERS).plans[0] == 1).all()


GB = 10**9


def chain(sizes_gb: list[int], cluster: tf_placer.Cluster) -> tf_placer.Problem:
    """Ops in a row that hold so many gigabytes each, and nothing else."""
    return problem_of(
        [[1000] * cluster.num_devices] * len(sizes_gb),
        [[i, i + 1] for i in range(len(sizes_gb) - 1)],
        cluster=cluster,
        resident_bytes=[gb * GB for gb in sizes_gb],
        names=[f"layer{i}" for i in range(len(sizes_gb))],
    )


def test_what_one_device_holds_needs_no_room():
    assert room_needed(chain([1, 2], tf_placer.Cluster.preset("k40x2"))) is None


def test_needs_and_largest_holders_are_told_in_bytes():
    # 14 GB on a K40 of 11.4; a P100 has 15.9 or so, which is the smallest that does.
    room = room_needed(chain([1, 5, 2, 6], tf_placer.Cluster.preset("k40x2")))
    assert room is not None
    assert room.needed_bytes == 14 * GB
    assert list(room.holders.items()) == [("layer3", 6 * GB), ("layer1", 5 * GB), ("layer2", 2 * GB)]
    assert room.preset == "p100x1"
    assert "would need 13.0 GiB (14000000000 bytes)" in str(room)
    assert str(room).endswith("whose accelerators hold the step is p100x1")


def test_none_of_the_machines_is_said_so():
    room = room_needed(chain([900, 100], tf_placer.Cluster.preset("k40x2")))
    assert room is not None and room.preset is None
    assert str(room).endswith("no described machine holds the step on its accelerators")


def test_the_error_of_a_search_says_it_too():
    cluster = tf_placer.Cluster.preset("k40x2").with_memory_limit({"CPU:0": 1})
    with pytest.raises(NothingFits) as error:
        tf_placer.search(chain([12, 12], cluster), "random", budget_evaluations=4)
    told = str(error.value)
    assert "24000000000 bytes" in told and "'layer0'" in told and "\n" not in told
    assert "the smallest described machine whose accelerators hold the step is t4x2" in told
