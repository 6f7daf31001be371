"""Cost formulas: the work of an op from its shapes, and the table from op type to formula (``op_facts``)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import tensorflow as tf

from colocation.op_facts import values
from tf_placer.costs.op_work import FREE, Work, WorkClass
from tf_placer.graph.sizes import OutputSpec

# One op as a cost formula sees it (its node, and the shapes that go in and come out), and what a formula is.


@dataclasses.dataclass(frozen=True)
class OpView:
    """A node with its input and output tensors.

    Attributes:
      node: the NodeDef.
      inputs: one per data input, in order.
      outputs: one per output.
    """

    node: tf.compat.v1.NodeDef
    inputs: tuple[OutputSpec, ...]
    outputs: tuple[OutputSpec, ...]

    @property
    def type(self) -> str:
        return self.node.op

    @property
    def input_bytes(self) -> int:
        return sum(spec.num_bytes for spec in self.inputs)

    @property
    def output_bytes(self) -> int:
        return sum(spec.num_bytes for spec in self.outputs)

    @property
    def moved_bytes(self) -> int:
        """Every input read once and every output written once."""
        return self.input_bytes + self.output_bytes

    @property
    def output_elements(self) -> int:
        return sum(elements(spec) for spec in self.outputs)

    @property
    def input_elements(self) -> int:
        return sum(elements(spec) for spec in self.inputs)

    def flag(self, name: str) -> bool:
        """A bool attribute; False where the node leaves it out."""
        return self.node.attr[name].b if name in self.node.attr else False

    def ints(self, name: str) -> tuple[int, ...]:
        """A list(int) attribute; empty where the node leaves it out."""
        return tuple(self.node.attr[name].list.i) if name in self.node.attr else ()


def elements(spec: OutputSpec) -> int:
    """Elements of a tensor; 1 for a scalar."""
    return math.prod(spec.shape)


Formula = Callable[[OpView], Work]


def convolution(op: OpView) -> Work:
    """``2 * outputs * (window * input channels)``; the filter is ``[*window, C_in / groups, C_out]``."""
    result, weights = op.outputs[0].shape, op.inputs[1].shape
    return _convolution(op, op.output_elements, op.inputs[0].shape, weights, "", _tiles_of_image(op, result))


def convolution_input_gradient(op: OpView) -> Work:
    """As many multiply-adds as convolution; inputs: image sizes, filter, gradient of the output."""
    image, weights = op.outputs[0].shape, op.inputs[1].shape
    outputs = elements(op.inputs[2])
    return _convolution(op, outputs, image, weights, "_INPUT_GRADIENT", _tiles_of_image(op, image))


def convolution_filter_gradient(op: OpView) -> Work:
    """As many multiply-adds as convolution; the output has the filter's shape. Its sum, over positions, is split."""
    return _convolution(
        op, elements(op.inputs[2]), op.inputs[0].shape, op.outputs[0].shape, "_FILTER_GRADIENT", 0
    )


_FIRST_CHANNELS = 4  # images have at most as many channels, and layers after the first have more
_SMALL_IMAGE = 8  # rows and columns, of which Winograd's tiles leave much unused


def _convolution(
    op: OpView,
    outputs: int,
    image: tuple[int, ...],
    filter_shape: tuple[int, ...],
    direction: str,
    tiles: int,
) -> Work:
    """The class by the window, the strides and the channels; ``direction`` is the end of the class's name."""
    family = _convolution_family(op, image, filter_shape)
    flops = 2.0 * outputs * math.prod(filter_shape[:-1])
    return Work(WorkClass[f"CONVOLUTION_{family}{direction}"], flops, op.moved_bytes, tiles)


