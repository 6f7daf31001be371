"""Outcome of a run: one plan with its times and its rivals, for every producer and every reader."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import excess, html_table, known, milliseconds
from tf_placer.calibration.refit import Correction
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planners.local_search import WholeLayers, whole_layers
from tf_placer.problem.bounds import LowerBounds, lower_bounds
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.layers import Layers, layers_of, with_units_whole
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import clearly_slower, race_spreads_s, race_times_s
from tf_placer.search.known import REFERENCE
from tf_placer.search.recorder import PROVEN, SIMULATED, SearchCurve, SearchResult, takes_no_more
from tf_placer.search.room import Room, room_needed
from tf_placer.transform import PART, WHOLE

SINGLE = REFERENCE
NOT_RUN = "NOT_RUN"
GIVEN = "plan"
"""Name of a plan that was given and not searched, in place of a method's."""
PLAN = "the plan"
# Rows of plans of a program whose batch is in parts: the one in which every device computes a part, and a search's.
DATA_PARALLEL, SPLIT = "data_parallel", "split"
# Row of plans that constructive methods make at once, where a fleet has measured them.
CONSTRUCTED = "constructed"
# Row of a plan with fusion clusters, beside the same without.
FUSED = "fused"
_TITLES = {
    DATA_PARALLEL: "data parallel",
    SPLIT: "split and placed",
    GIVEN: "the plan given",
}
# Row of the program without a plan, on the whole machine.
AS_IT_IS = "as it is"
# Row of the plan that keeps every layer on one device.
WHOLE_LAYERS = "whole layers"
SAME = 0.005
"""Share of a step time that nobody would change a program for."""
_APART = 0.05  # of two times that were measured alone, minutes apart


class Clock(enum.Enum):
    """What timed a step, the last with the last word; times by different clocks are never compared.

    Attributes:
      SIMULATED: the simulator.
      MEASURED: the runtime, each plan by itself.
      RACED: the runtime, called as this process calls it, in turn with the others.
      CALLED: a user's own first calls.
    """

    SIMULATED = "simulated"
    MEASURED = "alone"
    RACED = "raced"
    CALLED = "called"

    @property
    def field(self) -> str:
        """Field of a ``Timed`` with the seconds by this clock."""
        return f"{self.name.lower()}_s"


@dataclasses.dataclass(frozen=True, eq=False)
class Timed:
    """One plan with its times, a field for each ``Clock``.

    Attributes:
      name: of the method that proposed it, or what tables call it.
      placement: the plan; None where none fits in memory, and of the program as it is.
      simulated_s, measured_s, raced_s, called_s: seconds of a step by each clock, None where it has no such time.
      spread_s: lower and upper quartile by the last clock; None where they are not known.
      peak_bytes: device name -> most memory in use, simulated; empty where it is not known.
      status: of the simulator, or of the runtime once measured; ILLEGAL where the method cannot place the problem.
      message: one line about a failure, "" where there is nothing to say.
      found_by: the method that found it inside the one of its name.
      evaluations: placements tried; None where nothing was.
      search_s: seconds of its search.
      search: the search, None of a plan that was not searched.
      is_clear: it takes clearly less time than the best single device and than the program as it is, turn by turn or
        call by call; of the single device, than the program as it is; None where that is not known.
      traced: one step of it on the runtime; of the plan that is written.
    """

    name: str
    placement: Placement | None = None
    simulated_s: float | None = None
    measured_s: float | None = None
    raced_s: float | None = None
    called_s: float | None = None
    spread_s: tuple[float, float] | None = None
    peak_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    status: Status = Status.OK
    message: str = ""
    found_by: str = ""
    evaluations: int | None = None
    search_s: float = 0.0
    search: SearchResult | None = None
    is_clear: bool | None = None
    traced: tf.compat.v1.RunMetadata | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "found_by", self.found_by or self.name)

    @staticmethod
    def of_search(name: str, search: SearchResult, **more: Any) -> Timed:
        """The plan that a search found; ``more`` are other fields."""
        found = {field: getattr(search, field) for field in _OF_SEARCH}
        return Timed(name, simulated_s=search.runtime_s, search=search, **{**found, **more})

    def measured(self, times: Measurement, row: int = 0) -> Timed:
        """Candidate with the time that the plan takes by itself, or with the reason why it does not run.

        Args:
          times: of plans.
          row: which of them it is.
        """
        status = Status(int(times.status[row]))
        measured_s = float(times.runtime_s[row]) if status == Status.OK else None
        return dataclasses.replace(self, measured_s=measured_s, status=status, message=times.messages[row])

    @property
    def fullest_bytes(self) -> int | None:
        """Most memory in use on any one device, None where it is not known."""
        return max(self.peak_bytes.values(), default=None)

    @property
    def status_name(self) -> str:
        """The status, or ``NOT_RUN`` of a method that could not even begin; ``message`` says why."""
        return NOT_RUN if self.placement is None and self.status == Status.ILLEGAL else self.status.name

    def seconds(self, clock: Clock) -> float | None:
        """Seconds of a step by a clock; None where it has no such time, or does not run."""
        return getattr(self, clock.field) if self.status == Status.OK else None

    @property
    def clock(self) -> Clock | None:
        """The last clock that timed it; None where none did."""
        return next((clock for clock in reversed(Clock) if self.seconds(clock) is not None), None)

    @property
    def is_single(self) -> bool:
        """True for the best single device, the reference of all others."""
        return self.name == SINGLE

    @property
    def is_as_it_is(self) -> bool:
        """True for the program without a plan."""
        return self.name == AS_IT_IS

    @property
    def is_below_bound(self) -> bool:
        """True if the simulator gives it less time than any plan can take there: a fault, and no plan to choose."""
        if self.search is None or self.simulated_s is None:
            return False
        is_fused = self.placement is not None and self.placement.cluster_of_op is not None
        return not is_fused and self.simulated_s * 1e9 < self.search.lower_bound_s * 1e9 - 1e-3

    @property
    def title(self) -> str:
        """Its name in tables: the method, and the one that found the plan inside it."""
        if self.is_single:
            return "single device"
        if self.is_as_it_is:
            return "as it is, whole machine"
        name = _TITLES.get(self.name, self.name)
        return name if self.found_by == self.name else f"{name} ({self.found_by})"


