"""Graphs of split programs for a batch whose size only a run knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from tf_placer.graph.program.program import Feed, with_nodes
from tf_placer.transform.split.split_batch import SplitProgram
from tf_placer.transform.split.states import Batch

_SCOPE = "sizes_of_parts"
_OF_INPUTS = ("EnsureShape", "Placeholder")  # say a shape, which is open then
_CLOSE = 1e-6  # of a ratio that was rounded to float32


class NotOpen(Exception):
    """Why a graph has to be of its own batch: one clause."""


def telling_batches(batch: int, parts: int) -> list[int]:
    """A batch and others, between which each two parts differ in size once: no size is taken for another then."""
    even = -(-batch // parts) * parts
    return [batch, *(even * (i + 1) + i for i in range(1, max(parts, 3) + 1))]


def with_open_batch(
    placed: tf.compat.v1.GraphDef, programs: Sequence[SplitProgram], device: str
) -> tf.compat.v1.GraphDef:
    """The graph of a split program for any batch: what depends on the batch is computed when it runs.

    A graph of one batch has sizes as constants: the rows of each part, the shapes that copies give, numbers to divide
    by. Graphs of several batches differ in these alone. So a constant that is not the same in all is found to be a size
    of the batch or of a part, times a number and plus a number, or a ratio of two sizes; and ops compute that from the
    size of an input. Each formula holds for all graphs that are given.

    Args:
      placed: graph of the first program, with devices.
      programs: one program, split for each of ``telling_batches``.
      device: runs what computes sizes.

    Raises:
      NotOpen: the graphs differ in something else.
    """
    source = _open_input(programs)
    graphs = [program.item.graph_def for program in programs]
    named = [
        {_name(node.name, program): node for node in graph_def.node}
        for graph_def, program in zip(graphs, programs, strict=True)
    ]
    if any(nodes.keys() != named[0].keys() for nodes in named):
        raise NotOpen("another batch is split into other ops")
    if len({graph_def.library.SerializeToString(deterministic=True) for graph_def in graphs}) > 1:
        raise NotOpen("a function that it calls is another one for another batch")
    writer = _Writer(device, [Batch.divided(program.batch, program.parts) for program in programs])
    tied = _tied(placed)
    for node in placed.node:
        same = [nodes[_name(node.name, programs[0])] for nodes in named]
        result = _renamed(node, programs[0])
        if node.op in _OF_INPUTS:
            result.attr["shape"].shape.CopyFrom(_common_shape(same))
        if len({_without_shape(one, program) for one, program in zip(same, programs, strict=True)}) == 1:
            writer.nodes.append(result)
        elif node.op == "Const" and node.name not in tied:
            writer.compute(result, [tf.make_ndarray(one.attr["value"].tensor) for one in same])
        else:
            raise NotOpen(f"{node.op} {node.name!r} is another one for another batch")
    writer.measure(*source)
    return with_nodes(placed, writer.nodes)


def _name(text: str, program: SplitProgram) -> str:
    """A name without the batch that a check of inputs has in it."""
    return text.replace(f"/parts_are_of_{program.batch}", "/in_parts")


def _renamed(node: node_def_pb2.NodeDef, program: SplitProgram) -> node_def_pb2.NodeDef:
    result = node_def_pb2.NodeDef()
    result.CopyFrom(node)
    result.name = _name(node.name, program)
    result.input[:] = [_name(text, program) for text in node.input]
    result.attr.pop("_output_shapes", None)
    return result


def _without_shape(node: node_def_pb2.NodeDef, program: SplitProgram) -> bytes:
    result = _renamed(node, program)
    if node.op in _OF_INPUTS:
        del result.attr["shape"]
    return result.SerializeToString(deterministic=True)


def _common_shape(nodes: Sequence[node_def_pb2.NodeDef]) -> tf.compat.v1.TensorShapeProto:
    """The shape that all have, with those sizes unknown that differ."""
    shapes = [tf.TensorShape(node.attr["shape"].shape) for node in nodes]
    if len({str(shape) for shape in shapes}) == 1:
        return shapes[0].as_proto()
    sizes = [found[0] if len(set(found)) == 1 else None for found in zip(*shapes, strict=True)]
    return tf.TensorShape(sizes).as_proto()


def _tied(graph_def: tf.compat.v1.GraphDef) -> set[str]:
    """Ops that must share a device with another, so that one of another kind cannot stand for them."""
    found = set()
    for node in graph_def.node:
        if "_class" in node.attr:
            found |= {
                node.name,
                *(text.decode().removeprefix("loc:@") for text in node.attr["_class"].list.s),
            }
    return found


def _open_input(programs: Sequence[SplitProgram]) -> tuple[Feed, int]:
    """A feed that holds the examples, and the axis of them.

    Raises:
      NotOpen: no feed does, or another size of a feed is open, so that nothing tells it from the batch.
    """
    items = [program.item for program in programs]
    axis_of = {text.partition(":")[0]: axis for text, axis in programs[0].example_inputs.items()}
    if any(program.example_inputs != programs[0].example_inputs for program in programs):
        raise NotOpen("another batch is split along another axis")
    for feeds in zip(*(item.feeds for item in items), strict=True):
        shapes = np.array([feed.shape for feed in feeds])
        differing = np.flatnonzero((shapes != shapes[0]).any(axis=0)).tolist()
        if differing not in ([], [axis_of.get(feeds[0].node)]):
            raise NotOpen(f"not only the batch of input {feeds[0].node!r} is open")
    for feed in items[0].feeds:
        if feed.node in axis_of:
            return feed, axis_of[feed.node]
    raise NotOpen("no input that is fed holds the examples")


class _Writer:
    """Nodes of the open graph.

    Sizes are one vector: the batch, the examples of each part, and a one.

    Attributes:
      nodes: what has been written.
    """

    def __init__(self, device: str, batches: Sequence[Batch]) -> None:
        self.nodes: list[node_def_pb2.NodeDef] = []
        self._device, self._parts = device, batches[0].parts
        self._sizes = np.array([[batch.size, *batch.sizes, 1] for batch in batches])  # [S, 1 + parts + 1]

    def compute(self, node: node_def_pb2.NodeDef, values: Sequence[np.ndarray]) -> None:
        """Writes what computes a constant; its last op has the constant's name.

        Args:
          node: the constant.
          values: of it, for each batch.

        Raises:
          NotOpen: nothing is found that gives these.
        """
        if len({value.shape for value in values}) > 1 or values[0].dtype.kind not in "iuf":
            raise NotOpen(f"constant {node.name!r} has another shape or type for another batch")
        flat = np.stack([np.asarray(value, np.float64).ravel() for value in values])
        linear = [self._linear(column) for column in flat.T]
        dtype = tf.as_dtype(node.attr["dtype"].type)
        if all(one is not None for one in linear):
            which, scale, offset = (
                np.array(column).reshape(values[0].shape) for column in zip(*linear, strict=True)
            )
            size = self._of_sizes(node.name, which)
            scaled = self._binary(f"{node.name}/scaled", "Mul", size, scale, tf.int64)
            moved = self._binary(f"{node.name}/moved", "AddV2", scaled, offset, tf.int64)
            self._cast(node.name, moved, dtype, node.input)
            return
        ratio = self._ratio(flat[:, 0]) if flat.shape[1] == 1 and dtype.is_floating else None
        if ratio is None:
            raise NotOpen(f"constant {node.name!r} is neither a size nor a ratio of sizes of the batch")
        times, over, factor = ratio
        shape = values[0].shape
        over_text = self._cast(
            f"{node.name}/over", self._of_sizes(f"{node.name}/over", np.full(shape, over)), dtype
        )
        times_text = self._cast(
            f"{node.name}/times", self._of_sizes(f"{node.name}/times", np.full(shape, times)), dtype
        )
        scaled = self._binary(f"{node.name}/scaled", "Mul", times_text, np.full(shape, factor), dtype)
        self._node("RealDiv", node.name, [scaled, over_text, *node.input], {"T": dtype})

    def measure(self, feed: Feed, axis: int) -> None:
        """Writes what gives the sizes, from a feed with the examples on an axis."""
        types = {"T": feed.dtype, "out_type": tf.int64}
        shape = self._node("Shape", f"{_SCOPE}/shape", [feed.node], types)
        where = self._constant(f"{_SCOPE}/axis", np.array([axis], np.int32))
        batch = self._gather(f"{_SCOPE}/batch", shape, where, tf.int64)
        # The first parts have one more where they differ, as ``Batch.divided`` has it.
        more = np.arange(self._parts - 1, -1, -1)
        raised = self._binary(f"{_SCOPE}/raised", "AddV2", batch, more, tf.int64)
        parts = self._binary(f"{_SCOPE}/parts", "FloorDiv", raised, np.array(self._parts), tf.int64)
        one = self._constant(f"{_SCOPE}/one", np.array([1], np.int64))
        along = self._constant(f"{_SCOPE}/along", np.array(0, np.int32))
        self._node("ConcatV2", _SCOPE, [batch, parts, one, along], {"T": tf.int64, "Tidx": tf.int32}, N=3)

    def _linear(self, values: np.ndarray) -> tuple[int, int, int] | None:
        """Column of the sizes, factor and summand, whole numbers, that give one number for each batch."""
        for which in range(self._sizes.shape[1] - 1):
            sizes = self._sizes[:, which]
            scale = round((values[1] - values[0]) / (sizes[1] - sizes[0]))
            offset = round(values[0] - scale * sizes[0])
            if (scale * sizes + offset == values).all():
                return which, scale, offset
        return None

    def _ratio(self, values: np.ndarray) -> tuple[int, int, float] | None:
        """Columns of the sizes, above and below the line, and a factor that give one number for each batch."""
        columns = range(self._sizes.shape[1])
        for times, over in ((a, b) for a in columns for b in columns):
            factors = values * self._sizes[:, over] / self._sizes[:, times]
            if np.allclose(factors, factors[0], rtol=_CLOSE, atol=0):
                return times, over, float(factors[0])
        return None

    def _of_sizes(self, name: str, which: np.ndarray) -> str:
        where = self._constant(f"{name}/which", which.astype(np.int32))
        return self._gather(f"{name}/size", _SCOPE, where, tf.int64)

    def _gather(self, name: str, value: str, where: str, dtype: tf.DType) -> str:
        axis = self._constant(f"{name}/axis", np.array(0, np.int32))
        types = {"Tparams": dtype, "Tindices": tf.int32, "Taxis": tf.int32}
        return self._node("GatherV2", name, [value, where, axis], types)

    def _binary(self, name: str, op_type: str, left: str, right: np.ndarray, dtype: tf.DType) -> str:
        number = self._constant(f"{name}/y", right.astype(dtype.as_numpy_dtype))
        return self._node(op_type, name, [left, number], {"T": dtype})

    def _cast(self, name: str, value: str, dtype: tf.DType, controls: Sequence[str] = ()) -> str:
        return self._node("Cast", name, [value, *controls], {"SrcT": tf.int64, "DstT": dtype})

    def _constant(self, name: str, value: np.ndarray) -> str:
        proto = tf.make_tensor_proto(value)
        self._node("Const", name, [], {"dtype": tf.as_dtype(proto.dtype)})
        self.nodes[-1].attr["value"].tensor.CopyFrom(proto)
        return name

    def _node(
        self, op_type: str, name: str, inputs: Sequence[str], types: dict[str, tf.DType], **numbers: int
    ) -> str:
        node = node_def_pb2.NodeDef(op=op_type, name=name, input=inputs, device=self._device)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype.as_datatype_enum
        for attribute, number in numbers.items():
            node.attr[attribute].i = number
        self.nodes.append(node)
        return name
