"""Plans of functions that are kept for later processes, by the structure of program and devices."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.tensorflow_internals import process_config
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.base.arguments import InputError
from tf_placer.base.files import user_cache_folder
from tf_placer.base.method_spec import Role
from tf_placer.calibration.build_problem import Cache
from tf_placer.planning.outcome import CALLED, UNPLACED_CALLED, Outcome, kept_of_plan, outcome_of_plan
from tf_placer.problem.decisions import UNDECIDED
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.known import MEMORY, WHOLE


def default_plan_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer/plans``, usually in ``~/.cache``."""
    return user_cache_folder() / "plans"


def kept_plan(problem: Problem, config: AutoPlaceConfig) -> Outcome | None:
    """The plan that is kept for a problem and what is asked of it, whatever its ops are called; None where none is."""
    return _cache(config).load(_key(problem, config), lambda found: _of_file(found, problem))


def answers(kept: Outcome, config: AutoPlaceConfig) -> bool:
    """True if a plan was searched at least as long as requested, by the requested method or the default."""
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


def with_what_was_known(plan: Outcome, kept: Outcome) -> Outcome:
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


def _of_file(found: Any, problem: Problem) -> Outcome:
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


def _key(problem: Problem, config: AutoPlaceConfig) -> dict[str, str]:
    """Key that a plan is kept under: the program, the devices, fixed ops, the unplaced rival; not the budget.

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