def _convolution_family(op: OpView, image: tuple[int, ...], filter_shape: tuple[int, ...]) -> str:
    window, channels = filter_shape[:-2], filter_shape[-2:]
    if len(channels) < 2 or len(image) < len(filter_shape):  # a shape that is an estimate
        return "OTHER"
    if channels[0] <= _FIRST_CHANNELS and image[_channel_axis(op)] <= _FIRST_CHANNELS:
        return "FIRST"
    if max(op.ints("strides"), default=1) > 1:
        return "STRIDED"
    if set(window) == {1}:
        return "1X1"
    is_dense = max(op.ints("dilations"), default=1) == 1 and channels[0] == image[_channel_axis(op)]
    if window == (3, 3) and is_dense:
        is_small = max(_rows_and_columns(op, image)) <= _SMALL_IMAGE
        return "3X3_SMALL" if is_small else f"3X3_{_width(min(channels), (32, 64, 128))}"
    return "SQUARE" if is_dense and len(window) == 2 and window[0] == window[1] else "OTHER"


def _rows_and_columns(op: OpView, image: tuple[int, ...]) -> tuple[int, ...]:
    return image[2:] if _channel_axis(op) == 1 else image[1:-1]


def _channel_axis(op: OpView) -> int:
    layout = op.node.attr["data_format"].s if "data_format" in op.node.attr else b""
    return 1 if layout.startswith(b"NC") else -1


def _width(side: int, limits: tuple[int, ...]) -> str:
    """The part of a class's name that says how wide a matrix is: the first limit that holds the side, or none."""
    return next((f"TO_{limit}" for limit in limits if side <= limit), "WIDE")


_TILE = 64  # rows and columns of a result that one multiprocessor makes at a time


