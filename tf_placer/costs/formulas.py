"""Work of ops, whatever device they run on, and the shares of a device's peak rates that each class of work reaches."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import math
import pathlib
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from colocation.op_facts import values
from tf_placer.base.arguments import InputError
from tf_placer.graph.sizes import OutputSpec

# Classes of convolutions, in the order of their numbers.
FAMILIES = "1X1 STRIDED FIRST 3X3_TO_32 3X3_TO_64 3X3_TO_128 3X3_WIDE 3X3_SMALL SQUARE OTHER"
DIRECTIONS = ("", "_INPUT_GRADIENT", "_FILTER_GRADIENT")
_AMOUNTS = ("flops", "num_bytes", "launches")
_FIRST_CHANNELS = 4  # images have at most as many channels, and layers after the first have more
_SMALL_IMAGE = 8  # rows and columns, of which Winograd's tiles leave much unused
_TILE = 64  # rows and columns of a result that one multiprocessor makes at a time
# Operations per output element: arithmetic counts 1, a division or root 4, a transcendental function 15
# (estimates: a handful of polynomial terms and range reduction; rounded).
_DIVISION, _TRANSCENDENTAL = 4.0, 15.0
# Operations per logit of a softmax: subtract the maximum, exponentiate (15), sum, divide (4), and as
# much again for the two comparisons and rounding.
_SOFTMAX_OPERATIONS = 22.0
# Philox 4x32-10 makes four numbers in ten rounds of about ten integer operations; a normal number adds a
# logarithm, a root and a sine per pair. Rounded up to one figure for both.
_OPERATIONS_PER_DRAW = 50.0
# Every number of the cost model that was fitted.
_TABLES: dict[str, Any] = tomllib.loads(
    pathlib.Path(__file__).with_name("shares.toml").read_text(encoding="utf-8")
)
LAUNCHES, POWER, VECTOR_SHARE = (float(_TABLES[name]) for name in ("launches", "power", "vector"))
_Key = TypeVar("_Key", bound=enum.Enum)


@dataclasses.dataclass(frozen=True, eq=False)
class OpWork:
    """Estimated device-independent work of N ops; profiled times do not follow from this.

    An op that calls functions has the work of what it calls: a loop its body's and its condition's times its trip count
    (once where that is unknown), a branch the most of each that one of its branches has. An op of a type without
    formula has the bytes of its inputs and outputs and no FLOPs.
    """

    flops: np.ndarray  # [N] float64, floating point operations; a multiply-add counts two
    num_bytes: np.ndarray  # [N] float64, bytes read and written
    launches: np.ndarray  # [N] float64, kernels started; 0 for what is free everywhere
    # [N] int64, values of ``WorkClass``; of an op that calls functions the class of its longest op. Where it
    # is not given, ``FREE`` for what starts no kernel and else ``UNCLASSIFIED``.
    work_class: np.ndarray = None  # type: ignore[assignment]  # made below

    def __post_init__(self) -> None:
        for name in _AMOUNTS:
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64))
        classes: Any = self.work_class
        if classes is None:
            classes = np.where(self.launches > 0, WorkClass.UNCLASSIFIED, WorkClass.FREE)
        object.__setattr__(self, "work_class", np.asarray(classes, np.int64))
        amounts = np.stack([getattr(self, name) for name in _AMOUNTS])
        is_class = (
            np.isin(self.work_class, list(WorkClass)).all() and self.work_class.shape == amounts[0].shape
        )
        if not (is_class and np.isfinite(amounts).all() and (amounts >= 0).all()):
            raise InputError(
                "work is no number of at least 0 or no WorkClass for some op; make the file again"
            )

    def sum(self) -> np.ndarray:
        """[3] float64: FLOPs, bytes and launches of all ops together."""
        return np.array([self.flops.sum(), self.num_bytes.sum(), self.launches.sum()])


class Kind(enum.IntEnum):
    """Kinds of work: what the classes of one kind have in common."""

    FREE = 0  # starts no kernel: exactly 0 on every device
    CONVOLUTION = 1
    DEPTHWISE_CONVOLUTION = 2
    MATRIX_PRODUCT = 3
    STREAMING = 4  # element-wise: each byte once, in order
    REDUCTION = 5  # pooling, sums, softmax, batch normalization
    REARRANGEMENT = 6  # transpose, concatenate, pad: each byte once, out of order
    IRREGULAR = 7  # gather, scatter, segments: addresses from data
    RANDOM = 8


class WorkClass(enum.IntEnum):
    """Classes of work that share an efficiency on GPUs (``shares.toml``). Problem files have the numbers.

    Convolutions: of one position; with strides; of the first layer, whose images have few channels; with windows of
    3 x 3 without strides, for which libraries have Winograd's algorithm, by the smaller of the numbers of channels (at
    most 32, 64, 128, or more), those of small images apart; with larger windows of rows and columns alike; and all
    others. Each forward, for the input's gradient and for the filter's. Matrix products: by the smaller side of the
    result.
    """

    FREE = 0
    UNCLASSIFIED = 1  # of a file older than classes
    _ignore_ = "family direction number"
    for number, (family, direction) in enumerate(itertools.product(FAMILIES.split(), DIRECTIONS), 10):
        vars()[f"CONVOLUTION_{family}{direction}"] = number
    DEPTHWISE_CONVOLUTION = 40
    PRODUCT_TO_16 = 50
    PRODUCT_TO_32 = 51
    PRODUCT_TO_64 = 52
    PRODUCT_TO_128 = 53
    PRODUCT_WIDE = 54
    BATCHED_PRODUCT_TO_64 = 55
    BATCHED_PRODUCT_TO_128 = 56
    BATCHED_PRODUCT_WIDE = 57
    STREAMING = 60
    REDUCTION = 61
    BATCH_NORMALIZATION = 62
    BATCH_NORMALIZATION_GRADIENT = 63
    POOLING = 64
    SOFTMAX = 65
    REARRANGEMENT = 66
    IRREGULAR = 67
    RANDOM = 68

    @property
    def kind(self) -> Kind:
        """The kind of work that the class is."""
        if self.name in Kind.__members__:
            return Kind[self.name]
        if self.name.startswith("CONVOLUTION"):
            return Kind.CONVOLUTION
        if "PRODUCT" in self.name:
            return Kind.MATRIX_PRODUCT
        return Kind.STREAMING if self is WorkClass.UNCLASSIFIED else Kind.REDUCTION


def entries(keys: type[_Key], table: str) -> dict[_Key, Any]:
    """Entries of a table of shares.toml, by class or kind of work."""
    return {keys[name]: entry for name, entry in _TABLES[table].items()}


CONVOLUTION_SHARES: Mapping[str, tuple[float, float, float]] = {
    family: tuple(shares) for family, shares in _TABLES["convolution"].items()
}
PRODUCT_SHARES: Mapping[WorkClass, float] = entries(WorkClass, "product")
KIND_MEMORY_SHARES: Mapping[Kind, float] = entries(Kind, "kind_memory")
MEMORY_SHARES: Mapping[WorkClass, float] = entries(WorkClass, "memory")


@dataclasses.dataclass(frozen=True)
class GpuModel:
    """Numbers of one GPU model."""

    streaming: float  # share of the data sheet's memory bandwidth that a kernel reaches which works in order
    multiprocessors: int  # 0 where nothing is known, and the last wave costs nothing
    compute: float = 1.0  # shares of ``peak_flops`` are multiplied with this
    # ``peak_flops`` is that of TF32, for which no library has Winograd's algorithm: 3 x 3 is as 1 x 1
    has_tf32: bool = False


GPU_MODELS: Mapping[str, GpuModel] = {name: GpuModel(**row) for name, row in _TABLES["gpu"].items()}
ANY_GPU = GpuModel(0.75, 0)


@dataclasses.dataclass(frozen=True)
class Spreads:
    """Standard deviations of the natural logarithm of measured over estimated times; kinds without have the largest."""

    of_class: Mapping[WorkClass, float]  # classes of work on GPUs; other classes have the value of their kind
    of_kind: Mapping[Kind, float]
    model: float  # common factor of all ops on devices of one model
    bandwidth: float  # common factor of all links of one bandwidth
    tensor: float  # of the time to hand over a tensor, common to all links
    dispatch: float  # of the hosts' time for a kernel, common to all devices


MEASURED = Spreads(
    of_class=entries(WorkClass, "spread_of_class"),
    of_kind=entries(Kind, "spread_of_kind"),
    # Of several sources on one network and card (docs/results/gpu_fidelity.md).
    model=0.255,
    # PCIe 3 was measured from 6 to 12 GB/s, a tensor between GPUs takes 25 us in Placeto's simulator and 134 us in
    # Baechi's, a kernel 29 to 40 us of a host: two standard deviations each.
    bandwidth=float(np.log(12 / 6) / 2),
    tensor=float(np.log(134 / 25) / 2),
    dispatch=float(np.log(40 / 29) / 2),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Efficiencies:
    """What a device reaches."""

    compute: np.ndarray  # share of the peak rate, by the value of ``WorkClass``; 1 for ``FREE``
    memory: np.ndarray
    launches: float  # fixed cost of an op, in the device's ``launch_ns``
    multiprocessors: int  # that share the tiles of one op; 0 where tiles cost nothing


def gpu_efficiencies(model: GpuModel) -> dict[WorkClass, tuple[float, float]]:
    """Shares of ``peak_flops`` and of ``memory_bytes_per_s`` of a GPU, above 0, for each class but ``FREE``."""
    shares_of = entries(WorkClass, "gpu_estimates")
    for family, shares in CONVOLUTION_SHARES.items():
        for direction, share, dense in zip(DIRECTIONS, shares, CONVOLUTION_SHARES["1X1"], strict=True):
            compute = min(share, dense) if model.has_tf32 and family.startswith("3X3") else share
            work_class = WorkClass[f"CONVOLUTION_{family}{direction}"]
            shares_of[work_class] = compute, KIND_MEMORY_SHARES[Kind.CONVOLUTION]
    for work_class, share in PRODUCT_SHARES.items():
        shares_of[work_class] = share, KIND_MEMORY_SHARES[Kind.MATRIX_PRODUCT]
    for work_class, share in MEMORY_SHARES.items():
        shares_of[work_class] = VECTOR_SHARE, share
    return {
        work_class: (compute * model.compute, memory * model.streaming)
        for work_class, (compute, memory) in shares_of.items()
    }


@functools.cache
def efficiencies(device_type: str, model: str) -> Efficiencies:
    """Shares that a device reaches: a CPU by its type, a GPU by its model."""
    gpu, launches = GPU_MODELS.get(model, ANY_GPU), LAUNCHES
    if device_type == "CPU":
        gpu, launches = ANY_GPU, 1.0
        of_kind = entries(Kind, "cpu")
        of_class = ((work_class, work_class.kind) for work_class in WorkClass)
        shares_of = {work_class: of_kind[kind] for work_class, kind in of_class if kind in of_kind}
    else:
        shares_of = gpu_efficiencies(gpu)
    compute, memory = (np.ones(max(WorkClass) + 1) for _ in range(2))
    for work_class, shares in shares_of.items():
        compute[work_class], memory[work_class] = shares
    return Efficiencies(compute, memory, launches, gpu.multiprocessors)


@dataclasses.dataclass(frozen=True)
class Work:
    """Device-independent cost of one op."""

    work_class: WorkClass  # decides the efficiencies
    flops: float  # floating point operations; a multiply-add counts two
    num_bytes: float  # bytes read and written
    # pieces of the result, of 64 x 64 elements, that run side by side, each on one multiprocessor; 0 where
    # the kernel makes as many pieces as there are multiprocessors
    tiles: int = 0
    guessed: bool = False  # no formula is known for this op type; ``num_bytes`` is its inputs and outputs


FREE = Work(WorkClass.FREE, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class OpView:
    """A node with its input and output tensors."""

    node: tf.compat.v1.NodeDef  # the NodeDef
    inputs: tuple[OutputSpec, ...]  # one per data input, in order
    outputs: tuple[OutputSpec, ...]  # one per output

    @property
    def type(self) -> str:
        return self.node.op

    @property
    def output_bytes(self) -> int:
        return sum(spec.num_bytes for spec in self.outputs)

    @property
    def moved_bytes(self) -> int:
        """Every input read once and every output written once."""
        return sum(spec.num_bytes for spec in self.inputs) + self.output_bytes

    @property
    def output_elements(self) -> int:
        return sum(elements(spec) for spec in self.outputs)

    def flag(self, name: str) -> bool:
        """A bool attribute; False if missing."""
        return self.node.attr[name].b if name in self.node.attr else False

    def ints(self, name: str) -> tuple[int, ...]:
        """A list(int) attribute; empty if missing."""
        return tuple(self.node.attr[name].list.i) if name in self.node.attr else ()


def elements(spec: OutputSpec) -> int:
    """Elements of a tensor; 1 for a scalar."""
    return math.prod(spec.shape)


Formula = Callable[[OpView], Work]


def _convolution(op: OpView, direction: str, result: int, image: int, weights: int) -> Work:
    """``2 * outputs * (window * input channels)``; the filter is ``[*window, C_in / groups, C_out]``.

    The class is by the window, the strides and the channels. The sum of a filter's gradient, over positions, is split.

    Result, image and weights are the inputs that have the convolution's output (or its gradient), its input and its
    filter; -1 is the op's output.
    """
    result_elements = op.output_elements if result < 0 else elements(op.inputs[result])
    image_shape, filter_shape = (
        (op.outputs[0] if position < 0 else op.inputs[position]).shape for position in (image, weights)
    )
    window, channels = filter_shape[:-2], filter_shape[-2:]
    layout = op.node.attr["data_format"].s if "data_format" in op.node.attr else b""
    axis = 1 if layout.startswith(b"NC") else -1  # of the channels
    if len(channels) < 2 or len(image_shape) < len(filter_shape):  # a shape that is an estimate
        family = "OTHER"
    elif channels[0] <= _FIRST_CHANNELS and image_shape[axis] <= _FIRST_CHANNELS:
        family = "FIRST"
    elif max(op.ints("strides"), default=1) > 1:
        family = "STRIDED"
    elif set(window) == {1}:
        family = "1X1"
    else:
        is_dense = max(op.ints("dilations"), default=1) == 1 and channels[0] == image_shape[axis]
        if is_dense and window == (3, 3):
            is_small = max(image_shape[2:] if axis == 1 else image_shape[1:-1]) <= _SMALL_IMAGE
            family = "3X3_SMALL" if is_small else f"3X3_{_width(min(channels), (32, 64, 128))}"
        else:
            family = "SQUARE" if is_dense and len(window) == 2 and window[0] == window[1] else "OTHER"
    tiles = 0
    if weights >= 0:  # the result as a matrix: positions of all images, and channels
        shape = op.outputs[0].shape
        columns = shape[axis] if len(shape) > 1 else 1
        tiles = _tiles(math.prod(shape) // max(columns, 1), columns)
    flops = 2.0 * result_elements * math.prod(filter_shape[:-1])
    return Work(WorkClass[f"CONVOLUTION_{family}{direction}"], flops, op.moved_bytes, tiles)


def _width(side: int, limits: tuple[int, ...]) -> str:
    """The part of a class's name that says how wide a matrix is: the first limit that holds the side, or none."""
    return next((f"TO_{limit}" for limit in limits if side <= limit), "WIDE")


