"""Audit of a plan: devices and order of the ops that run, and values compared with those of the unplaced step."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf

from colocation.op_facts import BRANCHES, LOOPS, control_inputs, new_node, parse_input, reached
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.runtime.graph_program import GraphProgram, build_program, open_program

_SCOPE = "tf_placer_values"

Values = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest difference of two steps."""

    # To the largest number of the value; 0 for equal bits, infinite for values without numbers.
    relative: float = 0.0
    value: str = ""  # an output or a variable; "" for equal bits


@dataclasses.dataclass(frozen=True)
class SameValues:
    """Differences of the unplaced and the placed step, both from the same inputs and variables."""

    repeated: Difference  # of two unplaced steps without Grappler and oneDNN: where random numbers are drawn
    exact: Difference  # without Grappler and oneDNN
    # With the settings of this process. TensorFlow then rewrites and fuses ops within a device, so the last bits depend
    # on where the ops are.
    as_run: Difference
    # Limit of ``exact``, a share of the largest number, where sums are made in another order because the batch is in
    # parts or XLA compiles clusters; infinite where each part has its own statistics. None for equal bits.
    apart: float | None = None

    @property
    def is_wrong(self) -> bool:
        """True if the placed step computes other values, which no rewriting by TensorFlow explains."""
        return not self.repeated.value and self.exact.relative > (self.apart or 0.0)

    def summary(self) -> str:
        """One line."""
        if self.repeated.value:
            return (
                f"no two steps are alike ({self.repeated.value} differs), as where random numbers are drawn, so values "
                "cannot be compared"
            )
        as_run = "the same" if not self.as_run.value else f"{_shown(self.as_run)} apart"
        if self.is_wrong:
            most = "" if self.apart is None else f", more than the order of sums makes ({self.apart:.0e})"
            return f"DIFFERENT VALUES{most} with Grappler and oneDNN off: {_shown(self.exact)}; with them, {as_run}"
        if self.apart is not None:
            exact = f"{_shown(self.exact)} apart" if self.exact.value else "the same bits"
            why = (
                "batch statistics are those of each part"
                if math.isinf(self.apart)
                else "sums are in another order"
            )
            return (
                f"{exact} with Grappler and oneDNN off: {why}, as the batch is in parts or XLA compiles clusters; as "
                f"this process has them, {as_run}"
            )
        return f"the same bits with Grappler and oneDNN off; as this process has them, {as_run}"


def _shown(difference: Difference) -> str:
    return f"{difference.relative:.1e} of the largest number in {difference.value}"


def step_values(
    target: str,
    item: Item,
    graph_def: tf.compat.v1.GraphDef,
    deadline_s: float,
    config_of: Callable[[float], tf.compat.v1.ConfigProto],
) -> Values:
    """Runs one step of a program from its inputs and variables: output or variable -> value after the step.

    ``graph_def`` is the item's graph, placed or not; the rest is as ``open_program`` takes it.

    Raises:
      InputError: as ``build_program``; or there is no value to compare.
    """
    program = build_program(item, graph_def, is_call=True)
    device_of = {node.name: node.device for node in graph_def.node}
    reads = {}
    for i, variable in enumerate(item.variables):
        name, handle = f"{_SCOPE}/{i}", variable.node
        read = new_node("ReadVariableOp", name, [handle], device_of[handle], dtype=variable.dtype)
        program.graph_def.node.append(read)
        reads[f"variable {handle!r}"] = f"{name}:0"
    if not reads and not program.fetches:
        raise InputError(
            f"{item.name!r} gives back nothing and has no variable, so there is nothing to compare"
        )
    with open_program(target, program, deadline_s, config_of) as loaded:
        outputs = loaded.outputs()
        return {
            f"output {name!r}": value for name, value in zip(program.fetches, outputs, strict=True)
        } | dict(zip(reads, loaded.read(list(reads.values())), strict=True))


def difference(one: Values, other: Values) -> Difference:
    """The largest difference of the same values of two steps."""
    differences = (Difference(_relative(one[name], other[name]), name) for name in one)
    return max((d for d in differences if d.relative > 0), key=lambda d: d.relative, default=Difference())