def _tiles(rows: int, columns: int) -> int:
    return -(-rows // _TILE) * -(-columns // _TILE)


def _tiles_of_image(op: OpView, shape: tuple[int, ...]) -> int:
    """The result as a matrix: positions of all images, and channels."""
    channels = shape[_channel_axis(op)] if len(shape) > 1 else 1
    return _tiles(math.prod(shape) // max(channels, 1), channels)


def depthwise(op: OpView) -> Work:
    """``2 * outputs * window``; the filter is ``[height, width, C, multiplier]``."""
    return _depthwise(op, op.output_elements, op.inputs[1].shape)


def depthwise_input_gradient(op: OpView) -> Work:
    """``2 * output gradients * window``."""
    return _depthwise(op, elements(op.inputs[2]), op.inputs[1].shape)


def depthwise_filter_gradient(op: OpView) -> Work:
    """``2 * output gradients * window``; the output has the filter's shape."""
    return _depthwise(op, elements(op.inputs[2]), op.outputs[0].shape)


def _depthwise(op: OpView, outputs: int, filter_shape: tuple[int, ...]) -> Work:
    flops = 2.0 * outputs * math.prod(filter_shape[:2])
    return Work(WorkClass.DEPTHWISE_CONVOLUTION, flops, op.moved_bytes)


def matmul(op: OpView) -> Work:
    """``2 * m * n * k``."""
    return _product(op, op.flag("transpose_a"), op.flag("transpose_b"))


def batch_matmul(op: OpView) -> Work:
    """``2 * batch * m * n * k``; the batch may broadcast, so it is read off the output."""
    return _product(op, op.flag("adj_x"), op.flag("adj_y"))


def _product(op: OpView, is_left_turned: bool, is_right_turned: bool) -> Work:
    """The summed dimension is read off a matrix: a shape that is an estimate may be of fewer dimensions."""
    sides = zip(op.inputs, (-2 if is_left_turned else -1, -1 if is_right_turned else -2), strict=True)
    inner = next((spec.shape[axis] for spec, axis in sides if len(spec.shape) >= 2), 1)
    *batch, rows, columns = (1, 1, *op.outputs[0].shape)
    return _matrix_product(op, math.prod(batch), rows, columns, inner)


def _matrix_product(op: OpView, batch: int, rows: int, columns: int, inner: int) -> Work:
    """Libraries split the sum of a product that is thinner than a tile, so that every multiprocessor has a part."""
    flops, smaller = 2.0 * op.output_elements * inner, min(rows, columns)
    if batch > 1:
        work_class = WorkClass[f"BATCHED_PRODUCT_{_width(smaller, (64, 128))}"]
        return Work(work_class, flops, op.moved_bytes, batch * _tiles(rows, columns))
    work_class = WorkClass[f"PRODUCT_{_width(smaller, (16, 32, 64, 128))}"]
    return Work(work_class, flops, op.moved_bytes, _tiles(rows, columns) if smaller > _TILE else 0)


def einsum(op: OpView) -> Work:
    """``2 * outputs * (sizes of the labels summed away)``; with one operand nothing is multiplied."""
    left, _, result = op.node.attr["equation"].s.decode().replace(" ", "").partition("->")
    summed: dict[str, int] = {}
    for labels, spec in zip(left.split(","), op.inputs, strict=True):
        before, _, after = labels.partition("...")
        sizes = dict(zip(before, spec.shape, strict=False))
        sizes |= dict(zip(reversed(after), reversed(spec.shape), strict=False))
        summed |= {label: size for label, size in sizes.items() if label not in result}
    if len(op.inputs) == 1:
        return Work(WorkClass.REARRANGEMENT, float(op.input_elements), op.moved_bytes)
    inner = math.prod(summed.values())
    # Each operand as a matrix: what it shares with the other and is kept is the batch, and the rest its rows.
    batch, rows, columns = _einsum_sides(op, inner)
    return _matrix_product(op, batch, rows, columns, inner)


def _einsum_sides(op: OpView, inner: int) -> tuple[int, int, int]:
    """Batch, rows and columns of a product of ``batch * rows * inner`` by ``batch * columns * inner`` elements."""
    left, right = (elements(spec) // max(inner, 1) for spec in op.inputs)
    batch = max(1, left * right // max(op.output_elements, 1))
    return batch, max(1, left // batch), max(1, right // batch)


def pool(op: OpView) -> Work:
    """One operation per output and window position."""
    return _pool(op, op.output_elements)


def pool_gradient(op: OpView) -> Work:
    """One operation per gradient of an output (the last input) and window position."""
    return _pool(op, elements(op.inputs[-1]))


def _pool(op: OpView, outputs: int) -> Work:
    return Work(WorkClass.POOLING, float(outputs * math.prod(op.ints("ksize"))), op.moved_bytes)


def batch_normalization(op: OpView) -> Work:
    """Training reads the input twice (moments, then scale) and writes it once; inference is a product and a sum."""
    x = op.inputs[0]
    if op.flag("is_training"):
        return Work(WorkClass.BATCH_NORMALIZATION, 8.0 * elements(x), 3 * x.num_bytes)
    return Work(WorkClass.STREAMING, 2.0 * elements(x), 2 * x.num_bytes)


def batch_normalization_gradient(op: OpView) -> Work:
    """Reads gradient and input twice (two sums, then the gradient) and writes one tensor of that size."""
    x = op.inputs[1]
    return Work(WorkClass.BATCH_NORMALIZATION_GRADIENT, 12.0 * elements(x), 5 * x.num_bytes)


# Operations per output element: arithmetic counts 1, a division or root 4, a transcendental function 15
# (estimates: a handful of polynomial terms and range reduction; rounded).
_DIVISION, _TRANSCENDENTAL = 4.0, 15.0


def arithmetic(op: OpView) -> Work:
    """One operation per output, every input and output once; a broadcast input counts its own bytes only."""
    return Work(WorkClass.STREAMING, float(op.output_elements), op.moved_bytes)


def division(op: OpView) -> Work:
    """Divisions and roots; bytes as for ``arithmetic``."""
    return Work(WorkClass.STREAMING, _DIVISION * op.output_elements, op.moved_bytes)


def transcendental(op: OpView) -> Work:
    """Exponentials, logarithms, trigonometry and their like; bytes as for ``arithmetic``."""
    return Work(WorkClass.STREAMING, _TRANSCENDENTAL * op.output_elements, op.moved_bytes)


def add_n(op: OpView) -> Work:
    """One addition per element of every input but the first."""
    return Work(WorkClass.STREAMING, float((len(op.inputs) - 1) * op.output_elements), op.moved_bytes)


# Operations per logit of a softmax: subtract the maximum, exponentiate (15), sum, divide (4), and as
# much again for the two comparisons and rounding.
_SOFTMAX_OPERATIONS = 22.0


def reduction(op: OpView) -> Work:
    """One operation per input element."""
    return Work(WorkClass.REDUCTION, float(elements(op.inputs[0])), op.moved_bytes)


def softmax(op: OpView) -> Work:
    """The logits are read twice: for the maximum and for the exponentials."""
    logits = op.inputs[0]
    return Work(WorkClass.SOFTMAX, _SOFTMAX_OPERATIONS * elements(logits), logits.num_bytes + op.moved_bytes)


# Philox 4x32-10 makes four numbers in ten rounds of about ten integer operations; a normal number adds a
# logarithm, a root and a sine per pair. Rounded up to one figure for both.
_OPERATIONS_PER_DRAW = 50.0


def draw(op: OpView) -> Work:
    """A fixed number of operations per number; the output is written."""
    return Work(WorkClass.RANDOM, _OPERATIONS_PER_DRAW * op.output_elements, op.output_bytes)


def update(op: OpView) -> Work:
    """Passes (``op_facts``) over the largest input that is not a handle: the gradient or the added value."""
    passes, operations = map(int, values("update")[op.type].split(","))
    value = max(op.inputs[1:], key=lambda spec: spec.num_bytes)
    return Work(WorkClass.STREAMING, float(operations * elements(value)), passes * value.num_bytes)


def copy_all(op: OpView) -> Work:
    """Every input is read and every output written."""
    return Work(WorkClass.REARRANGEMENT, 0.0, op.moved_bytes)


def copy_part(op: OpView) -> Work:
    """Only what lands in the output is read, then written."""
    return Work(WorkClass.REARRANGEMENT, 0.0, 2 * op.output_bytes)


def fill(op: OpView) -> Work:
    """The output is written."""
    return Work(WorkClass.STREAMING, 0.0, op.output_bytes)


def tensor_list(op: OpView) -> Work:
    """A list, array or stack is a handle of 0 bytes, so one side of the copy is all that shows: it counts for both."""
    return Work(WorkClass.REARRANGEMENT, 0.0, 2 * max(op.input_bytes, op.output_bytes))


def gather(op: OpView) -> Work:
    """Reads the gathered rows and writes them; the rest of the table is not touched."""
    return Work(WorkClass.IRREGULAR, 0.0, 2 * op.output_bytes + op.inputs[1].num_bytes)


def scatter_into_new(op: OpView) -> Work:
    """Clears the output, then reads, adds and writes the inputs' rows."""
    return Work(WorkClass.IRREGULAR, float(op.input_elements), op.output_bytes + 3 * op.input_bytes)


def scatter_into_input(op: OpView) -> Work:
    """Copies the first input, then reads, adds and writes the updates' rows (the last input)."""
    updates = op.inputs[-1].num_bytes
    return Work(WorkClass.IRREGULAR, float(op.inputs[-1].num_bytes // 4), 2 * op.output_bytes + 3 * updates)


def assign(op: OpView) -> Work:
    """The value (the last input) is copied into the buffer of a v1 variable."""
    return Work(WorkClass.STREAMING, 0.0, 2 * op.inputs[-1].num_bytes)


def scatter_into_variable(op: OpView) -> Work:
    """Reads updates (the last input) and the variable's rows, writes the rows."""
    return Work(WorkClass.IRREGULAR, float(op.inputs[-1].num_bytes // 4), 3 * op.inputs[-1].num_bytes)


def free(op: OpView) -> Work:
    """0 ns on every device: no device kernel starts (``op_facts`` says of each type why)."""
    del op
    return FREE


# The table calls formulas by their names in this module.
FORMULA_OF_TYPE: dict[str, Formula] = {op_type: globals()[name] for op_type, name in values("work").items()}


def work_of(op: OpView) -> Work:
    """Work of one op that calls no function; of unknown types a guess: all its bytes, once, and marked.

    Where a shape is an estimate its rank may be another one than the op takes, so formulas take shapes of any rank.
    """
    formula = FORMULA_OF_TYPE.get(op.type)
    if formula is None:
        return Work(WorkClass.STREAMING, 0.0, op.moved_bytes, guessed=True)
    return formula(op)
