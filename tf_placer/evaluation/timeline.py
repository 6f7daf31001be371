"""A simulated step as a timeline: spans of ops and transfers, memory, and the critical path."""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.ops.simulator import simulate_step
from tf_placer.problem.decisions import Decisions, decisions_of
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.transform.fusion.costs import fused_plan

Kind = Literal["op", "send", "transfer", "hand_over", "receive"]
Cause = Literal["input", "device", "channel", "start"]
ON_DEVICES: tuple[Kind, ...] = ("op", "send", "receive")
NEVER_NS = -1  # start and end of an event that did not happen


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryCurve:
    """Memory of one device over time: ``num_bytes[i]`` from ``times_ns[i]`` until the next time."""

    times_ns: np.ndarray  # [P] int64, ascending, from 0
    num_bytes: np.ndarray  # [P] int64, each different from the one before

    @property
    def peak_bytes(self) -> int:
        return int(self.num_bytes.max())


@dataclasses.dataclass(frozen=True)
class Stretch:
    """One op or one part of a transfer on the critical path."""

    kind: Kind  # an op, or a transfer's work of its source, way through the channel, hand-over, work of its target
    index: int  # the op, or the position of the transfer
    start_ns: int
    end_ns: int
    after: Cause  # it began when an input of it ended, or the previous work of its device or channel