def _relative(value: np.ndarray, reference: np.ndarray) -> float:
    value, reference = np.asarray(value), np.asarray(reference)
    if value.shape != reference.shape or value.dtype != reference.dtype:
        return float("inf")
    if value.dtype == object:  # texts, whose bytes are pointers here
        return 0.0 if np.array_equal(value, reference) else float("inf")
    if value.tobytes() == reference.tobytes():
        return 0.0
    if value.dtype == bool:
        return float("inf")
    wide = np.complex128 if value.dtype.kind == "c" else np.float64
    value, reference = value.astype(wide), reference.astype(wide)
    finite = np.isfinite(value)
    if (finite != np.isfinite(reference)).any():
        return float("inf")
    largest = float(np.abs(value[finite]).max(initial=0.0))
    distance = float(np.abs(value[finite] - reference[finite]).max(initial=0.0))
    # Bits may differ where numbers do not, in the sign of a zero: a minimal difference.
    return max(distance / largest if largest else float(distance > 0), float(np.finfo(np.float64).tiny))


_COPY = "/replicate/_"  # in the names of TensorFlow's copies of a small constant for several devices
_FUSED_PREFIXES = ("_Fused", "_Mkl")  # of the runtime's types for fused ops


class Reason(enum.Enum):
    """Reason why an op of the plan does not run as such."""

    PRUNED = "no output and no side effect of the step needs it"
    LOWERED = "the runtime runs it as simpler ops, on the same device"
    FUSED = "the runtime runs it within an op beside it, on the same device"
    REPLICATED = "the runtime gives each device that reads this constant a copy"


@dataclasses.dataclass(frozen=True)
class ExecutedOrder:
    """Pairs of ops that should run one after the other, compared with a traced step."""

    in_order: int  # pairs in which the second op began after the end of the first
    broken: tuple[tuple[str, str], ...] = ()  # the other pairs, by name
    absent: int = 0  # pairs with an op that is not in the trace, because TensorFlow pruned or fused it

    def summary(self) -> str:
        """A part of a line."""
        pairs = self.in_order + len(self.broken)
        wrong = f"{len(self.broken)} of {pairs} ordered pairs of ops OUT OF ORDER"
        return wrong if self.broken else f"all {pairs} ordered pairs of ops in order"


def executed_order(
    pairs: Sequence[tuple[str, str]], trace: tf.compat.v1.RunMetadata, op_names: Collection[str]
) -> ExecutedOrder:
    """Compares pairs of ops, both of one device, with the kernels of a step that was traced with FULL_TRACE.

    ``pairs`` are the name of an op, and of one that is to begin when it has ended; ``op_names`` all of the graph.
    """
    start_ns: dict[str, int] = {}
    end_ns: dict[str, int] = {}
    for device in trace.step_stats.dev_stats:
        for node in device.node_stats:
            name = owner(node.node_name, op_names)
            if name is not None:
                start, end = node_times_ns(node)
                start_ns[name] = min(start, start_ns.get(name, start))
                end_ns[name] = max(end, end_ns.get(name, end))
    traced = [(before, after) for before, after in pairs if before in end_ns and after in start_ns]
    broken = tuple((before, after) for before, after in traced if end_ns[before] > start_ns[after])
    return ExecutedOrder(len(traced) - len(broken), broken, len(pairs) - len(traced))


def node_times_ns(node: tf.compat.v1.NodeExecStats) -> tuple[int, int]:
    """Start and end of a node's kernel; times of transfers have microseconds only."""
    if node.all_start_nanos:
        return node.all_start_nanos + node.op_start_rel_nanos, node.all_start_nanos + node.op_end_rel_nanos
    start_us = node.all_start_micros
    return 1000 * (start_us + node.op_start_rel_micros), 1000 * (start_us + node.op_end_rel_micros)


def written_order(before: tf.compat.v1.GraphDef, after: tf.compat.v1.GraphDef) -> list[tuple[str, str]]:
    """Control edges that a rewritten graph has in addition, as pairs of names."""
    had = {node.name: set(control_inputs(node)) for node in before.node}
    return [
        (parse_input(text)[1], node.name)
        for node in after.node
        if node.name in had
        for text in control_inputs(node)
        if text not in had[node.name]
    ]


