"""What TensorFlow does with a program that names no device."""

from __future__ import annotations

import numpy as np

from colocation.op_facts import having
from tf_placer.method_spec import Kind, MethodSpec, NoSettings
from tf_placer.problem.problem import Problem

_METADATA = sorted(having("metadata"))


def tf_default(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """TensorFlow's own placer (Abadi et al. 2016, "TensorFlow: A System for Large-Scale Machine Learning").

    Every colocation unit goes to the first GPU where all of its ops have a kernel there, else to the first CPU; without
    a GPU to the first device. Then its two rules for ops that are units by themselves: one that waits for nothing goes
    with its readers where those are on one device, and one that only looks at a shape goes with what it reads.

    It knows nothing of time, nor of memory: further GPUs stay idle, and where the first is too small, that is what
    its row says. Unlike the placer it sees the graph without what TensorFlow folds before a step.

    Returns:
      [1, U] int32, a legal placement.
    """
    types = [device.type for device in problem.cluster.devices]
    kinds = sorted(range(len(types)), key=lambda device: types[device] != "GPU")
    first = kinds[0]
    host = problem.cluster.host
    order = [first, *([host] if host not in (None, first) else [])]
    order += [device for device in kinds if device not in order]
    row = problem.legalized(np.full(problem.num_units, first), np.array(order))
    _with_neighbors(problem, row)
    return row[np.newaxis]


def _with_neighbors(problem: Problem, row: np.ndarray) -> None:
    """Moves sources to their readers, and what looks at shapes to what it reads, in ``row`` [U]."""
    graph, unit_of_op = problem.op_graph, problem.unit_of_op
    alone = np.bincount(unit_of_op, minlength=problem.num_units)[unit_of_op] == 1
    reads, read = np.diff(graph.in_offset), np.diff(graph.out_offset)
    metadata = np.isin(np.array(problem.op_types), _METADATA)
    for op in np.flatnonzero(alone & metadata & (reads > 0)).tolist():
        _move(problem, row, op, unit_of_op[graph.predecessors(op)[:1]])
    for op in np.flatnonzero(alone & (reads == 0) & (read > 0)).tolist():
        _move(problem, row, op, unit_of_op[graph.successors(op)])


def _move(problem: Problem, row: np.ndarray, op: int, others: np.ndarray) -> None:
    devices = np.unique(row[others])
    if len(devices) == 1 and problem.allowed[problem.unit_of_op[op], devices[0]]:
        row[problem.unit_of_op[op]] = devices[0]


SPEC = MethodSpec(
    name="tf_default",
    kind=Kind.CONSTRUCTIVE,
    summary="TensorFlow's own placer: the first GPU where there is a kernel, else the CPU (Abadi et al. 2016).",
    build=tf_default,
    ignores=("everything but kernels and colocation",),
    goes_on=False,
)
