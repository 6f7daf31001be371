"""Splitting of a program's batch: one graph with a copy for each part of every op that works on examples."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation import op_facts
from colocation.op_facts import control_inputs, copy_of, new_node, parse_input, registered_op
from colocation.units import class_groups
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly, without_collections
from tf_placer.graph.item import Item, rewritten
from tf_placer.graph.program import KEPT_BYTES, MAX_CLONED_BYTES, Splitting, fresh_name, with_nodes
from tf_placer.graph.sizes import OutputSpec
from tf_placer.transform import BATCH_STATISTICS, PART
from tf_placer.transform import WHOLE as WHOLE_BATCH
from tf_placer.transform.recompute import recompute
from tf_placer.transform.split.propagate import Program, States, best_states, propagate
from tf_placer.transform.split.rules import rule_name
from tf_placer.transform.split.states import SIZES, WHOLE, Own, Part, Split, State, Sum, Tensor
from tf_placer.transform.split.unroll import Unrolled, unrolled

_LOCAL_RULES = frozenset({"elementwise", "linear", "add", "scale", "cast"})
_COLOCATION = "loc:@"


class Writer:
    """Nodes of the split graph, written op by op in topological order.

    Rules that write copies themselves call ``copy``, ``op``, ``binary``, ``cast``, ``reduce`` and ``empty``, which
    name their nodes after the op that is being written. ``copy`` as an argument is the number of the copy, None for
    nodes of the whole.
    """

    def __init__(self, program: Program, states: States, examples: Container[Tensor] = ()) -> None:
        """Begins an empty graph of a program with these states of its tensors.

        ``examples`` are inputs that hold the examples; of another batch, the step ends with an error that says so.
        """
        self.nodes: list[node_def_pb2.NodeDef] = []
        self.origin_of: dict[str, str] = {}  # name of a node -> op that it came from
        self.specs: dict[str, tuple[OutputSpec, ...]] = {}  # node -> outputs, where the program tells them
        self._program, self._states, self._batch = program, states, states.batch
        self._examples = examples
        self._index, self._outputs = program.item.index, program.item.outputs
        self._taken = {name for op, name in enumerate(self._index.names) if op not in states.splits}
        self._made: dict[Tensor, list[str]] = {}  # output of a split op -> tensor of each copy, or one
        self._done: dict[int, list[list[str]]] = {}  # split op -> nodes of each copy to wait for
        self._whole: dict[Tensor, str] = {}
        self._pieces: dict[tuple[Tensor, State], list[str]] = {}
        self._op = -1  # op that nodes are written for
        self._group_of = class_groups(self._index)
        self._tied: list[tuple[node_def_pb2.NodeDef, int, int | None]] = []  # node, colocation group, copy

    def write(self) -> None:
        """Writes all ops."""
        for op, node in enumerate(self._index.graph_def.node):
            inputs = self._program.inputs[op]
            if op in self._states.splits:
                self._write_copies(op, self._states.splits[op])
            elif node.op in SIZES and any(self._states.state(tensor) != WHOLE for tensor in inputs):
                # What asks for a size becomes the size of the whole: one constant for each output.
                self._op = op
                controls = self._controls(node, None)
                for output in range(len(self._outputs[op])):
                    name = node.name if output == 0 else f"whole/{node.name}/output_{output}"
                    self._whole[op, output] = self.constant(self._program.known[op, output], name)
                    self.nodes[-1].input.extend(controls)
            else:
                texts = [self.whole(tensor) for tensor in inputs]
                self._op = op
                name = self._append(copy_of(node, [*texts, *self._controls(node, None)]))
                self.specs[name] = self._outputs[op]
                self._tie(self.nodes[-1], None)
        # The copies of each part, and the whole ops, of a group that shares a device are tied by ``_class``. TensorFlow
        # takes such a name for a group's, which has no first among its ops. A part is computed elsewhere than the
        # whole, so a group of which some ops have copies becomes one group for each part and one without.
        mixed = {group for _, group, copy in self._tied if copy is not None}
        leaders: dict[tuple[int, int | None], str] = {}
        for node, group, copy in self._tied:
            if group in mixed:
                leader = leaders.setdefault((group, copy), node.name)
                node.attr.pop("_class", None)
                if leader != node.name:
                    node.attr["_class"].list.s.append(f"{_COLOCATION}{leader}".encode())

    def whole(self, tensor: Tensor) -> str:
        """The tensor as one: parts, addends or estimates are joined."""
        op, output = tensor
        name = self._index.names[op]
        if op not in self._states.splits and tensor not in self._whole:
            return f"{name}:{output}" if output else name
        if tensor not in self._whole:
            target = name if output == 0 else f"whole/{name}/output_{output}"
            with self._writing(op):
                self._whole[tensor] = self._joined(tensor, self._states.splits[op].gives[output], target)
        return self._whole[tensor]

    def pieces(self, tensor: Tensor, state: State) -> list[str]:
        """The tensor of each copy in a state."""
        key = tensor, state
        if key not in self._pieces:
            split = self._states.splits.get(tensor[0])
            if split is not None and split.gives[tensor[1]] == state:
                pieces = self._made[tensor]
            elif isinstance(state, Part):
                with self._writing(tensor[0]):
                    pieces = self._local(tensor, state) or self._divided(tensor, state)
            elif state == WHOLE:
                node, specs = self._index.graph_def.node[tensor[0]], self._outputs[tensor[0]]
                if node.op != "Const" or specs[0].num_bytes > MAX_CLONED_BYTES:
                    pieces = [self.whole(tensor)]
                else:  # of a small constant each copy gets its own, as every reader has
                    pieces = []
                    with self._writing(tensor[0]):
                        for c in range(self._batch.parts):
                            pieces.append(self._append(copy_of(node, [], f"part_{c}/{node.name}")))
                            self.specs[pieces[-1]] = specs
                            self._tie(self.nodes[-1], c)
            else:
                raise AssertionError(f"{self._index.names[tensor[0]]} is not {state}")
            self._pieces[key] = pieces if len(pieces) > 1 else pieces * self._batch.parts
        return self._pieces[key]

    def done(self, name: str) -> list[str]:
        """The nodes that an op of the program became, all of which a reader of its effect waits for."""
        op = self._index.id_of_name[name]
        return [name] if op not in self._done else sorted(set(itertools.chain(*self._done[op])))

    def item(self, splitting: Splitting) -> Item:
        """The split program: the nodes written so far, and nodes that join its results."""
        program = self._program.item
        fetches = []
        for tensor in self._program.fetched:
            text = self.whole(tensor)
            fetches.append(text if ":" in text else f"{text}:0")
        waits = itertools.chain.from_iterable(map(self.done, program.control_outputs))
        split = dataclasses.replace(
            program.as_program(),
            graph_def=with_nodes(program.graph_def, self.nodes),
            fetches=tuple(fetches),
            control_outputs=tuple(dict.fromkeys(waits)),
        )
        return rewritten(program, split, self.origin_of, self.specs, splitting)

    def copy(
        self, copy: int, inputs: Sequence[str], op_type: str = "", name: str = "", **attributes: Any
    ) -> str:
        """Writes a copy of the current op; ``name`` is added where the copy is several nodes."""
        source = self._index.graph_def.node[self._op]
        node = copy_of(source, [*inputs, *self._controls(source, copy)], self._below(copy, name))
        node.attr.pop("_output_shapes", None)  # saved graphs have the whole's
        if op_type and op_type != source.op:
            node.op = op_type
            defined = {attribute.name for attribute in registered_op(op_type).attr}  # type: ignore[union-attr]
            for attribute in [key for key in node.attr if key not in defined and not key.startswith("_")]:
                del node.attr[attribute]
        op_facts.set_attributes(node, attributes)
        self._tie(node, copy)
        return self._append(node)

    def op(
        self, op_type: str, inputs: Sequence[str], copy: int | None = None, name: str = "", **attributes: Any
    ) -> str:
        """Writes an op below the one that is being written, named by its type if ``name`` is left out."""
        return self.node(op_type, self._below(copy, name or op_type), inputs, copy, **attributes)

    def binary(
        self,
        op_type: str,
        left: str,
        right: str | float | np.ndarray,
        dtype: tf.DType,
        copy: int | None = None,
    ) -> str:
        """Writes an op of two inputs, of which the second may be a number or an array."""
        if not isinstance(right, str):
            right = self.constant(np.asarray(right, dtype.as_numpy_dtype), f"{self._below(copy, op_type)}/y")
        return self.op(op_type, [left, right], copy, T=dtype)

    def cast(self, value: str, source: tf.DType, target: tf.DType, copy: int | None = None) -> str:
        """Writes a change of type, where there is one."""
        return value if source == target else self.op("Cast", [value], copy, SrcT=source, DstT=target)

    def reduce(self, op_type: str, value: str, axes: Sequence[int], dtype: tf.DType, copy: int) -> str:
        """Writes a reduction over some axes."""
        axes_text = self.constant(np.asarray(axes, np.int32), f"{self._below(copy, op_type)}/axes")
        return self.op(op_type, [value, axes_text], copy, T=dtype, Tidx=tf.int32)

    def empty(self, name: str) -> str:
        """Writes a float tensor without elements."""
        return self.constant(np.zeros([0], np.float32), self._below(None, name))

    def constant(self, value: np.ndarray, name: str) -> str:
        """Writes a constant."""
        proto = tf.make_tensor_proto(value)
        dtype = tf.as_dtype(proto.dtype)
        name = self._append(new_node("Const", name, value=proto, dtype=dtype))
        self.specs[name] = (OutputSpec.of(tuple(value.shape), dtype),)
        return name

    def node(
        self, op_type: str, name: str, inputs: Sequence[str], copy: int | None = None, **attributes: Any
    ) -> str:
        """Writes a node; returns its name, another than ``name`` where that is taken."""
        controls = [] if copy is None else self._controls(self._index.graph_def.node[self._op], copy)
        return self._append(new_node(op_type, name, [*inputs, *controls], **attributes))

    def _append(self, node: node_def_pb2.NodeDef) -> str:
        source = self._index.names[self._op]
        # The op's own name is for one of its nodes; its readers and the program's fetches know it.
        if node.name != source or source in self.origin_of:
            node.name = fresh_name(node.name, self._taken)
        self._taken.add(node.name)
        self.origin_of[node.name] = source
        self.nodes.append(node)
        return node.name

    def _below(self, copy: int | None, name: str) -> str:
        base = self._index.names[self._op]
        scope = f"whole/{base}" if copy is None else f"part_{copy}/{base}"
        return f"{scope}/{name}" if name else scope

    @contextlib.contextmanager
    def _writing(self, op: int) -> Iterator[None]:
        """Writes nodes for another op for a while."""
        outer, self._op = self._op, op
        yield
        self._op = outer

    def _write_copies(self, op: int, split: Split) -> None:
        inputs = [
            [""] * self._batch.parts
            if position in split.constants
            else self.pieces(tensor, split.takes[position])
            for position, tensor in enumerate(self._program.inputs[op])
        ]
        self._op = op
        copies = [self._with_constants(inputs, c, split.constants) for c in range(self._batch.parts)]
        if split.write is not None:
            outputs = [list(tensors) for tensors in split.write(self, copies)]
        else:
            names = [self.copy(c, texts, split.op_type, **split.attributes) for c, texts in enumerate(copies)]
            for c, name in enumerate(names):
                self.specs[name] = tuple(
                    OutputSpec.of(self._batch.local(spec.shape, state, c), spec.dtype)
                    if isinstance(state, Part)
                    else spec
                    for spec, state in zip(self._outputs[op], split.gives, strict=True)
                )
            outputs = [
                [f"{name}:{output}" if output else name for name in names]
                for output in range(len(split.gives))
            ]
        for output, tensors in enumerate(outputs):
            self._made[op, output] = tensors
        self._done[op] = [
            [parse_input(tensors[c])[1] for tensors in outputs if len(tensors) > 1]
            for c in range(self._batch.parts)
        ]

    def _with_constants(
        self, inputs: Sequence[Sequence[str]], copy: int, constants: Mapping[int, Callable[[int], np.ndarray]]
    ) -> list[str]:
        """Inputs of one copy, with inputs that tell sizes written as constants."""
        texts = [texts_of_copies[copy] for texts_of_copies in inputs]
        for position, value in constants.items():
            texts[position] = self.constant(value(copy), f"{self._below(copy, '')}/input_{position}")
        return texts

    def _local(self, tensor: Tensor, state: Part) -> list[str]:
        """A whole tensor of the batch's size that each copy can make for itself, or nothing."""
        op, output = tensor
        node, inputs = self._index.graph_def.node[op], self._program.inputs[op]
        if op in self._states.splits:
            return []
        is_small = self._outputs[op][output].num_bytes <= KEPT_BYTES
        if is_small and tensor in self._program.known:
            return self._slices(self._program.known[tensor], state, node.name)
        if node.op == "Const":
            value = node.attr["value"].tensor
            return self._slices(tf.make_ndarray(value), state, node.name) if is_small else []
        shape = self._outputs[op][0].shape
        sized, whole_sizes = -1, shape  # the input that tells sizes, and these
        takes: list[State] = [WHOLE, WHOLE]
        if node.op == "Fill":
            sized = 0
        elif node.op == "BroadcastTo":
            sized, takes[0] = 1, self._aligned(inputs[0], state, len(shape))
        elif node.op == "Tile" and self._program.spec(inputs[0]).shape[state.axis] == 1:
            if inputs[1] not in self._program.known:
                return []
            sized, whole_sizes = 1, tuple(np.ravel(self._program.known[inputs[1]]).tolist())
        elif rule_name(node.op) in _LOCAL_RULES and not registered_op(node.op).is_stateful:  # type: ignore[union-attr]
            takes = [self._aligned(tensor, state, len(shape)) for tensor in inputs]
        else:
            return []
        pieces = [self.pieces(tensor, take) for tensor, take in zip(inputs, takes, strict=True)]
        self._op = op
        constants: dict[int, Callable[[int], np.ndarray]] = {}
        if sized >= 0:
            dtype = self._program.spec(inputs[sized]).dtype.as_numpy_dtype
            constants[sized] = lambda c: np.asarray(self._batch.local(whole_sizes, state, c), dtype)
        return [self.copy(c, self._with_constants(pieces, c, constants)) for c in range(self._batch.parts)]

    def _aligned(self, tensor: Tensor, state: Part, rank: int) -> State:
        """State of an operand whose last axes match a result's of this rank."""
        shape = self._program.spec(tensor).shape
        axis = state.axis - rank + len(shape)
        return Part(axis, state.outer) if axis >= 0 and shape[axis] > 1 else WHOLE

    def _blocks(self, shape: Sequence[int], state: Part, examples: int) -> list[int]:
        """The shape with the examples on an axis of their own, behind the rows before them."""
        inner = shape[state.axis] // state.outer // self._batch.size
        return [*shape[: state.axis], state.outer, examples * inner, *shape[state.axis + 1 :]]

    def _slices(self, value: np.ndarray, state: Part, name: str) -> list[str]:
        """Constants that are slices of a value."""
        inner = value.shape[state.axis] // state.outer // self._batch.size
        ends = np.cumsum([size * inner for size in self._batch.sizes])
        blocks = value.reshape(self._blocks(value.shape, state, self._batch.size))
        return [
            self.constant(piece.reshape(self._batch.local(value.shape, state, c)), f"part_{c}/{name}")
            for c, piece in enumerate(np.split(blocks, ends[:-1], axis=state.axis + 1))
        ]

    def _divided(self, tensor: Tensor, state: Part) -> list[str]:
        """Slices of a whole tensor, by one ``SplitV``."""
        text = self.whole(tensor)
        spec, name = self._program.spec(tensor), f"split/{self._index.names[tensor[0]]}"
        inner = spec.shape[state.axis] // state.outer // self._batch.size
        axis = state.axis
        if tensor in self._examples:  # a program may be called with other sizes than the parts are for
            checked, shape = f"{name}/parts_are_of_{self._batch.size}", tf.TensorShape(spec.shape)
            text = self.node("EnsureShape", checked, [text], T=spec.dtype, shape=shape)
        if state.outer > 1:
            blocks = self._blocks(spec.shape, state, self._batch.size)
            sizes = self.constant(np.asarray(blocks, np.int64), f"{name}/blocks/shape")
            text = self.node("Reshape", f"{name}/blocks", [text, sizes], T=spec.dtype, Tshape=tf.int64)
            axis += 1
        sizes = self.constant(np.asarray([n * inner for n in self._batch.sizes], np.int64), f"{name}/sizes")
        axis_text = self.constant(np.asarray(axis, np.int32), f"{name}/axis")
        inputs, parts = [text, sizes, axis_text], self._batch.parts
        divided = self.node("SplitV", name, inputs, T=spec.dtype, Tlen=tf.int64, num_split=parts)
        pieces = [f"{divided}:{c}" if c else divided for c in range(self._batch.parts)]
        if state.outer == 1:
            return pieces
        return [
            self._reshaped(piece, self._batch.local(spec.shape, state, c), spec.dtype, f"{name}/part_{c}")
            for c, piece in enumerate(pieces)
        ]

    def _joined(self, tensor: Tensor, state: State, name: str) -> str:
        """One tensor from the copies' tensors: a concatenation, or a tree of pairwise sums."""
        tensors, dtype = self._made[tensor], self._program.spec(tensor).dtype
        if state == WHOLE:
            return tensors[0]
        if isinstance(state, Part):
            shape, base = self._program.spec(tensor).shape, f"whole/{self._index.names[self._op]}"
            axis, target = (state.axis, name) if state.outer == 1 else (state.axis + 1, f"{base}/concat")
            if state.outer > 1:
                blocks = [self._blocks(shape, state, size) for size in self._batch.sizes]
                tensors = [
                    self._reshaped(text, block, dtype, f"{base}/blocks")
                    for text, block in zip(tensors, blocks, strict=True)
                ]
            axis_text = self.constant(np.asarray(axis, np.int32), f"{base}/axis")
            inputs = [*tensors, axis_text]
            joined = self.node("ConcatV2", target, inputs, T=dtype, Tidx=tf.int32, N=len(tensors))
            return joined if state.outer == 1 else self._reshaped(joined, shape, dtype, name)
        join = state.join if isinstance(state, Sum) else "AddV2"
        if isinstance(state, Own):
            shares = [size / self._batch.size for size in self._batch.sizes]
            tensors = [self.binary("Mul", text, shares[c], dtype, c) for c, text in enumerate(tensors)]
        types = {} if join in ("LogicalAnd", "LogicalOr") else {"T": dtype}
        level = tensors
        while len(level) > 2:
            pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
            level = [
                self.node(join, f"sum/{self._index.names[self._op]}/{join}", pair, **types)
                if len(pair) == 2
                else pair[0]
                for pair in pairs
            ]
        return self.node(join, name, level, **types)

    def _reshaped(self, value: str, shape: Sequence[int], dtype: tf.DType, name: str) -> str:
        sizes = self.constant(np.asarray(shape, np.int64), f"{name}_shape")
        return self.node("Reshape", name, [value, sizes], T=dtype, Tshape=tf.int64)

    def _controls(self, node: node_def_pb2.NodeDef, copy: int | None) -> list[str]:
        """A copy waits for the same copy of a split op; a whole op waits for all copies."""
        controls: list[str] = []
        for text in control_inputs(node):
            op = self._index.id_of_name[text[1:]]
            if op not in self._done:
                controls.append(text)
            elif copy is None:
                controls += [f"^{name}" for name in self.done(text[1:])]
            else:
                controls += [f"^{name}" for name in self._done[op][copy]]
        return list(dict.fromkeys(controls))

    def _tie(self, node: node_def_pb2.NodeDef, copy: int | None) -> None:
        if copy is not None:
            node.attr.pop("_class", None)
        if self._op in self._group_of:
            self._tied.append((node, self._group_of[self._op], copy))


