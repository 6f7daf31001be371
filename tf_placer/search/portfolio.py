"""Portfolio of methods: cheap plans first, then searches, with the time given to those that gain."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from tf_placer.base.method_spec import Kind, MethodSpec, Role, Settings, setting
from tf_placer.problem.problem import made_once
from tf_placer.search.checkpoint import Checkpoint
from tf_placer.search.round import Context, Round, configured, evaluated, rounds

# Of what a race keeps: one that was saved with another cannot go on.
RACE_VERSION = 3
_GAIN = 1e-4  # a slice that gains less of the step time has gained nothing
_LEAD_TURN = 0.1  # share of the budget, of the arm that leads
_LONGER = 3  # each time that an arm gained nothing it waits so many times as long as before


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


class Portfolio:
    """Races methods of the table inside one search.

    One method may open (``Role.OPENING``): what it learned on other programs shows in its first plans, and others go on
    from them. Then what is constructed, as long as that is cheap; it is no part of the race. Then the improving
    methods, its arms: the one that leads has some time to itself, because a search from coarse to fine begins slower
    than what was constructed and gains late, and more as long as that gains much. After that they take turns. A turn
    goes to the arm whose last one gained most, the first arm where nobody gains; another one that gained nothing is
    asked again after a while that grows each time. Gains are shares of the step time of the best plan so far, of
    whatever arm; an arm that fell behind begins anew from that plan. Where several starts are given an arm first begins
    at those.

    With a budget of evaluations nothing here depends on the clock. ``state`` and ``restore`` are a planner's.
    """

    def __init__(self, members: Sequence[MethodSpec], config: PortfolioConfig, context: Context) -> None:
        """Makes nothing yet.

        Args:
          members: constructive methods, in the order in which they are tried, and improving ones. The first arm is the
            one that leads (``Role.LEAD``), else the first that goes on from a plan.
          config: how to spend the budget.
          context: of the search.
        """
        self._config = config
        self._context = context
        self._constructive = [spec for spec in members if spec.kind == Kind.CONSTRUCTIVE]
        arms = [spec for spec in members if spec.kind == Kind.IMPROVING]
        self._arms = [_Arm(spec) for spec in sorted(arms, key=_place)]
        self._made = 0
        self._constructs_until = 0.0  # share of the budget
        self._opened = 0  # evaluations
        self._best: np.ndarray | None = None
        self._best_s = math.inf
        self._leads = bool(self._arms) and Role.LEAD in self._arms[0].spec.roles and config.head > 0
        self._turn, self._turns = 0, 0
        self._until = -1.0  # share of the budget at which the turn ends
        self._before_s = math.inf  # the best when the turn began

    def rounds(self) -> Iterator[Round]:
        """The rounds, from where the search was interrupted on."""
        self._context.checkpoint.track_state(self)
        if not self._context.rounds:
            first = evaluated(self._context, self._context.begins)
            yield self._noted(first, self._context.start_by)
        yield from self._open()
        yield from self._construct()
        while any(arm.goes_on for arm in self._arms):
            if self._context.used() >= self._until or not self._arms[self._turn].goes_on:
                self._next_turn()
            arm = self._arms[self._turn]
            batch = arm.next_round(dataclasses.replace(self._context, evaluations_left=self._left_in_turn))
            if batch is not None:
                arm.best_s = min(arm.best_s, _best_s(batch))
                yield self._noted(batch, arm.spec.name)

    def _left_in_turn(self) -> float:
        """Evaluations until the turn ends, at least 1; infinite where only time counts."""
        left, used = self._context.evaluations_left(), self._context.used()
        if math.isinf(left) or used >= 1:
            return left
        return min(left, max(1, math.ceil(left * (self._until - used) / (1 - used) - 1e-6)))

    def _construct(self) -> Iterator[Round]:
        """A round for each planner that makes anything."""
        if not self._made:
            self._constructs_until = self._context.used() + self._config.cheap
        for spec in self._constructive[self._made :]:
            if self._context.used() >= self._constructs_until:
                return
            self._made += 1
            rows = made_once(spec.build, self._context.problem, configured(spec), self._context.seed)
            if len(rows):
                yield self._noted(evaluated(self._context, rows), spec.name)

    def _open(self) -> Iterator[Round]:
        """The first rounds of the arm that opens, where one does, before the race begins."""
        opening = [arm for arm in self._arms if Role.OPENING in arm.spec.roles]
        while opening and opening[0].goes_on and not self._made and not self._turns:
            late = self._opened and self._context.used() >= self._config.opening_share
            if self._opened >= self._config.opening or late:
                return
            batch = opening[0].next_round(self._context)
            if batch is not None:
                self._opened += len(batch.runtime_s)
                opening[0].best_s = min(opening[0].best_s, _best_s(batch))
                yield self._noted(batch, opening[0].spec.name)

    def _noted(self, batch: Round, found_by: str) -> Round:
        """The round with the method that found it; its best plan is kept if it is the best of all."""
        if _best_s(batch) < self._best_s:
            self._best_s = _best_s(batch)
            row = int(np.argmin(np.where(batch.valid, batch.runtime_s, np.inf)))
            self._best = np.array(batch.decisions.device_of_unit[row], np.int32)
        return dataclasses.replace(batch, found_by=found_by)

    def _next_turn(self) -> None:
        """Credits the turn that ends, and gives the next one away."""
        used, before_s, self._before_s = self._context.used(), self._before_s, self._best_s
        if self._turns:
            gain = _share(before_s, self._best_s)
            self._arms[self._turn].credit(gain, self._turns)
            self._leads &= self._arms[0].goes_on and (used < self._config.head or gain >= self._config.leads)
        if self._turns and self._leads:
            self._turns += 1
            self._until = self._lead_until(used)
            return
        going = [i for i, arm in enumerate(self._arms) if arm.goes_on]
        waiting = [i for i in going[1:] if not self._arms[i].gain and self._turns >= self._arms[i].again]
        # The first arm begins. Of equal gains the first arm's counts.
        if self._turns and waiting:
            self._turn = waiting[0]
        else:
            self._turn = max(going, key=lambda i: (self._arms[i].gain, -i))
        arm = self._arms[self._turn]
        fell_behind = _share(arm.best_s, self._best_s) > self._config.behind
        given = self._context.given
        has_several = arm.best_s == math.inf and given is not None and len(given) > 1
        if self._best is not None and arm.spec.uses_start and fell_behind and not has_several:
            arm.begin(self._best)
        self._turns += 1
        self._until = self._lead_until(used) if self._leads else used + 1 / self._config.slices

    def _lead_until(self, used: float) -> float:
        """Share of the budget at which a turn of the arm that leads ends."""
        until = used + _LEAD_TURN
        return min(until, self._config.head) if used < self._config.head else until

    def state(self) -> dict[str, Any]:
        """State of the race, and of every arm."""
        state: dict[str, Any] = {
            "made": [self._made, self._constructs_until],
            "opened": self._opened,
            "best_s": self._best_s,
            "race": [self._turn, self._turns, self._until, self._before_s, self._leads],
            "arms": [arm.standing() for arm in self._arms],
        }
        if self._best is not None:
            state["best"] = self._best
        for i, arm in enumerate(self._arms):
            state |= {f"{i}.{name}": value for name, value in arm.state().items()}
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave."""
        (self._made, self._constructs_until), self._opened = state["made"], state["opened"]
        self._best_s, self._best = state["best_s"], state.get("best")
        self._turn, self._turns, self._until, self._before_s, self._leads = state["race"]
        for i, (arm, standing) in enumerate(zip(self._arms, state["arms"], strict=True)):
            own = {name.partition(".")[2]: value for name, value in state.items() if name.startswith(f"{i}.")}
            arm.restore(standing, own)


