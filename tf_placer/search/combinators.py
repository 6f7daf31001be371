"""Methods made of methods: a portfolio, searches under orders of execution, and the least memory."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tf_placer.base import interrupt
from tf_placer.base.method_spec import Kind, MethodSpec, Role, Settings, setting
from tf_placer.cluster.cluster import fullest_share
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import search_simulator
from tf_placer.planners.local_search import SPEC as PLAIN_SEARCH
from tf_placer.planners.order import priorities, rules_for
from tf_placer.planners.plain import topological_fill
from tf_placer.problem.bounds import least_share
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem, made_once
from tf_placer.problem.unit_graph import order_of_use
from tf_placer.search.checkpoint import Kept
from tf_placer.search.known import AUTO_ORDER, NO_ORDER, Budget
from tf_placer.search.recorder import HistoryEntry, LeastMemory, SearchResult
from tf_placer.search.round import Best, Context, Round, Run, configured, evaluated

# Of the state of a race: one that was saved with another version cannot be resumed.
RACE_VERSION = 3
_GAIN = 1e-4  # a slice that gains less of the step time has gained nothing
_LEAD_TURN = 0.1  # share of the budget, of the leading arm
_LONGER = 3  # factor by which the wait of an arm grows with each turn without a gain


@dataclasses.dataclass(frozen=True)
class PortfolioConfig(Settings):
    """Settings for dividing a portfolio's budget among its methods.

    Attributes:
      slices: turns that the budget is cut into; the last round of a turn may take longer.
      opening: evaluations of the arm that opens, before anything else; 0 for none.
      opening_share: of the budget, after which it opens no longer; its first round is made all the same.
      cheap: share of the budget after which no more plans are constructed, counted from when that begins.
      head: share of the budget that the arm that leads has to itself, when plans have been constructed.
      leads: after that it goes on alone as long as a tenth of the budget gains it this share of the step time.
      behind: an arm goes on from the best plan of all where its own is slower by more than this share.

    Raises:
      InputError: a value out of its range.
    """

    slices: int = setting(25, least=1, most=10_000)
    opening: int = setting(256, least=0)
    opening_share: float = setting(0.1, least=0, most=1)
    cheap: float = setting(0.1, least=0, most=1)
    head: float = setting(0.75, least=0, most=1)
    leads: float = setting(0.01, least=0, finite=False)
    behind: float = setting(0.01, least=0, finite=False)


class _Arm:
    """An improving method of a portfolio, and the worth of its turns."""

    def __init__(self, spec: MethodSpec) -> None:
        self.spec = spec
        self.goes_on = True
        self.best_s = math.inf
        self.gain = 0.0  # of its last turn
        self.again = 0  # the turn from which it is asked again, although it gained nothing
        self._wait = 1
        self._rounds = 0  # since it began
        self._start: np.ndarray | None = None
        self._run: Run | None = None
        self._kept = Kept()

    def begin(self, start: np.ndarray) -> None:
        """Begins, or begins anew, from a plan [U]."""
        self._start, self._run, self._kept, self._rounds = start, None, Kept(), 0
        self.best_s = math.inf

    def credit(self, gain: float, turns: int) -> None:
        """Records the gain of its turn, after ``turns`` turns of all arms."""
        self.gain = gain if gain > _GAIN else 0.0
        self._wait = 1 if self.gain else self._wait * _LONGER
        self.again = turns + self._wait

    def next_round(self, context: Context) -> Round | None:
        """The next round; None when the method has no more plans."""
        if self._run is None:
            given = context.given if self._start is None else self._start[np.newaxis]
            context = dataclasses.replace(context, given=given, rounds=self._rounds, checkpoint=self._kept)
            self._run = Run(self.spec, configured(self.spec), context)
        batch = self._run.next_round()
        self.goes_on = batch is not None
        if batch is not None:
            self._rounds += 1
            self.best_s = min(self.best_s, self._run.best.runtime_s)
        return batch

    def standing(self) -> list[Any]:
        """The state that is no array."""
        return [self.goes_on, self.best_s, self.gain, self.again, self._wait, self._rounds]

    def state(self) -> dict[str, Any]:
        """State of the planner, and the plan where it began."""
        state = {} if self._start is None else {"start": self._start}
        return state | {f"planner.{name}": value for name, value in self._kept.state().items()}

    def restore(self, standing: list[Any], state: dict[str, Any]) -> None:
        """Continues from both."""
        self.goes_on, self.best_s, self.gain, self.again, self._wait, self._rounds = standing
        self._start = state.get("start")
        self._kept = Kept(_below("planner.", state))


class Portfolio:
    """Races methods of the table inside one search.

    One method may open (``Role.OPENING``): its training on other programs shows in its first plans, and the others
    continue from them. Then come constructive methods, as long as they are cheap, outside of the race. Then come the
    improving methods, its arms. The leading arm has some time to itself, because a search from coarse to fine begins
    slower than constructed plans and gains late, and more as long as it gains much. After that they take turns. A turn
    goes to the arm whose last one gained most, the first arm where none gains; another arm without a gain is asked
    again after a wait that grows each time. Gains are shares of the step time of the best plan so far, of any arm; an
    arm that fell behind begins anew from that plan. Where several starts are given an arm first begins at those.

    With a budget of evaluations nothing here depends on the clock.
    """

    def __init__(self, members: Sequence[MethodSpec], config: PortfolioConfig, context: Context) -> None:
        """Makes nothing yet.

        Args:
          members: constructive methods, in the order in which they are tried, and improving ones. The first arm is the
            leading one (``Role.LEAD``), else the first that continues from a plan.
          config: how to spend the budget.
          context: of the search.
        """
        self._config = config
        self._context = context
        self._constructive = [spec for spec in members if spec.kind is Kind.CONSTRUCTIVE]
        arms = [spec for spec in members if spec.kind is Kind.IMPROVING]
        arms.sort(key=lambda spec: (Role.LEAD not in spec.roles, not spec.uses_start))
        self._arms = [_Arm(spec) for spec in arms]
        self._made = 0
        self._constructs_until = 0.0  # share of the budget
        self._opened = 0  # evaluations
        self._best = Best()
        self._leads = bool(arms) and Role.LEAD in arms[0].roles and config.head > 0
        self._turn, self._turns = 0, 0
        self._until = -1.0  # share of the budget at which the turn ends
        self._before_s = math.inf  # the best when the turn began

    def rounds(self) -> Iterator[Round]:
        """The rounds, from where the search was interrupted."""
        context = self._context
        context.checkpoint.track_state(self)
        if not context.rounds:
            yield self._noted(evaluated(context, context.begins), context.start_by)
        yield from self._open()
        yield from self._construct()
        in_turn = dataclasses.replace(context, evaluations_left=self._left_in_turn)
        while any(arm.goes_on for arm in self._arms):
            if context.used() >= self._until or not self._arms[self._turn].goes_on:
                self._next_turn()
            arm = self._arms[self._turn]
            batch = arm.next_round(in_turn)
            if batch is not None:
                yield self._noted(batch, arm.spec.name)

    def _left_in_turn(self) -> float:
        """Evaluations until the turn ends, at least 1; infinite where only time counts."""
        left, used = self._context.evaluations_left(), self._context.used()
        if math.isinf(left) or used >= 1:
            return left
        return min(left, max(1, math.ceil(left * (self._until - used) / (1 - used) - 1e-6)))

    def _open(self) -> Iterator[Round]:
        """The first rounds of the opening arm, where one does, before the race begins."""
        arm = next((arm for arm in self._arms if Role.OPENING in arm.spec.roles), None)
        while arm is not None and arm.goes_on and not self._made and not self._turns:
            is_late = self._opened and self._context.used() >= self._config.opening_share
            if self._opened >= self._config.opening or is_late:
                return
            batch = arm.next_round(self._context)
            if batch is not None:
                self._opened += len(batch.runtime_s)
                yield self._noted(batch, arm.spec.name)

    def _construct(self) -> Iterator[Round]:
        """A round for each planner that makes anything."""
        if not self._made:
            self._constructs_until = self._context.used() + self._config.cheap
        for spec in self._constructive[self._made :]:
            if self._context.used() >= self._constructs_until:
                return
            self._made += 1
            config = configured(spec)
            rows = made_once(spec.build, self._context.problem, config, self._context.seed)
            if len(rows):
                yield self._noted(evaluated(self._context, rows), spec.name)

    def _noted(self, batch: Round, found_by: str) -> Round:
        """The round with the method that found it; its best plan is kept if it is the best of all."""
        self._best.take(batch)
        return dataclasses.replace(batch, found_by=found_by)

    def _next_turn(self) -> None:
        """Credits the turn that ends, and gives the next one away."""
        config, arms, best_s = self._config, self._arms, self._best.runtime_s
        used, before_s, self._before_s = self._context.used(), self._before_s, best_s
        if self._turns:
            gain = _share(before_s, best_s)
            arms[self._turn].credit(gain, self._turns)
            self._leads &= arms[0].goes_on and (used < config.head or gain >= config.leads)
        until = used + (_LEAD_TURN if self._leads else 1 / config.slices)
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
        if turns and waiting:
            self._turn = waiting[0]
        else:
            self._turn = max(going, key=lambda i: (arms[i].gain, -i))
        arm, given = arms[self._turn], self._context.given
        fell_behind = _share(arm.best_s, best_s) > config.behind
        has_several = arm.best_s == math.inf and given is not None and len(given) > 1
        if self._best.plan is not None and arm.spec.uses_start and fell_behind and not has_several:
            arm.begin(self._best.plan.device_of_unit[0])

    def state(self) -> dict[str, Any]:
        """State of the race, and of every arm."""
        state: dict[str, Any] = {
            "made": [self._made, self._constructs_until],
            "opened": self._opened,
            "best_s": self._best.runtime_s,
            "race": [self._turn, self._turns, self._until, self._before_s, self._leads],
            "arms": [arm.standing() for arm in self._arms],
        }
        if self._best.plan is not None:
            state["best"] = self._best.plan.device_of_unit[0]
        for i, arm in enumerate(self._arms):
            state |= {f"{i}.{name}": value for name, value in arm.state().items()}
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave."""
        (self._made, self._constructs_until), self._opened = state["made"], state["opened"]
        plan = Decisions([state["best"]]) if "best" in state else None
        self._best = Best(plan, state["best_s"])
        self._turn, self._turns, self._until, self._before_s, self._leads = state["race"]
        for i, (arm, standing) in enumerate(zip(self._arms, state["arms"], strict=True)):
            arm.restore(standing, _below(f"{i}.", state))


