"""Methods made of methods: a portfolio, and searches under orders of execution."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tf_placer.base.method_spec import Kind, MethodSpec, Role, Settings, method, setting
from tf_placer.planners.local_search import OrderSearch
from tf_placer.planners.order import priorities, rules_for
from tf_placer.problem.placement import Decisions
from tf_placer.search import methods
from tf_placer.search.checkpoint import Checkpoint
from tf_placer.search.methods import AUTO_ORDER, NO_ORDER, SEARCHED_ORDER, configured
from tf_placer.search.round import Best, Context, Round, Run, evaluated
from tf_placer.transform.split.plans import handed_to_hosts

HANDED = "host_cut"  # what found the plans of ``handed_to_hosts``
RACE_VERSION = 5  # of a race's state: a search saved with another version cannot be resumed
_GAIN = 1e-4  # a slice that gains less of the step time has gained nothing
_LEAD_TURN, _TURN = 0.1, 0.04  # shares of the budget, of the leading arm and of others
_CHEAP = 0.1  # share of the budget after which no more plans are constructed, from when that begins
_BEHIND = 0.01  # share by which an arm may be slower, before it goes on from the best plan of all
_LONGER = 3  # factor by which the wait of an arm grows with each turn without a gain


@dataclasses.dataclass(frozen=True)
class PortfolioConfig(Settings):
    """Settings of a portfolio."""

    opening: int = setting(64, least=0)  # evaluations of the arm that opens, before anything else
    # Of the budget, after which it opens no longer; its first round is made all the same.
    opening_share: float = setting(0.1, least=0, most=1)
    head: float = setting(0.75, least=0, most=1)  # share of the budget that the leading arm has to itself
    # After that it goes on alone as long as a tenth of the budget gains it this share of the step time.
    leads: float = setting(0.01, least=0, finite=False)


class _Arm:
    """An improving method of a portfolio, and the worth of its turns."""

    def __init__(self, spec: MethodSpec) -> None:
        self.spec = spec
        self.goes_on = True
        self.gain = 0.0  # of its last turn
        self.again = 0  # the turn from which it is asked again, although it gained nothing
        self.wait = 1
        self.begin(None)

    def begin(self, start: np.ndarray | None) -> None:
        """Begins, or begins anew, from a plan [U]; from the context's plans without."""
        self._start, self._checkpoint = start, Checkpoint()
        self._run: Run | None = None
        self.rounds, self.best_s = 0, math.inf

    def next_round(self, context: Context) -> Round | None:
        """The next round; None when the method has no more plans."""
        if self._run is None:
            starts = context.given if self._start is None else self._start[np.newaxis]
            context = dataclasses.replace(
                context, given=starts, rounds=self.rounds, checkpoint=self._checkpoint
            )
            self._run = Run(self.spec, configured(self.spec), context)
        batch = self._run.next_round()
        self.goes_on = batch is not None
        if batch is not None:
            self.rounds += 1
            self.best_s = min(self.best_s, self._run.best.runtime_s)
        return batch

    def state(self) -> tuple[list[Any], dict[str, Any]]:
        """The race's figures; and, by name, the planner's state and the first plan."""
        arrays = {} if self._start is None else {"start": self._start}
        planner = self._checkpoint.planner  # none before its turn, of an arm that goes on from a state
        state = planner.state() if planner else self._checkpoint.state
        arrays |= {f"planner.{name}": value for name, value in state.items()}
        return [self.goes_on, self.best_s, self.gain, self.again, self.wait, self.rounds], arrays

    def restore(self, figures: list[Any], arrays: dict[str, Any]) -> None:
        """Continues from both."""
        self.goes_on, self.best_s, self.gain, self.again, self.wait, self.rounds = figures
        self._start = arrays.get("start")
        self._checkpoint = Checkpoint(state=_below("planner.", arrays))


