"""Cost formulas: the work of an op from its shapes, and the table from op type to formula (``op_facts``)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import tensorflow as tf

from colocation.op_facts import values
from tf_placer.costs.op_work import FREE, Kind, Work
from tf_placer.graph.sizes.output_specs import OutputSpec

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
    return Work(Kind.CONVOLUTION, _convolution_flops(op.output_elements, op.inputs[1].shape), op.moved_bytes)


def convolution_input_gradient(op: OpView) -> Work:
    """As many multiply-adds as convolution; inputs: image sizes, filter, gradient of the output."""
    return Work(
        Kind.CONVOLUTION, _convolution_flops(elements(op.inputs[2]), op.inputs[1].shape), op.moved_bytes
    )


def convolution_filter_gradient(op: OpView) -> Work:
    """As many multiply-adds as convolution; the output has the filter's shape."""
    return Work(
        Kind.CONVOLUTION, _convolution_flops(elements(op.inputs[2]), op.outputs[0].shape), op.moved_bytes
    )


def depthwise(op: OpView) -> Work:
    """``2 * outputs * window``; the filter is ``[height, width, C, multiplier]``."""
    return _depthwise(op, op.output_elements, op.inputs[1].shape)


def depthwise_input_gradient(op: OpView) -> Work:
    """``2 * output gradients * window``."""
    return _depthwise(op, elements(op.inputs[2]), op.inputs[1].shape)


def depthwise_filter_gradient(op: OpView) -> Work:
    """``2 * output gradients * window``; the output has the filter's shape."""
    return _depthwise(op, elements(op.inputs[2]), op.outputs[0].shape)


def _convolution_flops(outputs: int, filter_shape: tuple[int, ...]) -> float:
    return 2.0 * outputs * math.prod(filter_shape[:-1])


def _depthwise(op: OpView, outputs: int, filter_shape: tuple[int, ...]) -> Work:
    flops = 2.0 * outputs * math.prod(filter_shape[:2])
    return Work(Kind.DEPTHWISE_CONVOLUTION, flops, op.moved_bytes)


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
    return Work(Kind.MATRIX_PRODUCT, 2.0 * op.output_elements * inner, op.moved_bytes)


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
        return Work(Kind.REARRANGEMENT, float(op.input_elements), op.moved_bytes)
    return Work(Kind.MATRIX_PRODUCT, 2.0 * op.output_elements * math.prod(summed.values()), op.moved_bytes)


def pool(op: OpView) -> Work:
    """One operation per output and window position."""
    return _pool(op, op.output_elements)


def pool_gradient(op: OpView) -> Work:
    """One operation per gradient of an output (the last input) and window position."""
    return _pool(op, elements(op.inputs[-1]))


def _pool(op: OpView, outputs: int) -> Work:
    return Work(Kind.REDUCTION, float(outputs * math.prod(op.ints("ksize"))), op.moved_bytes)


def batch_normalization(op: OpView) -> Work:
    """Training reads the input twice (moments, then scale) and writes it once; inference reads it once."""
    x = op.inputs[0]
    training = op.flag("is_training")
    passes, operations = (3, 8.0) if training else (2, 2.0)
    return Work(Kind.REDUCTION, operations * elements(x), passes * x.num_bytes)


def batch_normalization_gradient(op: OpView) -> Work:
    """Reads gradient and input twice (two sums, then the gradient) and writes one tensor of that size."""
    x = op.inputs[1]
    return Work(Kind.REDUCTION, 12.0 * elements(x), 5 * x.num_bytes)


# Operations per output element: arithmetic counts 1, a division or root 4, a transcendental function 15
# (estimates: a handful of polynomial terms and range reduction; rounded).
_DIVISION, _TRANSCENDENTAL = 4.0, 15.0


def arithmetic(op: OpView) -> Work:
    """One operation per output, every input and output once; a broadcast input counts its own bytes only."""
    return Work(Kind.STREAMING, float(op.output_elements), op.moved_bytes)


def division(op: OpView) -> Work:
    """Divisions and roots; bytes as for ``arithmetic``."""
    return Work(Kind.STREAMING, _DIVISION * op.output_elements, op.moved_bytes)