def _below(prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    """The entries with a prefix, without it."""
    return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}


def _share(before_s: float, after_s: float) -> float:
    """Fraction by which a time has fallen; 1 where there was none before."""
    if math.isinf(before_s):
        return 0.0 if math.isinf(after_s) else 1.0
    return 1 - after_s / before_s if before_s else 0.0


def portfolio(members: Callable[[], Sequence[MethodSpec]], **row: Any) -> MethodSpec:
    """Row of a portfolio of methods, which are looked up when it begins; ``row`` has other fields of it."""
    return MethodSpec(
        kind=Kind.OWN_ROUNDS,
        build=lambda context, config: Portfolio(members(), config, context).rounds(),
        config=PortfolioConfig,
        uses_start=True,
        **row,
    )


_CHEAP = 8  # plans on which every rule is tried at first
_RACE = 0.5  # share of the budget after which one order is left
_LATE = 0.95  # share after which the best plan is tried under every rule once more


def under_orders(method: MethodSpec, order: str) -> MethodSpec:
    """The method with plans that also decide an order of execution.

    An order made for a finished plan is worth little, because the plan was fitted to the order of its search. So the
    method searches under the priorities of a rule from the beginning: it decides devices, and every plan is evaluated
    with the priorities (``Context.priority_of_op``).

    With ``AUTO_ORDER`` the rules and the runtime's own order race: equal shares of the budget each, after which the
    slower half leaves, until one is left (successive halving: Jamieson and Talwalkar 2016). It has the rest. The worth
    of a rule shows only in plans that were searched under it: on the cheap plans of the beginning the order of a
    pipeline is the slowest. Near the end the best plan is tried under every rule, since some look at a placement.

    Args:
      method: decides devices; nothing of it is resumed.
      order: a rule, or ``AUTO_ORDER``.
    """

    def build(context: Context, config: Any) -> Iterator[Round]:
        rules = (NO_ORDER, *rules_for(context.problem)) if order == AUTO_ORDER else (order,)
        arms = [_Ordered(rule, method, config, context, context.start) for rule in rules]
        if len(arms) > 1:
            for arm in arms:
                yield arm.tried(context.plans[:_CHEAP])
            heats = math.ceil(math.log2(len(arms)))
            for heat in range(heats):
                while context.used() < _RACE * (heat + 1) / heats and any(arm.goes_on for arm in arms):
                    arm = min((arm for arm in arms if arm.goes_on), key=lambda arm: arm.spent)
                    before = context.used()
                    yield from arm.next_rounds()
                    arm.spent += context.used() - before
                arms = sorted(arms, key=lambda arm: arm.best.runtime_s)[: math.ceil(len(arms) / 2)]
        arm, is_late = arms[0], False
        while arm.goes_on or not is_late:
            plan = arm.best.plan
            if plan is not None and not is_late and (context.used() >= _LATE or not arm.goes_on):
                is_late = True
                for rule in rules:
                    devices = plan.device_of_unit
                    yield _Ordered(rule, method, config, context, devices[0]).tried(devices)
            yield from arm.next_rounds()
            if not arm.goes_on and arm.best.plan is None:
                return

    return dataclasses.replace(method, kind=Kind.OWN_ROUNDS, build=build, build_inside=None)


