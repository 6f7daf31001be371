"""The plan of one signature of a function: found by a search, or kept from an earlier one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import rich.console
import tensorflow as tf

from colocation.tensorflow_internals import process_config
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.base.arguments import InputError
from tf_placer.base.files import Cache, user_cache_folder
from tf_placer.base.quantities import milliseconds, percentage
from tf_placer.calibration.build_problem import awaited_s, build_problem
from tf_placer.cluster.cluster import Cluster, fullest_share
from tf_placer.graph.item import Item
from tf_placer.planning.forms import Form
from tf_placer.planning.fusing import CLUSTERS_SHARE, FUSE, find_clusters, fused_here, with_fusing
from tf_placer.planning.kept import as_json, from_json, lasting, outcome_of_file, why_measured_again
from tf_placer.planning.live import live_stages
from tf_placer.planning.outcome import AS_IT_IS, PLAN, SINGLE, Kept, Note, Outcome, Timed
from tf_placer.planning.race import Measuring, raced_anew
from tf_placer.planning.road import (
    LEAST_S,
    PROFILE,
    RACE,
    Asked,
    Road,
    compiling,
    searching,
)
from tf_placer.planning.stages import LEFT_OUT, Stage
from tf_placer.problem.pins import Pin, narrowed_units, with_fixed_ops, with_pins, with_requested_devices
from tf_placer.problem.placement import Placement, PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.methods import DEFAULT, MEMORY, REFERENCE, WHOLE, Budget, Objective
from tf_placer.search.recorder import Progress, SearchResult, Silent, progress_of
from tf_placer.search.search import NothingFits, evaluate_given

# Requests of ``tf.device`` in a function: kept, or dropped with a warning.


def respect_devices(item: Item, problem: Problem, is_pinned: np.ndarray) -> Problem:
    """Returns the problem narrowed to the devices that the item's ops ask for; one warning if some are dropped.

    Args:
      item: the program.
      problem: of that item, after pins and what is fixed.
      is_pinned: [U] units that a pin says something of, which comes first.
    """
    requests = with_requested_devices(item, problem, is_pinned)
    if requests.num_dropped:
        warnings.warn(
            f"auto_place of {item.name!r} cannot keep all that it asks for with tf.device: {requests.reasons}; that is "
            "placed freely",
            stacklevel=2,
        )
    return requests.problem


def of_copies(ops: str) -> str:
    """A pin's pattern of op names that is also about the copies of these ops in a split program."""
    return rf"(?:part_\d+/)?(?:{ops})"


ProgressFactory = Callable[[str, Budget], Progress]

APPLY = "applying the plan"
_APPLY_S = 1.0