@dataclasses.dataclass(frozen=True)
class StayedWhole:
    """An op that works on examples and is not split."""

    name: str
    op_type: str
    why: str  # one clause


@dataclasses.dataclass(frozen=True)
class SplitProgram:
    """A program whose batch is in parts, and the record of how its ops were split."""

    item: Item  # whole inputs in, whole outputs out; ops ``part_0/...`` are the first part's
    origin_of: Mapping[str, str]  # op of ``item`` -> op of the whole program
    parts: int
    batch: int  # examples of a step
    split_ops: tuple[str, ...]  # ops of the whole program that have copies
    stayed_whole: tuple[StayedWhole, ...]
    straight: Unrolled | None = None  # the whole program with loops written out; None in one part
    states: States | None = None  # of the tensors of ``straight``; None in one part

    def whole_of(self, batch: int) -> Item:
        """The whole program, loops written out, with tensors as large as of another batch: for costs, not to be run."""
        assert self.straight is not None and self.states is not None  # in several parts
        item, states, inputs = self.straight.item, self.states, self.straight.item.index.inputs
        state_of = dict(states.of)
        for op in states.why_whole:
            for n, spec in enumerate(item.outputs[op]):
                if self.batch in spec.shape:
                    state_of[op, n] = Part(spec.shape.index(self.batch))
        for op in reversed(range(len(inputs))):  # what is made whole and then cut: random masks, say
            split = states.splits.get(op)
            for position, (producer, n) in enumerate(inputs[op]):
                is_alike = item.outputs[op] and item.outputs[op][0].shape == item.outputs[producer][n].shape
                state = split.takes[position] if split else is_alike and state_of.get((op, 0))
                if isinstance(state, Part):
                    state_of.setdefault((producer, n), state)
        outputs = tuple(
            tuple(
                states.batch.resized(spec, state_of.get((op, n), WHOLE), batch)
                for n, spec in enumerate(specs)
            )
            for op, specs in enumerate(item.outputs)
        )
        return dataclasses.replace(item, outputs=outputs)

    def made_again(self, again: Item, origin_of: Mapping[str, str]) -> SplitProgram:
        """The program with a changed item, whose ops ``origin_of`` maps to ops of this one."""
        origins = {name: self.origin_of[origin_of[name]] for name in again.index.names}
        return dataclasses.replace(self, item=again, origin_of=origins)

    def sentences(self, time_of_op: Mapping[str, float], most: int = 5) -> list[str]:
        """A sentence for each op type and reason of the ops that stayed whole, the longest time first."""
        total = sum(time_of_op.values())
        groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for op in self.stayed_whole:
            groups[op.op_type, op.why].append(op.name)
        times = {key: sum(time_of_op[name] for name in names) for key, names in groups.items()}
        return [
            f"{len(groups[key])} {key[0]} ({groups[key][0]}, ...) stay whole, "
            f"{100 * times[key] / total if total else 0:.1f} % of the step: {key[1]}"
            for key in sorted(groups, key=lambda key: -times[key])[:most]
        ]


