"""The step of a plan as the page shows it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from colocation.op_facts import VARIABLES
from tf_placer.evaluation.timeline import MemoryCurve, StepTimeline, Stretch, simulated_timeline
from tf_placer.presentation.chrome_trace import measured_spans
from tf_placer.problem.layers import layers_of_parts
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import CLUSTER, Problem
from tf_placer.report_page.page import ChoreTable, DeviceView, MemoryView, OpTable, StepView, TransferTable

_SLICES = 400  # of the step, in each of which the page has the most memory in use


def draw_step(
    problem: Problem, decisions: Decisions, traced: tf.compat.v1.RunMetadata | None = None
) -> StepView:
    """Events in the simulator of one step of one plan, which need not fit in memory; a cluster is one op.

    Ops also have the times that they took in the step that the runtime ``traced``.

    Raises:
      InputError: the plan is not one of the problem.
    """
    timeline = simulated_timeline(problem, decisions)
    problem = timeline.problem
    transfer_start_ns, transfer_end_ns = timeline.times_ns["transfer"]
    measured = np.zeros((0, 2), int) if traced is None else measured_spans(problem, traced)
    devices = problem.cluster.devices
    labels = problem.cluster.labels
    layers = layers_of_parts(problem)
    types = tuple(dict.fromkeys(problem.op_types))
    # Names in two parts: up to the last slash, which many share, and the rest.
    names = [name.rpartition("/") for name in problem.op_names]
    scopes = tuple(dict.fromkeys(scope + slash for scope, slash, _ in names))
    number = {scope: i for i, scope in enumerate(scopes)}
    position = {name: i for i, name in enumerate(types)}
    return StepView(
        step_ns=timeline.runtime_ns,
        bound_by=tuple(timeline.bound_by().items()),
        peak_share=timeline.peak_share(),
        devices=tuple(
            DeviceView(label, device.name, device.memory_bytes)
            for label, device in zip(labels, devices, strict=True)
        ),
        channels=_channel_labels(problem, labels),
        parts=1 if problem.splitting is None else problem.splitting.parts,
        types=types,
        scopes=scopes,
        layer_name=tuple(name.rpartition("/")[2] for name in layers.names),
        layer_parent=layers.parent,
        ops=OpTable(
            scope=np.array([number[scope + slash] for scope, slash, _ in names], np.int32),
            leaf=tuple(leaf for *_, leaf in names),
            type=np.array([position[name] for name in problem.op_types], np.int32),
            layer=layers.layer_of_op,
            device=timeline.device_of_op,
            part=problem.part_of_op(),
            limit=timeline.limit_of_op,
            start_ns=timeline.start_ns,
            duration_ns=timeline.end_ns - timeline.start_ns,
            measured_start_ns=measured[:, 0],
            measured_duration_ns=measured[:, 1] - measured[:, 0],
            output_bytes=np.bincount(problem.tensor_producer, problem.tensor_bytes, problem.num_ops).astype(
                np.int64
            ),
            resident_bytes=_resident_bytes(problem),
            critical=_on_path(timeline, "op"),
            fused=np.flatnonzero([name.startswith(CLUSTER) for name in problem.op_types]),
        ),
        transfers=TransferTable(
            op=timeline.transfer_producer,
            source=timeline.transfer_source,
            target=timeline.transfer_target,
            channel=timeline.transfer_channel,
            start_ns=transfer_start_ns,
            duration_ns=transfer_end_ns - transfer_start_ns,
            bytes=timeline.transfer_bytes,
            critical=_on_path(timeline, "transfer"),
        ),
        chores=_chores(timeline),
        memory=tuple(thinned(curve, timeline.runtime_ns) for curve in timeline.memory),
        path_links=_path_links(timeline),
    )


def _resident_bytes(problem: Problem) -> np.ndarray:
    """[N] int64: what stays of each unit, at its first variable, or at its first op without any."""
    is_variable = np.isin(problem.op_types, sorted(VARIABLES))
    order = np.lexsort((~is_variable, problem.unit_of_op))
    units, first_ops = np.unique(problem.unit_of_op[order], return_index=True)
    resident = np.zeros(problem.num_ops, np.int64)
    resident[order[first_ops]] = problem.resident_bytes[units]
    return resident


def _channel_labels(problem: Problem, labels: Sequence[str]) -> tuple[str, ...]:
    """Label of each channel: its only link, else its name with short names of devices."""
    cluster = problem.cluster
    channel = cluster.channel_of_link()
    found = []
    for c, name in enumerate(cluster.channel_names()):
        ends = np.argwhere(channel == c).tolist()
        if len(ends) == 1:
            name = f"{labels[ends[0][0]]} → {labels[ends[0][1]]}"
        for device, label in zip(cluster.devices, labels, strict=True):
            name = name.replace(device.name, label)
        found.append(name)
    return tuple(found)


def _chores(timeline: StepTimeline) -> ChoreTable:
    """All sends that take time of their device, then all receives."""
    (send_start_ns, send_end_ns), (receive_start_ns, receive_end_ns) = (
        timeline.times_ns[kind] for kind in ("send", "receive")
    )
    sends = np.flatnonzero(send_end_ns > send_start_ns)
    receives = np.flatnonzero(receive_end_ns > receive_start_ns)
    critical = [
        *np.flatnonzero(np.isin(sends, _on_path(timeline, "send"))),
        *(len(sends) + np.flatnonzero(np.isin(receives, _on_path(timeline, "receive")))),
    ]
    start_ns = np.concatenate([send_start_ns[sends], receive_start_ns[receives]])
    end_ns = np.concatenate([send_end_ns[sends], receive_end_ns[receives]])
    return ChoreTable(
        transfer=np.concatenate([sends, receives]),
        device=np.concatenate([timeline.transfer_source[sends], timeline.transfer_target[receives]]),
        start_ns=start_ns,
        duration_ns=end_ns - start_ns,
        critical=np.array(critical, np.int64),
    )


def _on_path(timeline: StepTimeline, kind: str) -> np.ndarray:
    """Positions of the ops, or of the transfers, whose stretches of this kind are on the critical path."""
    return np.array(sorted(s.index for s in timeline.critical_path if s.kind == kind), np.int64)


def _path_links(timeline: StepTimeline) -> tuple[tuple[int, int, int], ...]:
    """Changes of place on the critical path: time, place before, place after."""

    def place(stretch: Stretch) -> int:
        if stretch.kind == "transfer":
            return timeline.problem.num_devices + int(timeline.transfer_channel[stretch.index])
        return int(timeline.device_of(stretch.kind)[stretch.index])

    pairs = itertools.pairwise(stretch for stretch in timeline.critical_path if stretch.kind != "hand_over")
    links = [(after.start_ns, place(before), place(after)) for before, after in pairs]
    return tuple(link for link in links if link[1] != link[2])


def thinned(curve: MemoryCurve, step_ns: int) -> MemoryView:
    """A curve of memory with the most of each of a few hundred slices of the step."""
    slices = np.minimum(curve.times_ns * _SLICES // max(1, step_ns), _SLICES - 1)
    begins = np.flatnonzero(np.diff(slices, prepend=-1))
    ends = [*begins[1:], len(slices)]
    keep = [b + int(curve.num_bytes[b:e].argmax()) for b, e in zip(begins, ends, strict=True)]
    return MemoryView(curve.times_ns[keep], curve.num_bytes[keep], int(curve.num_bytes.max()))
