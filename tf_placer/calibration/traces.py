"""Per-op times from the runtime's own traces."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable

import numpy as np
import tensorflow as tf

from tf_placer.runtime.audit import owner


def op_times_ns(trace: tf.compat.v1.RunMetadata, op_names: Collection[str]) -> dict[str, int]:
    """Time that each op spent in its kernel in one traced step, in nanoseconds.

    What ran under another name (the ops that a loop is lowered to are called ``loop/...``) counts for the op
    whose name is its longest prefix; sends and receives, which belong to no op, are left out.

    Args:
      trace: metadata of a step that was run with FULL_TRACE.
      op_names: of the graph.

    Returns:
      Name -> time; an op that the trace does not show is missing.
    """
    total: dict[str, int] = collections.defaultdict(int)
    for device in trace.step_stats.dev_stats:
        for node in device.node_stats:
            name = owner(node.node_name, op_names)
            if name is not None:
                total[name] += _kernel_ns(node)
    return dict(total)


def median_times_ns(traces: Iterable[dict[str, int]]) -> dict[str, float]:
    """Median time of each op over several steps; an op that any step lacks counts 0 there."""
    traces = list(traces)
    names = {name: None for trace in traces for name in trace}
    return {name: float(np.median([trace.get(name, 0) for trace in traces])) for name in names}


def _kernel_ns(node: tf.compat.v1.NodeExecStats) -> int:
    if node.op_end_rel_nanos:
        return node.op_end_rel_nanos - node.op_start_rel_nanos
    return 1000 * (node.op_end_rel_micros - node.op_start_rel_micros)
