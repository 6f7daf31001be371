"""Op times of one program on one live device, from traces that are corrected for their own cost."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

import numpy as np
import tensorflow as tf

from tf_placer.graph.item import Item
from tf_placer.runtime.audit import owner
from tf_placer.runtime.graph_program import build_program, open_program, run_watched
from tf_placer.runtime.timing import RuntimeConfig, reported_s, time_steps
from tf_placer.workers.local_workers import Workers

# Op times in the runtime's own traces.


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


_Value = TypeVar("_Value")


@dataclasses.dataclass(frozen=True)
class OpTimes:
    """Times of a program's ops on one device.

    Attributes:
      op_ns: op name -> time, the executor's own work included, so that the sum is ``step_s``.
      step_s: untraced step time with everything on the device.
      tracing_ns: what tracing added to each op.
      unmeasured: ops that no trace shows: the runtime folded or never ran them; they count as free.
    """

    op_ns: dict[str, int]
    step_s: float
    tracing_ns: float
    unmeasured: tuple[str, ...]


def measure_op_times(
    timed: Workers,
    traced: Workers,
    item: Item,
    placed: tf.compat.v1.GraphDef,
    config: RuntimeConfig,
    traced_steps: int = 7,
) -> OpTimes:
    """Runs a program whose ops are all on one device, untraced and traced.

    A traced step takes longer than an untraced one by a few microseconds an op, and an untraced one longer than
    its kernels by the executor's work between them and by its threads' taking turns. All are taken to be alike for
    every op that runs: the difference between the traced kernels' sum and the untraced step is spread over the ops.

    Args:
      timed: run the untraced steps, with the threads that placements are measured with.
      traced: run the traced ones, with one inter-op thread: no two ops share the core and each has its
        time to itself.
      item: the program.
      placed: its graph, all on one device (ops without a kernel there apart).
      config: of the untraced steps.
      traced_steps: medians are over this many.
    """
    program = build_program(item, placed)
    names = set(item.index.names)

    def run(target: str) -> list[float]:
        with open_program(target, program, config.deadline_s) as loaded:
            return time_steps(loaded.step, config)

    def trace(target: str) -> list[dict[str, int]]:
        with open_program(target, program, config.deadline_s) as loaded:
            for _ in range(config.warmup_steps):
                loaded.step()
            return [op_times_ns(loaded.traced_step(), names) for _ in range(traced_steps)]

    step_s = _on(timed, config.deadline_s, run)
    traces = _on(traced, config.deadline_s, trace)
    return corrected(median_times_ns(traces), reported_s(step_s, config), item.index.names)


def _on(workers: Workers, deadline_s: float, function: Callable[[str], _Value]) -> _Value:
    workers.start()
    target = workers.target
    return run_watched(workers, deadline_s, lambda: function(target))


def corrected(traced_ns: dict[str, float], step_s: float, op_names: tuple[str, ...]) -> OpTimes:
    """Brings the sum of traced times to the untraced step, by the same amount for every op that runs."""
    ns = np.array(list(traced_ns.values()))
    excess = _uniform_excess(ns, 1e9 * step_s)
    op_ns = {
        name: int(value) for name, value in zip(traced_ns, np.rint(np.maximum(ns - excess, 0)), strict=True)
    }
    return OpTimes(op_ns, step_s, excess, tuple(name for name in op_names if name not in traced_ns))


def _uniform_excess(ns: np.ndarray, total_ns: float) -> float:
    """x with sum(max(ns - x, 0)) = total: negative where the executor takes more than tracing adds."""
    if not len(ns):
        return 0.0
    low, high = min(0.0, (ns.sum() - total_ns) / len(ns)), float(ns.max())
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(ns - middle, 0).sum() > total_ns else (low, middle)
    return (low + high) / 2