class _Arm:
    """One improving method: the rounds that it makes in its turns, and what they were worth."""

    def __init__(self, spec: MethodSpec) -> None:
        self.spec = spec
        self.goes_on = True
        self.best_s = math.inf
        self.gain = 0.0  # of its last turn
        self.again = 0  # the turn from which on it is asked although it gained nothing
        self._wait = 1
        self._made = 0  # rounds, since it began
        self._start: np.ndarray | None = None
        self._rounds: Iterator[Round] | None = None
        self._planner: Any = None
        self._found: dict[str, Any] = {}

    def begin(self, start: np.ndarray) -> None:
        """Begins, or begins anew, from a plan [U]."""
        self._start, self._rounds, self._planner, self._found, self._made = start, None, None, {}, 0
        self.best_s = math.inf

    def credit(self, gain: float, turns: int) -> None:
        """Records the gain of its turn, after so many turns of all."""
        self.gain = gain if gain > _GAIN else 0.0
        self._wait = 1 if self.gain else self._wait * _LONGER
        self.again = turns + self._wait

    def next_round(self, context: Context) -> Round | None:
        """Its next round; None when it makes no more."""
        if self._rounds is None:
            given = context.given if self._start is None else self._start[np.newaxis]
            # Of a checkpoint an improving method uses nothing but ``track_state``.
            keeper = cast(Checkpoint, self)
            own = dataclasses.replace(context, given=given, rounds=self._made, checkpoint=keeper)
            self._rounds = rounds(self.spec, configured(self.spec), own)
        batch = next(self._rounds, None)
        self.goes_on = batch is not None
        self._made += self.goes_on
        return batch

    def track_state(self, planner: Any) -> bool:
        """Keeps the planner, as ``Checkpoint`` would."""
        self._planner = planner
        if self._found:
            planner.restore(self._found)
        return bool(self._found)

    def standing(self) -> list:
        """State that is no array."""
        return [self.goes_on, self.best_s, self.gain, self.again, self._wait, self._made]

    def state(self) -> dict[str, Any]:
        """State of its planner, and the plan where that began."""
        state = {} if self._start is None else {"start": self._start}
        if self._planner is not None:
            state |= {f"planner.{name}": value for name, value in self._planner.state().items()}
        return state

    def restore(self, standing: list, state: dict[str, Any]) -> None:
        """Continues from both."""
        self.goes_on, self.best_s, self.gain, self.again, self._wait, self._made = standing
        self._start = state.get("start")
        prefix = "planner."
        self._found = {name[len(prefix) :]: v for name, v in state.items() if name.startswith(prefix)}


def portfolio_rounds(
    members: Callable[[], Sequence[MethodSpec]],
) -> Callable[[Context, PortfolioConfig], Iterator[Round]]:
    """Function that builds the rounds of a portfolio of methods, which are looked up when it begins."""
    return lambda context, config: Portfolio(members(), config, context).rounds()


def _place(spec: MethodSpec) -> tuple[bool, bool]:
    """Smaller for an arm that comes before others."""
    return Role.LEAD not in spec.roles, not spec.uses_start


def _best_s(batch: Round) -> float:
    return float(np.where(batch.valid, batch.runtime_s, np.inf).min(initial=math.inf))


def _share(before_s: float, after_s: float) -> float:
    """Fraction by which a time has fallen; 1 where there was none before."""
    if math.isinf(before_s):
        return 0.0 if math.isinf(after_s) else 1.0
    return 1 - after_s / before_s if before_s else 0.0
