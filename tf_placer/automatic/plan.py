"""The plan for one signature of a function: found by a search, or kept from an earlier one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import rich.console
import tensorflow as tf

from colocation.tensorflow_internals import process_config
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.respect_devices import respect_devices
from tf_placer.automatic.waits import PROFILE, UNPLACED, FirstCall
from tf_placer.calibration.build_problem import build_problem
from tf_placer.calibration.cache import Cache
from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator, UnplacedFailed
from tf_placer.graph.item import Item
from tf_placer.method_spec import Role
from tf_placer.planners.single_device import single_device_placements
from tf_placer.planning.live import MEASURE, search_live, searching
from tf_placer.planning.live_phases import START
from tf_placer.planning.outcome import (
    CALLED,
    SINGLE,
    UNPLACED_CALLED,
    Outcome,
    SearchCurve,
    Timed,
    in_words,
    kept_of_plan,
    outcome_of_plan,
    progress_of,
)
from tf_placer.problem.decisions import UNDECIDED, Decisions
from tf_placer.problem.memory_bounds import fullest_share
from tf_placer.problem.pins import Pin, with_fixed_ops, with_pins
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.problem.requested import narrowed_units
from tf_placer.quantities import milliseconds, percentage
from tf_placer.runtime.race import race_spreads_s, race_times_s
from tf_placer.runtime.statistics import clearly_slower
from tf_placer.search import methods
from tf_placer.search.budget import WHOLE, Budget
from tf_placer.search.ctrl_c import patient
from tf_placer.search.objective import MEMORY
from tf_placer.search.progress import Progress
from tf_placer.search.result import SearchResult
from tf_placer.search.search import evaluate_given, search
from tf_placer.user_cache import user_cache_folder
from tf_placer.workers.fork_server import end_unused

ProgressFactory = Callable[[str, Budget], Progress]


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

    Raises:
      InputError: the cluster cannot run the program, nothing fits, or what is pinned or fixed cannot be there.
    """
    if cluster.is_live and not item.runs_standalone and config.keep_unplaced:
        raise InputError(
            f"it cannot be timed on workers, because {item.why_not_standalone}; keep_unplaced=False takes the "
            "simulator's word for a plan"
        )
    pins = [Pin(ops, device) for ops, device in config.pins.items()]

    def decided(problem: Problem) -> Problem:
        return with_fixed_ops(item, with_pins(item, problem, pins), fixed or {})

    call = FirstCall(item, cluster, config, console)
    with call.wait:
        call.compile()
        with call.wait.phase(PROFILE):
            built = build_problem(item, cluster, check=decided)
        problem = decided(built)
        if config.respect_devices:
            problem = respect_devices(item, problem, narrowed_units(built, with_pins(item, built, pins)))
        kept = _cache(config).load(_key(problem, config), lambda found: _kept_plan(found, problem))
        if kept is not None and answers(kept, config):
            if config.keep_unplaced and not kept.is_worth_it:
                end_unused()
            return kept
        call.built(problem)
        before_search(problem)
        plan = _search(item, problem, config, progress, call, kept)
        if kept is not None:
            plan = _with_what_was_known(plan, kept)
        keep(plan, config)
    return plan


def answers(kept: Outcome, config: AutoPlaceConfig) -> bool:
    """Whether a plan was searched at least as long as is asked for, by the method asked for or the default."""
    known = (config.method, methods.the(Role.DEFAULT).name)
    return any(
        method in known and (asked_s if config.budget_of == WHOLE else searched_s) >= config.budget_s
        for method, asked_s, searched_s in kept.searched
    )


def keep(plan: Outcome, config: AutoPlaceConfig) -> None:
    """Keeps a plan, for later processes, in place of what was kept for the same question."""
    _cache(config).save(
        _key(plan.placement.problem, config), {**_by_position(plan.placement), **kept_of_plan(plan)}
    )


def _cache(config: AutoPlaceConfig) -> Cache:
    return Cache(pathlib.Path(config.cache_dir) if config.cache_dir else default_plan_folder())


def _with_what_was_known(plan: Outcome, kept: Outcome) -> Outcome:
    """A plan that a search gave which began with a kept one; where it is the same, what a trial said holds."""
    plan = dataclasses.replace(plan, searched=(*kept.searched, *plan.searched))
    problem = plan.placement.problem
    same = plan.placement.decisions.digest(0, problem) == kept.placement.decisions.digest(0, problem)
    placed, unplaced = kept.named(CALLED), kept.named(UNPLACED_CALLED)
    if (
        not same
        or placed is None
        or unplaced is None
        or placed.measured_s is None
        or unplaced.measured_s is None
    ):
        return plan
    return plan.tried(kept.is_worth_it, placed.measured_s, unplaced.measured_s)


