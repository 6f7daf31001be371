"""A simulated step as a timeline: what ran when and where, what memory held, and why it took so long."""

from __future__ import annotations

import functools

import numpy as np

from tf_placer import arguments
from tf_placer.errors import InputError
from tf_placer.evaluation.critical_path import Stretch, critical_path
from tf_placer.evaluation.memory_curves import MemoryCurve, memory_curves
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.evaluation.step_spans import ON_DEVICES, StepSpans
from tf_placer.ops.simulator import simulate_step
from tf_placer.problem.decisions import Decisions, decisions_of
from tf_placer.problem.problem import Problem


class StepTimeline(StepSpans):
    """The spans of a simulated step and what follows from them, made when it is first asked for.

    timeline = simulated_timeline(problem, placement.decisions)
    timeline.start_ns, timeline.end_ns  # [N], of ops; transfers alike, see ``StepSpans``
    timeline.memory[d].times_ns, timeline.memory[d].num_bytes  # [P]
    timeline.critical_path  # stretches from 0 to the last end
    """

    @functools.cached_property
    def memory(self) -> tuple[MemoryCurve, ...]:
        """What each of the D devices holds over the step; the most of it is its ``peak_bytes``."""
        return memory_curves(self)

    @functools.cached_property
    def critical_path(self) -> tuple[Stretch, ...]:
        """From 0 to the last end, each stretch beginning when the one before it ends."""
        return critical_path(self)

    @functools.cached_property
    def busy_ns(self) -> np.ndarray:
        """[D] int64, time in which each device runs an op or works for a transfer."""
        device = np.concatenate([self.device_of(kind) for kind in ON_DEVICES])
        start_ns, end_ns = np.concatenate([self.times_ns(kind) for kind in ON_DEVICES], axis=1)
        return _covered_ns(device, start_ns, end_ns, self.problem.num_devices)

    @property
    def idle_ns(self) -> np.ndarray:
        """[D] int64, the rest of the step."""
        return self.runtime_ns - self.busy_ns

    @functools.cached_property
    def channel_busy_ns(self) -> np.ndarray:
        """[C] int64, time in which something crosses on each channel."""
        start_ns, end_ns = self.transfer_start_ns, self.transfer_end_ns
        return _covered_ns(self.transfer_channel, start_ns, end_ns, len(self.channel_names))


def simulated_timeline(problem: Problem, decisions: np.ndarray | Decisions) -> StepTimeline:
    """Simulates one step of one plan and gives all that happens in it.

    Args:
      problem: what is placed.
      decisions: [1, U] devices, or all that one plan decides; legal, whether it fits in memory or not.

    Raises:
      InputError: no problem, wrong shape, more than one plan, or a plan that is not legal.
    """
    arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
    plan = decisions_of(decisions, problem)
    if len(plan) != 1:
        raise InputError(f"decisions are of {len(plan)} plans; give one, for example decisions.row(0)")
    device_of_unit = np.asarray(plan.device_of_unit)
    problem.check_legal(device_of_unit[0])
    step = simulate_step(SimulatedEvaluator(problem).inputs, device_of_unit, plan.priority_of_op)
    device_of_op = device_of_unit[0][problem.unit_of_op]
    leg_start_ns, leg_end_ns = step.leg_start_ns.numpy()[0], step.leg_end_ns.numpy()[0]  # [3, T, D]
    tensor, target = np.nonzero(leg_start_ns[1] >= 0)
    order = np.argsort(leg_start_ns[1, tensor, target], kind="stable")
    tensor, target = tensor[order].astype(np.int32), target[order].astype(np.int32)
    send_start_ns, transfer_start_ns, receive_start_ns = leg_start_ns[:, tensor, target]
    send_end_ns, transfer_end_ns, receive_end_ns = leg_end_ns[:, tensor, target]
    return StepTimeline(
        problem=problem,
        runtime_ns=int(step.runtime_ns[0]),
        peak_bytes=step.peak_bytes.numpy()[0],
        device_of_op=device_of_op,
        start_ns=step.start_ns.numpy()[0],
        end_ns=step.end_ns.numpy()[0],
        transfer_tensor=tensor,
        transfer_source=device_of_op[problem.tensor_producer[tensor]],
        transfer_target=target,
        transfer_start_ns=transfer_start_ns,
        transfer_end_ns=transfer_end_ns,
        send_start_ns=send_start_ns,
        send_end_ns=send_end_ns,
        receive_start_ns=receive_start_ns,
        receive_end_ns=receive_end_ns,
    )


def _covered_ns(where: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, places: int) -> np.ndarray:
    """[places] int64, time of each in which at least one of its spans is open."""
    covered_ns = np.zeros(places, np.int64)
    order = np.lexsort((start_ns, where))
    for place in range(places):
        there = order[where[order] == place]
        if not len(there):
            continue
        start, end = start_ns[there], np.maximum.accumulate(end_ns[there])
        begins_ns = np.maximum(start[1:], end[:-1])
        covered_ns[place] = end[0] - start[0] + np.maximum(end[1:] - begins_ns, 0).sum()
    return covered_ns