class _Ordered(Run):
    """A method under one rule of order."""

    def __init__(
        self, rule: str, method: MethodSpec, config: Any, context: Context, devices: np.ndarray
    ) -> None:
        ranks = None if rule == NO_ORDER else priorities(rule, context.problem, devices, context.seed)
        super().__init__(
            method, config, dataclasses.replace(context, priority_of_op=ranks, checkpoint=Kept())
        )
        self.rule = rule
        self.spent = 0.0  # share of the budget

    def next_rounds(self) -> Iterator[Round]:
        """The next round, if there is one."""
        batch = self.next_round()
        if batch is not None:
            yield dataclasses.replace(batch, order=self.rule)

    def tried(self, devices: np.ndarray) -> Round:
        """Plans [B, U] in this order, as a round."""
        batch = dataclasses.replace(evaluated(self.context, devices), order=self.rule)
        self.best.take(batch)
        return batch


_FILLS = (
    1.0,
    0.75,
    0.5,
    0.25,
)  # caps under which devices are filled in order, as shares of the fastest plan's
_BATCH, _PATIENCE = 16, 8  # moves tried together, and batches without a gain before time is sought again
_LEAST_STEPS = 16  # however long the fastest plan took: without a step nothing is lowered
_BURST = 128  # placements tried for time, under the cap that the best plan sets


