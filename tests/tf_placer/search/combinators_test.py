"""Methods made of methods: a portfolio, searches that decide an order, and the least memory."""

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import tf_placer
from tests.tf_placer.problem.small_problems import (
    altered,
    branches_problem,
    cluster_of,
    problem_of,
    random_problem,
    small_cluster,
)
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec, NoSettings, Role
from tf_placer.cluster.cluster import fullest_share
from tf_placer.evaluation.simulated import AnyOrderEvaluator, SimulatedEvaluator
from tf_placer.planners.order import priorities
from tf_placer.problem.bounds import least_share
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.problem.problem import Problem
from tf_placer.search import combinators, methods
from tf_placer.search import round as drivers
from tf_placer.search.combinators import Portfolio, PortfolioConfig
from tf_placer.search.search import search

BRANCHES, LENGTH = 4, 2
BRANCHED = branches_problem(BRANCHES, LENGTH)
ONE_DEVICE = BRANCHED.everything_on(0)
# Half of the branches, and the sink, are not on the device of the source.
BEST = ((np.arange(BRANCHED.num_units) - 1) % BRANCHES >= BRANCHES // 2).astype(np.int32)
BEST[[0, -1]] = 0, 1


class Counted:
    """Proposes one plan, over and over, and counts how often it was asked."""

    asked: ClassVar[dict[str, int]] = {}
    order: ClassVar[list[str]] = []

    def __init__(self, name: str, row: np.ndarray) -> None:
        self._name = name
        self._row = row

    def ask(self, most: float) -> np.ndarray:
        self.asked[self._name] = self.asked.get(self._name, 0) + 1
        self.order.append(self._name)
        return self._row[np.newaxis]

    def tell(self, decisions: Any, times: Any) -> None:
        """Learns nothing."""

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Has no state."""


def arm(name: str, row: np.ndarray) -> MethodSpec:
    return MethodSpec(name, Kind.IMPROVING, "An arm.", lambda *given: Counted(name, row))


def portfolio(*members: MethodSpec, **settings: Any) -> MethodSpec:
    spec = dataclasses.replace(methods.find("auto"), default=PortfolioConfig(**{"head": 0.0, **settings}))
    return dataclasses.replace(spec, build=lambda context, own: Portfolio(context, own, members))


def test_hosts_are_handed_work_of_the_best_plan():
    # Ten ops in a row, one that the host is slow at, and ten more; a single move to the host gains nothing.
    ns = [[1, 100]] * 10 + [[5000, 100]] + [[1, 100]] * 10
    problem = problem_of(ns, [(i, i + 1) for i in range(20)], 1, cluster_of("CPU", "GPU"))
    gpu = problem.everything_on(1)
    found = search(problem, portfolio(arm("arm", gpu)), budget_evaluations=20, start=gpu)
    assert found.found_by == combinators.HANDED
    assert found.placement.device_of_unit.tolist() == [0] * 10 + [1] + [0] * 10


def test_the_arm_that_opens_has_a_few_evaluations_first():
    opens = dataclasses.replace(arm("opens", BEST), roles=frozenset({Role.OPENING}))
    goes_on = dataclasses.replace(arm("goes_on", ONE_DEVICE), uses_start=True)
    for opening, share, expected in ((7, 1.0, 7), (1000, 0.25, 24), (1000, 0.0, 1), (0, 1.0, 0)):
        Counted.order = []
        method = portfolio(opens, goes_on, opening=opening, opening_share=share)
        search(BRANCHED, method, budget_evaluations=100, start=ONE_DEVICE)
        first = list(itertools.takewhile(lambda name: name == "opens", Counted.order))
        # One evaluation is of the start; from a quarter of the budget on nobody opens, but for a first round.
        assert len(first) == expected, opening


def asked_of(*members: MethodSpec, evaluations: int = 101) -> tuple[dict[str, int], str]:
    """How often each arm was asked in 100 evaluations after that of the start, and who found the plan."""
    Counted.asked = {}
    found = search(BRANCHED, portfolio(*members), budget_evaluations=evaluations, start=ONE_DEVICE)
    return Counted.asked, found.found_by


def test_arms_that_gain_nothing_wait_longer_each_time():
    # Turns of 1/25 of 101 evaluations, that is of 5 or 4. The second arm is asked at turn 1 and, after waits of 3, 9
    # and 27 turns, at 5 and 15; of about 22 turns 3 are its.
    asked, found_by = asked_of(arm("first", ONE_DEVICE), arm("second", ONE_DEVICE))
    assert sum(asked.values()) == 100
    assert 10 <= asked["second"] <= 15
    assert found_by == "start"


def test_the_arm_that_gained_is_asked_again_at_once():
    asked, found_by = asked_of(arm("first", ONE_DEVICE), arm("second", BEST))
    # One turn more than in the test above: after its gain.
    assert 14 <= asked["second"] <= 20
    assert found_by == "second"


def test_an_arm_whose_turn_has_not_come_since_a_restart_keeps_its_state():
    first, second = (
        Portfolio(SimpleNamespace(given=None), PortfolioConfig(), [arm("arm", BEST)]) for _ in range(2)
    )
    state = first.state() | {"0.planner.asked": 3, "0.start": BEST}
    second.restore(state)
    assert second.state() == state


def test_constructed_plans_stand_before_the_race_and_end_when_they_are_dear():
    members = [
        MethodSpec(name, Kind.CONSTRUCTIVE, "Plans.", lambda *context, rows=rows: rows, goes_on=False)
        for name, rows in (("ten", np.stack([ONE_DEVICE] * 10)), ("last", BEST[np.newaxis]))
    ]
    # After the start and ten plans 11 of 100 evaluations are used up, and of 1000 hardly any.
    for evaluations, found_by in ((100, "start"), (1000, "last")):
        found = search(BRANCHED, portfolio(*members), budget_evaluations=evaluations, start=ONE_DEVICE)
        assert found.found_by == found_by


def test_an_arm_that_fell_behind_begins_at_the_best_plan():
    began = []

    def climber(problem: Problem, config: NoSettings, start: np.ndarray, seed: int) -> Counted:
        began.append(start.tolist())
        return Counted("first", ONE_DEVICE)

    asked_of(MethodSpec("first", Kind.IMPROVING, "An arm.", climber, uses_start=True), arm("second", BEST))
    assert began[:2] == [ONE_DEVICE.tolist(), BEST.tolist()]
    assert len(began) == 2, "who has tried that plan is not behind"


def test_the_default_is_a_portfolio_that_says_who_found_its_plan():
    default = methods.DEFAULT
    found = search(BRANCHED, default, budget_evaluations=50)
    assert found.method == default
    assert found.found_by in methods.names() and found.found_by != default


def test_the_arm_that_leads_has_the_first_half_to_itself():
    lead = dataclasses.replace(arm("lead", ONE_DEVICE), roles=frozenset({Role.LEAD}))
    for head, before in ((0.0, 5), (0.5, 50), (0.9, 90)):
        Counted.order.clear()
        method = portfolio(arm("other", BEST), lead, head=head)
        search(BRANCHED, method, budget_evaluations=101, start=ONE_DEVICE)
        # A turn is 4 or 5 of 101 evaluations, and the start was one.
        assert abs(Counted.order.index("other") - before) <= 2


def test_the_arm_that_leads_goes_on_alone_while_it_gains_much():
    # Plan k has k of 200 equal units on the other device, which take 200 - k: ten more of them gain 5 % and more.
    problem = problem_of([1000] * 200, [])

    class Better(Counted):
        def ask(self, most: float) -> np.ndarray:
            super().ask(most)
            return (np.arange(200) < self.asked["lead"])[np.newaxis].astype(np.int32)

    build, roles = lambda *context: Better("lead", ONE_DEVICE), frozenset({Role.LEAD})
    lead = dataclasses.replace(arm("lead", ONE_DEVICE), build=build, roles=roles)
    other = arm("other", np.zeros(200, np.int32))
    for leads, alone in ((0.04, 100), (0.2, 30)):
        Counted.asked, Counted.order = {}, []
        method = portfolio(other, lead, head=0.3, leads=leads)
        search(problem, method, budget_evaluations=101, start=problem.everything_on(0))
        assert abs([*Counted.order, "other"].index("other") - alone) <= 2


@pytest.mark.medium
def test_with_a_budget_of_evaluations_the_clock_decides_nothing(monkeypatch):
    problem = random_problem(np.random.default_rng(3), 300, 3)
    default = methods.DEFAULT
    found = []
    for burst_s in (1e-6, 1.0):  # bursts as short as they get, and long ones
        monkeypatch.setattr(drivers, "_BURST_S", burst_s)
        found.append(search(problem, default, budget_s=600, budget_evaluations=2000))
    one, other = found
    assert one.evaluations == other.evaluations == 2000
    assert one.placement.device_of_unit.tolist() == other.placement.device_of_unit.tolist()
    assert one.found_by == other.found_by
    assert {entry.evaluations for entry in one.history} != {entry.evaluations for entry in other.history}


# Ways of two ops each; the first op of the last way is ready last by number, and a long op waits for it elsewhere.
WAYS = 12


@pytest.fixture
def fork():
    """In the order of numbers the op that feeds the longest one would be the last."""
    return forked(np.ones((2 * WAYS + 1, 2), bool))


@pytest.fixture
def held():
    """The same with the first ops of all ways on one device, the second ones on the other: the order is left."""
    first = np.arange(2 * WAYS + 1) <= WAYS
    return forked(np.stack([first, ~first], axis=1))


def forked(allowed):
    starts, ends = range(1, WAYS + 1), range(WAYS + 1, 2 * WAYS + 1)
    edges = [(0, one) for one in starts] + list(zip(starts, ends, strict=True))
    return problem_of([10, *[100] * WAYS, *[50] * (WAYS - 1), 2000], edges, 40, allowed=allowed)


@pytest.mark.parametrize("method", ["local_search", "memetic", "auto", "cem", "random", "tabular"])
def test_every_plan_of_any_method_has_the_order(fork, method):
    found = search(fork, method, budget_evaluations=300, order="heft_rank")
    assert found.order == "heft_rank" and found.evaluations == 300
    wanted = priorities("heft_rank", fork, found.placement.device_of_unit)
    assert found.placement.priority_of_op.tolist() == wanted.tolist()
    assert found.runtime_s == SimulatedEvaluator(fork).evaluate(found.placement.decisions).runtime_s[0]


def test_the_best_rule_is_found_and_gains(held):
    plain, auto = (search(held, "memetic", budget_evaluations=600, order=order) for order in ("none", "auto"))
    # The last way's first op is the last of twelve, or the first; its 40 bytes take 10 + 40, then comes the long one.
    assert plain.runtime_s == pytest.approx((10 + 1200 + 50 + 2000) / 1e9)
    assert auto.order != "none"
    assert auto.runtime_s == pytest.approx((10 + 100 + 50 + 2000 + 11 * 50) / 1e9, rel=0.3)
    assert plain.order == "none" and plain.placement.priority_of_op is None
    assert auto.evaluations == plain.evaluations == 600
    best = [entry.best_s for entry in auto.history]
    assert best == sorted(best, reverse=True)


def test_no_order_wins_where_none_gains():
    chain = problem_of([10] * 8, [(i, i + 1) for i in range(7)])
    found = search(chain, "memetic", budget_evaluations=400, order="auto")
    assert found.order == "none" and found.placement.priority_of_op is None


def test_equal_seeds_give_equal_orders(fork):
    one, other = (search(fork, "memetic", budget_evaluations=400, seed=3, order="auto") for _ in range(2))
    assert one.placement.decisions.digest(0, fork) == other.placement.decisions.digest(0, fork)


def test_a_method_that_ends_is_also_tried_under_all_rules(fork):
    plain, auto = (search(fork, "heft", budget_evaluations=400, order=order) for order in ("none", "auto"))
    assert auto.runtime_s <= plain.runtime_s


def test_an_ordered_simulator_gives_the_times_of_ordered_plans(fork):
    rows = np.random.default_rng(0).integers(2, size=(5, fork.num_units))
    order = np.random.default_rng(1).permutation(fork.num_ops).astype(np.int32)
    plans = Decisions(rows, np.tile(order, (5, 1)))
    for evaluator in (SimulatedEvaluator(fork), AnyOrderEvaluator(altered(fork, {"newest_first": True}))):
        inside = evaluator.ordered(order)
        np.testing.assert_array_equal(inside.evaluate(rows).runtime_s, evaluator.evaluate(plans).runtime_s)
        assert len(inside.orders) == len(evaluator.orders)


def test_a_start_with_an_order_is_begun_at_by_its_devices(fork):
    start = Placement(fork, np.zeros(fork.num_units), np.arange(fork.num_ops))
    with pytest.warns(UserWarning, match="begins at devices alone"):
        search(fork, "memetic", budget_evaluations=50, start=start, order="heft_rank")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"order": "fastest"}, "order"),
        ({"order": "auto", "robust": True}, "robust is given with order='auto'"),
        ({"order": "auto", "objective": "memory"}, 'objective="memory" is given with order='),
        ({"order": "heft_rank", "checkpoint": "folder"}, "checkpoint is given with order='heft_rank'"),
    ],
)
def test_what_an_order_is_not_for_is_refused(fork, given, message):
    with pytest.raises(InputError, match=message):
        search(fork, budget_evaluations=2, **given)


def eight_towers() -> tf_placer.Problem:
    """8 ops that need not wait for each other, 1000 ns and 100 resident bytes each, on two devices of 1000 bytes.

    A crossing costs nothing here, so any split is as good for memory as any other; the second device is slower by half.
    """
    compute_ns = np.repeat([[1000, 1500]], 8, axis=0)
    cluster = small_cluster(2, memory_bytes=1000)
    return problem_of(compute_ns, np.zeros((0, 2), int), cluster=cluster, resident_bytes=100)


@pytest.mark.parametrize(
    ("slow_down", "runtime_s", "bytes_used"),
    [
        # Fastest: 5 and 3 ops, 5000 ns. With 4 and 4 the step takes 6000 ns, 20 % longer, and the peak is 400 of 1000.
        (0.25, 6e-6, [400, 400]),
        (0.1, 5e-6, [300, 500]),
    ],
)
def test_the_peak_falls_within_the_slow_down(slow_down, runtime_s, bytes_used):
    result = tf_placer.search(eight_towers(), budget_evaluations=400, objective="memory", slow_down=slow_down)
    least = result.least_memory
    assert (result.runtime_s, sorted(result.peak_bytes.values())) == (runtime_s, bytes_used)
    assert (least.share, least.bound_share) == (max(bytes_used) / 1000, 0.4)  # 800 bytes on 2000
    assert least.fastest.runtime_s == 5e-6 and sorted(least.fastest.peak_bytes.values()) == [300, 500]


def test_equal_seeds_give_equal_plans_and_the_budget_holds():
    results = [
        tf_placer.search(eight_towers(), budget_evaluations=100, seed=3, objective="memory") for _ in range(2)
    ]
    assert np.array_equal(*(result.placement.device_of_unit for result in results))
    assert results[0].evaluations == results[1].evaluations


@pytest.mark.parametrize("more", [{"start": np.zeros(8, int)}, {"checkpoint": "folder"}])
def test_what_it_does_not_take_is_refused(more, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"{next(iter(more))} is given with objective"):
        tf_placer.search(eight_towers(), budget_evaluations=9, objective="memory", **more)


def test_the_bound_is_below_every_plan_in_time():
    random = np.random.default_rng(0)
    cluster = tf_placer.Cluster.preset("k40x2")
    assert cluster.accelerators().tolist() == [True, True, False]
    for _ in range(20):
        resident = random.integers(0, 2**30, 5)
        problem = problem_of(
            random.integers(1, 10**6, (5, 3)),
            [[0, 1], [0, 2], [1, 3], [2, 4]],
            edge_bytes=random.integers(0, 2**28, 4),
            cluster=cluster,
            resident_bytes=resident,
        )
        every = np.array(np.meshgrid(*[range(3)] * 5)).reshape(5, -1).T.astype(np.int32)  # 3^5 plans
        measured = tf_placer.SimulatedEvaluator(problem).evaluate(every)
        shares = fullest_share(cluster, measured.peak_bytes)
        for limit_s in np.quantile(measured.runtime_s, [0.0, 0.2, 1.0]):
            assert least_share(problem, float(limit_s)) <= shares[measured.runtime_s <= limit_s].min() + 1e-12


def test_the_bound_counts_what_the_host_has_no_time_for():
    # 10 GB on a GPU of about 11.4: the host, where it would take a second, holds it only where that is in time.
    cluster = tf_placer.Cluster.preset("k40x2")
    problem = problem_of([[1000, 1000, 10**12]], [], cluster=cluster, resident_bytes=10**10)
    assert least_share(problem, 2e-6) == pytest.approx(10**10 / cluster.devices[0].memory_bytes)
    assert least_share(problem) == 0.0
