"""Outcome of a run: one plan with its times and its rivals, for every producer and every reader."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import excess, html_table, known, milliseconds
from tf_placer.calibration.refit import Correction
from tf_placer.evaluation.simulated import Measurement, SimulatedEvaluator, Status
from tf_placer.planners.local_search import WholeLayers, whole_layers
from tf_placer.planning.forms import Form, estimated_in_parts
from tf_placer.problem.layers import Layers, layers_of, with_units_whole
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import BUSY, clearly_slower, race_times_s
from tf_placer.search.memory import Room, room_needed
from tf_placer.search.methods import REFERENCE
from tf_placer.search.recorder import SIMULATED, SearchCurve, SearchResult, takes_no_more
from tf_placer.search.search import NothingFits, evaluate_given

SINGLE = REFERENCE
NOT_RUN = "NOT_RUN"
IN_WORDS = {True: "clearly faster", False: "not clearly faster"}  # whether a plan is worth it
GIVEN = "plan"  # name of a plan that was given and not searched, in place of a method's
PLAN = "the plan"
# Rows of plans of a program whose batch is in parts: the one in which every device computes a part, and a search's.
DATA_PARALLEL, SPLIT = "data_parallel", "split"
CONSTRUCTED = "constructed"  # row of plans that constructive methods make at once, measured by a fleet
FUSED = "fused"  # row of a plan with fusion clusters, beside the same without
AS_IT_IS = "as it is"  # row of the program without a plan, on the whole machine
WHOLE_LAYERS = "plan of whole layers"  # row of the plan that keeps every layer on one device
SAME = 0.005  # share of a step time that nobody would change a program for
_APART = 0.05  # of two times that were measured alone, minutes apart
_TITLES = {DATA_PARALLEL: "data parallel", SPLIT: "split and placed", GIVEN: "the plan given"}
_OF_SEARCH = ("placement", "peak_bytes", "found_by", "evaluations", "search_s")


class Clock(enum.Enum):
    """What timed a step, the last with the last word; times by different clocks are never compared."""

    SIMULATED = "simulated"  # the simulator
    MEASURED = "alone"  # the runtime, each plan by itself
    RACED = "raced"  # the runtime, called as this process calls it, in turn with the others
    CALLED = "called"  # a user's own first calls

    @property
    def field(self) -> str:
        """Field of a ``Timed`` with the seconds by this clock."""
        return f"{self.name.lower()}_s"


@dataclasses.dataclass(frozen=True, eq=False)
class Timed:
    """One plan with its times, a field for each ``Clock``: seconds of a step, None where it has no such time."""

    name: str  # of the method that proposed it, or what tables call it
    placement: Placement | None = None  # None where none fits in memory, and of the program as it is
    simulated_s: float | None = None
    measured_s: float | None = None
    raced_s: float | None = None
    called_s: float | None = None
    spread_s: tuple[float, float] | None = None  # quartiles by the last clock; None where they are not known
    # Device name -> most memory in use, simulated; empty where it is not known.
    peak_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # Of the simulator, or of the runtime once measured; ILLEGAL where the method cannot place the problem.
    status: Status = Status.OK
    message: str = ""  # one line about a failure
    found_by: str = ""  # the method that found it inside the one of its name
    evaluations: int | None = None  # placements tried; None where nothing was
    search_s: float = 0.0
    search: SearchResult | None = None  # None of a plan that was not searched
    # It takes clearly less time than the best single device and than the program as it is, turn by turn or call by
    # call; of the single device, than the program as it is; None where that is not known.
    is_clear: bool | None = None
    traced: tf.compat.v1.RunMetadata | None = None  # one step on the runtime, of the plan that is written
    is_candidate: bool = True  # it may be written; else it is only told

    def __post_init__(self) -> None:
        object.__setattr__(self, "found_by", self.found_by or self.name)

    @staticmethod
    def of_search(name: str, search: SearchResult, **more: Any) -> Timed:
        """The plan that a search found; ``more`` are other fields."""
        fields = {field: getattr(search, field) for field in _OF_SEARCH}
        return Timed(name, simulated_s=search.runtime_s, search=search, **{**fields, **more})

    @staticmethod
    def simulated(name: str, placement: Placement, **more: Any) -> Timed:
        """A plan with its step and its memory in the simulator; ``more`` are other fields."""
        times = SimulatedEvaluator(placement.problem).evaluate(placement.decisions)
        assert times.peak_bytes is not None  # simulated
        names = (device.name for device in placement.problem.cluster.devices)
        peaks = dict(zip(names, times.peak_bytes[0].tolist(), strict=True))
        simulated_s = known(float(times.runtime_s[0]))
        return Timed(name, placement, **{"simulated_s": simulated_s, "peak_bytes": peaks, **more})

    def measured(self, times: Measurement, row: int = 0) -> Timed:
        """Candidate with the time that the plan takes by itself, or with the reason why it does not run."""
        status = Status(int(times.status[row]))
        measured_s = float(times.runtime_s[row]) if status == Status.OK else None
        return dataclasses.replace(self, measured_s=measured_s, status=status, message=times.messages[row])

    @property
    def status_name(self) -> str:
        """The status, or ``NOT_RUN`` of a method that could not even begin; ``message`` says why."""
        return NOT_RUN if self.placement is None and self.status == Status.ILLEGAL else self.status.name

    def seconds(self, clock: Clock) -> float | None:
        """Seconds of a step by a clock; None where it has no such time, or does not run."""
        return getattr(self, clock.field) if self.status == Status.OK else None

    @property
    def clock(self) -> Clock | None:
        """The last clock that timed the plan; None where none did."""
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
        if self.search is None or self.simulated_s is None or self.is_fused:
            return False
        return self.simulated_s * 1e9 < self.search.lower_bound_s * 1e9 - 1e-3

    @property
    def is_fused(self) -> bool:
        """True if the plan has clusters, of which the bounds say nothing."""
        return self.placement is not None and self.placement.cluster_of_op is not None

    @property
    def title(self) -> str:
        """Its name in tables: the method, and the one that found the plan inside it."""
        if self.is_single:
            return "single device"
        if self.is_as_it_is:
            return "as it is, whole machine"
        name = _TITLES.get(self.name, self.name)
        return name if self.found_by == self.name else f"{name} ({self.found_by})"


def single_rows(problem: Problem, **more: Any) -> list[Timed]:
    """Everything on one device, for each of them in turn; ``more`` are other fields."""
    plans = (Placement(problem, problem.everything_on(device)) for device in range(problem.num_devices))
    return [Timed(SINGLE, plan, **more) for plan in plans]


def clock_of(rows: Sequence[Timed]) -> Clock:
    """The last clock that timed a plan of these rows: that by which they are compared."""
    clocks = [row.clock for row in rows if not row.is_as_it_is]
    return next((clock for clock in reversed(Clock) if clock in clocks), Clock.SIMULATED)


def fastest(candidates: Sequence[Timed], asked: str = "") -> Timed | None:
    """The plan with the shortest step by ``clock_of`` all; None where none runs.

    On a tie the single device wins: a plan that gains nothing is not worth having. Then the method that was asked for.
    """
    clock = clock_of(candidates)
    timed = [
        (seconds, not row.is_single, row.name != asked, position)
        for position, row in enumerate(candidates)
        if not row.is_as_it_is and not row.is_below_bound and (seconds := row.seconds(clock)) is not None
    ]
    return candidates[min(timed)[-1]] if timed else None


def with_race(racers: Sequence[Timed], samples: Sequence[Sequence[float]]) -> list[Timed]:
    """The racers with the times of their turns (``race_steps``), and whether these are clearly less than of rivals."""
    times_s, spreads_s = race_times_s(samples)
    singles = [i for i, row in enumerate(racers) if row.is_single]
    best_single = min(singles, key=lambda i: times_s[i], default=None)
    as_it_is = next((i for i, row in enumerate(racers) if row.is_as_it_is), None)
    rows = []
    for i, row in enumerate(racers):
        rivals = [as_it_is] if row.is_single else [best_single, as_it_is]
        beaten = [clearly_slower(samples[rival], samples[i]) for rival in rivals if rival is not None]
        is_clear = all(beaten) if beaten and i != as_it_is else None
        rows.append(dataclasses.replace(row, raced_s=times_s[i], spread_s=spreads_s[i], is_clear=is_clear))
    return rows


def is_same_plan(plan: Placement, another: Placement) -> bool:
    """True if two plans of one form of the program decide the same, whatever its costs are taken for."""
    first, second = plan.problem, another.problem
    is_of_one_form = first.fingerprint == second.fingerprint
    return is_of_one_form and plan.decisions.digest(0, first) == another.decisions.digest(0, second)


@dataclasses.dataclass(frozen=True)
class Gain:
    """The plan that is written beside the best of what needs no plan, by one clock."""

    clock: Clock  # the last that timed the plan
    plan_s: float
    rival: Timed | None  # the fastest single device, or the program as it is; None where neither was timed
    rival_s: float  # infinite where there is none
    is_clear: bool  # the plan takes less, and by more than samples are off

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


class Note(enum.Enum):
    """What is known of an outcome besides times."""

    WHY = "why"  # a clause on why this plan and no other, where the runtime decided
    DECIDED = "decided"  # name of the candidate that the runtime recommends; without, times decide
    BESIDE_UNPLACED = "beside_unplaced"  # a clause that compares the plan with the function as it is
    FUSED = "fused"  # a sentence on what is fused and what that is worth, or on why nothing is
    WHY_NOT_SPLIT = "why_not_split"  # a sentence, where the batch cannot be split, or there was no time
    MEASURED_ON = "measured_on"  # a sentence on the machines of the measurements, if not this one alone
    LOAD = "load"  # share of the CPUs that other processes took while plans were raced or called
    TIMED_AT_S = "timed_at_s"  # when that was, in seconds since 1970


class ByLayer(NamedTuple):
    """A plan of whole layers; none where none fits, or the plan was given."""

    layers: Layers
    num_layers: int  # that have ops of their own, besides those of layers inside them
    whole: WholeLayers | None
    row: Timed | None  # of the plan of whole layers


class Kept(NamedTuple):
    """What is kept of a function's plan."""

    key: Mapping[str, str]
    searched: Sequence[tuple[str, float, float]] = ()  # method, budget and seconds of each search
    progress: Sequence[SearchCurve] = ()
    is_from_cache: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """The plan that is written, or used, beside the others that were found; InputError where there is none to write."""

    form: Form  # the program that is written, with the costs that its plans are simulated with
    written: Timed  # the plan
    beside: tuple[Timed, ...] = ()  # the other candidates, and rows that are only told
    asked: str = ""  # the method that was asked for; that of ``written`` where it is not given
    notes: Mapping[Note, Any] = dataclasses.field(default_factory=dict)  # what is known besides times
    correction: Correction | None = None  # of the simulator, by all that was measured; None where nothing was
    # Every plan that a live search measured, in order; those of its race with the race's times.
    trials: tuple[Timed, ...] = ()
    searches: tuple[SearchResult, ...] = ()  # of a live search, in order
    by_layer: ByLayer | None = None  # the plan of whole layers, where it was asked for
    kept: Kept | None = None  # of a function's plan, what its file has besides

    def __post_init__(self) -> None:
        if self.written.placement is None:
            raise InputError(self.written.message)

    def __repr__(self) -> str:
        takes = milliseconds(None if self.gain is None else self.gain.plan_s)
        return f"<Outcome for {self.problem.name!r}: {self.written.name}, {takes} a step>"

    def _repr_html_(self) -> str:
        clocks = self.clocks
        rows = [(self.title_of(row), *(milliseconds(row.seconds(c)) for c in clocks)) for row in self.rows]
        return html_table(("step time of", *(clock.value for clock in clocks)), rows)

    @property
    def problem(self) -> Problem:
        """The program that is written, on the cluster."""
        return self.form.problem

    @property
    def is_from_cache(self) -> bool:
        """It was found by an earlier process."""
        return self.kept is not None and self.kept.is_from_cache

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
        plan = self.written.placement
        assert plan is not None  # checked when made
        if self.by_layer is None or self.by_layer.whole is None:
            return plan
        return Placement(plan.problem, self.by_layer.whole.device_of_unit)

    @functools.cached_property
    def schedule(self) -> Mapping[str, Mapping[str, float | None]]:
        """``"order"`` and ``"fused"``, as far as the plan has them -> seconds of a step ``with_s`` and ``without_s``.

        In the simulator; None where that does not fit in memory.
        """
        plan = self.placement
        reduced = {}
        if plan.priority_of_op is not None:
            reduced["order"] = dataclasses.replace(plan, priority_of_op=None)
        if plan.cluster_of_op is not None:
            reduced["fused"] = dataclasses.replace(plan, cluster_of_op=None)
        if not reduced:
            return {}
        plans = Decisions.joined([p.decisions for p in (plan, *reduced.values())])
        with_s, *without_s = map(known, SimulatedEvaluator(plan.problem).evaluate(plans).runtime_s)
        times_s = zip(reduced, without_s, strict=True)
        return {part: {"with_s": with_s, "without_s": reduced_s} for part, reduced_s in times_s}

    @property
    def candidates(self) -> tuple[Timed, ...]:
        """All of them, the written one last."""
        return (*(row for row in self.beside if row.is_candidate), self.written)

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
        row = None if self.by_layer is None else self.by_layer.row
        return row or self.written

    @functools.cached_property
    def rows(self) -> tuple[Timed, ...]:
        """All rows, the fastest candidate first, by the last clock of each; then what is only told."""
        candidates = list(self.candidates)
        if self.row_written is not self.written:
            candidates.append(self.row_written)
        # Rows without a clock come last, and among each other stay as they are.
        candidates.sort(key=lambda row: 0.0 if row.clock is None else row.seconds(row.clock) or 0.0)
        place = {clock: place for place, clock in enumerate([*reversed(Clock), None])}
        candidates.sort(key=lambda row: (row.is_below_bound, place[row.clock]))
        return (*candidates, *(row for row in self.beside if not row.is_candidate))

    @property
    def recommended(self) -> Timed:
        """What to use: the plan that a live search decided on, that of least memory if that was sought, or the fastest.

        Where that is not clearly faster: the faster of a single device and the program as it is.
        """
        plan = self.named(self.notes.get(Note.DECIDED, ""))
        if plan is None and self.written.search is not None and self.written.search.least_memory is not None:
            return self.written
        plan = plan or fastest(self.candidates) or self.written
        return self.rival_of(plan) or plan if plan.is_clear is False else plan

    def rival_of(self, plan: Timed) -> Timed | None:
        """The fastest of what needs no plan by the plan's last clock: a single device, or the program as it is."""
        clock = plan.clock
        if clock is None:
            return None
        rows = [row for row in (*self.candidates, *self.trials) if row.seconds(clock) is not None]
        rivals = [row for row in rows if row.is_as_it_is or (row.is_single and not plan.is_single)]
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
        saved = -excess(plan_s, rival_s)
        is_clear = saved > (SAME if clock is Clock.SIMULATED else _APART)
        if clock in (Clock.RACED, Clock.CALLED) and plan.is_clear is not None:  # by the turns themselves
            is_clear = plan.is_clear and saved > 0
        return Gain(clock, plan_s, rival, rival_s, is_clear)

    @property
    def is_worth_it(self) -> bool:
        """The plan is clearly faster than the program as it is, or that cannot be known."""
        return self.written.is_clear is not False

    def single_s(self, clock: Clock) -> float | None:
        """Step time of the fastest single device by a clock; None where none was timed by it."""
        rows = [row for row in (*self.candidates, *self.trials) if row.is_single]
        return min((s for row in rows if (s := row.seconds(clock)) is not None), default=None)

    def named(self, name: str) -> Timed | None:
        """The candidate of this name, the first where there are several."""
        return next((row for row in self.candidates if row.name == name), None)

    def with_written(self, candidate: Timed, changed: Timed | None = None) -> Outcome:
        """The outcome with another of its candidates written, and that one changed if need be."""
        written = changed or candidate
        return dataclasses.replace(
            self, written=written, beside=tuple(row for row in self.candidates if row is not candidate)
        )

    def noted(self, notes: Mapping[Note, Any]) -> Outcome:
        """The outcome with more notes."""
        return dataclasses.replace(self, notes={**self.notes, **notes})

    @property
    def busy_share(self) -> float:
        """Share of the CPUs that other processes took while plans were timed; 0 where that made no machine busy."""
        load = self.notes.get(Note.LOAD) or 0.0
        return load if load >= BUSY else 0.0

    @functools.cached_property
    def room(self) -> Room | None:
        """Memory that the step needs of a single device; None where one holds it."""
        return room_needed(self.problem)

    @functools.cached_property
    def forms(self) -> tuple[Form, ...]:
        """The program as it is written, and then in each other form that a row is a plan of."""
        forms = {self.problem.fingerprint: self.form}
        for row in (self.written, *self.beside):
            if row.placement is not None:
                problem = row.placement.problem
                form = forms.setdefault(problem.fingerprint, Form(problem))
                if row.search is not None and row.search.proven_s > form.proven_s:
                    forms[problem.fingerprint] = dataclasses.replace(form, proven_s=row.search.proven_s)
        return tuple(forms.values())

    def form_of(self, row: Timed) -> Form | None:
        """The form of the program that a row is a plan of; None of a row without a plan."""
        return next((form for form in self.forms if form.has(row.placement)), None)

    def title_of(self, row: Timed) -> str:
        """Title of a row in tables; beside plans of the batch in parts the best of the whole is the one placed."""
        is_beside = any(candidate.name in (DATA_PARALLEL, SPLIT) for candidate in self.candidates)
        if is_beside and row is self.best_whole and not row.is_single:
            return f"placed ({row.found_by})"
        return row.title

    @property
    def best_whole(self) -> Timed | None:
        """Fastest candidate with the batch whole; None where none runs."""
        rows = [row for row in self.candidates if row.name not in (DATA_PARALLEL, SPLIT, FUSED)]
        return fastest(rows)

    @property
    def best_split(self) -> Timed | None:
        """Fastest candidate with the batch in parts; None where none runs or none was tried."""
        return fastest([row for row in self.candidates if row.name in (DATA_PARALLEL, SPLIT)])

    def is_optimal(self, candidate: Timed) -> bool:
        """True if it is proven that no placement that fits is faster in the simulator."""
        by_simulator = candidate.search is not None and candidate.search.evaluator == SIMULATED
        form = self.form_of(candidate)
        if form is None or not by_simulator or candidate.is_fused:  # bounds are of ops
            return False
        return takes_no_more(candidate.simulated_s or 0.0, form.lower_bound_s)

    def tried(
        self, is_worth_it: bool, placed_s: float, unplaced_s: float, load: float | None = None
    ) -> Outcome:
        """A function's plan after a trial on a user's own calls, which has the last word; ``load`` as ``Note.LOAD``."""
        as_it_is = self.named(AS_IT_IS) or Timed(AS_IT_IS)
        verdict = f"{IN_WORDS[is_worth_it]} than the unplaced function, call by call in its own process"
        written = dataclasses.replace(self.written, called_s=placed_s, spread_s=None, is_clear=is_worth_it)
        called = dataclasses.replace(as_it_is, called_s=unplaced_s, spread_s=None)
        beside = (*(row for row in self.beside if row is not as_it_is), called)
        notes = {Note.BESIDE_UNPLACED: verdict, Note.LOAD: load, Note.TIMED_AT_S: time.time()}
        return dataclasses.replace(self, written=written, beside=beside).noted(notes)