def transcendental(op: OpView) -> Work:
    """Exponentials, logarithms, trigonometry and their like; bytes as for ``arithmetic``."""
    return Work(Kind.STREAMING, _TRANSCENDENTAL * op.output_elements, op.moved_bytes)


def add_n(op: OpView) -> Work:
    """One addition per element of every input but the first."""
    return Work(Kind.STREAMING, float((len(op.inputs) - 1) * op.output_elements), op.moved_bytes)


# Operations per logit of a softmax: subtract the maximum, exponentiate (15), sum, divide (4), and as
# much again for the two comparisons and rounding.
_SOFTMAX_OPERATIONS = 22.0


def reduction(op: OpView) -> Work:
    """One operation per input element."""
    return Work(Kind.REDUCTION, float(elements(op.inputs[0])), op.moved_bytes)


def softmax(op: OpView) -> Work:
    """The logits are read twice: for the maximum and for the exponentials."""
    logits = op.inputs[0]
    return Work(Kind.REDUCTION, _SOFTMAX_OPERATIONS * elements(logits), logits.num_bytes + op.moved_bytes)


# Philox 4x32-10 makes four numbers in ten rounds of about ten integer operations; a normal number adds a
# logarithm, a root and a sine per pair. Rounded up to one figure for both.
_OPERATIONS_PER_DRAW = 50.0


def draw(op: OpView) -> Work:
    """A fixed number of operations per number; the output is written."""
    return Work(Kind.RANDOM, _OPERATIONS_PER_DRAW * op.output_elements, op.output_bytes)


def update(op: OpView) -> Work:
    """Passes (``op_facts``) over the largest input that is not a handle: the gradient or the added value."""
    passes, operations = map(int, values("update")[op.type].split(","))
    value = max(op.inputs[1:], key=lambda spec: spec.num_bytes)
    return Work(Kind.STREAMING, float(operations * elements(value)), passes * value.num_bytes)


def copy_all(op: OpView) -> Work:
    """Every input is read and every output written."""
    return Work(Kind.REARRANGEMENT, 0.0, op.moved_bytes)


def copy_part(op: OpView) -> Work:
    """Only what lands in the output is read, then written."""
    return Work(Kind.REARRANGEMENT, 0.0, 2 * op.output_bytes)


def fill(op: OpView) -> Work:
    """The output is written."""
    return Work(Kind.STREAMING, 0.0, op.output_bytes)


def tensor_list(op: OpView) -> Work:
    """A list, array or stack is a handle of 0 bytes, so one side of the copy is all that shows: it counts for both."""
    return Work(Kind.REARRANGEMENT, 0.0, 2 * max(op.input_bytes, op.output_bytes))


def gather(op: OpView) -> Work:
    """Reads the gathered rows and writes them; the rest of the table is not touched."""
    return Work(Kind.IRREGULAR, 0.0, 2 * op.output_bytes + op.inputs[1].num_bytes)


def scatter_into_new(op: OpView) -> Work:
    """Clears the output, then reads, adds and writes the inputs' rows."""
    return Work(Kind.IRREGULAR, float(op.input_elements), op.output_bytes + 3 * op.input_bytes)


def scatter_into_input(op: OpView) -> Work:
    """Copies the first input, then reads, adds and writes the updates' rows (the last input)."""
    updates = op.inputs[-1].num_bytes
    return Work(Kind.IRREGULAR, float(op.inputs[-1].num_bytes // 4), 2 * op.output_bytes + 3 * updates)


def assign(op: OpView) -> Work:
    """The value (the last input) is copied into the buffer of a v1 variable."""
    return Work(Kind.STREAMING, 0.0, 2 * op.inputs[-1].num_bytes)


def scatter_into_variable(op: OpView) -> Work:
    """Reads updates (the last input) and the variable's rows, writes the rows."""
    return Work(Kind.IRREGULAR, float(op.inputs[-1].num_bytes // 4), 3 * op.inputs[-1].num_bytes)


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
        return Work(Kind.STREAMING, 0.0, op.moved_bytes, guessed=True)
    return formula(op)