@method(
    methods.DEFAULT,
    Kind.OWN_ROUNDS,
    {Role.DEFAULT},
    config=PortfolioConfig,
    uses_start=True,
    versions={"race": RACE_VERSION, **methods.find(methods.LEAD).versions},
)
class Portfolio:
    """Portfolio: cheap plans, then searches in turn; the time goes to what gains (Gomes & Selman 2001).

    One method may open (``Role.OPENING``): its training on other programs shows in its first plans. Then come
    constructive methods, as long as they are cheap and no more than one start is given, and minimum cuts of the best
    plan (``handed_to_hosts``), then the improving ones, its arms. The leading arm has some time to itself, because a
    search from coarse to fine gains late, and more as long as it gains much. After that a turn goes to the arm whose
    last one gained most, of equal ones the first; another arm without a gain is asked again after a wait that grows
    each time. Gains are shares of the step time of the best plan so far; an arm that fell behind begins anew there.
    Where several starts are given an arm begins at those. With a budget of evaluations nothing depends on the clock.
    """

    def __init__(
        self, context: Context, config: PortfolioConfig, members: Sequence[MethodSpec] | None = None
    ) -> None:
        """Makes nothing yet; None for those of the table (``Role.MEMBER``).

        Constructive members are tried in their order. Of the improving ones the first arm is the leading one
        (``Role.LEAD``), else the first that continues from a plan.
        """
        members = methods.having(Role.MEMBER) if members is None else members
        self._config = config
        self._context = context
        self._constructive = [spec for spec in members if spec.kind is Kind.CONSTRUCTIVE]
        arms = [spec for spec in members if spec.kind is Kind.IMPROVING]
        arms.sort(key=lambda spec: (Role.LEAD not in spec.roles, not spec.uses_start))
        self._arms = [_Arm(spec) for spec in arms]
        self._has_several = context.given is not None and len(context.given) > 1
        self._made = 0  # constructive methods that were asked; one more when hosts were handed work
        self._constructs_until = 0.0  # share of the budget
        self._opened = 0  # evaluations
        self._best = Best()
        self._leads = bool(arms) and Role.LEAD in arms[0].roles and config.head > 0
        self._turn, self._turns = 0, 0
        self._until = -1.0  # share of the budget at which the turn ends
        self._before_s = math.inf  # the best when the turn began

    def __iter__(self) -> Iterator[Round]:
        """The rounds, from where the search was interrupted."""
        context, config = self._context, self._config
        context.checkpoint.track_state(self)
        if not context.rounds:
            made_by = context.starts.made_by[0] if context.given is None else "start"
            yield self._noted(evaluated(context, context.begins), made_by)
        for arm in [arm for arm in self._arms if Role.OPENING in arm.spec.roles][:1]:
            while arm.goes_on and not self._made and not self._turns:
                is_late = self._opened and context.used() >= config.opening_share
                if self._opened >= config.opening or is_late:
                    break
                batch = arm.next_round(context)
                if batch is not None:
                    self._opened += len(batch.runtime_s)
                    yield self._noted(batch, arm.spec.name)
        if not self._made:
            self._constructs_until = context.used() + _CHEAP
        for spec in self._constructive[self._made :]:
            if self._has_several or context.used() >= self._constructs_until:
                break
            self._made += 1
            batch = Run(spec, configured(spec), dataclasses.replace(context, rounds=0)).next_round()
            if batch is not None:
                yield self._noted(batch, spec.name)
        if self._made <= len(self._constructive) and self._best.plan is not None and not self._has_several:
            self._made = len(self._constructive) + 1
            handed = handed_to_hosts(context.problem, self._best.plan.device_of_unit[0])
            if len(handed):
                yield self._noted(evaluated(context, handed), HANDED)

        in_turn = dataclasses.replace(context, evaluations_left=lambda: context.left_until(self._until))
        while any(arm.goes_on for arm in self._arms):
            if context.used() >= self._until or not self._arms[self._turn].goes_on:
                self._next_turn()
            arm = self._arms[self._turn]
            batch = arm.next_round(in_turn)
            if batch is not None:
                yield self._noted(batch, arm.spec.name)

    def _noted(self, batch: Round, found_by: str) -> Round:
        """The round, marked with the method that found its plans; the best plan of all is kept."""
        self._best.take(batch)
        return dataclasses.replace(batch, found_by=found_by)

    def _next_turn(self) -> None:
        """Credits the turn that ends, and gives the next one away."""
        config, arms, best_s = self._config, self._arms, self._best.runtime_s
        used, before_s, self._before_s = self._context.used(), self._before_s, best_s
        if self._turns:
            gain, arm = _share(before_s, best_s), arms[self._turn]
            arm.gain = gain if gain > _GAIN else 0.0
            arm.wait = 1 if arm.gain else arm.wait * _LONGER
            arm.again = self._turns + arm.wait
            self._leads &= arms[0].goes_on and (used < config.head or gain >= config.leads)
        until = used + (_LEAD_TURN if self._leads else _TURN)
        if self._leads and used < config.head:
            until = min(until, config.head)
        self._until = until
        self._turns += 1
        if self._turns > 1 and self._leads:
            return
        turns = self._turns - 1  # before this one
        going = [i for i, arm in enumerate(arms) if arm.goes_on]
        waiting = [i for i in going[1:] if not arms[i].gain and turns >= arms[i].again]
        # The first arm begins. Of equal gains the first arm's counts.
        most_gain = max(going, key=lambda i: (arms[i].gain, -i))
        self._turn = waiting[0] if turns and waiting else most_gain
        arm = arms[self._turn]
        fell_behind = _share(arm.best_s, best_s) > _BEHIND
        begins = arm.best_s == math.inf and self._has_several
        if self._best.plan is not None and arm.spec.uses_start and fell_behind and not begins:
            arm.begin(self._best.plan.device_of_unit[0])

    def state(self) -> dict[str, Any]:
        """State of the race, and of every arm."""
        states = [arm.state() for arm in self._arms]
        state: dict[str, Any] = {
            "made": [self._made, self._constructs_until],
            "opened": self._opened,
            "best_s": self._best.runtime_s,
            "race": [self._turn, self._turns, self._until, self._before_s, self._leads],
            "arms": [figures for figures, _ in states],
        }
        if self._best.plan is not None:
            state["best"] = self._best.plan.device_of_unit[0]
        for i, (_, arrays) in enumerate(states):
            state |= {f"{i}.{name}": value for name, value in arrays.items()}
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave."""
        (self._made, self._constructs_until), self._opened = state["made"], state["opened"]
        plan = Decisions([state["best"]]) if "best" in state else None
        self._best = Best(plan, state["best_s"])
        self._turn, self._turns, self._until, self._before_s, self._leads = state["race"]
        for i, (arm, figures) in enumerate(zip(self._arms, state["arms"], strict=True)):
            arm.restore(figures, _below(f"{i}.", state))


def _below(prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    """The entries with a prefix, which is cut off."""
    return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}


def _share(before_s: float, after_s: float) -> float:
    """Fraction by which a time has fallen; 1 where there was none before."""
    if math.isinf(before_s):
        return 0.0 if math.isinf(after_s) else 1.0
    return 1 - after_s / before_s if before_s else 0.0


_TRIED = 8  # plans on which every rule is tried at first
_RACED_OPS = 120_000  # of the rules that race, together
_RACE = 0.5  # share of the budget after which one order is left
_ORDER_TURN = 0.05  # share, of one of the two that go on
_LATE = 0.95  # share after which the best plan is tried under every rule once more


def under_orders(method: MethodSpec, order: str) -> MethodSpec:
    """The method with plans that also decide an order of execution.

    A finished plan is fitted to the order of its search. So every plan is evaluated with a rule's priorities
    (``Context.priority_of_op``). With ``AUTO_ORDER`` the rules and the runtime's own order race, in a large program
    those that are the fastest on its first plans: equal shares of the budget, after which the slower half leaves,
    until one is left (successive halving: Jamieson and Talwalkar 2016).
    Then a search of the order itself (``OrderSearch``) goes on from the best plan, in turns with the method under that
    rule: who gained more has the next. Near the end the best plan is tried under every rule; none is resumed.
    """

    def build(context: Context, config: Any) -> Iterator[Round]:
        rules = (NO_ORDER, *rules_for(context.problem)) if order == AUTO_ORDER else (order,)
        until = 0.0  # the share of the budget at which a turn ends
        in_turn = dataclasses.replace(context, evaluations_left=lambda: context.left_until(until))
        arms = [_Ordered(rule, method, config, in_turn, context.plans[0]) for rule in rules]
        if len(arms) > 1:
            for arm in arms:
                yield arm.tried(context.plans[:_TRIED])
            raced = max(1, _RACED_OPS // context.problem.num_ops)
            arms = sorted(arms, key=lambda arm: arm.best.runtime_s)[:raced]
            heats = math.ceil(math.log2(len(arms)))
            for heat in range(heats):
                for i, arm in enumerate(arms):
                    share = _RACE * (heat + 1) / heats - context.used()
                    until = context.used() + share / (len(arms) - i)
                    if share > 0:  # a round may take longer than a heat
                        yield from arm.turn(until)
                arms = sorted(arms, key=lambda arm: arm.best.runtime_s)[: math.ceil(len(arms) / 2)]
        if order == AUTO_ORDER and arms[0].goes_on:
            arms.append(_Ordered(SEARCHED_ORDER, method, config, in_turn, context.plans[0]))
        is_late = False
        while any(arm.goes_on for arm in arms) or not is_late:
            best = min((arm.best for arm in arms), key=lambda best: best.runtime_s)
            arm = max(arms, key=lambda arm: (arm.goes_on, arm.gain, -arm.asked))
            if best.plan is None:
                arm = arms[0]
                if not arm.goes_on:
                    return
            elif not is_late and (context.used() >= _LATE or not arm.goes_on):
                is_late = True
                for rule in rules:
                    devices = best.plan.device_of_unit
                    yield _Ordered(rule, method, config, context, devices[0]).tried(devices)
                continue
            elif arm.rule == SEARCHED_ORDER and best.runtime_s < arm.best.runtime_s:
                inside = functools.partial(OrderSearch, best.plan)
                row = dataclasses.replace(methods.find(methods.PLAIN), uses_start=False, build_inside=inside)
                arm = arms[-1] = _Ordered(SEARCHED_ORDER, row, config, in_turn, context.plans[0])
            until = context.used() + _ORDER_TURN
            until = until if is_late else min(until, max(_LATE, context.used()))
            yield from arm.turn(until)
            arm.gain = _share(best.runtime_s, min(best.runtime_s, arm.best.runtime_s))
            arm.asked = 1 + max(arm.asked for arm in arms)

    return dataclasses.replace(method, kind=Kind.OWN_ROUNDS, build=build, build_inside=None)


class _Ordered(Run):
    """A method under one rule of order."""

    def __init__(
        self, rule: str, method: MethodSpec, config: Any, context: Context, devices: np.ndarray
    ) -> None:
        is_decided = rule not in (NO_ORDER, SEARCHED_ORDER)
        ranks = priorities(rule, context.problem, devices, context.seed) if is_decided else None
        context = dataclasses.replace(context, priority_of_op=ranks, checkpoint=Checkpoint())
        super().__init__(method, config, context)
        self.rule = rule
        # Of its last turn, and when. The order waits until rules gain less.
        self.gain, self.asked = 0.002 if rule == SEARCHED_ORDER else math.inf, 0

    def turn(self, until: float) -> Iterator[Round]:
        """Rounds until so much of the budget is used."""
        while batch := self.next_round():
            yield dataclasses.replace(batch, order=self.rule)
            if self.context.used() >= until:
                return

    def tried(self, devices: np.ndarray) -> Round:
        """Plans [B, U] in this order, as a round."""
        batch = dataclasses.replace(evaluated(self.context, devices), order=self.rule)
        self.best.take(batch)
        return batch
