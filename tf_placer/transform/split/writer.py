"""Writes the graph of a split program: copies, sums, splits and concatenations as ordinary ops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation.op_facts import control_inputs, copy_of, having, parse_input
from colocation.tensorflow_internals import registered_op
from colocation.units import class_groups
from tf_placer.graph.clean import MAX_CLONED_BYTES
from tf_placer.graph.program import KEPT_BYTES, fresh_name
from tf_placer.graph.sizes import OutputSpec
from tf_placer.transform.split.propagate import Program, States, Tensor
from tf_placer.transform.split.rules import rule_name
from tf_placer.transform.split.states import WHOLE, Own, Part, Split, State, Sum, Whole

_SIZES = having("metadata")
_LOCAL_RULES = frozenset({"elementwise", "linear", "add", "scale", "cast"})
_WITHOUT_TYPE = frozenset({"LogicalAnd", "LogicalOr"})
_COLOCATION = "loc:@"


class Writer:
    """Nodes of the split graph, made op by op in topological order.

    Attributes:
      nodes: what has been written.
      origin_of: name of a node -> name of the op that it came from.
      specs: name of a node -> its outputs, where they follow from those of the program's ops.
    """

    def __init__(self, program: Program, states: States, examples: Container[Tensor] = ()) -> None:
        """Begins.

        Args:
          program: that is split.
          states: of its tensors.
          examples: inputs that hold the examples; where the batch of one is another, the step ends with an error that
            says so.
        """
        self.nodes: list[node_def_pb2.NodeDef] = []
        self.origin_of: dict[str, str] = {}
        self.specs: dict[str, tuple[OutputSpec, ...]] = {}
        self._program, self._states, self._batch = program, states, states.batch
        self._examples = examples
        self._index, self._outputs = program.item.index, program.item.outputs
        self._taken = {name for op, name in enumerate(self._index.names) if op not in states.splits}
        self._made: dict[Tensor, list[str]] = {}  # tensor of a split op -> that of each copy, or one
        self._done: dict[int, list[list[str]]] = {}  # split op -> of each copy, what is done when it is
        self._whole: dict[Tensor, str] = {}
        self._pieces: dict[tuple[Tensor, State], list[str]] = {}
        self._op = -1  # of which nodes are written
        self._group_of = class_groups(self._index)
        self._tied: list[tuple[node_def_pb2.NodeDef, int, int | None]] = []  # of a group, written for a copy

    def write(self) -> None:
        """Writes all ops."""
        for op, node in enumerate(self._index.graph_def.node):
            split = self._states.splits.get(op)
            if split is not None:
                self._write_split(op, node, split)
            elif node.op in _SIZES and any(
                not isinstance(self._states.state(tensor), Whole) for tensor in self._program.inputs[op]
            ):
                self._write_sizes(op, node)
            else:
                inputs = [self.whole(tensor) for tensor in self._program.inputs[op]]
                self._op = op
                name = self._append(copy_of(node, [*inputs, *self._controls(node, None)]))
                self.specs[name] = self._outputs[op]
                self._tie(self.nodes[-1], None)
        self._write_classes()

    def whole(self, tensor: Tensor) -> str:
        """The tensor as one: joined where it is in parts, addends or estimates."""
        op, output = tensor
        split = self._states.splits.get(op)
        name = self._index.names[op]
        if tensor in self._whole:
            return self._whole[tensor]
        if split is None:
            return f"{name}:{output}" if output else name
        before, self._op = self._op, op
        target = name if output == 0 else f"whole/{name}/output_{output}"
        spec = self._outputs[op][output]
        found = self.joined(self._made[tensor], split.gives[output], spec.dtype, target, spec.shape)
        self._whole[tensor] = found
        self._op = before
        return found

    def pieces(self, tensor: Tensor, state: State) -> list[str]:
        """The tensor of each copy in a state."""
        key = tensor, state
        if key in self._pieces:
            return self._pieces[key]
        split = self._states.splits.get(tensor[0])
        if split is not None and split.gives[tensor[1]] == state:
            found = self._made[tensor]
        elif isinstance(state, Part):
            before, self._op = self._op, tensor[0]
            found = self._local(tensor, state) or self._divided(tensor, state)
            self._op = before
        elif isinstance(state, Whole):
            found = self._shared(tensor)
        else:
            raise AssertionError(f"{self._index.names[tensor[0]]} is not {state}")
        self._pieces[key] = found if len(found) > 1 else found * self._batch.parts
        return self._pieces[key]

    def done(self, name: str) -> list[str]:
        """The nodes that an op of the program has become, of which somebody waits for all."""
        op = self._index.id_of_name[name]
        return [name] if op not in self._done else sorted(set(itertools.chain(*self._done[op])))

    # Nodes.

    def node(
        self,
        op_type: str,
        name: str,
        inputs: Sequence[str],
        types: Mapping[str, tf.DType],
        copy: int | None = None,
        numbers: Mapping[str, int] | None = None,
    ) -> str:
        """Writes a node of the op that is being written; gives its name.

        Args:
          op_type: of the node.
          name: wanted; another one where that is taken.
          inputs: tensors.
          types: attributes that are types.
          copy: which copy it belongs to; None for none.
          numbers: attributes that are numbers.
        """
        node = node_def_pb2.NodeDef(op=op_type, name=name, input=inputs)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype.as_datatype_enum
        for attribute, number in (numbers or {}).items():
            node.attr[attribute].i = number
        if copy is not None and self._op >= 0:
            node.input.extend(self._controls(self._index.graph_def.node[self._op], copy))
        return self._append(node)

    def copy(
        self,
        copy: int,
        inputs: Sequence[str],
        op_type: str = "",
        name: str = "",
        attributes: Mapping[str, tf.compat.v1.AttrValue] | None = None,
    ) -> str:
        """Writes a copy of the op that is being written; ``name`` is below the op's where it is one of several."""
        source = self._index.graph_def.node[self._op]
        node = copy_of(source, [*inputs, *self._controls(source, copy)], self._below(copy, name))
        node.attr.pop("_output_shapes", None)  # of the whole, as a saved graph tells them
        if op_type and op_type != source.op:
            node.op = op_type
            known = {one.name for one in registered_op(op_type).attr}  # type: ignore[union-attr]
            for attribute in [one for one in node.attr if one not in known and not one.startswith("_")]:
                del node.attr[attribute]
        for attribute, value in (attributes or {}).items():
            node.attr[attribute].CopyFrom(value)
        self._tie(node, copy)
        return self._append(node)

    def constant(self, value: np.ndarray, name: str) -> str:
        """Writes a constant."""
        proto = tf.make_tensor_proto(value)
        node = node_def_pb2.NodeDef(op="Const", name=name)
        node.attr["value"].tensor.CopyFrom(proto)
        node.attr["dtype"].type = proto.dtype
        name = self._append(node)
        self.specs[name] = (OutputSpec.of(tuple(value.shape), tf.as_dtype(proto.dtype)),)
        return name

    def unary(self, op_type: str, value: str, dtype: tf.DType, copy: int | None = None) -> str:
        """Writes an op of one input."""
        return self.node(op_type, self._below(copy, op_type), [value], {"T": dtype}, copy)

    def binary(
        self,
        op_type: str,
        left: str,
        right: str | float | np.ndarray,
        dtype: tf.DType,
        copy: int | None = None,
    ) -> str:
        """Writes an op of two inputs, of which the second may be a number or an array."""
        name = self._below(copy, op_type)
        if not isinstance(right, str):
            right = self.constant(np.asarray(right, dtype.as_numpy_dtype), f"{name}/y")
        return self.node(op_type, name, [left, right], {"T": dtype}, copy)

    def cast(self, value: str, source: tf.DType, target: tf.DType, copy: int | None = None) -> str:
        """Writes a change of type, where there is one."""
        if source == target:
            return value
        return self.node("Cast", self._below(copy, "Cast"), [value], {"SrcT": source, "DstT": target}, copy)

    def reduce(
        self, op_type: str, value: str, axes: Sequence[int], dtype: tf.DType, copy: int | None = None
    ) -> str:
        """Writes a reduction over some axes."""
        name = self._below(copy, op_type)
        where = self.constant(np.asarray(axes, np.int32), f"{name}/axes")
        return self.node(op_type, name, [value, where], {"T": dtype, "Tidx": tf.int32}, copy)

    def packed(self, values: Sequence[str], dtype: tf.DType, copy: int | None = None) -> str:
        """Writes one tensor of tensors of a shape, along a new first axis."""
        name = self._below(copy, "Pack")
        return self.node("Pack", name, values, {"T": dtype}, copy, numbers={"N": len(values)})

    def normalized(self, inputs: Sequence[str], copy: int) -> str:
        """Writes a normalization of inference, of floats, as the op that is being written has it.

        Args:
          inputs: images, scale, offset, mean, variance.
          copy: which copy it belongs to.
        """
        types = {"T": tf.float32, "U": tf.float32}
        found = self.node("FusedBatchNormV3", self._below(copy, "along"), inputs, types, copy)
        node, source = self.nodes[-1], self._index.graph_def.node[self._op]
        node.attr["is_training"].b = False
        for attribute in ("epsilon", "data_format"):
            node.attr[attribute].CopyFrom(source.attr[attribute])
        return found

    def reshape(self, value: str, shape: Sequence[int], dtype: tf.DType, copy: int | None = None) -> str:
        """Writes a reshape to a known shape."""
        name = self._below(copy, "Reshape")
        size = self.constant(np.asarray(shape, np.int64), f"{name}/shape")
        return self.node("Reshape", name, [value, size], {"T": dtype, "Tshape": tf.int64}, copy)

    def empty(self, name: str) -> str:
        """Writes a float tensor without elements."""
        return self.constant(np.zeros([0], np.float32), self._below(None, name))

    def joined(
        self,
        tensors: Sequence[str],
        state: State,
        dtype: tf.DType,
        name: str = "",
        shape: Sequence[int] = (),
    ) -> str:
        """Writes what makes one tensor of those of all copies: a concatenation, or a tree of pairwise sums.

        Args:
          tensors: of the copies, or one that is whole.
          state: which they are in.
          dtype: of them.
          name: of the last node.
          shape: of the whole tensor.
        """
        if isinstance(state, Whole):
            return tensors[0]
        base = self._index.names[self._op]
        name = name if name == base else (name if name.startswith("whole/") else f"whole/{base}/{name}")
        if isinstance(state, Part):
            return self._concatenated(tensors, state, dtype, name, shape)
        join = "AddV2"
        if isinstance(state, Sum):
            join = state.join
        elif isinstance(state, Own):
            shares = [size / self._batch.size for size in self._batch.sizes]
            tensors = [self.binary("Mul", tensor, shares[c], dtype, c) for c, tensor in enumerate(tensors)]
        types = {} if join in _WITHOUT_TYPE else {"T": dtype}
        level = list(tensors)
        while len(level) > 2:
            pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
            level = [
                self.node(join, f"sum/{base}/{join}", pair, types) if len(pair) == 2 else pair[0]
                for pair in pairs
            ]
        return self.node(join, name, level, types)

    # Ops.

    def _write_split(self, op: int, node: node_def_pb2.NodeDef, split: Split) -> None:
        inputs = [
            [""] * self._batch.parts
            if position in split.constants
            else self.pieces(tensor, split.takes[position])
            for position, tensor in enumerate(self._program.inputs[op])
        ]
        self._op = op
        copies = []
        for c in range(self._batch.parts):
            given = [texts[c] for texts in inputs]
            for position, value in split.constants.items():
                given[position] = self.constant(value(c), f"{self._below(c, '')}/input_{position}")
            copies.append(given)
        if split.write is not None:
            made = [list(one) for one in split.write(self, copies)]
        else:
            names = [
                self.copy(c, given, split.op_type, attributes=split.attributes)
                for c, given in enumerate(copies)
            ]
            for c, name in enumerate(names):
                self.specs[name] = tuple(
                    OutputSpec.of(self._batch.local(spec.shape, state, c), spec.dtype)
                    if isinstance(state, Part)
                    else spec
                    for spec, state in zip(self._outputs[op], split.gives, strict=True)
                )
            made = [
                [f"{name}:{output}" if output else name for name in names]
                for output in range(len(split.gives))
            ]
        for output, tensors in enumerate(made):
            self._made[op, output] = tensors
        self._done[op] = [
            [parse_input(tensors[c])[1] for tensors in made if len(tensors) > 1]
            for c in range(self._batch.parts)
        ]

    def _write_sizes(self, op: int, node: node_def_pb2.NodeDef) -> None:
        """What asks for a size becomes the size of the whole: one constant for each output."""
        self._op = op
        controls = self._controls(node, None)
        for output in range(len(self._outputs[op])):
            name = node.name if output == 0 else f"whole/{node.name}/output_{output}"
            self._whole[op, output] = self.constant(self._program.known[op, output], name)
            self.nodes[-1].input.extend(controls)

    def _shared(self, tensor: Tensor) -> list[str]:
        """A whole tensor for all copies; of a small constant each has one of its own, as every reader has."""
        node = self._index.graph_def.node[tensor[0]]
        if node.op != "Const" or self._outputs[tensor[0]][0].num_bytes > MAX_CLONED_BYTES:
            return [self.whole(tensor)]
        before, self._op = self._op, tensor[0]
        found = []
        for c in range(self._batch.parts):
            found.append(self._append(copy_of(node, [], f"part_{c}/{node.name}")))
            self.specs[found[-1]] = self._outputs[tensor[0]]
            self._tie(self.nodes[-1], c)
        self._op = before
        return found

    def _local(self, tensor: Tensor, state: Part) -> list[str]:
        """A whole tensor of the batch's size that each copy can make for itself; nothing where it cannot."""
        op, output = tensor
        spec, node = self._outputs[op][output], self._index.graph_def.node[op]
        if op in self._states.splits:
            return []
        if tensor in self._program.known and spec.num_bytes <= KEPT_BYTES:
            return self._slices(self._program.known[tensor], state, node.name)
        if node.op == "Const":
            proto = node.attr["value"].tensor
            if spec.num_bytes <= KEPT_BYTES:
                return self._slices(tf.make_ndarray(proto), state, node.name)
            return []
        return self._made_locally(op, state)

    def _made_locally(self, op: int, state: Part) -> list[str]:
        node, inputs = self._index.graph_def.node[op], self._program.inputs[op]
        rank = len(self._outputs[op][0].shape)
        constants: dict[int, Callable[[int], tuple[int, ...]]] = {}
        shape = self._outputs[op][0].shape
        if node.op == "Fill":
            constants[0] = lambda c: self._batch.local(shape, state, c)
            takes: list[State] = [WHOLE, WHOLE]
        elif node.op == "BroadcastTo":
            constants[1] = lambda c: self._batch.local(shape, state, c)
            takes = [self._aligned(inputs[0], state, rank), WHOLE]
        elif node.op == "Tile" and self._outputs[inputs[0][0]][inputs[0][1]].shape[state.axis] == 1:
            times = self._program.known.get(inputs[1])
            if times is None:
                return []
            whole_times = tuple(int(number) for number in np.ravel(times))
            constants[1] = lambda c: self._batch.local(whole_times, state, c)
            takes = [WHOLE, WHOLE]
        elif rule_name(node.op) in _LOCAL_RULES and not registered_op(node.op).is_stateful:  # type: ignore[union-attr]
            takes = [self._aligned(one, state, rank) for one in inputs]
        else:
            return []
        found = [self.pieces(one, take) for one, take in zip(inputs, takes, strict=True)]
        self._op = op
        made = []
        for c in range(self._batch.parts):
            given = [texts[c] for texts in found]
            for position, size in constants.items():
                dtype = self._outputs[inputs[position][0]][inputs[position][1]].dtype
                value = np.asarray(size(c), dtype.as_numpy_dtype)
                given[position] = self.constant(value, f"{self._below(c, '')}/input_{position}")
            made.append(self.copy(c, given))
        return made

    def _aligned(self, tensor: Tensor, state: Part, rank: int) -> State:
        """State of an operand whose last axes are those of a result of this rank."""
        shape = self._outputs[tensor[0]][tensor[1]].shape
        axis = state.axis - rank + len(shape)
        return Part(axis, state.outer) if axis >= 0 and shape[axis] > 1 else WHOLE

    def _slices(self, value: np.ndarray, state: Part, name: str) -> list[str]:
        """Constants that are slices of a value."""
        shape = value.shape
        inner = shape[state.axis] // state.outer // self._batch.size
        split = [*shape[: state.axis], state.outer, self._batch.size * inner, *shape[state.axis + 1 :]]
        ends = np.cumsum([size * inner for size in self._batch.sizes])
        slices = np.split(value.reshape(split), ends[:-1], axis=state.axis + 1)
        return [
            self.constant(one.reshape(self._batch.local(shape, state, c)), f"part_{c}/{name}")
            for c, one in enumerate(slices)
        ]

    def _divided(self, tensor: Tensor, state: Part) -> list[str]:
        """Slices of a whole tensor, by one ``SplitV``."""
        text = self.whole(tensor)
        op, output = tensor
        spec, name = self._outputs[op][output], f"split/{self._index.names[op]}"
        inner = spec.shape[state.axis] // state.outer // self._batch.size
        axis = state.axis
        if tensor in self._examples:
            text = self._of_the_batch(text, spec.shape, spec.dtype, name)
        if state.outer > 1:
            blocks = [*spec.shape[:axis], state.outer, self._batch.size * inner, *spec.shape[axis + 1 :]]
            size = self.constant(np.asarray(blocks, np.int64), f"{name}/blocks/shape")
            text = self.node("Reshape", f"{name}/blocks", [text, size], {"T": spec.dtype, "Tshape": tf.int64})
            axis += 1
        sizes = self.constant(np.asarray([n * inner for n in self._batch.sizes], np.int64), f"{name}/sizes")
        where = self.constant(np.asarray(axis, np.int32), f"{name}/axis")
        types = {"T": spec.dtype, "Tlen": tf.int64}
        divided = self.node(
            "SplitV", name, [text, sizes, where], types, numbers={"num_split": self._batch.parts}
        )
        pieces = [f"{divided}:{c}" if c else divided for c in range(self._batch.parts)]
        if state.outer == 1:
            return pieces
        return [
            self._reshaped(piece, self._batch.local(spec.shape, state, c), spec.dtype, f"{name}/part_{c}")
            for c, piece in enumerate(pieces)
        ]

    def _of_the_batch(self, text: str, shape: Sequence[int], dtype: tf.DType, name: str) -> str:
        """An input, checked to be of the shape that the parts are of: a program may be called with other sizes."""
        checked = self.node("EnsureShape", f"{name}/parts_are_of_{self._batch.size}", [text], {"T": dtype})
        self.nodes[-1].attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
        return checked

    def _concatenated(
        self, tensors: Sequence[str], state: Part, dtype: tf.DType, name: str, shape: Sequence[int]
    ) -> str:
        axis, values, target = state.axis, list(tensors), name
        base = f"whole/{self._index.names[self._op]}"
        if state.outer > 1:
            inner = shape[axis] // state.outer // self._batch.size
            values = [
                self._reshaped(
                    value,
                    [*shape[:axis], state.outer, self._batch.sizes[c] * inner, *shape[axis + 1 :]],
                    dtype,
                    f"{base}/blocks",
                )
                for c, value in enumerate(values)
            ]
            axis, target = axis + 1, f"{base}/concat"
        where = self.constant(np.asarray(axis, np.int32), f"{base}/axis")
        types = {"T": dtype, "Tidx": tf.int32}
        found = self.node("ConcatV2", target, [*values, where], types, numbers={"N": len(values)})
        return found if state.outer == 1 else self._reshaped(found, shape, dtype, name)

    def _reshaped(self, value: str, shape: Sequence[int], dtype: tf.DType, name: str) -> str:
        size = self.constant(np.asarray(shape, np.int64), f"{name}_shape")
        return self.node("Reshape", name, [value, size], {"T": dtype, "Tshape": tf.int64})

    def _append(self, node: node_def_pb2.NodeDef) -> str:
        is_old = (
            self._op >= 0 and node.name == self._index.names[self._op] and node.name not in self.origin_of
        )
        if not is_old:
            node.name = fresh_name(node.name, self._taken)
        self._taken.add(node.name)
        self.origin_of[node.name] = self._index.names[self._op]
        self.nodes.append(node)
        return node.name

    def _below(self, copy: int | None, name: str) -> str:
        base = self._index.names[self._op]
        scope = f"whole/{base}" if copy is None else f"part_{copy}/{base}"
        return f"{scope}/{name}" if name else scope

    def _controls(self, node: node_def_pb2.NodeDef, copy: int | None) -> list[str]:
        """What a copy waits for, the same copy of what is split; what a whole op waits for, all copies."""
        found: list[str] = []
        for text in control_inputs(node):
            op = self._index.id_of_name[text[1:]]
            if op not in self._done:
                found.append(text)
            elif copy is None:
                found += [f"^{name}" for name in self.done(text[1:])]
            else:
                found += [f"^{name}" for name in self._done[op][copy]]
        return list(dict.fromkeys(found))

    def _tie(self, node: node_def_pb2.NodeDef, copy: int | None) -> None:
        if copy is not None:
            node.attr.pop("_class", None)
        if self._op in self._group_of:
            self._tied.append((node, self._group_of[self._op], copy))

    def _write_classes(self) -> None:
        """Of ops that share a device by ``_class``, the copies of each part do, and those that are whole.

        TensorFlow takes such a name for that of a group, which has no first among its ops. A part is computed elsewhere
        than the whole, so a group of which some ops have copies falls apart into one for each part and one without.
        """
        mixed = {group for _, group, copy in self._tied if copy is not None}
        leaders: dict[tuple[int, int | None], str] = {}
        for node, group, copy in self._tied:
            if group in mixed:
                leader = leaders.setdefault((group, copy), node.name)
                node.attr.pop("_class", None)
                if leader != node.name:
                    node.attr["_class"].list.s.append(f"{_COLOCATION}{leader}".encode())