def default_plan_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer/plans``, usually in ``~/.cache``."""
    return user_cache_folder() / "plans"


def find_plan(
    item: Item,
    cluster: Cluster,
    config: AutoPlaceConfig,
    fixed: Mapping[int, int] | None = None,
    progress: ProgressFactory | None = None,
    console: rich.console.Console | None = None,
    before_search: Callable[[Problem], None] = lambda problem: None,
    as_it_is: Item | None = None,
) -> Outcome:
    """Takes the plan that was kept for such a program and cluster, or searches one and keeps it.

    A kept plan is taken where it answers what is asked for (``answers``). Else the search begins with it, and the
    better of the two is kept.

    Args:
      item: the program.
      cluster: live or logical.
      config: what was asked for.
      fixed: op -> device, both as positions: ops that must be there.
      progress: shows the search.
      console: is told what is done and how long it takes, where it takes any time; None tells nobody.
      before_search: raises where a plan could not be used, so that none is searched in vain.
      as_it_is: the program before its batch was put in parts, where the item is of so many as were asked for.

    Raises:
      InputError: the cluster cannot run the program, nothing fits, or what is pinned or fixed cannot be there.
    """
    if config.plan is not None:
        return outcome_of_file(item, cluster, PlanFile.read(config.plan), fixed or {})
    if cluster.is_live and not item.runs_standalone and (config.keep_unplaced or config.fuse):
        raise InputError(
            f"it cannot be timed on workers, because {item.why_not_standalone}; keep_unplaced=False takes the "
            "simulator's word for a plan"
        )
    call = _FirstCall(item, cluster, config, fixed or {}, progress, console, before_search, as_it_is)
    return call.run()


class _FirstCall(Road):
    """The stages of a first call; they are announced once it is clear that no kept plan saves them.

    Arguments as ``find_plan`` takes them.
    """

    def __init__(
        self,
        item: Item,
        cluster: Cluster,
        config: AutoPlaceConfig,
        fixed: Mapping[int, int],
        progress: ProgressFactory | None,
        console: rich.console.Console | None,
        before_search: Callable[[Problem], None],
        as_it_is: Item | None,
    ) -> None:
        asked = Asked(
            name=f"{item.name} {item.fingerprint[:8]}",
            cluster=cluster,
            method=config.method,
            budget=Budget(config.budget_s),
            budget_of=config.budget_of,
            seed=config.seed,
            objective=Objective(config.objective, config.slow_down),
            is_anew=config.refresh,
        )
        super().__init__(asked, console or rich.console.Console(quiet=True), item, as_it_is)
        self._config, self._fixed, self._before_search = config, fixed, before_search
        self._why_not_split: str | None = None  # None: it was not tried
        self._is_narrowed = np.zeros(0, bool)
        self._progress = progress or (lambda title, budget: Silent())
        self._pins = [
            Pin(ops if as_it_is is None else of_copies(ops), device) for ops, device in config.pins.items()
        ]
        self._kept: Outcome | None = None
        self._plan: Outcome | None = None
        self._live: Outcome | None = None
        self._is_interrupted = False
        self._searches: list[SearchResult] = []
        self._profiling_s = awaited_s(item, cluster, cache=self.profiles) if self.runs else 0.0

    def run(self) -> Outcome:
        """The plan."""
        building = Stage(PROFILE, self._build, self._profiling_s, is_once=bool(self._profiling_s))
        if self._profiling_s:
            note = "Profiles are kept: later calls need none of that time."
            self.stages.run([*compiling(self.stages), building, *self._rest()], note=note)
        else:
            self.stages.run([building], is_announced=False)
        return self.plan

    @property
    def plan(self) -> Outcome:
        """Outcome of the search."""
        assert self._plan is not None  # some stage found it
        return self._plan

    def _build(self, _: float) -> None:
        """The problem, and the plan that was kept for it, if it answers what is asked for."""
        item, config = self.program, self._config
        built = build_problem(item, self.asked.cluster, cache=self.profiles, check=self._decided)
        problem = self._decided(built)
        if config.respect_devices:
            pinned = narrowed_units(built, with_pins(item, built, self._pins))
            problem = respect_devices(item, problem, pinned)
        self.form, self._is_narrowed = Form(problem, item), narrowed_units(built, problem)
        key = _key(problem, config)
        kept = _cache(config).load(key, lambda data: from_json(self._form_of_kept(data), data, key))
        why_again = "" if kept is None else why_measured_again(kept)
        if kept is not None and answers(kept, config) and not config.refresh and (self.runs or not why_again):
            if why_again:
                self.stages.tell(f"A plan was kept, and {why_again}: it is measured again.")
                self.stages.then(self._measure_again(kept))
                return
            if config.keep_unplaced and not kept.is_worth_it:
                self.without_workers()
            self._plan = kept
            self.stages.then([])
            return
        self._kept = None if config.refresh else kept
        rest = [*compiling(self.stages), *self._rest()]
        self.stages.then([*rest, _applying(_APPLY_S)])
        if not self._profiling_s:
            self.stages.announce()
        began_s = time.monotonic()
        self._before_search(problem)  # a trial of what the caller does with the plan, and as long as that
        self.stages.then([*rest, _applying(time.monotonic() - began_s)])

    def _decided(self, problem: Problem) -> Problem:
        return with_fixed_ops(self.program, with_pins(self.program, problem, self._pins), self._fixed)

    @property
    def _tries_parts(self) -> bool:
        """The batch is also put in a part for each device."""
        return self._config.tries_parts and not self.asked.objective.is_memory

    def _put_in_parts(self) -> Form | str:
        """The program with a part of the batch for each device, or why there is none in one clause."""
        if self.in_parts is None and self._why_not_split is None:
            form = self.put_in_parts(self._config.batch_statistics)
            try:
                self.in_parts = None if isinstance(form, str) else form.within(self._is_narrowed)
            except InputError as error:
                self.in_parts, form = None, str(error)
            self._why_not_split = form if isinstance(form, str) else None
        return self.in_parts or self._why_not_split or ""

    def _form_of_kept(self, kept: Any) -> Form:
        """The form of the program that a kept plan is of.

        Raises:
          InputError, ValueError, LookupError, TypeError, AttributeError: it is damaged, or there is no such form.
        """
        assert self.form is not None  # it is built
        if not self._config.tries_parts or kept.get("parts", 1) == 1:
            return self.form
        form = self._put_in_parts()
        if isinstance(form, str):
            raise InputError(form)
        return form

    def _why_whole(self, plan: Placement) -> str:
        """A sentence on why the batch of a plan is not split; "" where it is, or that was not tried."""
        if self.form_of(plan).split is not None:
            return ""
        if self._config.tries_parts and self.asked.objective.is_memory:
            return "The batch is not split: parts='auto' is for objective='time'."
        return f"The batch is not split: {self._why_not_split}." if self._why_not_split else ""

    def _rest(self) -> list[Stage]:
        if self._config.only_fuses(self.asked.cluster):
            return [Stage(FUSE, self._find_clusters, share=1.0)]
        if self.asked.objective.is_memory:
            measuring = Measuring(
                self, lambda: self.beside_singles(PLAN, self.plan.placement.decisions), rounds=0
            )
            count = 1 + len(self.asked.cluster.devices)
            return [
                self.searching(self._find_least, self.asked.method),
                *(measuring.stages(count, self._take_measured) if self.runs else []),
            ]
        if not self.runs:
            return [self.searching(self._find_simulated, self.asked.method)]
        make_parts = self._put_in_parts if self._tries_parts and self.has_time_to_split else None
        return [
            *live_stages(self, self._progress, self._take_live, start=self._start, make_parts=make_parts),
            *([Stage(FUSE, self._fuse, share=1.0)] if self._config.fuse else []),
            Stage(RACE, self._keep_live),
        ]

    @property
    def _start(self) -> Placement | None:
        """The kept plan; methods decide devices alone, and so does where they begin."""
        if self._kept is None:
            return None
        plan = self._kept.placement
        return Placement(plan.problem, plan.device_of_unit)

    def _keep(self, plan: Outcome, is_interrupted: bool, searches: Sequence[SearchResult] = ()) -> None:
        """Keeps what searches gave."""
        searched: tuple[tuple[str, float, float], ...] = ()
        if not is_interrupted:
            method, asked_s = self.asked.method, self._config.budget_s
            given_s = self.stages.given_s(searching(method)) or self.stages.given_s(FUSE)
            searched_s = min(given_s, asked_s)
            searched = ((method, asked_s, searched_s),)
        progress = [
            progress_of(f"{search.method}, search {i}", search.history)
            for i, search in enumerate(searches, 1)
        ]
        kept = Kept(_key(self.problem, self._config), searched, progress)
        plan = lasting(plan.noted({Note.WHY_NOT_SPLIT: self._why_whole(plan.placement)}), kept)
        self._plan = plan if self._kept is None else _with_what_was_known(plan, self._kept)
        keep(self._plan, self._config)

    def _find_simulated(self, seconds: float) -> None:
        method, start = self.asked.method, self._start
        is_of_whole = start is not None and self.form_of(start).split is None
        begin = start if is_of_whole and methods.find(method).uses_start else None
        tries_parts, began_s = self._tries_parts and self.has_time_to_split, time.monotonic()
        budget = self.budget_in(seconds / 2 if tries_parts else seconds)
        whole = self.search(method, budget, start=begin)
        candidates = [whole]
        if tries_parts and not whole.interrupted:
            form = self._put_in_parts()
            budget = self.budget_in(max(LEAST_S, seconds - (time.monotonic() - began_s)))
            if isinstance(form, Form):
                starts = form.starts([whole.placement]) if methods.find(method).uses_start else None
                try:
                    candidates.append(self.search(method, budget, start=starts, problem=form.problem))
                except NothingFits as error:
                    self.in_parts, self._why_not_split = None, str(error)
        if start is not None:
            candidates.append(evaluate_given(start.problem, start.decisions, method))
        best = min(candidates, key=lambda one: one.runtime_s)
        single = self.search(REFERENCE, Budget(evaluations=self.problem.num_devices))
        why_not = self.program.why_not_standalone or "these devices are not for timing"
        plan = Outcome(
            self.form_of(best.placement),
            Timed.of_search(PLAN, best),
            (Timed.of_search(SINGLE, single),),
            notes={Note.WHY: f"the fastest in the simulator; {why_not}"},
        )
        self._keep(plan, whole.interrupted, [best])

    def _take_live(self, found: Outcome) -> None:
        self._live = found

    def _fuse(self, seconds: float) -> None:
        """Clusters for the recommended plan."""
        outcome = self._live
        assert outcome is not None  # the stage before
        self.runtime.limit.ends_in(seconds)
        item, timing = outcome.form.item, self.timing(outcome.placement)
        assert item is not None  # it ran
        clusters = find_clusters(item, outcome.placement, timing.try_programs, CLUSTERS_SHARE * seconds)
        self._live = with_fusing(outcome, clusters, self.timing)

    def _find_clusters(self, seconds: float) -> None:
        """Clusters for the function where it is, timed in turn with it as it runs in this process."""
        self._keep(fused_here(self.program, self.problem, seconds), False)

    def _keep_live(self, _: float) -> None:
        """Keeps the recommended plan with the rows that it raced with."""
        outcome = self._live
        assert outcome is not None  # the stage before
        self.stop()
        self._keep(outcome, outcome.search.interrupted, outcome.searches)

    def _measure_again(self, kept: Outcome) -> list[Stage]:
        """Stages that race a kept plan anew, with every single device and the function as it is."""

        def take(seconds: float) -> None:
            self.runtime.limit.ends_in(seconds)
            singles = self.beside_singles(PLAN, kept.placement.decisions)[1:]
            rivals = tuple(row for row in kept.beside if not row.is_single)
            raced = raced_anew(dataclasses.replace(kept, beside=(*singles, *rivals)), self.timing)
            self.stop()
            timed = [row for row in raced.beside if row.is_single and row.raced_s is not None]
            best = min(timed, key=lambda row: row.raced_s or 0.0, default=Timed(SINGLE))
            simulated_s = None if kept.single is None else kept.single.simulated_s
            single = Timed(SINGLE, simulated_s=simulated_s, raced_s=best.raced_s, spread_s=best.spread_s)
            rows = (single, *(row for row in raced.beside if not row.is_single))
            self._plan = dataclasses.replace(raced, beside=rows)
            keep(self._plan, self._config)

        return [self.starting(beside_unplaced=True), Stage(RACE, take)]

    def _find_least(self, seconds: float) -> None:
        """The plan that takes the least memory in the simulator.

        Such a search begins nowhere, so a plan that was kept is only held against what it finds.
        """
        budget, start, method = self.budget_in(seconds), self._start, self.asked.method
        shown = self._progress(f"{method}, least memory", budget)
        searched = best = self.search(method, budget, shown, objective=self.asked.objective)
        least = best.least_memory
        assert least is not None  # it was sought
        if start is not None:
            kept_result = evaluate_given(self.problem, start.decisions, method)
            peak_bytes = np.array(
                [[kept_result.peak_bytes[device.name] for device in self.problem.cluster.devices]]
            )
            share = float(fullest_share(self.problem.cluster, peak_bytes)[0])
            if (
                share < least.share
                and kept_result.runtime_s <= (1 + self._config.slow_down) * least.fastest.runtime_s
            ):
                best, least = kept_result, dataclasses.replace(least, share=share)
        self._plan = Outcome(
            self.form_of(best.placement),
            Timed.of_search(PLAN, best),
            (Timed(SINGLE, simulated_s=least.fastest.single_device_s),),
            notes={
                Note.WHY: f"the least memory, {percentage(least.share)} of the fullest device, at "
                f"{milliseconds(best.runtime_s)} beside {milliseconds(least.fastest.runtime_s)} of the fastest plan, "
                "in the simulator"
            },
        )
        self._searches = [least.fastest]  # from there on memory is what falls
        if not self.runs:
            self._keep(self._plan, searched.interrupted, self._searches)
        self._is_interrupted = searched.interrupted

    def _take_measured(self, measuring: Measuring) -> None:
        """The plan of least memory, measured once."""
        least, *singles = measuring.rows
        if least.measured_s is None:
            raise InputError(
                f"the plan of least memory does not run: {least.message}; give objective='time', or a larger "
                "memory_limit"
            )
        plan, ran = self.plan, [row for row in singles if row.measured_s is not None]
        single_s = min((row.measured_s for row in ran if row.measured_s is not None), default=None)
        simulated = plan.single or Timed(SINGLE)
        measured = dataclasses.replace(
            plan,
            written=dataclasses.replace(plan.written, measured_s=least.measured_s),
            beside=(dataclasses.replace(simulated, measured_s=single_s),),
        ).noted({Note.WHY: f"{plan.notes[Note.WHY]}, and measured once", Note.TIMED_AT_S: time.time()})
        self._keep(measured, self._is_interrupted, self._searches)


def _applying(seconds: float) -> Stage:
    """Time that is left for the caller, who applies the plan."""
    return Stage(APPLY, lambda _: LEFT_OUT, seconds)


def answers(kept: Outcome, config: AutoPlaceConfig) -> bool:
    """True if a plan was searched at least as long as requested, by the requested method or the default."""
    methods_known = (config.method, DEFAULT)
    assert kept.kept is not None  # a search found it
    return any(
        method in methods_known and (asked_s if config.budget_of == WHOLE else searched_s) >= config.budget_s
        for method, asked_s, searched_s in kept.kept.searched
    )


def keep(plan: Outcome, config: AutoPlaceConfig) -> None:
    """Keeps a plan, for later processes, in place of what was kept for the same question."""
    assert plan.kept is not None  # it is the plan of a search
    _cache(config).save(dict(plan.kept.key), as_json(plan))


def _cache(config: AutoPlaceConfig) -> Cache:
    return Cache(pathlib.Path(config.cache_dir) if config.cache_dir else default_plan_folder())


def _with_what_was_known(plan: Outcome, kept: Outcome) -> Outcome:
    """A plan that a search gave which began with a kept one; where it is the same, what a trial said holds."""
    assert plan.kept is not None and kept.kept is not None  # searches found both
    searched = (*kept.kept.searched, *plan.kept.searched)
    plan = dataclasses.replace(plan, kept=plan.kept._replace(searched=searched))
    problem, before = plan.placement.problem, kept.placement.problem
    same = problem.fingerprint == before.fingerprint and (
        plan.placement.decisions.digest(0, problem) == kept.placement.decisions.digest(0, problem)
    )
    as_it_is, placed_s = kept.named(AS_IT_IS), kept.written.called_s
    if (
        not same
        or as_it_is is None
        or placed_s is None
        or as_it_is.called_s is None
        or why_measured_again(kept)
    ):
        return plan
    return plan.tried(kept.is_worth_it, placed_s, as_it_is.called_s, kept.notes.get(Note.LOAD))


def _key(problem: Problem, config: AutoPlaceConfig) -> dict[str, str]:
    """Key that a plan is kept under: the program, the devices, fixed ops, the unplaced rival; not the budget.

    The memory of a live device is what was free when it was probed, another number each time: only limits count.
    """
    devices = [f"{device.name} {device.model}" for device in problem.cluster.devices]
    return {
        "kind": "outcome",
        "graph": problem.fingerprint,
        "cluster": f"{problem.cluster.kind}: {', '.join(devices)}",
        "allowed": hashlib.sha256(np.packbits(problem.allowed).tobytes()).hexdigest(),
        "process": hashlib.sha256(process_config().graph_options.SerializeToString()).hexdigest(),
        "tensorflow": tf.__version__,
        **(
            {}
            if config.parts == 1
            else {"parts": f"{config.parts}, statistics of the {config.batch_statistics}"}
        ),
        **({"fuse": "clusters"} if config.fuse else {}),
        **({"objective": f"memory {config.slow_down}"} if config.objective == MEMORY else {}),
        **({"memory_limit": json.dumps(config.memory_limit, sort_keys=True)} if config.memory_limit else {}),
    }