def least_memory(
    fastest: SearchResult,
    budget: Budget,
    slow_down: float,
    show: Callable[[HistoryEntry], None],
    stop: interrupt.Stop,
) -> SearchResult:
    """Lowers the cap that the best plan sets on all accelerators, from the fastest plan of a method.

    Runs of units are moved off the fullest accelerator while the plan stays within the slow-down. Where that gains no
    more, the plain search (``Role.PLAIN``) continues from the plan for time, with the accelerators no larger than the
    plan's share of them, and its gain is what the next moves may cost. All of it is simulated. Ctrl-C keeps the best.

    Args:
      fastest: the search for that plan.
      budget: of that search and this one together.
      slow_down: share of the fastest plan's step time that the plan may take longer.
      show: is given the history of the best plan.
      stop: ends it early.

    Returns:
      The plan, with ``least_memory`` set; where none takes less, the fastest.
    """
    begin_s = time.monotonic() - fastest.search_s
    lowering = _Lowering(fastest, slow_down)
    interrupted = fastest.interrupted
    while not interrupted and lowering.share > lowering.bound:
        is_late = time.monotonic() - begin_s >= budget.seconds
        if budget.left(lowering.evaluations) < 1 or (is_late and lowering.steps >= _LEAST_STEPS):
            break
        lowering.step(budget.left(lowering.evaluations))
        elapsed_s = time.monotonic() - begin_s
        show(HistoryEntry(lowering.evaluations, elapsed_s, lowering.runtime_s, math.nan, 0))
        interrupted, stop.requested = stop.requested, False
    return lowering.result(time.monotonic() - begin_s, interrupted)


