"""A simulated step as a timeline: spans of ops and transfers, memory, and the critical path."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.ops.simulator import simulate
from tf_placer.problem.placement import Decisions, Placement, decisions_of
from tf_placer.problem.problem import Problem
from tf_placer.transform.fusion import fused_plan

Kind = Literal["op", "send", "transfer", "hand_over", "receive"]
Event = tuple[Kind, int]
"""An op, or one part of the transfer at a position."""
Cause = Literal["input", "device", "channel", "wait", "start"]
ON_DEVICES: tuple[Kind, ...] = ("op", "send", "receive")
NEVER_NS = -1  # start and end of an event that did not happen
LIMITS = ("compute", "memory", "launch")


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryCurve:
    """Memory of one device over time: ``num_bytes[i]`` from ``times_ns[i]`` until the next time."""

    times_ns: np.ndarray  # [P] int64, ascending, from 0
    num_bytes: np.ndarray  # [P] int64, each different from the one before


@dataclasses.dataclass(frozen=True)
class Stretch:
    """One op or one part of a transfer on the critical path."""

    kind: Kind  # an op, or a transfer's work of its source, way through the channel, hand-over, work of its target
    index: int  # the op, or the position of the transfer
    start_ns: int
    end_ns: int
    # It began when an input of it ended, or the previous work of its device or channel; or else its device had
    # waited for another op, until nothing was under way.
    after: Cause


@dataclasses.dataclass(frozen=True, eq=False)
class StepTimeline:
    """The N ops and the K transfers of one simulated step, in nanoseconds since the step began.

        timeline = simulated_timeline(problem, placement.decisions)
        timeline.start_ns, timeline.end_ns  # [N], of ops
        timeline.memory[d].times_ns, timeline.memory[d].num_bytes  # [P]
        timeline.critical_path  # stretches from 0 to the last end

    A tensor that crosses to a device does so once. The work for sending and receiving it comes before and after, where
    its link has such costs. An op that its device takes before the host has dispatched it begins at once, and waits.
    """

    problem: Problem
    runtime_ns: int  # the step ends after the last span where workers had to be called
    peak_bytes: np.ndarray  # [D] int64
    device_of_op: np.ndarray  # [N] int32
    transfer_tensor: np.ndarray  # [K] int32, tensor of ``problem``, in the order of starts
    transfer_source: np.ndarray  # [K] int32, device
    transfer_target: np.ndarray  # [K] int32, device
    transfer_bytes: np.ndarray  # [K] int64
    transfer_producer: np.ndarray  # [K] int32, the op that makes the tensor
    transfer_channel: np.ndarray  # [K] int32, position in ``Cluster.channel_names``
    # Starts and ends [N] int64 of all ops, and [K] int64 of each part of all transfers: the work of their source, the
    # way through the channel, handing over, which occupies nothing, the work of their target. ``NEVER_NS`` for parts
    # that do not happen.
    times_ns: Mapping[Kind, tuple[np.ndarray, np.ndarray]]

    @property
    def start_ns(self) -> np.ndarray:
        """[N] int64, of ops."""
        return self.times_ns["op"][0]

    @property
    def end_ns(self) -> np.ndarray:
        """[N] int64, of ops."""
        return self.times_ns["op"][1]

    def device_of(self, kind: Kind) -> np.ndarray:
        """The device of every op, or the device that works for a part of every transfer."""
        devices = {"op": self.device_of_op, "send": self.transfer_source, "receive": self.transfer_target}
        return devices[kind]

    @functools.cached_property
    def limit_of_op(self) -> np.ndarray | None:
        """[N] what bounds each op, a position in ``LIMITS``; None where the work of ops is not known.

        The largest of its FLOPs at the peak of its device, its bytes at the device's peak bandwidth (the roofline of
        Williams, Waterman & Patterson 2009, CACM 52(4)), and the time of starting its kernels.
        """
        work, devices = self.problem.work, self.problem.cluster.devices
        if work is None:
            return None
        rates = [(device.peak_flops, device.memory_bytes_per_s) for device in devices]
        flops_per_s, bytes_per_s = np.array(rates)[self.device_of_op].T
        start_ns = np.array([max(device.launch_ns, device.dispatch_ns) for device in devices])[
            self.device_of_op
        ]
        limits = np.stack(
            [work.flops / flops_per_s, work.num_bytes / bytes_per_s, work.launches * start_ns / 1e9]
        )
        return limits.argmax(axis=0).astype(np.int8)

    def bound_by(self) -> dict[str, float]:
        """Share of the step by what bounds the critical path, the largest first: ``LIMITS``, and ``link``.

        Empty where the work of ops is not known.
        """
        shares: dict[str, float] = defaultdict(float)
        if self.limit_of_op is not None and self.runtime_ns:
            for stretch in self.critical_path:
                name = LIMITS[self.limit_of_op[stretch.index]] if stretch.kind == "op" else "link"
                shares[name] += (stretch.end_ns - stretch.start_ns) / self.runtime_ns
        return dict(sorted(shares.items(), key=lambda share: -share[1]))

    def peak_share(self) -> float | None:
        """FLOPs of the step, as a share of what the devices with ops could do meanwhile; None where not known."""
        used = [self.problem.cluster.devices[d].peak_flops for d in np.unique(self.device_of_op)]
        if self.problem.work is None or not self.runtime_ns or not used:
            return None
        return float(self.problem.work.flops.sum() / (sum(used) * self.runtime_ns / 1e9))

    @functools.cached_property
    def memory(self) -> tuple[MemoryCurve, ...]:
        """Memory of each of the D devices over the step, by the simulator's rules; the maximum is ``peak_bytes``.

        Memory that is freed at a moment is available for an allocation at it. Units' variables and what the program is
        fed stay. An op's output lives from the op's start until the op, its consumers on that device and its transfers
        have ended. A received copy lives from the start of its transfer until its consumers there have ended. A tensor
        that shares the memory of an input takes none, but keeps the input's as long as a consumer would.
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
        transfer_start_ns, transfer_end_ns = self.times_ns["transfer"]
        np.maximum.at(last_use_ns, (self.transfer_tensor, home[self.transfer_tensor]), transfer_end_ns)
        # A tensor comes after the one whose memory it shares.
        for sharing in np.flatnonzero(problem.alias_of_tensor >= 0)[::-1]:
            shared, device = problem.alias_of_tensor[sharing], home[sharing]
            last_use_ns[shared, device] = max(last_use_ns[shared, device], last_use_ns[sharing, device])

        device_of_unit = np.zeros(problem.num_units, np.int32)
        device_of_unit[problem.unit_of_op] = self.device_of_op
        resident_bytes = np.zeros(problem.num_devices, np.int64)
        np.add.at(resident_bytes, device_of_unit, problem.resident_bytes + problem.staying_bytes())

        num_bytes = np.concatenate([problem.own_bytes(), self.transfer_bytes])
        device = np.concatenate([home, self.transfer_target])
        born_ns = np.concatenate([self.start_ns[producer], transfer_start_ns])
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
        """Stretches from 0 to the last end; each begins at the end of the previous one.

        Where several events ended as a stretch began, an input is preferred to the work of its device or channel.
        """
        problem, producers, times_ns = self.problem, self.transfer_producer.tolist(), self.times_ns
        read, read_begin = problem.op_graph.tensor[problem.op_graph.in_edge], problem.op_graph.in_offset
        pairs = zip(self.transfer_tensor.tolist(), self.transfer_target.tolist(), strict=True)
        transfer_of = {pair: k for k, pair in enumerate(pairs)}
        # (device or channel, its number, end) -> event that took time there; others occupy nothing.
        ends: dict[tuple[Cause, int, int], Event] = {}
        last_of: dict[int, Event] = {}  # end -> an event of any kind that took time
        for kind in times_ns:
            cause: Cause = "device" if kind in ON_DEVICES else "channel"
            where = self.device_of(kind) if kind in ON_DEVICES else self.transfer_channel
            for i in np.flatnonzero(times_ns[kind][1] > times_ns[kind][0]).tolist():
                last_of[int(times_ns[kind][1][i])] = kind, i
                if kind != "hand_over":
                    ends.setdefault((cause, int(where[i]), int(times_ns[kind][1][i])), (kind, i))

        def has(kind: Kind, transfer: int) -> bool:
            return bool(times_ns[kind][1][transfer] != NEVER_NS)

        def inputs(kind: Kind, index: int) -> Iterator[Event]:
            if kind == "op":
                device = int(self.device_of_op[index])
                for tensor in read[slice(*read_begin[index : index + 2])].tolist():
                    producer = int(problem.tensor_producer[tensor])
                    if self.device_of_op[producer] == device:
                        yield "op", producer
                    else:
                        transfer = transfer_of[tensor, device]
                        received: Event = ("receive", transfer)
                        yield from [received] if has(*received) else inputs(*received)
            elif kind == "receive":
                yield "hand_over" if has("hand_over", index) else "transfer", index
            elif kind == "hand_over":
                yield "transfer", index
            elif kind == "transfer" and has("send", index):
                yield "send", index
            else:
                yield "op", producers[index]

        stretches: list[Stretch] = []
        event: Event | None = ("op", int(self.end_ns.argmax()))
        while event is not None:
            kind, index = event
            start_ns, end_ns = (int(times[index]) for times in times_ns[kind])
            before = (i for i in inputs(*event) if times_ns[i[0]][1][i[1]] == start_ns)
            event, cause = next(before, None), "input"
            if event is None and start_ns > 0:
                # It was ready before, and waited for its device or channel.
                cause = "channel" if kind == "transfer" else "device"
                where = self.transfer_channel if kind == "transfer" else self.device_of(kind)
                event = ends.get((cause, int(where[index]), start_ns))
                if event is None:
                    cause, event = "wait", last_of[start_ns]
            stretches.append(Stretch(kind, index, start_ns, end_ns, "start" if event is None else cause))
        return tuple(reversed(stretches))


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
    inputs = SimulatedEvaluator(problem).inputs
    step = simulate(inputs, plan.device_of_unit, plan.priority_of_op, with_legs=True)
    leg_start_ns, leg_end_ns = step.leg_start_ns.numpy()[0], step.leg_end_ns.numpy()[0]  # [3, T, D]
    tensor, target = np.nonzero(leg_start_ns[1] >= 0)
    order = np.argsort(leg_start_ns[1, tensor, target], kind="stable")
    tensor, target = tensor[order].astype(np.int32), target[order].astype(np.int32)
    source = device_of_op[problem.tensor_producer[tensor]]
    sends, transfers, receives = zip(
        leg_start_ns[:, tensor, target], leg_end_ns[:, tensor, target], strict=True
    )
    hand_over_ns = problem.cluster.link_tensor_ns()[source, target]
    is_handed_over, crossed_ns = hand_over_ns > 0, transfers[1]
    return StepTimeline(
        problem=problem,
        runtime_ns=int(step.runtime_ns[0]),
        peak_bytes=step.peak_bytes.numpy()[0],
        device_of_op=device_of_op,
        transfer_tensor=tensor,
        transfer_source=source,
        transfer_target=target,
        transfer_bytes=problem.tensor_bytes[tensor],
        transfer_producer=problem.tensor_producer[tensor],
        transfer_channel=problem.cluster.channel_of_link()[source, target],
        times_ns={
            "op": (step.start_ns.numpy()[0], step.end_ns.numpy()[0]),
            "send": sends,
            "transfer": transfers,
            "hand_over": (
                np.where(is_handed_over, crossed_ns, NEVER_NS),
                np.where(is_handed_over, crossed_ns + hand_over_ns, NEVER_NS),
            ),
            "receive": receives,
        },
    )