def split(
    item: Item,
    parts: int,
    batch_statistics: str = "whole",
    kept_whole: Collection[str] = (),
    recomputed: Collection[int] = (),
    parked: Collection[tuple[int, int]] = (),
) -> Item:
    """Splits the batch of a program: every op that works on examples gets a copy for each part.

    The result has the program's inputs, outputs and variables, all whole, so it is placed, run and exported like any
    Item. For the batch of its example inputs it computes the same, up to the order of sums. Random ops draw for the
    whole batch. With ``batch_statistics="part"`` sums over the batch that go back to the examples, as in batch
    normalization, are of each part alone, as under ``tf.distribute``: this changes the numbers.

    Args:
      item: the program.
      parts: copies; 1 gives the item itself.
      batch_statistics: ``"whole"`` or ``"part"``.
      kept_whole: names of ops that stay whole, because their copies would take longer than they gain.
      recomputed: positions, among the ops of the program in parts, of those that are done again in the backward pass,
        so that their outputs need not live until then (``recompute``).
      parked: likewise pairs of an op whose outputs wait on the host, and the backward op after which they come back.

    Raises:
      InputError: ``parts`` is below 1 or above the batch, no input holds examples, or no op is left to split; or an op
        cannot be done again or parked.
    """
    return split_program(item, parts, batch_statistics, kept_whole, recomputed, parked).item