@dataclasses.dataclass(frozen=True, eq=False)
class StepTimeline:
    """The N ops and the K transfers of one simulated step, in nanoseconds since the step began.

        timeline = simulated_timeline(problem, placement.decisions)
        timeline.start_ns, timeline.end_ns  # [N], of ops
        timeline.memory[d].times_ns, timeline.memory[d].num_bytes  # [P]
        timeline.critical_path  # stretches from 0 to the last end

    A tensor that crosses to a device does so once. The work for sending and receiving it comes before and after, where
    its link has such costs; otherwise their times are ``NEVER_NS``. An op that its device takes before the host has
    dispatched it begins at once, and waits.

    Attributes:
      problem: the placed problem.
      runtime_ns: length of the step, which ends after the last span where workers had to be called.
      peak_bytes: [D] int64, peak memory of each device.
      device_of_op: [N] int32.
      start_ns, end_ns: [N] int64, of each op.
      transfer_tensor: [K] int32, tensor of ``problem``; transfers are in the order of their starts.
      transfer_source, transfer_target: [K] int32, devices.
      transfer_start_ns, transfer_end_ns: [K] int64, in its channel.
      send_start_ns, send_end_ns: [K] int64, work of the source.
      receive_start_ns, receive_end_ns: [K] int64, work of the target.
    """

    problem: Problem
    runtime_ns: int
    peak_bytes: np.ndarray
    device_of_op: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    transfer_tensor: np.ndarray
    transfer_source: np.ndarray
    transfer_target: np.ndarray
    transfer_start_ns: np.ndarray
    transfer_end_ns: np.ndarray
    send_start_ns: np.ndarray
    send_end_ns: np.ndarray
    receive_start_ns: np.ndarray
    receive_end_ns: np.ndarray

    def times_ns(self, kind: Kind) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends of all ops, or of one part of all transfers."""
        if kind == "op":
            return self.start_ns, self.end_ns
        return getattr(self, f"{kind}_start_ns"), getattr(self, f"{kind}_end_ns")

    def device_of(self, kind: Kind) -> np.ndarray:
        """The device of every op, or the device that works for a part of every transfer."""
        devices = {"op": self.device_of_op, "send": self.transfer_source, "receive": self.transfer_target}
        return devices[kind]

    @functools.cached_property
    def hand_over_start_ns(self) -> np.ndarray:
        """[K] int64, start of handing over each tensor after its transfer, which occupies nothing."""
        return np.where(self._hand_over_ns > 0, self.transfer_end_ns, NEVER_NS)

    @functools.cached_property
    def hand_over_end_ns(self) -> np.ndarray:
        """[K] int64."""
        return np.where(self._hand_over_ns > 0, self.transfer_end_ns + self._hand_over_ns, NEVER_NS)

    @functools.cached_property
    def _hand_over_ns(self) -> np.ndarray:
        tensor_ns: np.ndarray = self.problem.cluster.link_tensor_ns()
        return tensor_ns[self.transfer_source, self.transfer_target]

    @property
    def num_transfers(self) -> int:
        return len(self.transfer_tensor)

    @property
    def transfer_bytes(self) -> np.ndarray:
        """[K] int64."""
        return self.problem.tensor_bytes[self.transfer_tensor]

    @property
    def transfer_producer(self) -> np.ndarray:
        """[K] int32, the op that makes each tensor."""
        return self.problem.tensor_producer[self.transfer_tensor]

    @property
    def transfer_channel(self) -> np.ndarray:
        """[K] int32, position in ``channel_names``."""
        return self.problem.cluster.channel_of_link()[self.transfer_source, self.transfer_target]

    @property
    def channel_names(self) -> tuple[str, ...]:
        """[C] names of the cluster's channels."""
        return self.problem.cluster.channel_names()

    @functools.cached_property
    def memory(self) -> tuple[MemoryCurve, ...]:
        """Memory of each of the D devices over the step, by the simulator's rules; the maximum is ``peak_bytes``.

        Memory that is freed at a moment is available for an allocation at it. Units' variables stay. An op's output
        lives from the op's start until the op, its consumers on that device and its transfers have ended. A received
        copy lives from the start of its transfer until its consumers there have ended. A tensor that shares the memory
        of an input takes none, but keeps the input's as long as a consumer would.
        """
        problem = self.problem
        producer = problem.tensor_producer
        home = self.device_of_op[producer]  # [T]
        # [T, D] end of the last consumer of each tensor on each device.
        last_use_ns = np.zeros((len(producer), problem.num_devices), np.int64)
        tensor, consumer = problem.op_graph.tensor, problem.consumer_op  # [E]
        np.maximum.at(last_use_ns, (tensor, self.device_of_op[consumer]), self.end_ns[consumer])
        tensors = np.arange(len(producer))
        np.maximum.at(last_use_ns, (tensors, home), self.end_ns[producer])
        np.maximum.at(last_use_ns, (self.transfer_tensor, home[self.transfer_tensor]), self.transfer_end_ns)
        # A tensor comes after the one whose memory it shares.
        for sharing in np.flatnonzero(problem.alias_of_tensor >= 0)[::-1]:
            shared, device = problem.alias_of_tensor[sharing], home[sharing]
            last_use_ns[shared, device] = max(last_use_ns[shared, device], last_use_ns[sharing, device])

        device_of_unit = np.zeros(problem.num_units, np.int32)
        device_of_unit[problem.unit_of_op] = self.device_of_op
        resident_bytes = np.zeros(problem.num_devices, np.int64)
        np.add.at(resident_bytes, device_of_unit, problem.resident_bytes)

        num_bytes = np.concatenate([problem.own_bytes(), self.transfer_bytes])
        device = np.concatenate([home, self.transfer_target])
        born_ns = np.concatenate([self.start_ns[producer], self.transfer_start_ns])
        copies_dead_ns = last_use_ns[self.transfer_tensor, self.transfer_target]
        dead_ns = np.concatenate([last_use_ns[tensors, home], copies_dead_ns])
        curves = []
        for d, resident in enumerate(resident_bytes.tolist()):
            rows = device == d
            moments = np.concatenate([[0], born_ns[rows], dead_ns[rows]])
            times_ns, position = np.unique(moments, return_inverse=True)
            change = np.zeros(len(times_ns), np.int64)  # all changes of one moment are one
            np.add.at(change, position, np.concatenate([[resident], num_bytes[rows], -num_bytes[rows]]))
            is_kept = change != 0
            is_kept[0] = True
            curves.append(MemoryCurve(times_ns[is_kept], np.cumsum(change)[is_kept]))
        return tuple(curves)

    @functools.cached_property
    def critical_path(self) -> tuple[Stretch, ...]:
        """Stretches from 0 to the last end; each begins when the one before it ends.

        Where several events ended as a stretch began, an input is preferred to the work of its device or channel.
        """
        return _Path(self).back_from_the_end()

    @functools.cached_property
    def busy_ns(self) -> np.ndarray:
        """[D] int64, time in which each device runs an op or works for a transfer."""
        device = np.concatenate([self.device_of(kind) for kind in ON_DEVICES])
        start_ns, end_ns = np.concatenate([self.times_ns(kind) for kind in ON_DEVICES], axis=1)
        return _covered_ns(device, start_ns, end_ns, self.problem.num_devices)


