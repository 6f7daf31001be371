"""The time of a portfolio goes to what gains, and who found the plan is said."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import (
    branches_optimum_ns,
    branches_problem,
    problem_of,
    random_problem,
)
from tf_placer.base.method_spec import Kind, MethodSpec, NoSettings, Role
from tf_placer.problem.problem import Problem
from tf_placer.search import combinators, methods
from tf_placer.search import round as drivers
from tf_placer.search.combinators import PortfolioConfig
from tf_placer.search.search import search

BRANCHES, LENGTH = 4, 2
PROBLEM = branches_problem(BRANCHES, LENGTH)
ONE_DEVICE = PROBLEM.everything_on(0)
# Half of the branches, and the sink, are not on the device of the source.
BEST = ((np.arange(PROBLEM.num_units) - 1) % BRANCHES >= BRANCHES // 2).astype(np.int32)
BEST[[0, -1]] = 0, 1


class Counted:
    """Proposes one plan, over and over, and counts how often it was asked."""

    asked: ClassVar[dict[str, int]] = {}
    order: ClassVar[list[str]] = []

    def __init__(self, name: str, row: np.ndarray) -> None:
        self._name = name
        self._row = row

    def propose(self) -> np.ndarray:
        self.asked[self._name] = self.asked.get(self._name, 0) + 1
        self.order.append(self._name)
        return self._row[np.newaxis]

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Learns nothing."""

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Has no state."""


def arm(name: str, row: np.ndarray) -> MethodSpec:
    return MethodSpec(name, Kind.IMPROVING, "An arm.", lambda *given: Counted(name, row))


def portfolio(*members: MethodSpec, **settings: Any) -> MethodSpec:
    config = PortfolioConfig(**{"head": 0.0, **settings})
    return combinators.portfolio(lambda: members, name="portfolio", summary="Some.", default=config)


def test_the_best_plan_is_the_optimum() -> None:
    found = search(PROBLEM, "local_search", budget_evaluations=1, start=BEST)
    assert found.runtime_s == branches_optimum_ns(BRANCHES, LENGTH) / 1e9


def test_the_arm_that_opens_has_a_few_evaluations_first() -> None:
    opens = dataclasses.replace(arm("opens", BEST), roles=frozenset({Role.OPENING}))
    goes_on = dataclasses.replace(arm("goes_on", ONE_DEVICE), uses_start=True)
    for opening, share, expected in ((7, 1.0, 7), (1000, 0.25, 24), (1000, 0.0, 1), (0, 1.0, 0)):
        Counted.order = []
        method = portfolio(opens, goes_on, opening=opening, opening_share=share)
        search(PROBLEM, method, budget_evaluations=100, start=ONE_DEVICE)
        first = list(itertools.takewhile(lambda name: name == "opens", Counted.order))
        # One evaluation is of the start; from a quarter of the budget on nobody opens, but for a first round.
        assert len(first) == expected, opening


def asked_of(*members: MethodSpec, evaluations: int = 101) -> tuple[dict[str, int], str]:
    """How often each arm was asked in 100 evaluations after that of the start, and who found the plan."""
    Counted.asked = {}
    method = portfolio(*members, slices=25)
    found = search(PROBLEM, method, budget_evaluations=evaluations, start=ONE_DEVICE)
    return Counted.asked, found.found_by


def test_arms_that_gain_nothing_wait_longer_each_time() -> None:
    # Turns of 1/25 of 101 evaluations, that is of 5 or 4. The second arm is asked at turn 1 and, after waits of 3, 9
    # and 27 turns, at 5 and 15; of about 22 turns 3 are its.
    asked, found_by = asked_of(arm("first", ONE_DEVICE), arm("second", ONE_DEVICE))
    assert sum(asked.values()) == 100
    assert 10 <= asked["second"] <= 15
    assert found_by == "start"


def test_the_arm_that_gained_is_asked_again_at_once() -> None:
    asked, found_by = asked_of(arm("first", ONE_DEVICE), arm("second", BEST))
    # One turn more than in the test above: after its gain.
    assert 14 <= asked["second"] <= 20
    assert found_by == "second"


def test_constructed_plans_stand_before_the_race_and_end_when_they_are_dear() -> None:
    def made(*given: Any) -> np.ndarray:
        return np.stack([ONE_DEVICE] * 10)

    def last(problem: Problem, config: NoSettings, seed: int) -> np.ndarray:
        return BEST[np.newaxis]

    members = (
        MethodSpec("ten", Kind.CONSTRUCTIVE, "Ten.", made, goes_on=False),
        MethodSpec("last", Kind.CONSTRUCTIVE, "One.", last, goes_on=False),
    )
    # After the start and ten plans 11 of 100 evaluations are used up, and of 1000 hardly any.
    for evaluations, found_by in ((100, "start"), (1000, "last")):
        found = search(PROBLEM, portfolio(*members), budget_evaluations=evaluations, start=ONE_DEVICE)
        assert found.found_by == found_by


def test_an_arm_that_fell_behind_begins_at_the_best_plan() -> None:
    began = []

    def climber(problem: Problem, config: NoSettings, start: np.ndarray, seed: int) -> Counted:
        began.append(start.tolist())
        return Counted("first", ONE_DEVICE)

    first = MethodSpec("first", Kind.IMPROVING, "An arm.", climber, uses_start=True)
    asked_of(first, arm("second", BEST))
    assert began[:2] == [ONE_DEVICE.tolist(), BEST.tolist()]
    assert len(began) == 2, "who has tried that plan is not behind"


def test_the_default_is_a_portfolio_that_says_who_found_its_plan() -> None:
    default = methods.the(methods.Role.DEFAULT).name
    found = search(PROBLEM, default, budget_evaluations=50)
    assert found.method == default
    assert found.found_by in methods.names() and found.found_by != default


def test_the_arm_that_leads_has_the_first_half_to_itself() -> None:
    lead = dataclasses.replace(arm("lead", ONE_DEVICE), roles=frozenset({Role.LEAD}))
    for head, before in ((0.0, 5), (0.5, 50), (0.9, 90)):
        Counted.order.clear()
        method = portfolio(arm("other", BEST), lead, head=head)
        search(PROBLEM, method, budget_evaluations=101, start=ONE_DEVICE)
        # A turn is 4 or 5 of 101 evaluations, and the start was one.
        assert abs(Counted.order.index("other") - before) <= 2


def test_the_arm_that_leads_goes_on_alone_while_it_gains_much() -> None:
    # Plan k has k of 200 equal units on the other device, which take 200 - k: ten more of them gain 5 % and more.
    problem = problem_of([1000] * 200, [])

    class Better(Counted):
        def propose(self) -> np.ndarray:
            super().propose()
            return (np.arange(200) < self.asked["lead"])[np.newaxis].astype(np.int32)

    lead = MethodSpec(
        "lead",
        Kind.IMPROVING,
        "An arm.",
        lambda *given: Better("lead", ONE_DEVICE),
        roles=frozenset({Role.LEAD}),
    )
    other = arm("other", np.zeros(200, np.int32))
    for leads, alone in ((0.04, 100), (0.2, 30)):
        Counted.asked, Counted.order = {}, []
        method = portfolio(other, lead, head=0.3, leads=leads)
        search(problem, method, budget_evaluations=101, start=problem.everything_on(0))
        assert abs([*Counted.order, "other"].index("other") - alone) <= 2


@pytest.mark.medium
def test_with_a_budget_of_evaluations_the_clock_decides_nothing(monkeypatch) -> None:
    problem = random_problem(np.random.default_rng(3), 300, 3)
    default = methods.the(methods.Role.DEFAULT).name
    found = []
    for burst_s in (1e-6, 1.0):  # bursts as short as they get, and long ones
        monkeypatch.setattr(drivers, "_BURST_S", burst_s)
        found.append(search(problem, default, budget_s=600, budget_evaluations=2000))
    one, other = found
    assert one.evaluations == other.evaluations == 2000
    assert one.placement.device_of_unit.tolist() == other.placement.device_of_unit.tolist()
    assert one.found_by == other.found_by
    assert {entry.evaluations for entry in one.history} != {entry.evaluations for entry in other.history}
