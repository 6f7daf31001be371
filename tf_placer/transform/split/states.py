"""States and known values of tensors in a program whose batch is split, and the record of an op that is split."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.op_facts import GraphIndex, alone, data_inputs, having, new_node, registered_op
from tf_placer.base.arguments import InputError
from tf_placer.graph.sizes import OutputSpec

_MOST_ELEMENTS = 4096
SIZES = having("metadata")  # types of ops that ask for the size of what they read
_NEVER = {"Placeholder", "_Arg"}.union(
    *map(having, ("loop", "branch", "call", "python", "enter", "exit", "merge", "next", "switch"))
)


@dataclasses.dataclass(frozen=True)
class Whole:
    """One tensor that all copies read."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Each copy has the slice of its examples.

    The axis is ``outer * batch * inner`` long, row-major, and the examples are its middle: ``outer``
    is 1 where the batch comes first, T where a time-major ``[T, batch, D]`` was reshaped to
    ``[T * batch, D]``.
    """

    axis: int  # from 0
    outer: int = 1  # rows before the examples within the axis


@dataclasses.dataclass(frozen=True)
class Sum:
    """Each copy has an addend of the whole tensor's shape."""

    # Op type that joins two addends: AddV2, Maximum, Minimum, Mul, LogicalAnd or LogicalOr.
    join: str = "AddV2"


@dataclasses.dataclass(frozen=True)
class Own:
    """Each copy has its own estimate of the whole tensor, a statistic of its examples.

    Ops treat it as ``Whole``; a reader that needs one value gets the mean, weighted by examples.
    """


State = Whole | Part | Sum | Own
Tensor = tuple[int, int]  # op, output
WHOLE, OWN = Whole(), Own()


