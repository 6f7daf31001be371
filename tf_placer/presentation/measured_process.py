"""A step that the runtime traced as a process of a Chrome trace."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import tensorflow as tf

from tf_placer.cluster.device import device_labels
from tf_placer.presentation.trace_process import Event, Span, TraceProcess, scope_of
from tf_placer.problem.problem import Problem
from tf_placer.runtime.audit import owner

_RECEIVED = "RecvTensor"
_SOURCE = "_SOURCE"
_TYPE = re.compile(r" = (\w+)\(")
_CROSSED = re.compile(r" edge_\d+_(?P<name>\S+) from (?P<source>\S+) to (?P<target>\S+)$")


def measured_process(problem: Problem, trace: tf.compat.v1.RunMetadata, pid: int) -> list[Event]:
    """Rows: each device's kernels, as many rows as run at once, and what it received.

    The step begins with the first node of the trace, by the clocks of the workers.

    Args:
      problem: what was placed.
      trace: metadata of a step that was run with FULL_TRACE.
      pid: number of the process.
    """
    number_of = {name: number for number, name in enumerate(problem.op_names)}
    order = {device.name: position for position, device in enumerate(problem.cluster.devices)}
    ran: defaultdict[str, list[Span]] = defaultdict(list)
    received: defaultdict[str, list[Span]] = defaultdict(list)
    for device in trace.step_stats.dev_stats:
        for node in device.node_stats:
            if node.node_name == _RECEIVED:
                received[device.device].append(_received(node))
            elif node.node_name != _SOURCE:
                ran[device.device].append(_ran(node, problem, number_of))
    spans = [span for some in (*ran.values(), *received.values()) for span in some]
    begin_ns = min((span.start_ns for span in spans), default=0)
    process = TraceProcess(pid, "measured")
    names = sorted({*ran, *received, *order}, key=lambda name: (order.get(name, len(order)), name))
    for name, label in zip(names, device_labels(names), strict=True):
        process.add_spans(label, _shifted(ran[name], begin_ns))
        if received[name]:
            process.add_spans(f"received by {label}", _shifted(received[name], begin_ns))
    return process.events


def _shifted(spans: list[Span], begin_ns: int) -> list[Span]:
    """Those that take time, since the step began."""
    return [
        Span(span.name, span.category, span.start_ns - begin_ns, span.end_ns - begin_ns, span.args)
        for span in spans
        if span.end_ns > span.start_ns
    ]


def _ran(node: tf.compat.v1.NodeExecStats, problem: Problem, number_of: dict[str, int]) -> Span:
    """Type and unit are the plan's: the trace has the kernel's type, which differs from processor to processor."""
    args: dict[str, Any] = {"scope": scope_of(node.node_name)}
    op = owner(node.node_name, number_of)
    if op is None:  # the runtime's own
        found = _TYPE.search(node.timeline_label)
        args["type"] = found[1] if found else ""
    else:
        args["type"] = problem.op_types[number_of[op]]
        args["unit"] = int(problem.unit_of_op[number_of[op]])
    return Span(node.node_name, "op", *_times_ns(node), args)


def _received(node: tf.compat.v1.NodeExecStats) -> Span:
    found = _CROSSED.search(node.timeline_label)
    args: dict[str, Any] = {
        "bytes": sum(o.tensor_description.allocation_description.requested_bytes for o in node.output)
    }
    if found is None:
        return Span(node.timeline_label or node.node_name, "transfer", *_times_ns(node), args)
    args |= {"from": found["source"], "to": found["target"]}
    return Span(found["name"], "transfer", *_times_ns(node), args)


def _times_ns(node: tf.compat.v1.NodeExecStats) -> tuple[int, int]:
    """When it ran; what crosses has microseconds only."""
    if node.all_start_nanos:
        return node.all_start_nanos + node.op_start_rel_nanos, node.all_start_nanos + node.op_end_rel_nanos
    start_us = node.all_start_micros
    return 1000 * (start_us + node.op_start_rel_micros), 1000 * (start_us + node.op_end_rel_micros)