_OF_SEARCH = ("placement", "peak_bytes", "found_by", "evaluations", "search_s")


def clock_of(rows: Sequence[Timed]) -> Clock:
    """The last clock that timed a plan of these rows: that by which they are compared."""
    clocks = [row.clock for row in rows if not row.is_as_it_is]
    return next((clock for clock in reversed(Clock) if clock in clocks), Clock.SIMULATED)


def fastest(candidates: Sequence[Timed], asked: str = "") -> Timed | None:
    """The plan with the shortest step by ``clock_of`` all; None where none runs.

    On a tie the single device wins: a plan that gains nothing is not worth having. Then the method that was asked for.

    Args:
      candidates: the program as it is may be among them, and is no plan.
      asked: the method that was asked for.
    """
    clock = clock_of(candidates)
    timed = [
        (seconds, not row.is_single, row.name != asked, position)
        for position, row in enumerate(candidates)
        if not row.is_as_it_is and not row.is_below_bound and (seconds := row.seconds(clock)) is not None
    ]
    return candidates[min(timed)[-1]] if timed else None


def with_race(
    candidates: Sequence[Timed], racing: Sequence[int], samples: Sequence[Sequence[float]]
) -> list[Timed]:
    """The candidates, those that raced with the times of the race, and whether these are clearly less.

    Args:
      candidates: those that raced and others; the program as it is may be one.
      racing: positions of those that raced.
      samples: their turns, from ``race_steps``.
    """
    found = list(candidates)
    times_s = race_times_s(samples)
    singles = [i for i, row in enumerate(racing) if candidates[row].is_single]
    best_single = min(singles, key=lambda i: times_s[i], default=None)
    as_it_is = next((i for i, row in enumerate(racing) if candidates[row].is_as_it_is), None)
    for i, row in enumerate(racing):
        rivals = [as_it_is] if candidates[row].is_single else [best_single, as_it_is]
        beaten = [clearly_slower(samples[rival], samples[i]) for rival in rivals if rival is not None]
        found[row] = dataclasses.replace(
            candidates[row],
            raced_s=times_s[i],
            spread_s=race_spreads_s(samples)[i],
            is_clear=all(beaten) if beaten and i != as_it_is else None,
        )
    return found