class _Path:
    """Search for the critical path."""

    def __init__(self, spans: StepTimeline) -> None:
        self._spans = spans
        problem = spans.problem
        self._read = problem.op_graph.tensor[problem.op_graph.in_edge]  # tensors, by consumer
        self._read_begin = problem.op_graph.in_offset
        pairs = zip(spans.transfer_tensor.tolist(), spans.transfer_target.tolist(), strict=True)
        self._transfer_of = {pair: k for k, pair in enumerate(pairs)}
        self._is_handed_over = spans.hand_over_end_ns != NEVER_NS
        self._ends_on_device: dict[tuple[int, int], tuple[Kind, int]] = {}
        for kind in ON_DEVICES:
            self._add_ends(self._ends_on_device, kind, spans.device_of(kind))
        self._ends_on_channel: dict[tuple[int, int], tuple[Kind, int]] = {}
        self._channel = spans.transfer_channel
        self._add_ends(self._ends_on_channel, "transfer", self._channel)

    def _add_ends(self, ends: dict[tuple[int, int], tuple[Kind, int]], kind: Kind, where: np.ndarray) -> None:
        """Adds the ends of events that take time; others occupy nothing."""
        start_ns, end_ns = self._spans.times_ns(kind)
        for i in np.flatnonzero(end_ns > start_ns).tolist():
            ends.setdefault((int(where[i]), int(end_ns[i])), (kind, i))

    def back_from_the_end(self) -> tuple[Stretch, ...]:
        stretches: list[Stretch] = []
        kind: Kind = "op"
        index = int(self._spans.end_ns.argmax())
        while True:
            start_ns, end_ns = (int(times[index]) for times in self._spans.times_ns(kind))
            before = self._input(kind, index, start_ns)
            cause: Cause = "input"
            if before is None and start_ns > 0:
                before, cause = self._busy(kind, index, start_ns)
            stretches.append(Stretch(kind, index, start_ns, end_ns, "start" if before is None else cause))
            if before is None:
                return tuple(reversed(stretches))
            kind, index = before

    def _busy(self, kind: Kind, index: int, start_ns: int) -> tuple[tuple[Kind, int], Cause]:
        """Previous event of the device or channel, which ended as this one began; it was ready before."""
        if kind == "transfer":
            return self._ends_on_channel[int(self._channel[index]), start_ns], "channel"
        return self._ends_on_device[int(self._spans.device_of(kind)[index]), start_ns], "device"

    def _input(self, kind: Kind, index: int, start_ns: int) -> tuple[Kind, int] | None:
        """Input that ended as the event began; None without one."""
        for before in self._waits_for(kind, index):
            if self._spans.times_ns(before[0])[1][before[1]] == start_ns:
                return before
        return None

    def _waits_for(self, kind: Kind, index: int) -> list[tuple[Kind, int]]:
        spans = self._spans
        if kind == "op":
            begin, end = self._read_begin[index : index + 2]
            device = int(spans.device_of_op[index])
            return [self._arrival(int(tensor), device) for tensor in self._read[begin:end]]
        if kind == "receive":
            return [self._crossing(index)]
        if kind == "hand_over":
            return [("transfer", index)]
        if kind == "transfer" and spans.send_start_ns[index] != NEVER_NS:
            return [("send", index)]
        return [("op", int(spans.transfer_producer[index]))]

    def _arrival(self, tensor: int, device: int) -> tuple[Kind, int]:
        """Source of a tensor on a device: its producer, or the end of its transfer."""
        producer = int(self._spans.problem.tensor_producer[tensor])
        if self._spans.device_of_op[producer] == device:
            return "op", producer
        transfer = self._transfer_of[tensor, device]
        received = self._spans.receive_start_ns[transfer] != NEVER_NS
        return ("receive", transfer) if received else self._crossing(transfer)

    def _crossing(self, transfer: int) -> tuple[Kind, int]:
        """The last part of a transfer before the work of its target."""
        return ("hand_over" if self._is_handed_over[transfer] else "transfer"), transfer


def simulated_timeline(problem: Problem, decisions: np.ndarray | Decisions) -> StepTimeline:
    """Simulates one step of one plan.

    Args:
      problem: the placed problem.
      decisions: [1, U] devices, or the decisions of one plan; legal, but it may not fit in memory.

    Returns:
      The timeline; the problem of a plan with clusters has each of them as one op (``fused_plan``).

    Raises:
      InputError: no problem, wrong shape, more than one plan, or a plan that is not legal.
    """
    arguments.instance_of("problem", problem, Problem, "give what tf_placer.build_problem returns")
    plan = decisions_of(decisions, problem)
    if len(plan) != 1:
        raise InputError(f"decisions are of {len(plan)} plans; give one, for example decisions.row(0)")
    placement, _ = fused_plan(Placement.from_decisions(problem, plan))
    problem, plan, device_of_op = placement.problem, placement.decisions, placement.device_of_op
    step = simulate_step(SimulatedEvaluator(problem).inputs, plan.device_of_unit, plan.priority_of_op)
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
    """[places] int64, time with at least one open span at each place."""
    covered_ns = np.zeros(places, np.int64)
    order = np.lexsort((start_ns, where))
    for place in range(places):
        rows = order[where[order] == place]
        if not len(rows):
            continue
        start, end = start_ns[rows], np.maximum.accumulate(end_ns[rows])
        begins_ns = np.maximum(start[1:], end[:-1])
        covered_ns[place] = end[0] - start[0] + np.maximum(end[1:] - begins_ns, 0).sum()
    return covered_ns