class NotSplit(Exception):
    """Why an op cannot be split, as one clause."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Examples of a step, and how many of them each copy has."""

    size: int
    sizes: tuple[int, ...]  # [k], differ by one at most; the first copies have more

    @staticmethod
    def divided(size: int, parts: int) -> Batch:
        """Divides a batch as evenly as possible; InputError for more parts than examples."""
        if not 1 <= parts <= size:
            raise InputError(
                f"parts is {parts}, but the batch has {size} examples; give a whole number from 1 to {size}"
            )
        return Batch(size, tuple(size // parts + (c < size % parts) for c in range(parts)))

    @property
    def parts(self) -> int:
        return len(self.sizes)

    def local(self, shape: Sequence[int], state: State, copy: int) -> tuple[int, ...]:
        """Shape in a copy of a tensor whose whole shape is ``shape``."""
        if not isinstance(state, Part):
            return tuple(shape)
        length = shape[state.axis] // self.size * self.sizes[copy]
        return (*shape[: state.axis], length, *shape[state.axis + 1 :])

    def resized(self, spec: OutputSpec, state: State, size: int) -> OutputSpec:
        """A tensor of another number of examples."""
        if not isinstance(state, Part):
            return spec
        shape = Batch(self.size, (size,)).local(spec.shape, state, 0)
        return dataclasses.replace(spec, shape=shape, num_bytes=spec.num_bytes // self.size * size)

    def holds(self, length: int, outer: int) -> bool:
        """Whether an axis of this length can hold the examples, with ``outer`` rows before them."""
        return length > 0 and length % (outer * self.size) == 0


# Writes the copies of an op. Takes a writer (``tf_placer.transform.split.split_batch``) and the tensors that
# the op reads in each copy; returns for each output the tensors of all copies, or one whole tensor.
Write = Callable[[Any, Sequence[Sequence[str]]], Sequence[Sequence[str]]]


@dataclasses.dataclass(frozen=True)
class Split:
    """How an op is split: every copy is the op itself, on other inputs, unless ``write`` says otherwise."""

    takes: tuple[State, ...]  # state in which the copies read each data input
    gives: tuple[State, ...]  # state of each output
    # Number of an input that tells sizes -> value in a copy.
    constants: Mapping[int, Callable[[int], np.ndarray]] = dataclasses.field(default_factory=dict)
    # Attributes of the copies that differ from the op's.
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    op_type: str = ""  # of the copies, where it differs
    write: Write | None = None  # where a copy is more than one node


@dataclasses.dataclass(frozen=True)
class OpStates:
    """A rule's view of one op; tuples have an entry for each data input or output."""

    node: tf.compat.v1.NodeDef
    states: tuple[State, ...]  # at least one is not whole
    shapes: tuple[tuple[int, ...], ...]  # of the whole tensors
    values: tuple[np.ndarray | None, ...]  # those that are known before the step (``known_values``)
    dtypes: tuple[tf.DType, ...]
    out_shapes: tuple[tuple[int, ...], ...]
    out_dtypes: tuple[tf.DType, ...]
    batch: Batch

    def attr(self, name: str) -> tf.compat.v1.AttrValue:
        """An attribute, empty where the op has none; indexing the node itself would add one."""
        return self.node.attr[name] if name in self.node.attr else tf.compat.v1.AttrValue()

    def part(self, position: int) -> Part | None:
        """State of an input that is in parts, else None."""
        state = self.states[position] if position < len(self.states) else WHOLE
        return state if isinstance(state, Part) else None

    def value(self, position: int) -> np.ndarray:
        """Value of an input; raises NotSplit for one that depends on data."""
        value = self.values[position]
        if value is None:
            raise NotSplit(f"its input {position} depends on data")
        return value

    def axis(self, position: int, rank: int) -> int:
        """The axis that an input names, from 0."""
        return int(np.ravel(self.value(position))[0]) % max(rank, 1)

    def takes(self, state: State, *positions: int) -> tuple[State, ...]:
        """States in which the copies read the inputs: some in one, the others whole."""
        return tuple(state if i in positions else WHOLE for i in range(len(self.states)))

    def all_sums(self) -> Sum | None:
        """The state that all inputs share where they are addends of one kind."""
        state = self.states[0]
        return state if isinstance(state, Sum) and len(set(self.states)) == 1 else None

    def local_size(self, state: Part, dtype: tf.DType) -> Callable[[int], np.ndarray]:
        """Copy -> shape of the first output, as a value of an input that tells sizes."""
        return lambda copy: np.asarray(
            self.batch.local(self.out_shapes[0], state, copy), dtype.as_numpy_dtype
        )


def same_part(op: OpStates, positions: Sequence[int]) -> Part:
    """The common state of all inputs in parts among some; raises NotSplit if there is none."""
    parts = {op.states[i] for i in positions if isinstance(op.states[i], Part)}
    if len(parts) != 1:
        raise NotSplit("its inputs are in different parts" if parts else "it needs all examples")
    return next(iter(parts))  # type: ignore[return-value]


def part_of_rows(op: OpStates, positions: Sequence[int]) -> Part:
    """The same of inputs that have the examples on their first axis."""
    state = same_part(op, positions)
    if state.axis != 0:
        raise NotSplit("its examples are not on the first axis")
    return state


def known_values(index: GraphIndex, outputs: Sequence[Sequence[OutputSpec]]) -> dict[Tensor, np.ndarray]:
    """Values of small tensors of whole numbers that follow from no data and no estimate; ops in topological order."""
    value_of: dict[Tensor, np.ndarray] = {}
    to_run: list[int] = []
    is_known = np.zeros(index.num_ops, bool)
    for op, node in enumerate(index.graph_def.node):
        is_small = bool(outputs[op]) and all(
            (spec.dtype.is_integer or spec.dtype.is_bool)
            and math.prod(spec.shape) <= _MOST_ELEMENTS
            and not spec.rule
            for spec in outputs[op]
        )
        if not is_small:
            continue
        if node.op == "Const":
            value_of[op, 0] = tf.make_ndarray(node.attr["value"].tensor)
            is_known[op] = True
        elif node.op in SIZES:
            is_known[op] = True
            for i, (producer, output) in enumerate(index.inputs[op]):
                source = outputs[producer][output]
                if source.rule or source.dtype in (tf.resource, tf.variant):
                    is_known[op] = False
                    break
                sizes = {"Rank": len(source.shape), "Size": math.prod(source.shape)}
                size = sizes.get(node.op, source.shape)
                value_of[op, i] = np.asarray(size, outputs[op][i].dtype.as_numpy_dtype)
        elif all(is_known[producer] for producer, _ in index.inputs[op]) and may_run(node):
            is_known[op] = True
            to_run.append(op)
    return value_of | _results(index, outputs, to_run, value_of)


def may_run(node: tf.compat.v1.NodeDef) -> bool:
    """Whether an op can be run before the step: its value depends on its inputs alone, and there are some."""
    definition = registered_op(node.op)
    has_state = definition is None or definition.is_stateful
    return not has_state and node.op not in _NEVER and bool(data_inputs(node))


def _results(
    index: GraphIndex,
    outputs: Sequence[Sequence[OutputSpec]],
    ops: Sequence[int],
    known: dict[Tensor, np.ndarray],
) -> dict[Tensor, np.ndarray]:
    """Outputs of ops without state on known values, run in one session."""
    if not ops:
        return {}
    read = {tensor for op in ops for tensor in index.inputs[op]} & known.keys()
    nodes = []
    for op, i in read:
        value = known[op, i]
        nodes.append(new_node("Const", f"known_{op}_{i}", value=value, dtype=tf.as_dtype(value.dtype)))
    for op in ops:
        texts = [
            f"known_{producer}_{i}" if (producer, i) in read else f"op_{producer}:{i}"
            for producer, i in index.inputs[op]
        ]
        nodes.append(alone(index.graph_def.node[op], texts, f"op_{op}"))
    fetches = {(op, i): f"op_{op}:{i}" for op in ops for i in range(len(outputs[op]))}
    with session_of(nodes, index.graph_def.versions) as session:
        return session.run(fetches)


def session_of(nodes: Iterable[tf.compat.v1.NodeDef], versions: Any) -> tf.compat.v1.Session:
    """Session that runs some nodes of a graph alone, on the CPU and as they are."""
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(tf.compat.v1.GraphDef(node=nodes, versions=versions), name="")
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf.compat.v1.Session(graph=graph, config=config)