@dataclasses.dataclass(frozen=True)
class Audit:
    """Devices of the ops that run, compared with the plan."""

    in_place: int  # number of ops on their planned device
    absent: dict[str, Reason]  # by op name
    unexplained: dict[str, str]  # op name -> fault: another device, or missing without a ``Reason``
    added: dict[str, int]  # type -> number of nodes that the runtime added (sends, receives, control flow)
    values: SameValues | None = None  # None if values were not compared
    order: ExecutedOrder | None = None  # of the ops that the plan orders; None for a plan without priorities

    def check(self) -> None:
        """Raises AuditError when something is unexplained, out of order, or computes something else."""
        if self.unexplained:
            name, fault = next(iter(self.unexplained.items()))
            rest = f" (and {len(self.unexplained) - 1} more)" if len(self.unexplained) > 1 else ""
            raise AuditError(f"op {name!r} {fault}{rest}")
        if self.order is not None and self.order.broken:
            before, after = self.order.broken[0]
            raise AuditError(f"{self.order.summary()}: op {after!r} began before {before!r} had ended")
        if self.values is not None and self.values.is_wrong:
            raise AuditError(self.values.summary())

    def summary(self) -> str:
        """One line."""
        reasons = collections.Counter(reason.name.lower() for reason in self.absent.values())
        parts = [f"{self.in_place} ops where they were put"]
        parts += [f"{count} {reason}" for reason, count in sorted(reasons.items())]
        parts += [f"{len(self.unexplained)} UNEXPLAINED"] if self.unexplained else []
        comparisons = [c.summary() for c in (self.order, self.values) if c is not None]
        return "; ".join([", ".join(parts), *comparisons])


class AuditError(RuntimeError):
    """The runtime did not run the plan."""


def audit(program: GraphProgram, partition_graphs: list[tf.compat.v1.GraphDef]) -> Audit:
    """Compares every node of a program, each with a device, with the partition graphs of one of its steps."""
    type_of = {node.name: node.op for node in program.graph_def.node}
    inputs = {node.name: [parse_input(text)[1] for text in node.input] for node in program.graph_def.node}
    readers: dict[str, set[str]] = collections.defaultdict(set)
    for name, names in inputs.items():
        for read in names:
            readers[read].add(name)
    devices_of: dict[str, set[str]] = collections.defaultdict(set)
    added: dict[str, int] = collections.Counter()
    fused: set[tuple[str, str]] = set()  # name and device
    replicated: set[str] = set()
    lowered_devices: dict[str, set[str]] = collections.defaultdict(set)
    lowered = {name for name, op in type_of.items() if op in LOOPS | BRANCHES}
    for graph in partition_graphs:
        for node in graph.node:
            if node.name in type_of:
                devices_of[node.name].add(node.device)
                if node.op != type_of[node.name] and node.op.startswith(_FUSED_PREFIXES):
                    fused.add((node.name, node.device))
                continue
            added[node.op] += 1
            if node.op == "Const" and _COPY in node.name:
                replicated.add(node.name.rpartition(_COPY)[0])
            origin = owner(node.name, lowered)
            if origin:
                lowered_devices[origin].add(node.device)
    needed = reached(program.step_ops, inputs.__getitem__)
    in_place, absent, unexplained = 0, {}, {}
    for node in program.graph_def.node:
        devices = devices_of.get(node.name, set())
        # On CPUs oneDNN's pass fuses a convolution with the addition of a bias, and the two gradients that read the
        # same upstream gradient. The fused op has one of their names, and runs where both were placed.
        neighbors = readers[node.name] | (
            readers[inputs[node.name][0]] if node.op == "BiasAddGrad" else set()
        )
        if devices == {node.device}:
            in_place += 1
        elif devices:
            unexplained[node.name] = f"is planned for {node.device} and runs on {', '.join(sorted(devices))}"
        elif node.name not in needed:
            absent[node.name] = Reason.PRUNED
        elif node.name in lowered and node.device in lowered_devices[node.name]:
            absent[node.name] = Reason.LOWERED
        elif any((name, node.device) in fused for name in neighbors):
            absent[node.name] = Reason.FUSED
        elif node.op == "Const" and node.name in replicated:
            absent[node.name] = Reason.REPLICATED
        else:
            unexplained[node.name] = (
                f"is planned for {node.device} and does not run, though the step needs it"
            )
    return Audit(in_place, absent, unexplained, dict(added))


def owner(node_name: str, op_names: Collection[str]) -> str | None:
    """The op that a node of a trace or of a partition graph belongs to, None for the runtime's own."""
    name = node_name.partition(":")[0]
    while name and name not in op_names:
        name = name.rpartition("/")[0]
    return name or None