def _by_position(placement: Placement) -> dict[str, list[int]]:
    """All that is decided, op by op; what is not decided is left away."""
    decided = {"device_of_op": placement.device_of_op} | {
        name: getattr(placement, name) for name in UNDECIDED
    }
    return {name: value.tolist() for name, value in decided.items() if value is not None}


def _kept_plan(found: Any, problem: Problem) -> Outcome:
    """A plan from the cache for a program of the same structure, whatever its ops are called.

    Keras and TensorFlow number layers and ops, so that a model that is built again has other names. Its fingerprint is
    the same only if op for op the graphs are, so what is decided is kept by the position of its op.

    Raises:
      InputError, ValueError, LookupError, TypeError: it is damaged, or no plan for this problem.
    """
    device_of_op = np.array(found["device_of_op"])
    device_of_unit = np.full(problem.num_units, -1)
    device_of_unit[problem.unit_of_op] = device_of_op
    placement = Placement(problem, device_of_unit, *(found.get(name) for name in UNDECIDED))
    if (placement.device_of_op != device_of_op).any():
        raise InputError("it parts ops that must share a device")
    return dataclasses.replace(outcome_of_plan(placement, found), from_cache=True)


def _search(
    item: Item,
    problem: Problem,
    config: AutoPlaceConfig,
    progress: ProgressFactory | None,
    call: FirstCall,
    kept: Outcome | None,
) -> Outcome:
    # Methods decide devices alone, and so does where they begin.
    start = None if kept is None else Placement(problem, kept.placement.device_of_unit)
    if config.objective == MEMORY:
        return _least_memory(item, problem, config, progress, call, start)
    if not problem.cluster.is_live or not item.runs_standalone:
        budget, _ = call.share(problem)
        begin = start if methods.find(config.method).uses_start else None
        with call.wait.phase(searching(config.method)):
            result = search(problem, config.method, budget_s=budget.seconds, seed=config.seed, start=begin)
        searched = _searched(config, budget, result.interrupted)
        if start is not None:
            given = evaluate_given(problem, start.decisions, result.method)
            result = min(result, given, key=lambda one: one.runtime_s)
        single_s = search(
            problem, methods.the(Role.REFERENCE), budget_evaluations=problem.num_devices
        ).runtime_s
        return outcome_of_plan(
            result.placement,
            {
                "predicted_s": result.runtime_s,
                "single_predicted_s": single_s,
                "why": f"the fastest in the simulator; {item.why_not_standalone or 'these devices are not for timing'}",
                "searched": searched,
                "progress": _progress([result]),
            },
        )
    with RuntimeEvaluator(item, problem) as evaluator:
        with patient(), call.wait.phase(START):
            evaluator.start(beside_unplaced=True)
        budget, live_config = call.share(problem)
        found = search_live(
            problem,
            evaluator,
            config.method,
            budget,
            config.seed,
            progress,
            live_config,
            wait=call.wait,
            start=start,
        )
        with call.wait.phase(UNPLACED):
            race = _beside_unplaced(evaluator, found.placement.decisions, live_config.rounds)
    single = found.single or Timed(SINGLE)
    return outcome_of_plan(
        Placement.from_decisions(problem, found.placement.decisions),
        {
            "predicted_s": found.written.simulated_s,
            "single_predicted_s": single.simulated_s,
            "measured_s": found.written.measured_s,
            "single_measured_s": single.measured_s,
            "why": found.why,
            "searched": _searched(config, budget, found.search.interrupted),
            "correction": None if found.correction is None else dataclasses.asdict(found.correction),
            "progress": _progress(found.searches),
            **race,
        },
    )


def _searched(
    config: AutoPlaceConfig, budget: Budget, is_interrupted: bool
) -> tuple[tuple[str, float, float], ...]:
    """For ``Outcome.searched``; nothing where somebody ended it early."""
    return () if is_interrupted else ((config.method, config.budget_s, budget.seconds),)


