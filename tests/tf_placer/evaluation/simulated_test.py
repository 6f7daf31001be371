"""Placements in the simulator: times by hand, what does not run, and plans under orders that are not known."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tf_placer
from tests.tf_placer.evaluation import random_problems
from tests.tf_placer.problem.small_problems import problem_of, random_problem, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.costs.formulas import OpWork, WorkClass
from tf_placer.evaluation.simulated import (
    MEASURED,
    AnyOrderEvaluator,
    RobustEvaluator,
    SimulatedEvaluator,
    Spreads,
    Status,
    drawn_problems,
    search_simulator,
)
from tf_placer.planners.local_search import LocalSearchConfig, SimulatedLocalSearch
from tf_placer.planners.plain import RandomBlocks
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.problem.problem import Problem
from tf_placer.search.methods import Budget


@pytest.fixture
def diamond():
    """0 -> (1, 2) -> 3 of 100 ns each and 50 bytes an edge; 600 bytes stay with unit 1; 1,000 a device."""
    return problem_of(
        [100] * 4,
        [(0, 1), (0, 2), (1, 3), (2, 3)],
        50,
        cluster=small_cluster(2, memory_bytes=1000),
        resident_bytes=[0, 600, 500, 0],
        allowed=np.array([[True, True]] * 3 + [[True, False]]),
    )


def test_time_by_hand(diamond):
    measurement = SimulatedEvaluator(diamond).evaluate(np.array([[0, 0, 1, 0], [0, 1, 0, 0]]))
    # Unit 2 far away: 100, then 10 + 50 to cross, 100 there, 60 back, and 100 for unit 3.
    np.testing.assert_allclose(measurement.runtime_s, [420e-9, 420e-9], rtol=1e-12)
    assert measurement.status.tolist() == [Status.OK, Status.OK]
    assert measurement.messages == ("", "")


def test_out_of_memory_says_where_and_by_how_much(diamond):
    measurement = SimulatedEvaluator(diamond).evaluate(np.array([[0, 0, 0, 0], [0, 0, 1, 0]]))
    assert measurement.status.tolist() == [Status.OUT_OF_MEMORY, Status.OK]
    assert np.isnan(measurement.runtime_s[0]) and measurement.runtime_s[1] > 0
    # 600 + 500 stay; at the most (units 1 and 2 one after the other) two of the first tensors and, for the
    # second branch, one of the results live: 3 * 50.
    assert measurement.peak_bytes[0].tolist() == [1100 + 150, 0]
    assert measurement.messages[0].endswith("GPU:0 is 250 bytes over its memory")


def test_illegal_is_a_status_and_not_an_error(diamond):
    rows = [[0, 0, 1, 1], [0, 0, 7, 0], [-1, 0, 1, 0], [0, 0, 1, 0]]
    measurement = SimulatedEvaluator(diamond).evaluate(np.array(rows))
    assert measurement.status.tolist() == [Status.ILLEGAL] * 3 + [Status.OK]
    assert np.isnan(measurement.runtime_s).tolist() == [True, True, True, False]
    assert "not there or has no kernel" in measurement.messages[0]


def test_no_placements_at_all(diamond):
    measurement = SimulatedEvaluator(diamond).evaluate(np.zeros((0, 4), np.int32))
    assert measurement.messages == () and measurement.peak_bytes.shape == (0, 2)


@pytest.mark.parametrize("seed", range(3))
def test_eager_graph_and_evaluate_agree(seed):
    generator = np.random.default_rng(seed)
    problem = random_problem(generator, 12, 3)
    placements = np.stack([generator.choice(np.flatnonzero(row), size=6) for row in problem.allowed], axis=1)
    evaluator = SimulatedEvaluator(problem)
    measured = evaluator.evaluate(placements)
    for times in (
        evaluator.times(placements),
        tf.function(evaluator.times)(tf.constant(placements, tf.int32)),
    ):
        np.testing.assert_allclose(times.runtime_s, measured.runtime_s, rtol=1e-6, err_msg=f"seed {seed}")
        np.testing.assert_array_equal(times.peak_bytes, measured.peak_bytes)
        np.testing.assert_array_equal(times.fits, measured.status == Status.OK)


@pytest.fixture
def fork():
    """0 of 10 ns makes 1, 2 and 3 ready on its device; 4, far away, waits for 40 bytes of 2; 100 ns each."""
    return problem_of([10, 100, 100, 100, 100], [(0, 1), (0, 2), (0, 3), (2, 4)], [40, 40, 40, 40])


def test_a_plans_priorities_come_before_the_problems_own(fork):
    devices = [0, 0, 0, 0, 1]
    # 2 runs first, second or last of the three; its tensor takes 10 + 40 to cross, then 4 runs: or it all ends with
    # the last of the three.
    first, second, last = max(10 + 300, 110 + 150), max(10 + 300, 210 + 150), 310 + 150
    plans = Decisions(
        [devices] * 4, priority_of_op=[[0, 1, 0, 2, 0], [0, 1, 2, 3, 0], [0, 1, 3, 2, 0], [0, 0, 0, 0, 0]]
    )
    expected_s = np.array([first, second, last, second]) / 1e9  # with none, ops go by their index
    evaluator = SimulatedEvaluator(fork)
    np.testing.assert_allclose(evaluator.evaluate(plans).runtime_s, expected_s, rtol=1e-12)
    np.testing.assert_allclose(evaluator.times(plans).runtime_s, expected_s, rtol=1e-12)
    in_graph = tf.function(lambda d, p: evaluator.times(Decisions(d, p)).runtime_s, autograph=False)
    np.testing.assert_allclose(in_graph(plans.device_of_unit, plans.priority_of_op), expected_s, rtol=1e-12)
    assert evaluator.schedule(plans).end_ns.numpy()[:3, 2].tolist() == [110, 210, 310]

    other = SimulatedEvaluator(dataclasses.replace(fork, priority=np.array([0, 3, 2, 1, 0], np.int32)))
    np.testing.assert_allclose(other.evaluate(plans).runtime_s[:3], expected_s[:3], rtol=1e-12)
    assert other.schedule([devices]).end_ns.numpy()[0, 1] == 310, (
        "what a plan leaves open goes by the problem's"
    )


def test_a_plan_keeps_its_time_through_its_file(fork):
    placement = Placement(fork, [0, 0, 0, 0, 1], priority_of_op=[0, 1, 3, 2, 0])
    again = Placement.from_json(placement.to_json(), fork)
    evaluator = SimulatedEvaluator(fork)
    (time_s,) = evaluator.evaluate(placement.decisions).runtime_s
    assert evaluator.evaluate(again.decisions).runtime_s.tolist() == [time_s]
    assert evaluator.evaluate(Placement(fork, [0, 0, 0, 0, 1]).decisions).runtime_s[0] != time_s


def test_times_of_what_does_not_fit_are_still_times_and_a_schedule_by_hand(diamond):
    evaluator = SimulatedEvaluator(diamond)
    times = evaluator.times(np.zeros((1, 4), np.int32))
    assert not times.fits[0] and float(times.runtime_s[0]) == pytest.approx(400e-9)
    schedule = evaluator.schedule(np.array([[0, 0, 1, 0]], np.int32))
    assert schedule.start_ns[0].numpy().tolist() == [0, 100, 160, 320]
    assert schedule.end_ns[0].numpy().tolist() == [100, 200, 260, 420]


def _executors(num_devices: int = 2, memory_bytes: int = 10**12):
    cluster = small_cluster(num_devices, memory_bytes)
    devices = tuple(dataclasses.replace(device, newest_first=True) for device in cluster.devices)
    return dataclasses.replace(cluster, devices=devices)


def _on(problem, cluster):
    return dataclasses.replace(problem, cluster=cluster)


@pytest.fixture
def contended_fork():
    """0 of 10 ns makes 1 and 2 ready, 100 ns each; 3, 100 ns and far away, waits for a tensor of 1 alone."""
    return problem_of([10, 100, 100, 100], [(0, 1), (0, 2), (1, 3)], 40, cluster=_executors())


def test_times_of_orders_by_hand(contended_fork):
    place = np.array([[0, 0, 0, 1]], np.int32)
    # The simulator takes 2 first where the newest goes first, and 1 first where the oldest does.
    newest_ns, oldest_ns = 10 + 200 + 50 + 100, 10 + 100 + 50 + 100
    (drawn,) = [
        order
        for order in (newest_ns, oldest_ns)
        if np.isclose(
            AnyOrderEvaluator(contended_fork).evaluate(place).runtime_s[0] * 3e9,
            newest_ns + oldest_ns + order,
        )
    ]
    assert drawn in (newest_ns, oldest_ns)
    assert SimulatedEvaluator(contended_fork).evaluate(place).runtime_s[0] == pytest.approx(newest_ns / 1e9)


def test_a_plans_order_is_kept_in_every_order(contended_fork):
    """The orders are of what a plan leaves open: it has its own time, which without several orders it has as well."""
    newest_ns, oldest_ns = 10 + 200 + 50 + 100, 10 + 100 + 50 + 100
    plans = Decisions([[0, 0, 0, 1]] * 2, priority_of_op=[[0, 2, 1, 0], [0, 1, 2, 0]])
    evaluator = AnyOrderEvaluator(contended_fork)
    for times_s in (
        evaluator.evaluate(plans).runtime_s,
        evaluator.times(plans).runtime_s.numpy(),
        SimulatedEvaluator(contended_fork).evaluate(plans).runtime_s,
    ):
        np.testing.assert_allclose(times_s * 1e9, [newest_ns, oldest_ns], rtol=1e-12)


def test_inside_a_graph_it_says_the_same():
    problem = _on(random_problem(np.random.default_rng(3), units=40, num_devices=3), _executors(3))
    rows = RandomBlocks(problem, seed=0).draw(20)
    evaluator = AnyOrderEvaluator(problem)
    measurement = evaluator.evaluate(rows)
    times = tf.function(evaluator.times)(tf.constant(rows))
    np.testing.assert_allclose(times.runtime_s.numpy(), measurement.runtime_s, rtol=1e-12)
    np.testing.assert_array_equal(times.peak_bytes.numpy(), measurement.peak_bytes)
    assert times.fits.numpy().all()
    nominal = SimulatedEvaluator(problem).evaluate(rows)
    assert (measurement.runtime_s != nominal.runtime_s).any()
    assert (measurement.peak_bytes >= nominal.peak_bytes).all()


def test_what_does_not_fit_in_one_order_does_not_fit(contended_fork):
    problem = dataclasses.replace(
        _on(contended_fork, _executors(memory_bytes=100)), resident_bytes=np.array([0, 90, 0, 0], np.int64)
    )
    measurement = AnyOrderEvaluator(problem).evaluate(np.array([[0, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 7]]))
    assert measurement.status.tolist() == [Status.OUT_OF_MEMORY, Status.OUT_OF_MEMORY, Status.ILLEGAL]
    assert np.isnan(measurement.runtime_s).all()
    assert all(measurement.messages)


def test_none_at_all(contended_fork):
    measurement = AnyOrderEvaluator(contended_fork).evaluate(np.zeros((0, 4), np.int32))
    assert measurement.messages == () and measurement.status.shape == (0,)


def test_searches_ask_it_where_threads_decide(contended_fork):
    assert isinstance(search_simulator(contended_fork), AnyOrderEvaluator)
    assert type(search_simulator(_on(contended_fork, small_cluster()))) is SimulatedEvaluator
    result = tf_placer.search(contended_fork, "local_search", budget_evaluations=40)
    chosen = np.array(result.placement.device_of_unit)[np.newaxis]
    assert result.runtime_s == AnyOrderEvaluator(contended_fork).evaluate(chosen).runtime_s[0]
    identities = [kind(contended_fork).identity for kind in (AnyOrderEvaluator, SimulatedEvaluator)]
    assert identities[0] != identities[1]


@pytest.mark.medium
def test_its_plans_hold_in_orders_that_no_search_saw():
    """What a search under one order finds is slower in others than it thinks; several orders find what lasts."""
    believed_s, elsewhere_s = {}, {}
    for kind in (SimulatedEvaluator, AnyOrderEvaluator):
        found, elsewhere = [], []
        for seed in range(6):
            problem = _on(random_problem(np.random.default_rng(seed), units=60, num_devices=2), _executors())
            result = tf_placer.search(
                problem, "local_search", budget_evaluations=1500, seed=seed, evaluator=kind(problem)
            )
            row = np.array(result.placement.device_of_unit)[np.newaxis]
            found.append(result.runtime_s)
            for unseen in range(100, 108):
                priority = np.random.default_rng(unseen).integers(0, 1000, problem.num_ops).astype(np.int32)
                order = SimulatedEvaluator(dataclasses.replace(problem, priority=priority))
                elsewhere.append(order.evaluate(row).runtime_s[0])
        believed_s[kind], elsewhere_s[kind] = np.mean(found), np.mean(elsewhere)
    lost = {kind: elsewhere_s[kind] / believed_s[kind] - 1 for kind in believed_s}
    assert lost[AnyOrderEvaluator] < 0.5 * lost[SimulatedEvaluator], lost
    assert elsewhere_s[AnyOrderEvaluator] < elsewhere_s[SimulatedEvaluator], elsewhere_s


NOTHING = Spreads({}, dict.fromkeys(WorkClass.FREE.kind.__class__, 0.0), 0.0, 0.0, 0.0, 0.0)


def fed_problem() -> Problem:
    """Ops of two classes and free ones, on devices that are fed, with links that hand over."""
    cluster = small_cluster(2)
    devices = tuple(dataclasses.replace(device, dispatch_ns=50_000) for device in cluster.devices)
    links = tuple(dataclasses.replace(link, tensor_ns=70_000) for link in cluster.links)
    problem = problem_of(
        [10**6, 10**6, 0, 10**6, 10**6],
        [(0, 2), (1, 2), (2, 3), (2, 4)],
        10**5,
        cluster=dataclasses.replace(cluster, devices=devices, links=links),
    )
    classes = np.array(
        [WorkClass.PRODUCT_WIDE, WorkClass.STREAMING, WorkClass.FREE] + [WorkClass.SOFTMAX] * 2
    )
    numbers = np.array([1.0, 1.0, 0.0, 1.0, 1.0])
    return dataclasses.replace(problem, work=OpWork(numbers, numbers, numbers, classes))


def test_draws_are_of_classes_links_and_hosts():
    problem = fed_problem()
    drawn = list(drawn_problems(problem, 400, 0))
    factors = np.array([one.compute_ns / np.maximum(problem.compute_ns, 1) for one in drawn])  # [400, N, D]
    assert (factors[:, 2] == 0).all()  # what is free stays free
    assert (factors[:, 3] == factors[:, 4]).all() and (factors[..., 0] == factors[..., 1]).all()
    assert (factors[:, 0] != factors[:, 1]).all()  # classes differ
    logs = np.log(factors[:, [0, 1, 3], 0])
    classes = (WorkClass.PRODUCT_WIDE, WorkClass.STREAMING, WorkClass.SOFTMAX)
    sd = np.hypot([MEASURED.of_class[work_class] for work_class in classes], MEASURED.model)
    np.testing.assert_allclose(logs.std(axis=0), sd, rtol=0.15)
    np.testing.assert_allclose(
        logs.mean(axis=0), 0, atol=1e-5
    )  # every second draw is the one before it mirrored
    for of, spread in (
        (lambda one: one.cluster.dispatch_ns()[0] / 50_000, MEASURED.dispatch),
        (lambda one: one.cluster.link_tensor_ns()[0, 1] / 70_000, MEASURED.tensor),
        (
            lambda one: one.cluster.links[0].bytes_per_s / problem.cluster.links[0].bytes_per_s,
            MEASURED.bandwidth,
        ),
    ):
        logs = np.log([of(one) for one in drawn])
        assert logs.std() == pytest.approx(spread, rel=0.15) and logs.mean() == pytest.approx(0, abs=1e-4)


def test_draws_are_the_seeds():
    problem = random_problems.random_problem(np.random.default_rng(1))
    few, many, other = (list(drawn_problems(problem, *of)) for of in ((3, 0), (5, 0), (3, 1)))
    assert [one.digest() for one in few] == [one.digest() for one in many[:3]]
    assert few[0].digest() != other[0].digest()
    assert {one.digest() for one in drawn_problems(problem, 4, 0, NOTHING)} == {problem.digest()}


def test_a_robust_evaluator_is_the_mean_of_scaled_draws():
    problem = fed_problem()
    evaluator = RobustEvaluator(problem, seed=3, draws=4)
    rows = np.array([[0, 1, 0, 0, 1], [0] * 5], np.int32)
    assert len(evaluator.orders) == 8
    one_device_s = SimulatedEvaluator(problem).evaluate(rows[1:]).runtime_s[0]
    assert evaluator.evaluate(rows[1:]).runtime_s[0] == pytest.approx(one_device_s, rel=0.01)
    np.testing.assert_allclose(
        evaluator.times(rows).runtime_s, evaluator.evaluate(rows).runtime_s, rtol=1e-12
    )
    assert type(evaluator.tells) is SimulatedEvaluator
    assert evaluator.identity != RobustEvaluator(problem, seed=4, draws=4).identity
    with pytest.raises(InputError, match="draws"):
        RobustEvaluator(problem, draws=64)


def test_chains_take_the_mean_over_draws():
    """What local search in C++ says of its best plan is what the evaluator says of it."""
    for seed in range(5):
        problem = random_problems.random_problem(np.random.default_rng(seed))
        evaluator = RobustEvaluator(problem)
        start = problem.everything_on(0)
        found = SimulatedLocalSearch(problem, LocalSearchConfig(chains=2), start, 0, evaluator).advance(200)
        again = evaluator.evaluate(found.decisions.device_of_unit)
        np.testing.assert_allclose(found.runtime_s, again.runtime_s, rtol=1e-9)
        assert found.runtime_s.min() <= evaluator.evaluate(start[np.newaxis]).runtime_s[0] * (1 + 1e-12)


def test_a_robust_search_is_told_in_estimates():
    problem = fed_problem()
    found = tf_placer.search(problem, "local_search", budget_evaluations=60, seed=1, robust=True)
    row = np.array(found.placement.device_of_unit)[np.newaxis]
    simulator, robust = SimulatedEvaluator(problem), RobustEvaluator(problem, 1)
    assert found.runtime_s == simulator.evaluate(row).runtime_s[0]
    one_s = simulator.evaluate(problem.everything_on(0)[np.newaxis]).runtime_s[0]
    assert found.single_device_s == one_s and found.proven_s == 0
    assert found.evaluations == found.history[-1].evaluations == 60
    assert found.history[-1].best_s == pytest.approx(robust.evaluate(row).runtime_s[0])
    plain = tf_placer.search(problem, "local_search", budget_evaluations=60, seed=1)
    plain_row = np.array(plain.placement.device_of_unit)[np.newaxis]
    assert robust.evaluate(row).runtime_s[0] <= robust.evaluate(plain_row).runtime_s[0] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"objective": "memory"}, 'objective="memory" is given with robust=True'),
        ({"evaluator": True}, "evaluator is given with robust=True"),
        ({"robust": 1}, "robust"),
    ],
)
def test_bad_input(given, message):
    problem = fed_problem()
    if given.get("evaluator"):
        given = {"evaluator": SimulatedEvaluator(problem)}
    with pytest.raises(InputError, match=message):
        tf_placer.search(problem, "local_search", Budget(1).seconds, **{"robust": True, **given})


def test_live_devices_are_measured():
    problem = fed_problem()
    live = dataclasses.replace(problem, cluster=dataclasses.replace(problem.cluster, kind="local"))
    with pytest.raises(InputError, match="is live"):
        tf_placer.search(live, "local_search", 1.0, robust=True)
