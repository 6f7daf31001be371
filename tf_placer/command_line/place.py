"""`place` and `compare`: lists of stages from a request to what is written."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import operator
import time
from collections.abc import Callable, Sequence
from typing import Any

import rich.console

from tf_placer.base.arguments import InputError
from tf_placer.calibration.build_problem import build_problem
from tf_placer.command_line.described import Reading
from tf_placer.command_line.request import Request
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.runtime import TraceFailed
from tf_placer.planning.forms import Form, replicas_of
from tf_placer.planning.fusing import (
    CLUSTERS_SHARE,
    FUSE,
    find_clusters,
    with_fusing,
    with_simulated_clusters,
)
from tf_placer.planning.live import live_stages
from tf_placer.planning.outcome import (
    DATA_PARALLEL,
    GIVEN,
    SINGLE,
    SPLIT,
    Clock,
    Note,
    Outcome,
    Timed,
    data_parallel_row,
    fastest,
    in_layers,
    with_data_parallel,
)
from tf_placer.planning.race import Measuring
from tf_placer.planning.request import LAYER, METHOD
from tf_placer.planning.road import (
    AT_ONCE,
    CONTROL_SHARE,
    FASTEST,
    LEAST_S,
    SPLIT_STAGE,
    WHILE_BUILDING,
    beside,
)
from tf_placer.planning.stages import LEFT_OUT, Stage, begins_at, begun_s, roughly
from tf_placer.problem.pins import pins_of_each
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.saved_model import plans_in
from tf_placer.search import methods
from tf_placer.search.methods import CONTROL, WHOLE, Budget, Objective
from tf_placer.search.recorder import ConsoleProgress
from tf_placer.search.search import NothingFits, evaluate_given
from tf_placer.workers.connection import import_meanwhile
from tf_placer.workers.local_workers import WorkerError

WRITE = "writing"
_FUSE_MOST_S = 240.0  # of the search for clusters, also where the budget has no seconds
_FUSE_ALONE = 50.0  # share where one device leaves nothing else to search
# Rules for what was never done on this machine.
_AT_ONCE_S, _WRITE_S, _S_PER_OP = 0.5, 0.5, 2e-4
_FEW = 1000  # more plans than a method makes that does not go on
_ROUNDED_S = 10

Finish = Callable[[Outcome], object]


def place(
    request: Request, method: str, console: rich.console.Console, finish: Finish = lambda outcome: None
) -> Outcome:
    """Finds one method's placement, and those of plainer ones beside it; the fastest is ``written``.

    Random search gets as many evaluations, but no more than a tenth of the time, or, where the budget is of each
    search, than that. With ``--write=method`` the method's own is written; with ``--by=layer`` the plan that is written
    is made of it, in whole layers. On live devices the runtime has the
    last word: see ``search_live``. Where they cannot run the program (``Item.why_not_standalone``) the simulator has
    it, and that is said. Where the batch is not tried in parts, the report has what that takes, if there is time.

    Args:
      request: what to place where.
      method: a name of ``tf_placer.methods()``.
      console: is shown what goes on.
      finish: tells and writes what was found, as the last stage.

    Raises:
      InputError: bad input, or nothing fits in the cluster's memory.
      KeyboardInterrupt: Ctrl-C before the method had a plan.
    """
    methods.find(method)
    road = _Placing(request, console, finish, method)
    if not request.objective.is_memory:  # that asks the devices in the end
        import_meanwhile(request.cluster)
    road.go(road.rest)
    return road.outcome


def place_signatures(
    request: Request,
    method: str,
    console: rich.console.Console,
    finish: Callable[[str, Outcome], object],
    reserve_s: float = 0.0,
) -> None:
    """Places signatures of a SavedModel, one after the other; what they share is where the first has it.

    Signatures that the model was exported with, but for those placed anew, come before all of these.

    Args:
      request: its source is a SavedModel and names the signatures, separated by commas; it is read unless it has been.
      method: as in ``place``.
      console: as in ``place``.
      finish: as in ``place``, with the name of each signature.
      reserve_s: seconds of the budget for what is done with all of them together.

    Raises:
      InputError: as ``place`` does; an unknown signature, and a pin that matches in none of them, is told before the
        first search.
    """
    names = list(dict.fromkeys(request.source.signature.split(",")))
    source = request.source.with_model()
    model = source.model
    assert model is not None  # just read
    for name in names:
        model.signature(name)
    pins = dict.fromkeys(names, request.pins)
    if request.pins and len(names) > 1:
        items = {name: dataclasses.replace(source, signature=name).item() for name in names}
        pins = pins_of_each({name: item.index.names for name, item in items.items()}, request.pins)
    plans = plans_in(model.path)
    held = {op: device for name in plans.keys() - set(names) for op, device in plans[name].items()}
    seconds = request.budget.seconds
    if request.budget_of == WHOLE:
        seconds = max(seconds - reserve_s, LEAST_S) / len(names)
    budget = dataclasses.replace(request.budget, seconds=seconds)
    for position, name in enumerate(names):
        of_one = dataclasses.replace(source, signature=name)
        single = dataclasses.replace(request, source=of_one, held=held, budget=budget, pins=pins[name])
        with begins_at(time.monotonic() if position else begun_s()):
            outcome = place(single, method, console, functools.partial(finish, name))
        held = outcome.placement.device_names | held


def compare(
    request: Request,
    names: Sequence[str],
    console: rich.console.Console,
    finish: Finish = lambda outcome: None,
) -> Outcome:
    """Gives every method the same budget; the fastest is ``written``.

    That is its share of the whole wait, or all of it, as ``Request.budget_of`` says.

    A method that finds nothing that fits, cannot place this problem or wants a library is a line of the report.

    Raises:
      InputError: bad input, or no method found a placement that fits in the cluster's memory.
      KeyboardInterrupt: Ctrl-C before any method had a plan.
    """
    road = _Comparing(request, console, finish)
    road.go(functools.partial(road.rest, names))
    return road.outcome


class _Finding(Reading):
    """Shared part of `place` and `compare`: finds and times candidates and writes a report of them.

    Attributes:
      found: so far.
    """

    def __init__(
        self, request: Request, console: rich.console.Console, finish: Finish, method: str = ""
    ) -> None:
        super().__init__(request, console, method, is_equal=not method)  # a comparison has none
        self.found: list[Timed] = []
        self._finish = finish
        self._outcome: Outcome | None = None
        self._race: dict[Note, Any] = {}  # what it says of the plan that is written
        self._has_plan = self._was_left = self._is_writing = False

    @property
    def outcome(self) -> Outcome:
        """Outcome of what was found; made when all of it is there."""
        if self._outcome is None:
            self._outcome = self.reported()
        return self._outcome

    def reported(self) -> Outcome:
        """The report of what was found."""
        raise NotImplementedError

    def go(self, rest: Callable[[], Sequence[Stage]]) -> None:
        """Everything, from reading to writing; with Ctrl-C only writing is left, from the first plan on."""
        try:
            self.read(rest)
        except KeyboardInterrupt:
            if not self._has_plan or self._is_writing:
                raise
            self._was_left = True
            self._write(0.0)

    @property
    def is_ended(self) -> bool:
        """True if Ctrl-C left nothing but writing; in `compare` it also ends single searches."""
        return self._was_left

    def _told_of_ctrl_c(self, chosen: Timed) -> Timed:
        """The plan that is written, whose search tells whether any was ended."""
        if chosen.search is None or not self.is_ended:
            return chosen
        return dataclasses.replace(chosen, search=dataclasses.replace(chosen.search, interrupted=True))

    def find(self, method: str, budget: Budget, objective: Objective = FASTEST) -> Timed:
        """Searches with one method; where nothing that it finds fits it is a candidate without result."""
        console = self.stages.console
        progress = ConsoleProgress(f"{method} on {self.problem.cluster.name}", budget, console)
        try:
            return Timed.of_search(method, self.search(method, budget, progress, objective=objective))
        except NothingFits as error:
            return Timed(method, status=Status.OUT_OF_MEMORY, message=str(error))

    def measuring(
        self, count: int, written: Callable[[Sequence[Timed]], Timed | None], meanwhile: str = ""
    ) -> list[Stage]:
        """Times every candidate that has a placement on the live devices, and traces a step of the one that is written.

        A search is not thrown away because its result cannot be timed: after Ctrl-C, or when the workers do not start
        or no longer answer, no candidate counts as measured, and each says why.

        Args:
          count: candidates.
          written: of the candidates that were timed, the one whose plan is written.
          meanwhile: as ``Road.starting`` takes it.
        """

        def timed(measuring: Measuring) -> None:
            timed = measuring.rows or self.found
            chosen = written(timed)
            self.found = [self._traced(row) if row is chosen else row for row in timed]
            if measuring.race is not None and chosen is not None:
                self._race = measuring.race.verdict(chosen)

        def untimed(_: float) -> None:
            why = measuring.why_not
            self.found = [dataclasses.replace(row, message=row.message or why) for row in self.found]

        measuring = Measuring(self, lambda: self.found, may_fail=True)
        stages = measuring.stages(count, timed, meanwhile)
        return [*stages, Stage(stages[-1].name, untimed)]

    @property
    def _tries_parts(self) -> bool:
        """The batch is also put in parts, and plans of that are candidates."""
        return False

    @property
    def _ops_written(self) -> int:
        """Ops of the largest program that may be written."""
        return self.assumed_ops * (len(replicas_of(self.asked.cluster.devices)) if self._tries_parts else 1)

    def closing(self) -> list[Stage]:
        """Stages after the plan: what splitting the batch over the devices gives, the report, the files."""
        key = f"writing {self.asked.where}{' in parts' if self._tries_parts else ''}"
        return [
            *([] if self._tries_parts else self.splitting(self._split)),
            self.stages.kept(WRITE, self._write, _WRITE_S + _S_PER_OP * self._ops_written, key),
        ]

    def _split(self, about_s: float, left_s: float) -> str | None:
        """The report with what splitting the batch gives beside it, or with why not."""
        outcome = self.outcome
        if outcome.search.interrupted:
            return LEFT_OUT
        if about_s > left_s:
            why_not = self._left_out("Splitting the batch over the devices", about_s)
            self._outcome = outcome.noted({Note.WHY_NOT_SPLIT: why_not})
            return LEFT_OUT
        with contextlib.suppress(KeyboardInterrupt):  # the plan is there, and counts more
            self._outcome = with_data_parallel(outcome)
        return None

    def _left_out(self, what: str, about_s: float) -> str:
        """The sentence about something for which there is no time, with a budget that has room for it."""
        # With twice that more, the searches have no less than it.
        enough_s = _ROUNDED_S * math.ceil((self.request.budget.seconds + 2 * about_s) / _ROUNDED_S)
        return f"{what} was left out: that takes {roughly(about_s)}; --budget_s={enough_s} has room for it."

    def _write(self, _: float) -> None:
        self._is_writing = True
        self._finish(self.outcome)

    def _traced(self, candidate: Timed) -> Timed:
        """Candidate with a step that the runtime traced; unchanged where it did not run.

        Where tracing fails a line says so, and nothing else is lost with it.
        """
        placement = candidate.placement
        if placement is None or candidate.clock in (None, Clock.SIMULATED):
            return candidate
        console = self.stages.console
        try:
            with console.status("tracing a step on the runtime"):
                traced = self.timing(placement).traced_step(placement.decisions)
            return dataclasses.replace(candidate, traced=traced)
        except KeyboardInterrupt:
            why = "interrupted"
        except (TraceFailed, WorkerError, InputError) as error:
            why = str(error)
        self.stages.tell(f"No step was traced ({why}): timeline.json has the simulated one alone.")
        return candidate


class _Placing(_Finding):
    """`place`."""

    def __init__(self, request: Request, console: rich.console.Console, finish: Finish, method: str) -> None:
        super().__init__(request, console, finish, method)
        self._make_outcome: Callable[[], Outcome] = self._reported_first
        self._why_not_split = ""

    @property
    def is_ended(self) -> bool:
        """True if Ctrl-C ended it or one of its searches."""
        ended = [row for row in self.found if row.search is not None and row.search.interrupted]
        return self._was_left or bool(ended)

    def reported(self) -> Outcome:
        outcome = self._make_outcome()
        return in_layers(outcome, self.request.seed) if self.request.by == LAYER else outcome

    def rest(self) -> list[Stage]:
        """Stages after the problem, as far as they are known."""
        method, is_live = self.asked.method, self.asked.cluster.is_live
        self._make_outcome = self._reported_first
        if self._is_given():
            stages = [self._at_once(self._take_given)]
            stages += self.measuring(2, operator.itemgetter(0), WHILE_BUILDING) if is_live else []
        elif self.asked.objective.is_memory:
            stages = [self._at_once(self._find_beside), self.searching(self._find_least, method)]
            count = 1 + len(self.asked.cluster.devices)
            stages += self.measuring(count, operator.itemgetter(0)) if self.runs else []
        elif self.runs:
            make_parts = self._put_in_parts if self._tries_parts and self._has_time_for_parts() else None
            stages = live_stages(self, self._progress, self._take_live, WHILE_BUILDING, make_parts=make_parts)
            stages += [self._fusing()] if self.request.fuse else []
        else:
            if is_live and self.item is not None:
                why = f"No worker can run {self.item.name}: {self.item.why_not_standalone}."
                self.stages.tell(f"{why} What follows is the simulator's word alone.")
            # Those before the search, so that after Ctrl-C nothing is left but writing.
            stages = [self._at_once(self._find_beside), *self._simulated()]
            stages += [Stage(FUSE, self._fuse_simulated)] if self.request.fuse else []
            self._make_outcome = self._reported_fastest
        return [*stages, *self.closing()]

    def _is_given(self) -> bool:
        """Every op has its place, by a plan or by pins; of pins that is known with the problem."""
        request = self.request
        if self.form is None:
            return request.is_applied
        is_given = request.plan is not None or request.pins or request.respect_devices
        return (
            self.item is not None and bool(is_given) and bool((self.problem.allowed.sum(axis=1) == 1).all())
        )

    def _at_once(self, run: Callable[[float], object]) -> Stage:
        rule_s = _AT_ONCE_S + _S_PER_OP * self.assumed_ops
        return self.stages.kept(AT_ONCE, run, rule_s, f"{AT_ONCE} for {self.asked.name}")

    def _find_beside(self, _: float) -> None:
        """Finds the best of the few plans of each constructive method."""
        self.found += [self.find(name, Budget(evaluations=_FEW)) for name in beside(self.asked.method)]

    def _take_given(self, _: float) -> None:
        """The one placement there is, beside the best single device without pins."""
        plan_file, devices = self.request.plan, self.problem.allowed.argmax(axis=1)
        is_part = self.request.complete_plan
        decided = None if plan_file is None else plan_file.op_by_op(self.problem, is_part)
        per_op = () if decided is None else decided.per_op(self.problem)
        plan = Placement(self.problem, devices, *per_op).decisions
        problem = build_problem(self.program, self.asked.cluster, self.request.costs, self.profiles)
        self.form = Form(problem, self.program)
        timed = Timed.of_search(GIVEN, evaluate_given(self.problem, plan, GIVEN))
        self.found = [timed, self.find(SINGLE, Budget(evaluations=_FEW))]
        self._has_plan = True

    def _find_least(self, seconds: float) -> None:
        candidate = self.find(self.asked.method, self.budget_in(seconds), self.asked.objective)
        self.found.insert(0, candidate)
        self._has_plan = True

    def _simulated(self) -> list[Stage]:
        """The search with the method, and then random search."""
        method = self.asked.method
        if not methods.find(method).goes_on:
            return [self.searching(self._find_own, method, share=0.0)]
        if method == CONTROL:
            return [self.searching(self._find_own, method)]
        share, splitting = 1 - CONTROL_SHARE, self._splitting()
        searches = 2 if splitting else 1
        return [
            self.searching(self._find_own, method, share, searches),
            *splitting,
            *([self.searching(self._find_split, method, share, searches)] if splitting else []),
            self.searching(self._find_control, CONTROL, CONTROL_SHARE),
        ]

    @property
    def _tries_parts(self) -> bool:
        """The batch is also put in parts, one for each device; not where ops have their places already."""
        request, method = self.request, self.asked.method
        decided = request.pins or request.plan is not None or request.held or request.respect_devices
        searches = methods.find(method).goes_on and method != CONTROL
        could = request.tries_parts and not request.robust and not self.asked.objective.is_memory
        has_devices = len(replicas_of(self.asked.cluster.devices)) > 1
        return could and searches and has_devices and request.source.is_split_unasked and not decided

    def _splitting(self) -> list[Stage]:
        if not self._tries_parts or not self._has_time_for_parts():
            return []
        return [Stage(SPLIT_STAGE, self._split_the_batch, self.split_s, self.split_key)]

    def _has_time_for_parts(self) -> bool:
        # Until there is one: it may also turn out to be late when it is to begin.
        if math.isfinite(self.asked.whole_s):
            self._why_not_split = self._left_out("A plan with the batch in parts", self.split_s)
        return self.has_time_to_split

    def _put_in_parts(self) -> Form | str:
        costs = self.request.costs if self.runs else "analytic"
        form = self.put_in_parts(self.request.source.batch_statistics, costs)
        self._why_not_split = f"The batch is not split: {form}." if isinstance(form, str) else ""
        return form

    def _split_the_batch(self, left_s: float) -> str | None:
        if not left_s:
            return LEFT_OUT
        form = self._put_in_parts()
        if isinstance(form, Form):
            self.found.append(data_parallel_row(form))
        return None

    def _find_split(self, seconds: float) -> None:
        """Searches the program in parts, from data parallelism and from the plan of the whole.

        Where some ops are faster whole, it is the form in which they are that is searched.
        """
        split, best_whole, began_s = self.in_parts, self.found[0], time.monotonic()
        if split is None:
            return
        # To split it once more takes as long as the first time.
        is_late = 2 * (self.stages.took_s(SPLIT_STAGE) or 0.0) > seconds
        own_s = best_whole.seconds(Clock.SIMULATED)
        form = split if is_late or own_s is None else split.where_it_pays(own_s)
        self.in_parts = form
        budget = self.budget_in(max(LEAST_S, seconds - (time.monotonic() - began_s)))
        starts = form.starts([] if best_whole.placement is None else [best_whole.placement])
        candidate = self._searched_in(form, budget, starts)
        data_parallel = next(row for row in self.found if row.name == DATA_PARALLEL)
        if (
            fastest([data_parallel, candidate], SPLIT) is data_parallel
        ):  # which is no plan of a form that keeps ops whole
            candidate = dataclasses.replace(data_parallel, name=SPLIT, evaluations=candidate.evaluations)
        self.found.append(candidate)
        self._close_where_ended()

    def _searched_in(self, form: Form, budget: Budget, starts: Sequence[Placement]) -> Timed:
        """The best plan that a search of a form with its batch in parts finds."""
        method = self.asked.method
        start = starts if methods.find(method).uses_start else None
        title = f"{method}, the batch in {form.parts} parts,"
        try:
            result = self.search(method, budget, self._progress(title, budget), start, problem=form.problem)
        except NothingFits as error:
            return Timed(SPLIT, status=Status.OUT_OF_MEMORY, message=str(error))
        return Timed.of_search(SPLIT, result)

    def _find_own(self, seconds: float) -> None:
        self.found.insert(0, self.find(self.asked.method, self.budget_in(seconds)))
        self._has_plan = True
        self._close_where_ended()

    def _find_control(self, seconds: float) -> None:
        """Runs the control for as many evaluations as the method had, unless that found nothing."""
        search = self.found[0].search
        if search is not None:
            budget = self.budget_in(self.control_s(seconds)).capped(search.evaluations)
            self.found.append(self.find(CONTROL, budget))
            self._close_where_ended()

    def _close_where_ended(self) -> None:
        """After Ctrl-C in a search nothing is left but writing."""
        if self.is_ended:
            self.stages.then(self.closing())

    def _progress(self, title: str, budget: Budget) -> ConsoleProgress:
        return ConsoleProgress(f"{title} on {self.problem.cluster.name}", budget, self.stages.console)

    def _take_live(self, found: Outcome) -> None:
        """The method's best and those of the plainer ones stand beside what is recommended.

        Raises:
          InputError: the method's own plan was asked for, and none of it ran.
        """
        method = self.asked.method
        own_row = found.named(method)
        if self.request.write == METHOD and own_row is None:
            raise InputError(
                f"no plan of {method} was measured, so --write={METHOD} has none to write; "
                "leave it away for the fastest"
            )
        written = own_row if self.request.write == METHOD and own_row is not None else found.written
        found = found.with_written(written, written if self.request.fuse else self._traced(written))
        form = self._form_written(found.placement)
        why_not_split = "" if form.split is not None else self._why_not_split
        outcome = dataclasses.replace(found, form=form).noted({Note.WHY_NOT_SPLIT: why_not_split})
        self._make_outcome, self._has_plan = lambda: outcome, True
        if not self.request.fuse:
            self.stop()

    def _fusing(self) -> Stage:
        """With half of the budget, or nearly all where there is nothing else to search."""
        if math.isinf(self.asked.whole_s):
            return Stage(FUSE, self._fuse, _FUSE_MOST_S)
        return Stage(FUSE, self._fuse, share=_FUSE_ALONE if len(self.asked.cluster.devices) == 1 else 1.0)

    def _fuse(self, seconds: float) -> None:
        """Clusters for the plan that is written, by measurement: evaluations are no limit to that."""
        seconds = min(seconds, _FUSE_MOST_S)
        self.runtime.limit.ends_in(seconds)
        outcome = self._make_outcome()
        placement = outcome.placement
        item = outcome.form.item
        assert item is not None  # it ran
        try:
            share_s = CLUSTERS_SHARE * seconds
            fusing = find_clusters(item, placement, self.timing(placement).try_programs, share_s)
            outcome = with_fusing(outcome, fusing, self.timing)
        except KeyboardInterrupt:
            why_not = "Nothing is fused: the search for clusters was interrupted."
            outcome = outcome.noted({Note.FUSED: why_not})
        except (WorkerError, InputError) as error:
            outcome = outcome.noted({Note.FUSED: f"Nothing is fused: {error}."})
        else:
            outcome = outcome.with_written(outcome.written, self._traced(outcome.written))
        self._make_outcome = lambda: outcome
        self.stop()

    def _fuse_simulated(self, _: float) -> None:
        outcome = self._reported_fastest()
        fused = with_simulated_clusters(outcome)
        self._make_outcome = lambda: fused

    def _form_written(self, plan: Placement) -> Form:
        """The form that a plan is of, with the costs that it was found with."""
        return dataclasses.replace(self.form_of(plan), problem=plan.problem)

    def _reported_first(self) -> Outcome:
        assert self.form is not None  # it is built
        written, *rivals = self.found
        return Outcome(
            self.form, self._told_of_ctrl_c(written), tuple(rivals), asked=written.name, notes=self._race
        )

    def _reported_fastest(self) -> Outcome:
        own_row = self.found[0]
        # A robust plan may take longer by the estimates, and is the best of all by what was sought.
        is_robust = self.request.robust and own_row.clock is not None
        is_own = self.request.write == METHOD or is_robust
        chosen = own_row if is_own else fastest(self.found, own_row.name) or own_row
        rivals = tuple(row for row in self.found if row is not chosen)
        chosen = self._told_of_ctrl_c(chosen)
        form = self.form if chosen.placement is None else self._form_written(chosen.placement)
        assert form is not None  # it is built
        why_not_split = "" if form.split is not None else self._why_not_split
        notes = {Note.WHY_NOT_SPLIT: why_not_split}
        return Outcome(form, chosen, rivals, asked=own_row.name, notes=notes)


class _Comparing(_Finding):
    """`compare`."""

    def rest(self, names: Sequence[str]) -> list[Stage]:
        """Stages after the problem: methods that make a few plans and end need no share of the budget."""
        searches = [
            self.searching(functools.partial(self._try, name), name, float(methods.find(name).goes_on))
            for name in names
        ]
        is_live = self.asked.cluster.is_live
        return [*searches, *(self.measuring(len(names), fastest) if is_live else []), *self.closing()]

    def _try(self, name: str, seconds: float) -> None:
        """A method that cannot place this problem, or wants a library, ends nothing."""
        try:
            self.found.append(self.find(name, self.budget_in(seconds)))
            self._has_plan |= self.found[-1].placement is not None
        except InputError as error:
            self.found.append(Timed(name, status=Status.ILLEGAL, message=str(error)))

    def reported(self) -> Outcome:
        chosen = fastest(self.found)
        if chosen is None:
            raise InputError(self.found[0].message)
        rivals = tuple(row for row in self.found if row is not chosen)
        assert self.form is not None  # it is built
        outcome = Outcome(self.form, self._told_of_ctrl_c(chosen), rivals, notes=self._race)
        return in_layers(outcome, self.request.seed) if self.request.by == LAYER else outcome