def _least_memory(
    item: Item,
    problem: Problem,
    config: AutoPlaceConfig,
    progress: ProgressFactory | None,
    call: FirstCall,
    start: Placement | None,
) -> Outcome:
    """The plan that takes the least memory in the simulator; measured once where the devices are there.

    Such a search begins nowhere, so a plan that was kept is only held against what it finds.
    """
    budget, _ = call.share(problem)
    shown = progress(f"{config.method}, least memory", budget) if progress else None
    with call.wait.phase(searching(config.method)):
        result = search(
            problem,
            config.method,
            budget.seconds,
            seed=config.seed,
            progress=shown,
            objective=MEMORY,
            slow_down=config.slow_down,
        )
    searched = _searched(config, budget, result.interrupted)
    found, measured_s, single_measured_s, how = result.least_memory, None, None, "in the simulator"
    assert found is not None  # it was sought
    if start is not None:
        given = evaluate_given(problem, start.decisions, result.method)
        peak_bytes = np.array([[given.peak_bytes[device.name] for device in problem.cluster.devices]])
        share = float(fullest_share(problem.cluster, peak_bytes)[0])
        if share < found.share and given.runtime_s <= (1 + config.slow_down) * found.fastest.runtime_s:
            result, found = given, dataclasses.replace(found, share=share)
    if problem.cluster.is_live and item.runs_standalone:
        with RuntimeEvaluator(item, problem) as evaluator, call.wait.phase(MEASURE):
            rows = [result.placement.device_of_unit, *single_device_placements(problem)]
            measured = evaluator.evaluate(np.stack(rows))
        if measured.status[0] != Status.OK:
            raise InputError(
                f"the plan of least memory does not run: {measured.messages[0]}; give objective='time', or a larger "
                "memory_limit"
            )
        measured_s, how = float(measured.runtime_s[0]), "in the simulator, and measured once"
        singles_s = measured.runtime_s[1:][measured.status[1:] == Status.OK]
        single_measured_s = float(singles_s.min()) if len(singles_s) else None
    return outcome_of_plan(
        result.placement,
        {
            "predicted_s": result.runtime_s,
            "single_predicted_s": found.fastest.single_device_s,
            "measured_s": measured_s,
            "single_measured_s": single_measured_s,
            "why": f"the least memory, {percentage(found.share)} of the fullest device, at "
            f"{milliseconds(result.runtime_s)} beside {milliseconds(found.fastest.runtime_s)} of the fastest plan, "
            f"{how}",
            "searched": searched,
            "progress": _progress([found.fastest]),  # from there on memory is what falls
        },
    )


def _progress(searches: Sequence[SearchResult]) -> list[SearchCurve]:
    return [progress_of(f"{one.method}, search {i}", one.history) for i, one in enumerate(searches, 1)]


def _beside_unplaced(evaluator: RuntimeEvaluator, plan: Decisions, rounds: int) -> dict[str, Any]:
    """Whether the plan is worth it, why, and its times beside those of the function as it is, as they are kept."""
    try:
        samples = evaluator.race_unplaced(plan, rounds)
    except UnplacedFailed as error:
        return {"beside_unplaced": f"used because the function does not run as it is ({error})"}
    except RaceFailed as error:
        why = f"not run to its end beside the function as it is ({error})"
        return {"is_worth_it": False, "beside_unplaced": why}
    is_worth_it = clearly_slower(samples[1], samples[0])
    times_s, spreads_s = race_times_s(samples), race_spreads_s(samples)
    return {
        "is_worth_it": is_worth_it,
        "beside_unplaced": f"{in_words(is_worth_it)} than the function as it is, on the whole machine",
        "raced_s": times_s[0],
        "unplaced_s": times_s[1],
        "raced_spread_s": spreads_s[0],
        "unplaced_spread_s": spreads_s[1],
    }


def _key(problem: Problem, config: AutoPlaceConfig) -> dict[str, str]:
    """What a plan is kept by: the program, the devices, what was fixed, what it raced against; not how long.

    The memory of a live device is what was free when it was probed, another number each time: only limits count.
    """
    devices = [f"{device.name} {device.model}" for device in problem.cluster.devices]
    return {
        "kind": "plan_by_position",
        "graph": problem.fingerprint,
        "cluster": f"{problem.cluster.kind}: {', '.join(devices)}",
        "allowed": hashlib.sha256(np.packbits(problem.allowed).tobytes()).hexdigest(),
        "process": hashlib.sha256(process_config().graph_options.SerializeToString()).hexdigest(),
        "tensorflow": tf.__version__,
        **({"objective": f"memory {config.slow_down}"} if config.objective == MEMORY else {}),
        **({"memory_limit": json.dumps(config.memory_limit, sort_keys=True)} if config.memory_limit else {}),
    }