@dataclasses.dataclass(frozen=True)
class Gain:
    """The plan that is written beside the best of what needs no plan, by one clock.

    Attributes:
      clock: the last that timed the plan.
      plan_s: its step.
      rival: the fastest single device, or the program as it is where that takes less; None where neither was timed.
      rival_s: its step; infinite where there is none.
      is_clear: the plan takes less, and by more than samples are off.
    """

    clock: Clock
    plan_s: float
    rival: Timed | None
    rival_s: float
    is_clear: bool

    @property
    def saved(self) -> float:
        """Share of the rival's step that the plan saves; negative for a loss."""
        return -excess(self.plan_s, self.rival_s)

    def as_data(self) -> dict[str, Any]:
        """As files have it: None for what is not known."""
        rival = self.rival
        return {
            "clock": self.clock.field,
            "plan_s": self.plan_s,
            "rival": None if rival is None else rival.name,
            "rival_s": known(self.rival_s),
            "less_time": None if rival is None else known(self.saved),
            "is_clear": self.is_clear,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Form:
    """A form of the program, its batch whole or in parts, with what is proven of all of its plans.

    Attributes:
      problem: it on the cluster.
      lower: its lower bounds.
      proven_s: the largest that a method has proven; 0 where none has.
    """

    problem: Problem
    lower: LowerBounds
    proven_s: float = 0.0

    @property
    def parts(self) -> int:
        """Parts of its batch; 1 of the whole."""
        return 1 if self.problem.splitting is None else self.problem.splitting.parts

    @property
    def title(self) -> str:
        """``"whole"``, or in how many parts the batch is."""
        splitting = self.problem.splitting
        if splitting is None:
            return WHOLE
        own = ", statistics of each" if splitting.batch_statistics == PART else ""
        return f"in {splitting.parts} parts{own}"

    @property
    def bounds(self) -> list[tuple[str, float]]:
        """(name, seconds) of every lower bound, and of what a method has proven beyond them."""
        rows = [(name, bound_ns / 1e9) for name, bound_ns in self.lower.rows]
        return rows + ([(PROVEN, self.proven_s)] if self.tightest_bound == PROVEN else [])

    @property
    def tightest_bound(self) -> str:
        """The name of the largest of ``bounds``."""
        return PROVEN if self.proven_s > self.lower.best_s else self.lower.tightest

    @property
    def lower_bound_s(self) -> float:
        """Lower bound on the step time of any of its placements in the simulator, in seconds."""
        return max(self.lower.best_s, self.proven_s)


@dataclasses.dataclass(frozen=True)
class ScheduleWorth:
    """Worth of a plan's order, or of its clusters, in the simulator.

    Attributes:
      with_s: seconds of a step of the plan; None where it does not fit in memory.
      without_s: of the plan without its order, or without its clusters; None likewise.
    """

    with_s: float | None
    without_s: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """The plan that is written, or used, beside the others that were found.

    Attributes:
      item: the program; None of a profiled graph, which has none to write.
      problem: the program on the cluster, with the costs that the plans are simulated with.
      written: the plan.
      beside: the other candidates.
      asked: the method that was asked for; that of ``written`` where it is not given.
      why: one clause that says why this plan and no other, where the runtime decided.
      decided: the candidate that the runtime recommends; None where the times of the candidates decide.
      trials: every plan that a live search measured, in order; those of its race with the race's times.
      searches: of a live search, in order.
      correction: of the simulator, by all that was measured; None where nothing was.
      layers: of the program, where the plan is written by layer.
      whole: the fastest plan found of whole layers, which is written where there are ``layers``.
      instead: rows that are told and not written: what splitting the batch over the devices gives.
      parts: of the batch in the program that is written.
      stayed_whole: a sentence for each kind of op that works on examples and has no parts.
      batch_statistics: of a split program: of the ``"whole"`` batch, or of each ``"part"``.
      why_not_split: a sentence, where the batch cannot be split, or there was no time to see what that gives.
      measured_on: a sentence on the machines that plans were measured on; "" where it was this one alone.
      fused: what is fused and what that is worth, or why nothing is; "" where nobody asked.
      beside_unplaced: one clause that compares it with the function as it is; "" where that is not known.
      from_cache: it was found by an earlier process.
      searched: method, ``budget_s`` and seconds of the method's searches, for each time that it was searched.
      progress: of each search of a function's plan.
      key: under which a function's plan is kept; empty for others.
      load: share of the CPUs that other processes took while plans were raced or called; None where nobody knows.
      timed_at_s: when that was, in seconds since 1970; None where nothing was timed on the runtime.

    Raises:
      InputError: there is no plan to write; the message is that of ``written``.
    """

    item: Item | None
    problem: Problem
    written: Timed
    beside: tuple[Timed, ...] = ()
    asked: str = ""
    why: str = ""
    decided: Timed | None = None
    trials: tuple[Timed, ...] = ()
    searches: tuple[SearchResult, ...] = ()
    correction: Correction | None = None
    layers: Layers | None = None
    whole: WholeLayers | None = None
    instead: tuple[Timed, ...] = ()
    parts: int = 1
    stayed_whole: tuple[str, ...] = ()
    batch_statistics: str = WHOLE
    why_not_split: str = ""
    measured_on: str = ""
    fused: str = ""
    beside_unplaced: str = ""
    from_cache: bool = False
    searched: Sequence[tuple[str, float, float]] = ()
    progress: Sequence[SearchCurve] = ()
    key: Mapping[str, str] = dataclasses.field(default_factory=dict)
    load: float | None = None
    timed_at_s: float | None = None

    def __post_init__(self) -> None:
        if self.written.placement is None:
            raise InputError(self.written.message)

    def __repr__(self) -> str:
        takes = milliseconds(None if self.gain is None else self.gain.plan_s)
        return f"<Outcome for {self.problem.name!r}: {self.written.name}, {takes} a step>"

    def _repr_html_(self) -> str:
        rows = (
            (self.title_of(row), *(milliseconds(row.seconds(clock)) for clock in self.clocks))
            for row in self.rows
        )
        return html_table(("step time of", *(clock.value for clock in self.clocks)), rows)

    @property
    def method(self) -> str:
        """The method that was asked for."""
        return self.asked or self.written.name

    @property
    def search(self) -> SearchResult:
        """The search behind ``written``."""
        assert self.written.search is not None, "asked of plans that were searched in this process"
        return self.written.search

    @functools.cached_property
    def placement(self) -> Placement:
        """The plan that is written."""
        found = self.written.placement
        assert found is not None  # checked when made
        if self.layers is None or self.whole is None:
            return found
        return Placement(found.problem, self.whole.device_of_unit)

    @functools.cached_property
    def schedule(self) -> Mapping[str, ScheduleWorth]:
        """``"order"`` and ``"fused"``, as far as the plan that is written has them -> what each is worth."""
        plan = self.placement
        without = {}
        if plan.priority_of_op is not None:
            without["order"] = dataclasses.replace(plan, priority_of_op=None)
        if plan.cluster_of_op is not None:
            without["fused"] = dataclasses.replace(plan, cluster_of_op=None)
        if not without:
            return {}
        plans = Decisions.joined([one.decisions for one in (plan, *without.values())])
        with_s, *without_s = map(known, SimulatedEvaluator(plan.problem).evaluate(plans).runtime_s)
        return {what: ScheduleWorth(with_s, one_s) for what, one_s in zip(without, without_s, strict=True)}

    @property
    def num_layers(self) -> int:
        """Number of layers that have ops of their own, besides those of layers inside them."""
        return 0 if self.layers is None else len(np.unique(self.layers.layer_of_op))

    @property
    def candidates(self) -> tuple[Timed, ...]:
        """All of them, the written one last."""
        return (*self.beside, self.written)

    @property
    def clock(self) -> Clock:
        """By which the rows are compared."""
        return clock_of(self.candidates)

    @property
    def clocks(self) -> list[Clock]:
        """Those that timed a row, and the simulator: a column each."""
        timed = {clock for row in self.rows for clock in Clock if row.seconds(clock) is not None}
        return [clock for clock in Clock if clock in timed or clock is Clock.SIMULATED]

    @functools.cached_property
    def row_written(self) -> Timed:
        """The row of the plan that is written: with whole layers no candidate has it."""
        return self._whole_layers[0] if self._whole_layers else self.written

    @functools.cached_property
    def rows(self) -> tuple[Timed, ...]:
        """All rows, the fastest candidate first, by the last clock of each; then what is only told."""
        candidates = [*self.candidates, *self._whole_layers]
        order = list(reversed(Clock))

        def standing(row: Timed) -> tuple[int, float]:
            clock = row.clock
            return (len(order), 0.0) if clock is None else (order.index(clock), row.seconds(clock) or 0.0)

        return (
            *sorted(candidates, key=lambda row: (row.is_below_bound, *standing(row))),
            *self.instead,
        )

    @functools.cached_property
    def _whole_layers(self) -> tuple[Timed, ...]:
        """The plan of whole layers, where there is one."""
        whole = self.whole
        if whole is None:
            return ()
        names = (device.name for device in self.problem.cluster.devices)
        peaks = dict(zip(names, whole.peak_bytes.tolist(), strict=True))
        return (Timed(WHOLE_LAYERS, simulated_s=whole.runtime_s, peak_bytes=peaks),)

    @property
    def recommended(self) -> Timed:
        """What to use: the plan that a live search decided on, that of least memory if that was sought, or the fastest.

        Where that is not clearly faster than what needs no plan: the faster of a single device and the program as it
        is.
        """
        if self.decided is not None:
            plan = self.decided
        elif self.written.search is not None and self.written.search.least_memory is not None:
            return self.written
        else:
            plan = fastest(self.candidates) or self.written
        return self.rival_of(plan) or plan if plan.is_clear is False else plan

    def rival_of(self, plan: Timed) -> Timed | None:
        """The fastest of what needs no plan by the plan's last clock: a single device, or the program as it is."""
        clock = plan.clock
        if clock is None:
            return None
        rivals = [
            row
            for row in (*self.candidates, *self.trials)
            if (row.is_as_it_is or (row.is_single and not plan.is_single)) and row.seconds(clock) is not None
        ]
        return min(rivals, key=lambda row: row.seconds(clock) or 0.0, default=None)

    @functools.cached_property
    def gain(self) -> Gain | None:
        """The plan that is written beside its rival; None where the plan was not timed."""
        plan = self.row_written
        clock, rival = plan.clock, self.rival_of(plan)
        plan_s = None if clock is None else plan.seconds(clock)
        if clock is None or plan_s is None:
            return None
        rival_s = None if rival is None else rival.seconds(clock)
        if rival is None or rival_s is None:
            return Gain(clock, plan_s, None, math.inf, False)
        return Gain(clock, plan_s, rival, rival_s, self._is_clear(plan, clock, -excess(plan_s, rival_s)))

    def _is_clear(self, plan: Timed, clock: Clock, saved: float) -> bool:
        """True if samples support a share that is saved."""
        if clock in (Clock.RACED, Clock.CALLED) and plan.is_clear is not None:
            return plan.is_clear and saved > 0
        return saved > (SAME if clock is Clock.SIMULATED else _APART)

    @property
    def is_worth_it(self) -> bool:
        """The plan is clearly faster than the program as it is, or that cannot be known."""
        return self.written.is_clear is not False

    @property
    def single(self) -> Timed | None:
        """The best single device, where it was tried."""
        return next((one for one in self.candidates if one.is_single), None)

    def single_s(self, clock: Clock) -> float | None:
        """Step time of the fastest single device by a clock; None where none was timed by it."""
        rows = [row for row in (*self.candidates, *self.trials) if row.is_single]
        return min((s for row in rows if (s := row.seconds(clock)) is not None), default=None)

    def named(self, name: str) -> Timed | None:
        """The candidate of this name, the first where there are several."""
        return next((one for one in self.candidates if one.name == name), None)

    def with_written(self, candidate: Timed, changed: Timed | None = None) -> Outcome:
        """The outcome with another of its candidates written, and that one changed if need be."""
        written = changed or candidate
        return dataclasses.replace(
            self,
            written=written,
            beside=tuple(one for one in self.candidates if one is not candidate),
            decided=written if self.decided is candidate else self.decided,
        )

    @functools.cached_property
    def room(self) -> Room | None:
        """Memory that the step needs of a single device; None where one holds it."""
        return room_needed(self.problem)

    @functools.cached_property
    def forms(self) -> tuple[Form, ...]:
        """The program as it is written, and then in each other form that a row is a plan of."""
        found = {self.problem.fingerprint: self._form(self.problem)}
        for one in (*self.beside, *self.instead):
            if one.placement is not None and one.placement.problem.fingerprint not in found:
                problem = one.placement.problem
                found[problem.fingerprint] = self._form(problem)
        return tuple(found.values())

    def _form(self, problem: Problem) -> Form:
        rows = [
            one.search
            for one in (self.written, *self.beside, *self.instead)
            if one.search is not None
            and one.placement is not None
            and one.placement.problem.fingerprint == problem.fingerprint
        ]
        lower = rows[0].bounds if rows else lower_bounds(problem)
        return Form(problem, lower, max((search.proven_s for search in rows), default=0.0))

    def form_of(self, row: Timed) -> Form | None:
        """The form of the program that a row is a plan of; None of a row without a plan."""
        if row.placement is None:
            return None
        fingerprint = row.placement.problem.fingerprint
        return next((form for form in self.forms if form.problem.fingerprint == fingerprint), None)

    @property
    def bounds(self) -> list[tuple[str, float]]:
        """(name, seconds) of every lower bound on plans of what is written, and of what a method has proven beyond."""
        return self.forms[0].bounds

    @property
    def tightest_bound(self) -> str:
        """The name of the largest of ``bounds``."""
        return self.forms[0].tightest_bound

    @property
    def lower_bound_s(self) -> float:
        """Lower bound on the step time of any placement of what is written in the simulator, in seconds."""
        return self.forms[0].lower_bound_s

    def title_of(self, row: Timed) -> str:
        """Title of a row in tables; beside plans of the batch in parts the best of the whole is the one placed."""
        is_beside = any(one.name in (DATA_PARALLEL, SPLIT) for one in self.candidates)
        if is_beside and row is self.best_whole and not row.is_single:
            return f"placed ({row.found_by})"
        return row.title

    @property
    def best_whole(self) -> Timed | None:
        """Fastest candidate with the batch whole; None where none runs."""
        rows = [one for one in self.candidates if one.name not in (DATA_PARALLEL, SPLIT, FUSED)]
        return fastest(rows)

    @property
    def best_split(self) -> Timed | None:
        """Fastest candidate with the batch in parts; None where none runs or none was tried."""
        return fastest([one for one in self.candidates if one.name in (DATA_PARALLEL, SPLIT)])

    @property
    def single_device_s(self) -> float | None:
        """Step time of the program as it is on the best single device, simulated; None where none runs it."""
        single = self.single
        return self.search.single_device_s if single is None or self.parts == 1 else single.simulated_s

    def is_optimal(self, candidate: Timed) -> bool:
        """True if it is proven that no placement that fits is faster in the simulator."""
        by_simulator = candidate.search is not None and candidate.search.evaluator == SIMULATED
        form = self.form_of(candidate)
        is_fused = candidate.placement is not None and candidate.placement.cluster_of_op is not None
        return (
            by_simulator
            and form is not None
            and not is_fused  # bounds are of ops
            and takes_no_more(candidate.simulated_s or 0.0, form.lower_bound_s)
        )

    def tried(
        self, is_worth_it: bool, placed_s: float, unplaced_s: float, load: float | None = None
    ) -> Outcome:
        """A function's plan after a trial on a user's own calls, which has the last word.

        Args:
          is_worth_it: calls run by the plan.
          placed_s, unplaced_s: seconds of a call by the plan, and as it is.
          load: as the field of that name.
        """
        as_it_is = self.named(AS_IT_IS) or Timed(AS_IT_IS)
        return dataclasses.replace(
            self,
            written=dataclasses.replace(self.written, called_s=placed_s, spread_s=None, is_clear=is_worth_it),
            beside_unplaced=f"{in_words(is_worth_it)} than the function as it is, call by call in its own process",
            beside=(
                *(one for one in self.beside if one is not as_it_is),
                dataclasses.replace(as_it_is, called_s=unplaced_s, spread_s=None),
            ),
            load=load,
            timed_at_s=time.time(),
        )


def in_words(is_worth_it: bool) -> str:
    """``"clearly faster"``, or that it is not."""
    return "clearly faster" if is_worth_it else "not clearly faster"


def in_layers(outcome: Outcome, seed: int) -> Outcome:
    """Outcome with a plan of whole layers, made of the one that would be written; a plan that was given stays it."""
    layers = with_units_whole(outcome.problem, layers_of(outcome.problem))
    plan, whole = outcome.placement.decisions, None
    if outcome.written.name != GIVEN:
        whole = whole_layers(outcome.problem, layers, plan, seed)
    return dataclasses.replace(outcome, layers=layers, whole=whole)
