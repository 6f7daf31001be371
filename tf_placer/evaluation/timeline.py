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

# Spans of each op and each transfer.

Kind = Literal["op", "send", "transfer", "hand_over", "receive"]
ON_DEVICES: tuple[Kind, ...] = ("op", "send", "receive")
NEVER_NS = -1  # stands for the start and end of what did not happen


@dataclasses.dataclass(frozen=True, eq=False)
class StepSpans:
    """The N ops and the K transfers of one step, each from its start to its end, in nanoseconds since the step began.

    A tensor that crosses to a device does so once. Sending and receiving it come before and after, where its link takes
    time of the devices at its ends; where it does not, both are ``NEVER_NS``. An op that its device takes before the
    host has dispatched it begins there and then, and waits.

    Attributes:
      problem: what was placed.
      runtime_ns: how long the step takes; ends behind the last span where workers had to be called.
      peak_bytes: [D] int64, most memory of each device at a moment.
      device_of_op: [N] int32.
      start_ns, end_ns: [N] int64, of each op.
      transfer_tensor: [K] int32, tensor of ``problem``; transfers are in the order of their starts.
      transfer_source, transfer_target: [K] int32, devices.
      transfer_start_ns, transfer_end_ns: [K] int64, while it occupies its channel.
      send_start_ns, send_end_ns: [K] int64, while the source works for it.
      receive_start_ns, receive_end_ns: [K] int64, while the target works for it.
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
        """Starts and ends of all ops, or of one part of all transfers: sending, on the way, receiving."""
        if kind == "op":
            return self.start_ns, self.end_ns
        return getattr(self, f"{kind}_start_ns"), getattr(self, f"{kind}_end_ns")

    def device_of(self, kind: Kind) -> np.ndarray:
        """The device of every op, or the one at which a part of every transfer takes time: not on its way."""
        where = {"op": self.device_of_op, "send": self.transfer_source, "receive": self.transfer_target}
        return where[kind]

    @functools.cached_property
    def hand_over_start_ns(self) -> np.ndarray:
        """[K] int64, from when on each tensor that has crossed is handed over, occupying nothing."""
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
        """[K] int32, the op whose output each tensor is."""
        return self.problem.tensor_producer[self.transfer_tensor]

    @property
    def transfer_channel(self) -> np.ndarray:
        """[K] int32, position in ``channel_names``."""
        return self.problem.cluster.channel_of_link()[self.transfer_source, self.transfer_target]

    @property
    def channel_names(self) -> tuple[str, ...]:
        """[C] what the cluster calls its channels."""
        return self.problem.cluster.channel_names()


# Memory of each device over a step, by the rules of the simulator (docs/architecture.md, section 5).


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryCurve:
    """Memory of one device over time: ``num_bytes[i]`` from ``times_ns[i]`` until the next time.

    Attributes:
      times_ns: [P] int64, ascending, from 0.
      num_bytes: [P] int64, each different from the one before.
    """

    times_ns: np.ndarray
    num_bytes: np.ndarray

    @property
    def peak_bytes(self) -> int:
        return int(self.num_bytes.max())


def memory_curves(spans: StepSpans) -> tuple[MemoryCurve, ...]:
    """The curve of each of the D devices; what is freed at a moment makes room for what is allocated at it.

    Units' variables stay. An op's output lives from the op's start until the op, its consumers on that device and its
    transfers have ended; a received copy from the start of its transfer until its consumers there have ended. What
    shares the memory of an input takes none where it is made, but keeps that input's as long as a consumer would.
    """
    problem = spans.problem
    producer = problem.tensor_producer
    here = spans.device_of_op[producer]  # [T]
    # [T, D] when the last consumer of each tensor on each device ends.
    last_use_ns = np.zeros((len(producer), problem.num_devices), np.int64)
    tensor = problem.op_graph.tensor  # [E]
    np.maximum.at(
        last_use_ns, (tensor, spans.device_of_op[problem.consumer_op]), spans.end_ns[problem.consumer_op]
    )
    tensors = np.arange(len(producer))
    np.maximum.at(last_use_ns, (tensors, here), spans.end_ns[producer])
    np.maximum.at(last_use_ns, (spans.transfer_tensor, here[spans.transfer_tensor]), spans.transfer_end_ns)
    for sharing in np.flatnonzero(problem.alias_of_tensor >= 0)[
        ::-1
    ]:  # who shares comes behind what it shares
        shared, device = problem.alias_of_tensor[sharing], here[sharing]
        last_use_ns[shared, device] = max(last_use_ns[shared, device], last_use_ns[sharing, device])
    freed_ns = last_use_ns[tensors, here]
    copies_freed_ns = last_use_ns[spans.transfer_tensor, spans.transfer_target]

    num_bytes = np.concatenate([problem.own_bytes(), spans.transfer_bytes])
    device = np.concatenate([here, spans.transfer_target])
    born_ns = np.concatenate([spans.start_ns[producer], spans.transfer_start_ns])
    dead_ns = np.concatenate([freed_ns, copies_freed_ns])
    return tuple(
        _curve(int(resident), num_bytes[there], born_ns[there], dead_ns[there])
        for resident, there in zip(
            _resident_bytes(spans), _by_device(device, problem.num_devices), strict=True
        )
    )


def _by_device(device: np.ndarray, num_devices: int) -> list[np.ndarray]:
    return [np.flatnonzero(device == d) for d in range(num_devices)]


def _resident_bytes(spans: StepSpans) -> np.ndarray:
    """[D] int64."""
    problem = spans.problem
    device_of_unit = np.zeros(problem.num_units, np.int32)
    device_of_unit[problem.unit_of_op] = spans.device_of_op
    resident = np.zeros(problem.num_devices, np.int64)
    np.add.at(resident, device_of_unit, problem.resident_bytes)
    return resident


def _curve(resident: int, num_bytes: np.ndarray, born_ns: np.ndarray, dead_ns: np.ndarray) -> MemoryCurve:
    """Changes of one moment are one change."""
    times_ns, position = np.unique(np.concatenate([[0], born_ns, dead_ns]), return_inverse=True)
    change = np.zeros(len(times_ns), np.int64)
    np.add.at(change, position, np.concatenate([[resident], num_bytes, -num_bytes]))
    changes = change != 0
    changes[0] = True
    return MemoryCurve(times_ns[changes], np.cumsum(change)[changes])


# Critical path: the chain of events that each waited for the one before.

Cause = Literal["input", "device", "channel", "start"]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """One op or one part of a transfer on the critical path.

    Attributes:
      kind: an op; the source's part of a transfer, its way through the channel, its hand-over, or the target's part.
      index: the op, or the position of the transfer.
      start_ns, end_ns: when it runs.
      after: what ended as it began: an input of it, or what kept its device or its channel busy; "start" for the first.
    """

    kind: Kind
    index: int
    start_ns: int
    end_ns: int
    after: Cause


def critical_path(spans: StepSpans) -> tuple[Stretch, ...]:
    """Critical path of a simulated step, start to last end: each stretch begins when the one before it ends.

    Where several things ended as a stretch began, an input comes before what kept its device or channel busy.
    """
    return _Path(spans).back_from_the_end()


class _Path:
    def __init__(self, spans: StepSpans) -> None:
        self._spans = spans
        problem = spans.problem
        self._read = problem.op_graph.tensor[problem.op_graph.in_edge]  # tensors, by the op that reads them
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
        """Adds the ends of events that take time: others keep nothing busy."""
        start_ns, end_ns = self._spans.times_ns(kind)
        for i in np.flatnonzero(end_ns > start_ns).tolist():
            ends.setdefault((int(where[i]), int(end_ns[i])), (kind, i))

    def back_from_the_end(self) -> tuple[Stretch, ...]:
        found: list[Stretch] = []
        kind: Kind = "op"
        index = int(self._spans.end_ns.argmax())
        while True:
            start_ns, end_ns = (int(times[index]) for times in self._spans.times_ns(kind))
            before = self._input(kind, index, start_ns)
            cause: Cause = "input"
            if before is None and start_ns > 0:
                before, cause = self._busy(kind, index, start_ns)
            found.append(Stretch(kind, index, start_ns, end_ns, "start" if before is None else cause))
            if before is None:
                return tuple(reversed(found))
            kind, index = before

    def _busy(self, kind: Kind, index: int, start_ns: int) -> tuple[tuple[Kind, int], Cause]:
        """Predecessor that ended there as this began: it was ready before, or an input would have ended then."""
        if kind == "transfer":
            return self._ends_on_channel[int(self._channel[index]), start_ns], "channel"
        return self._ends_on_device[int(self._spans.device_of(kind)[index]), start_ns], "device"

    def _input(self, kind: Kind, index: int, start_ns: int) -> tuple[Kind, int] | None:
        """Input that ended as it began; None without one."""
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
        """Source of a tensor on a device: its producer, or the last part of its transfer."""
        producer = int(self._spans.problem.tensor_producer[tensor])
        if self._spans.device_of_op[producer] == device:
            return "op", producer
        transfer = self._transfer_of[tensor, device]
        received = self._spans.receive_start_ns[transfer] != NEVER_NS
        return ("receive", transfer) if received else self._crossing(transfer)

    def _crossing(self, transfer: int) -> tuple[Kind, int]:
        """The last part of a transfer before the target works for it."""
        return ("hand_over" if self._is_handed_over[transfer] else "transfer"), transfer


class StepTimeline(StepSpans):
    """The spans of a simulated step and what follows from them, made when it is first asked for.

    timeline = simulated_timeline(problem, placement.decisions)
    timeline.start_ns, timeline.end_ns  # [N], of ops; transfers alike, see ``StepSpans``
    timeline.memory[d].times_ns, timeline.memory[d].num_bytes  # [P]
    timeline.critical_path  # stretches from 0 to the last end
    """

    @functools.cached_property
    def memory(self) -> tuple[MemoryCurve, ...]:
        """Memory of each of the D devices over the step; the maximum is its ``peak_bytes``."""
        return memory_curves(self)

    @functools.cached_property
    def critical_path(self) -> tuple[Stretch, ...]:
        """Critical path from 0 to the last end, each stretch beginning when the one before it ends."""
        return critical_path(self)

    @functools.cached_property
    def busy_ns(self) -> np.ndarray:
        """[D] int64, time in which each device runs an op or works for a transfer."""
        device = np.concatenate([self.device_of(kind) for kind in ON_DEVICES])
        start_ns, end_ns = np.concatenate([self.times_ns(kind) for kind in ON_DEVICES], axis=1)
        return _covered_ns(device, start_ns, end_ns, self.problem.num_devices)


def simulated_timeline(problem: Problem, decisions: np.ndarray | Decisions) -> StepTimeline:
    """Simulates one step of one plan and gives all that happens in it.

    Args:
      problem: what is placed.
      decisions: [1, U] devices, or all that one plan decides; legal, whether it fits in memory or not.

    Returns:
      The timeline; of a plan with clusters its problem has each of them as one op (``fused_plan``).

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