@eagerly()
@without_collections()
def split_program(
    item: Item,
    parts: int,
    batch_statistics: str = "whole",
    kept_whole: Collection[str] = (),
    recomputed: Collection[int] = (),
    parked: Collection[tuple[int, int]] = (),
) -> SplitProgram:
    """Splits the batch like ``split``, and records origins of ops and reasons of ops that stay whole.

    The batch is the length of a first axis that most inputs share, and of several such lengths the one that puts most
    bytes of the program in parts. Where no first axis puts half of them in parts, second axes are tried as well. An
    axis along which weights are cut is no batch, but features.
    """
    arguments.instance_of("item", item, Item, "give an Item")
    parts = arguments.whole_number("parts", parts, least=1)
    arguments.one_of("batch_statistics", batch_statistics, BATCH_STATISTICS)
    for op in arguments.items_of("recomputed", recomputed, int, "give positions of ops"):
        arguments.whole_number("recomputed", op, least=0)
    pairs = arguments.items_of("parked", parked, tuple, "give pairs of positions of ops")
    if any(len(pair) != 2 or not all(isinstance(op, int) for op in pair) for pair in pairs):
        raise InputError(f"parked is {arguments.shown(parked)}; give pairs of positions of ops")
    if recomputed or pairs:
        parted = split_program(item, parts, batch_statistics, kept_whole)
        return parted.made_again(*recompute(parted.item, recomputed, pairs))
    if parts == 1:
        return SplitProgram(item, {name: name for name in item.index.names}, 1, 0, (), ())
    if isinstance(kept_whole, str) or not isinstance(kept_whole, Collection):
        raise InputError(f"kept_whole is {arguments.shown(kept_whole)}; give a list of names of ops")
    for name in kept_whole:
        if name not in item.index.id_of_name:
            raise InputError(f"kept_whole has {name!r}, which is no op of {item.name!r}; take it out")
    whole = sorted({item.index.id_of_name[name] for name in kept_whole})
    names_kept = [item.index.names[op] for op in whole]
    has_own_statistics, loops_kept = batch_statistics == PART, set(names_kept)
    while True:  # loops are written out where their ops are then split
        straight = unrolled(item, loops_kept)
        program = Program.of(straight.item)
        states, examples = best_states(program, parts, has_own_statistics)
        useless = straight.loops - {straight.origin_of[program.item.index.names[op]] for op in states.splits}
        if not useless:
            break
        loops_kept |= useless
    if whole:  # the batch was chosen without regard to them
        id_of_name = straight.item.index.id_of_name
        positions = [id_of_name[name] for name in names_kept if name in id_of_name]
        states = propagate(program, examples, states.batch, has_own_statistics, positions)
    if not states.splits:
        raise InputError(
            f"kept_whole leaves no op of {item.name!r} to split; name fewer, or leave parts at 1"
        )
    names = straight.item.index.names
    writer = Writer(program, states, examples)
    writer.write()
    scope = PART if states.statistics else WHOLE_BATCH
    result = writer.item(Splitting(item.fingerprint, states.batch.size, parts, scope, tuple(whole)))
    stayed_whole: dict[str, StayedWhole] = {}  # by name; among them every loop with such an op inside
    for op, why in states.why_whole.items():
        origin = straight.origin_of[names[op]]
        op_type = item.index.op_types[item.index.id_of_name[origin]]
        stayed_whole.setdefault(origin, StayedWhole(origin, op_type, straight.why_not.get(names[op], why)))
    split_ops = dict.fromkeys(straight.origin_of[names[op]] for op in states.splits if states.depends[op])
    return SplitProgram(
        item=result,
        origin_of={name: straight.origin_of[writer.origin_of[name]] for name in result.index.names},
        parts=parts,
        batch=states.batch.size,
        split_ops=tuple(name for name in split_ops if name not in stayed_whole),
        stayed_whole=tuple(stayed_whole.values()),
        straight=straight,
        states=states,
    )
