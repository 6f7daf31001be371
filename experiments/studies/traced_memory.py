"""Peak memory of a step on each device, from the runtime's trace."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.op_facts import data_inputs

_RECEIVED, _ASSIGNS = "RecvTensor", "= AssignVariableOp("


def readers_of(graph_def: tf.compat.v1.GraphDef) -> dict[str, list[str]]:
    """Name of an op -> names of the ops that read its outputs."""
    readers: dict[str, list[str]] = {}
    for node in graph_def.node:
        for text in data_inputs(node):
            readers.setdefault(text.partition(":")[0], []).append(node.name)
    return readers


def traced_peak_bytes(
    trace: tf.compat.v1.RunMetadata, readers: Mapping[str, Collection[str]]
) -> dict[str, int]:
    """Device -> peak bytes of the step's tensors, without variables and inputs.

    TensorFlow records each buffer that its allocators hand out and take back in a traced step: outputs, and scratch
    memory of kernels. Tensors from before the step are missing, and so are their replacements once they are in place: a
    variable's new value is in a buffer that is never returned, and the old one goes without a record. Of a copy from
    another worker only the arrival is recorded; it lives until its last reader has ended. Within one microsecond,
    returns come first.

    Args:
      trace: metadata of a step that was run with FULL_TRACE.
      readers: of each op, by name (``readers_of``).
    """
    records: dict[str, list[tuple[int, int]]] = {}  # device -> (microseconds, bytes)
    ends: dict[tuple[str, str], int] = {}
    assigned: dict[str, int] = {}  # AssignVariableOp -> its end
    kept: list[tuple[str, str, int]] = []  # device, op, and bytes that it did not return
    received: list[tuple[str, Any]] = []
    for device in trace.step_stats.dev_stats:
        changes = records.setdefault(device.device, [])
        for node in device.node_stats:
            if node.node_name == _RECEIVED:
                received.append((device.device, node))
            else:
                changes += _buffers(node)
                ends[device.device, node.node_name] = _end_micros(node)
                left = sum(num_bytes for _, num_bytes in _buffers(node))
                kept += [(device.device, node.node_name, left)] if left else []
                if _ASSIGNS in node.timeline_label:
                    assigned[node.node_name] = _end_micros(node)
    for name, op, num_bytes in kept:
        # An op writes into what it alone reads, so a buffer goes from op to op until a variable has it.
        while op not in assigned and len(readers.get(op, ())) == 1:
            (op,) = readers[op]
        if op in assigned:
            records[name].append((assigned[op], -num_bytes))
    for device, node in received:
        # TensorFlow calls the transfer of an output edge_NUMBER_OP.
        edge = next(word for word in node.timeline_label.split() if word.startswith("edge_"))
        num_bytes = sum(o.tensor_description.allocation_description.requested_bytes for o in node.output)
        reads = [ends.get((device, op), 0) for op in readers.get(str(edge.split("_", 2)[2]), ())]
        arrival = _end_micros(node)
        records[device] += [(arrival, num_bytes), (max([arrival, *reads]), -num_bytes)]
    peaks = {}
    for name, changes in records.items():
        held = np.cumsum([num_bytes for _, num_bytes in sorted(changes)], dtype=np.int64)
        peaks[name] = int(held.max(initial=0))
    return peaks


def _buffers(node: Any) -> Iterator[tuple[int, int]]:
    """(microseconds, bytes) of a node's buffers. A variable's new value, kept by an op without outputs, is left out."""
    for memory in node.memory:
        returned = collections.Counter(-r.alloc_bytes for r in memory.allocation_records if r.alloc_bytes < 0)
        for record in memory.allocation_records:
            is_kept = record.alloc_bytes > 0 and not returned[record.alloc_bytes]
            if record.alloc_bytes > 0 and not is_kept:
                returned[record.alloc_bytes] -= 1
            if node.output or not is_kept:
                yield record.alloc_micros, record.alloc_bytes


def _end_micros(node: Any) -> int:
    return int(node.all_start_micros + node.all_end_rel_micros)
