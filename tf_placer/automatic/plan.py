"""The plan for one signature of a function: found by a search, or kept from an earlier one."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.calibration.build_problem import build_problem
from tf_placer.calibration.cache import Cache
from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search.budget import Budget
from tf_placer.search.live import search_live
from tf_placer.search.progress import Progress
from tf_placer.search.search import search

ProgressFactory = Callable[[str, Budget], Progress]


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """Where the ops of one program go, and why.

    Attributes:
      placement: the plan.
      predicted_s: step time in the simulator, of the plan and of the best single device.
      single_predicted_s: of the best single device there.
      measured_s, single_measured_s: on the runtime; None where there is none to ask.
      why: one sentence.
      from_cache: it was found by an earlier process.
    """

    placement: Placement
    predicted_s: float
    single_predicted_s: float
    measured_s: float | None
    single_measured_s: float | None
    why: str
    from_cache: bool


def default_plan_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer/plans``, usually in ``~/.cache``."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "tf_placer" / "plans"


def find_plan(
    item: Item,
    cluster: Cluster,
    config: AutoPlaceConfig,
    fixed: dict[int, int] | None = None,
    progress: ProgressFactory | None = None,
) -> Plan:
    """Takes the plan that was kept for such a program and cluster, or searches one and keeps it.

    Args:
      item: the program.
      cluster: live or logical.
      config: what was asked for.
      fixed: op -> device, both as positions: ops that must be there.
      progress: shows the search.

    Raises:
      InputError: the cluster cannot run the program, or nothing fits.
    """
    problem = with_fixed_ops(build_problem(item, cluster), fixed or {})
    cache = Cache(pathlib.Path(config.cache_dir) if config.cache_dir else default_plan_folder())
    key = _key(problem, config)
    found = cache.load(key)
    if found is not None:
        kept = {name: found[name] for name in found if name != "plan"}
        return Plan(Placement.from_json(found["plan"], problem, "kept plan"), **kept, from_cache=True)
    plan = _search(item, problem, config, progress)
    times = {field.name: getattr(plan, field.name) for field in dataclasses.fields(Plan)}
    kept = {name: times[name] for name in times if name not in ("placement", "from_cache")}
    cache.save(key, {"plan": plan.placement.to_json(), **kept})
    return plan


def with_fixed_ops(problem: Problem, fixed: dict[int, int]) -> Problem:
    """The problem with some ops, and with them their units, allowed on one device only.

    Raises:
      InputError: two ops of one unit are fixed to different devices, or one to a device without a kernel.
    """
    allowed = problem.allowed.copy()
    fixed_by: dict[int, int] = {}
    for op, device in fixed.items():
        unit = int(problem.unit_of_op[op])
        if unit in fixed_by and fixed[fixed_by[unit]] != device:
            raise InputError(
                f"op {problem.op_names[op]!r} must be on {problem.cluster.devices[device].name} and op "
                f"{problem.op_names[fixed_by[unit]]!r} on another device, but the two must share one"
            )
        if not problem.allowed[unit, device]:
            raise InputError(
                f"op {problem.op_names[op]!r} must be on {problem.cluster.devices[device].name}, where it or an op "
                "that shares its device has no kernel"
            )
        fixed_by[unit] = op
        allowed[unit] = False
        allowed[unit, device] = True
    return dataclasses.replace(problem, allowed=allowed)


def _search(item: Item, problem: Problem, config: AutoPlaceConfig, progress: ProgressFactory | None) -> Plan:
    budget = Budget(config.budget_s)
    if not problem.cluster.is_live:
        result = search(problem, config.search_method, budget_s=config.budget_s, seed=config.seed)
        single_s = search(problem, "single", budget_evaluations=problem.num_devices).runtime_s
        why = "the fastest in the simulator; these devices are not for timing"
        return Plan(result.placement, result.runtime_s, single_s, None, None, why, False)
    with RuntimeEvaluator(item, problem) as evaluator:
        found = search_live(problem, evaluator, config.search_method, budget, config.seed, progress)
    rows = [found.recommended.device_of_unit]
    rows += [found.single.device_of_unit] if found.single is not None else []
    predicted_s = SimulatedEvaluator(found.problem).evaluate(np.stack(rows)).runtime_s
    return Plan(
        Placement(problem, found.recommended.device_of_unit),
        float(predicted_s[0]),
        float(predicted_s[-1]),
        found.recommended.measured_s,
        found.single.measured_s if found.single is not None else None,
        found.why,
        False,
    )


def _key(problem: Problem, config: AutoPlaceConfig) -> dict[str, Any]:
    """What a plan is kept by: the program, the devices, what was fixed; not how long was searched."""
    devices = [f"{device.name} {device.model}" for device in problem.cluster.devices]
    return {
        "kind": "plan",
        "graph": problem.fingerprint,
        "cluster": f"{problem.cluster.kind}: {', '.join(devices)}",
        "allowed": np.packbits(problem.allowed).tobytes().hex() if config.variables == "stay" else "",
        "tensorflow": tf.__version__,
    }