def in_layers(outcome: Outcome, seed: int) -> Outcome:
    """Outcome with a plan of whole layers, made of the one that would be written; a given plan stays."""
    layers = with_units_whole(outcome.problem, layers_of(outcome.problem))
    num_layers = len(np.unique(layers.layer_of_op))
    written, whole, row = outcome.written, None, None
    if written.name != GIVEN:
        whole = whole_layers(outcome.problem, layers, outcome.placement.decisions, seed)
    if whole is not None:
        names = (device.name for device in outcome.problem.cluster.devices)
        peaks = dict(zip(names, whole.peak_bytes.tolist(), strict=True))
        row = Timed(WHOLE_LAYERS, simulated_s=whole.runtime_s, peak_bytes=peaks)
        written = dataclasses.replace(written, traced=None)  # a step of another plan
    return dataclasses.replace(outcome, written=written, by_layer=ByLayer(layers, num_layers, whole, row))


def data_parallel_row(form: Form) -> Timed:
    """The row of data parallelism, without a time where a device does not hold its part."""
    try:
        search = evaluate_given(form.problem, form.data_parallel.decisions, DATA_PARALLEL)
    except NothingFits as error:
        return Timed(DATA_PARALLEL, status=Status.OUT_OF_MEMORY, message=str(error))
    return Timed.of_search(DATA_PARALLEL, search)


def with_data_parallel(outcome: Outcome) -> Outcome:
    """An outcome with what splitting the batch over the devices gives, or with a sentence on why it cannot be split.

    That is a row that a run only tells of, by costs for which nothing is profiled; none where parts were tried.
    """
    form, parts = outcome.form, len(outcome.form.replicas)
    is_told = outcome.best_split or outcome.notes.get(Note.WHY_NOT_SPLIT)
    if form.item is None or form.problem.splitting is not None or parts < 2 or is_told:
        return outcome
    split = estimated_in_parts(form)
    if isinstance(split, str):
        return outcome.noted({Note.WHY_NOT_SPLIT: f"The batch cannot be split: {split}."})
    row = dataclasses.replace(data_parallel_row(split), is_candidate=False)
    return dataclasses.replace(outcome, beside=(*outcome.beside, row))