def _tiles(rows: int, columns: int) -> int:
    return -(-rows // _TILE) * -(-columns // _TILE)


def _depthwise(op: OpView, result: int, weights: int) -> Work:
    """``2 * outputs * window``; the filter is ``[height, width, C, multiplier]``; positions as of ``_convolution``."""
    result_elements = op.output_elements if result < 0 else elements(op.inputs[result])
    window = (op.outputs[0] if weights < 0 else op.inputs[weights]).shape[:2]
    return Work(WorkClass.DEPTHWISE_CONVOLUTION, 2.0 * result_elements * math.prod(window), op.moved_bytes)


def _product(op: OpView, left_turned: str, right_turned: str) -> Work:
    """``2 * batch * m * n * k``; a broadcast batch is taken from the output.

    The summed dimension is read off a matrix: a shape that is an estimate may be of fewer dimensions.
    """
    axes = (-2 if op.flag(left_turned) else -1, -1 if op.flag(right_turned) else -2)
    sides = zip(op.inputs, axes, strict=True)
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


def _einsum(op: OpView) -> Work:
    """``2 * outputs * (sizes of the labels summed away)``; with one operand nothing is multiplied."""
    operands, _, result = op.node.attr["equation"].s.decode().replace(" ", "").partition("->")
    summed: dict[str, int] = {}
    for labels, spec in zip(operands.split(","), op.inputs, strict=True):
        before, _, after = labels.partition("...")
        sizes = dict(zip(before, spec.shape, strict=False))
        sizes |= dict(zip(reversed(after), reversed(spec.shape), strict=False))
        summed |= {label: size for label, size in sizes.items() if label not in result}
    if len(op.inputs) == 1:
        return Work(WorkClass.REARRANGEMENT, float(sum(map(elements, op.inputs))), op.moved_bytes)
    inner = math.prod(summed.values())
    # Each operand as a matrix: labels of both operands and of the result are the batch, the others rows or columns.
    rows, columns = (elements(spec) // max(inner, 1) for spec in op.inputs)
    batch = max(1, rows * columns // max(op.output_elements, 1))
    return _matrix_product(op, batch, max(1, rows // batch), max(1, columns // batch), inner)


def _pool(op: OpView, windows: int) -> Work:
    return Work(WorkClass.POOLING, float(windows * math.prod(op.ints("ksize"))), op.moved_bytes)


def _batch_normalization(op: OpView) -> Work:
    """Training reads the input twice (moments, then scale) and writes once; inference is a product and a sum."""
    x = op.inputs[0]
    if op.flag("is_training"):
        return Work(WorkClass.BATCH_NORMALIZATION, 8.0 * elements(x), 3 * x.num_bytes)
    return Work(WorkClass.STREAMING, 2.0 * elements(x), 2 * x.num_bytes)


def _update(op: OpView) -> Work:
    """Passes (``op_facts``) over the largest input that is not a handle: the gradient or the added value."""
    passes, operations = map(int, values("update")[op.type].split(","))
    value = max(op.inputs[1:], key=lambda spec: spec.num_bytes)
    return Work(WorkClass.STREAMING, float(operations * elements(value)), passes * value.num_bytes)


# Name in the facts of ops -> formula.
FORMULAS: dict[str, Formula] = {
    "convolution": lambda op: _convolution(op, "", result=-1, image=0, weights=1),
    # Inputs: image sizes, filter, gradient of the output.
    "convolution_input_gradient": lambda op: _convolution(
        op, "_INPUT_GRADIENT", result=2, image=-1, weights=1
    ),
    "convolution_filter_gradient": lambda op: _convolution(
        op, "_FILTER_GRADIENT", result=2, image=0, weights=-1
    ),
    "depthwise": lambda op: _depthwise(op, result=-1, weights=1),
    "depthwise_input_gradient": lambda op: _depthwise(op, result=2, weights=1),
    "depthwise_filter_gradient": lambda op: _depthwise(op, result=2, weights=-1),
    "matmul": lambda op: _product(op, "transpose_a", "transpose_b"),
    "batch_matmul": lambda op: _product(op, "adj_x", "adj_y"),
    "einsum": _einsum,
    # One operation per output, or gradient of one (the last input), and window position.
    "pool": lambda op: _pool(op, op.output_elements),
    "pool_gradient": lambda op: _pool(op, elements(op.inputs[-1])),
    "batch_normalization": _batch_normalization,
    # Reads gradient and input twice (two sums, then the gradient) and writes one tensor of that size.
    "batch_normalization_gradient": lambda op: Work(
        WorkClass.BATCH_NORMALIZATION_GRADIENT, 12.0 * elements(op.inputs[1]), 5 * op.inputs[1].num_bytes
    ),
    # Every input and output once; a broadcast input counts its own bytes only.
    "arithmetic": lambda op: Work(WorkClass.STREAMING, float(op.output_elements), op.moved_bytes),
    "division": lambda op: Work(WorkClass.STREAMING, _DIVISION * op.output_elements, op.moved_bytes),
    "transcendental": lambda op: Work(
        WorkClass.STREAMING, _TRANSCENDENTAL * op.output_elements, op.moved_bytes
    ),
    # One addition per element of every input but the first.
    "add_n": lambda op: Work(
        WorkClass.STREAMING, float((len(op.inputs) - 1) * op.output_elements), op.moved_bytes
    ),
    "reduction": lambda op: Work(WorkClass.REDUCTION, float(elements(op.inputs[0])), op.moved_bytes),
    # The logits are read twice: for the maximum and for the exponentials.
    "softmax": lambda op: Work(
        WorkClass.SOFTMAX,
        _SOFTMAX_OPERATIONS * elements(op.inputs[0]),
        op.inputs[0].num_bytes + op.moved_bytes,
    ),
    "draw": lambda op: Work(WorkClass.RANDOM, _OPERATIONS_PER_DRAW * op.output_elements, op.output_bytes),
    "update": _update,
    "copy_all": lambda op: Work(WorkClass.REARRANGEMENT, 0.0, op.moved_bytes),
    # Only what lands in the output is read, then written.
    "copy_part": lambda op: Work(WorkClass.REARRANGEMENT, 0.0, 2 * op.output_bytes),
    "fill": lambda op: Work(WorkClass.STREAMING, 0.0, op.output_bytes),
    # A list, array or stack is a handle of 0 bytes: the visible side of the copy counts twice.
    "tensor_list": lambda op: Work(
        WorkClass.REARRANGEMENT, 0.0, 2 * max(op.moved_bytes - op.output_bytes, op.output_bytes)
    ),
    # Reads the gathered rows and writes them; the rest of the table is not touched.
    "gather": lambda op: Work(WorkClass.IRREGULAR, 0.0, 2 * op.output_bytes + op.inputs[1].num_bytes),
    # Clears the output, then reads, adds and writes the inputs' rows.
    "scatter_into_new": lambda op: Work(
        WorkClass.IRREGULAR,
        float(sum(map(elements, op.inputs))),
        op.output_bytes + 3 * (op.moved_bytes - op.output_bytes),
    ),
    # Copies the first input, then reads, adds and writes the updates' rows (the last input).
    "scatter_into_input": lambda op: Work(
        WorkClass.IRREGULAR,
        float(op.inputs[-1].num_bytes // 4),
        2 * op.output_bytes + 3 * op.inputs[-1].num_bytes,
    ),
    # The value (the last input) is copied into the buffer of a v1 variable.
    "assign": lambda op: Work(WorkClass.STREAMING, 0.0, 2 * op.inputs[-1].num_bytes),
    # Reads updates (the last input) and the variable's rows, writes the rows.
    "scatter_into_variable": lambda op: Work(
        WorkClass.IRREGULAR, float(op.inputs[-1].num_bytes // 4), 3 * op.inputs[-1].num_bytes
    ),
    # 0 ns on every device: no device kernel starts (``op_facts`` says of each type why).
    "free": lambda op: FREE,
}
FORMULA_OF_TYPE: dict[str, Formula] = {op_type: FORMULAS[name] for op_type, name in values("work").items()}


def work_of(op: OpView) -> Work:
    """Work of one op that calls no function; of unknown types a guess: all its bytes, once, and marked.

    Where a shape is an estimate its rank may be another one than the op takes, so formulas take shapes of any rank.
    """
    formula = FORMULA_OF_TYPE.get(op.type)
    if formula is None:
        return Work(WorkClass.STREAMING, 0.0, op.moved_bytes, guessed=True)
    return formula(op)