class _Lowering:
    """The best plan so far, by its ``fullest_share`` and then its time, and what makes better ones of it."""

    def __init__(self, fastest: SearchResult, slow_down: float) -> None:
        problem = fastest.placement.problem
        self._problem, self._fastest, self._slow_down = problem, fastest, slow_down
        self._limit_s = fastest.runtime_s * (1 + slow_down)
        self._simulator = search_simulator(problem)
        self._random = np.random.default_rng(fastest.seed)
        self.bound = least_share(problem, self._limit_s)
        self._order = order_of_use(problem)
        self._in_vain, self._failed = 0, 0
        self.evaluations, self.steps = fastest.evaluations, 0
        self._best, self.share, self.runtime_s = np.zeros(0, np.int32), math.inf, math.inf
        self._peak_bytes = np.zeros(problem.num_devices, np.int64)
        self._keep(np.array(fastest.placement.device_of_unit)[np.newaxis])
        fills = [topological_fill(_capped(problem, fill * self.share)) for fill in _FILLS]
        self._keep(np.concatenate(fills))

    def step(self, most: float) -> None:
        """Tries at most so many placements."""
        self.steps += 1
        if self._in_vain < _PATIENCE:
            share = self.share
            self._keep(self._moved(int(min(_BATCH, most))))
            self._in_vain = 0 if self.share < share else self._in_vain + 1
        else:
            self._in_vain = 0
            self._gain_time(int(min(_BURST, most)))

    def _moved(self, count: int) -> np.ndarray:
        """[count, U], the best with a run of units off the fullest accelerator, long or short, on another device."""
        capacity = self._problem.cluster.capacity_bytes()
        counted = self._problem.cluster.accelerators()
        shares = self._peak_bytes / capacity
        fullest = int(np.where(counted, shares, -1.0).argmax())
        units = self._order[self._best[self._order] == fullest]
        # The roomier, the more likely.
        room = np.where(np.arange(len(shares)) == fullest, 0.0, np.maximum(1 - shares / self.share, 0.05))
        rows = np.repeat(self._best[np.newaxis], count, axis=0)
        if not len(units) or not room.any():
            return rows
        targets = self._random.choice(len(room), size=count, p=room / room.sum())
        lengths = np.exp(self._random.uniform(0, math.log(1 + len(units) / 2), count)).astype(int)
        for row, target, length in zip(rows, targets, lengths, strict=True):
            first = int(self._random.integers(len(units) - length + 1))
            run = units[first : first + length]
            row[run[self._problem.allowed[run, target]]] = target
        return rows

    def _gain_time(self, count: int) -> None:
        """Searches for time from the best plan, with no accelerator larger than that plan's share of it."""
        capped = _capped(self._problem, self.share)
        plain = PLAIN_SEARCH
        assert plain.build_inside is not None  # it searches inside the simulator
        self._failed += 1
        seed = self._fastest.seed + self._failed
        planner = plain.build_inside(capped, configured(plain), self._best, seed, search_simulator(capped))
        burst = planner.advance(count)
        self.evaluations += burst.evaluations
        self._keep(np.asarray(burst.device_of_unit), counts=False)

    def _keep(self, rows: np.ndarray, counts: bool = True) -> None:
        """Keeps the best plan of [B, U], if it is in time and better than the best so far."""
        if not len(rows):
            return
        measured = self._simulator.evaluate(rows)
        assert measured.peak_bytes is not None  # simulated
        self.evaluations += len(rows) if counts else 0
        in_time = (measured.status == Status.OK) & ~(measured.runtime_s > self._limit_s)
        shares = np.where(in_time, fullest_share(self._problem.cluster, measured.peak_bytes), np.inf)
        row = int(np.lexsort((measured.runtime_s, shares))[0])
        if in_time[row] and (shares[row], measured.runtime_s[row]) < (self.share, self.runtime_s):
            self._best, self.share = np.array(rows[row]), float(shares[row])
            self.runtime_s, self._peak_bytes = float(measured.runtime_s[row]), measured.peak_bytes[row]

    def result(self, search_s: float, interrupted: bool) -> SearchResult:
        """The best plan, beside the fastest."""
        names = [device.name for device in self._problem.cluster.devices]
        return dataclasses.replace(
            self._fastest,
            placement=Placement.from_decisions(self._problem, Decisions(self._best[np.newaxis])),
            runtime_s=self.runtime_s,
            peak_bytes={name: int(b) for name, b in zip(names, self._peak_bytes, strict=True)},
            evaluations=self.evaluations,
            search_s=search_s,
            interrupted=interrupted,
            least_memory=LeastMemory(self._slow_down, self._fastest, self.share, self.bound),
        )


def _capped(problem: Problem, share: float) -> Problem:
    """The problem with no accelerator larger than this share of what it is."""
    cluster = problem.cluster
    devices = tuple(
        dataclasses.replace(device, memory_bytes=max(math.ceil(device.memory_bytes * share), 1))
        if counted
        else device
        for device, counted in zip(cluster.devices, cluster.accelerators(), strict=True)
    )
    return dataclasses.replace(problem, cluster=dataclasses.replace(cluster, devices=devices))
