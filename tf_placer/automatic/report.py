"""What a user is told about the placement of a function."""

from __future__ import annotations

import math

from tf_placer.automatic.plan import Plan
from tf_placer.automatic.verdict import verdict
from tf_placer.data_parallel.data_parallel import DataParallel
from tf_placer.data_parallel.sentence import split_batch_sentence
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.crossings import crossings
from tf_placer.problem.layer_rows import device_labels, layer_rows
from tf_placer.problem.layers import layers_of
from tf_placer.quantities import excess, in_unit, milliseconds, ratio

_LARGEST = 5
_LAYERS = 12


def report(name: str, plan: Plan, is_used: bool | None, split: DataParallel | None = None) -> str:
    """The verdict; where ops and layers went, why, predicted and measured times, the largest transfers, memory.

    Several lines.

    Args:
      name: of the function.
      plan: its plan.
      is_used: calls run by it; None where the first calls are still to decide.
      split: the batch split instead; None where nobody asked.
    """
    placement = plan.placement
    problem, devices = plan.fitted_problem, placement.problem.cluster.devices
    row = placement.device_of_unit
    peak_bytes = SimulatedEvaluator(problem).evaluate(placement.decisions).peak_bytes
    assert peak_bytes is not None, "the simulator counts memory"
    lines = [
        f"{name} is {verdict(plan, is_used)}",
        *([f"beside the function as it is: {plan.beside_unplaced}"] if plan.beside_unplaced else []),
        *_called(plan),
        _beside_unplaced(plan),
        f"{name} on {problem.cluster.name}: {problem.num_ops} ops in {problem.num_units} units"
        + (", by a plan that was kept" if plan.from_cache else ""),
        f"among plans: {plan.why}",
        _times("measured", plan.measured_s, plan.single_measured_s),
        _times("predicted", plan.predicted_s, plan.single_predicted_s)
        + f"; no placement can take less than {milliseconds(plan.bounds.best_s)} there",
    ]
    said = split_batch_sentence(split, plan.predicted_s) if split is not None else ""
    lines += [said] if said else []
    for d, device in enumerate(devices):
        ops = placement.device_of_op == d
        resident_bytes = int(problem.resident_bytes[row == d].sum())
        lines.append(
            f"{device.name}: {int(ops.sum())} ops, {milliseconds(problem.compute_ns[ops, d].sum() / 1e9)} of work, "
            f"variables {in_unit(resident_bytes, 'MB')}, at its peak {in_unit(peak_bytes[0, d], 'MB')} of "
            f"{in_unit(device.memory_bytes, 'MB')}"
        )
    labels = device_labels(problem.cluster)
    lines += [
        f"layer {one.name}: {one.on(labels)}; {one.num_ops} ops, "
        f"{milliseconds(one.compute_ns.sum() / 1e9)} of work"
        for one in layer_rows(problem, layers_of(problem), row, _LAYERS)
    ]
    sent = crossings(problem, row)
    lines.append(f"{len(sent)} tensors cross, {in_unit(sum(one.num_bytes for one in sent), 'MB')} a step")
    lines += [
        f"  {in_unit(one.num_bytes, 'MB')} of {problem.op_names[one.op]}, {devices[one.source].name} -> "
        f"{devices[one.target].name}"
        for one in sent[:_LARGEST]
    ]
    return "\n".join(lines)


def _called(plan: Plan) -> list[str]:
    if plan.placed_call_s is None or plan.unplaced_call_s is None:
        return []
    placed, unplaced = milliseconds(plan.placed_call_s), milliseconds(plan.unplaced_call_s)
    return [f"the first calls: {placed} by the plan, {unplaced} as it is"]


def _beside_unplaced(plan: Plan) -> str:
    if plan.raced_s is None or plan.unplaced_s is None:
        return "not timed beside the function as it is"
    return (
        f"timed in turn: {milliseconds(plan.raced_s)} by the plan, {milliseconds(plan.unplaced_s)} as it is, "
        "on the whole machine"
    )


def _times(what: str, plan_s: float | None, single_s: float | None) -> str:
    if plan_s is None:
        return f"{what}: not (there is no runtime to ask for these devices)"
    text = f"{what}: {milliseconds(plan_s)} a step"
    if single_s is None:
        return f"{text}; no single device can run it"
    share = 1 + excess(plan_s, single_s)
    of_it = f" ({ratio(share)} of it)" if math.isfinite(share) else ""
    return f"{text}, best single device {milliseconds(single_s)}{of_it}"
