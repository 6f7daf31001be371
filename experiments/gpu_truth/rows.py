"""Rows of published measurements, and the kernels of those that are single ops."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from tf_placer.cluster.device import Device, device_of_model
from tf_placer.costs.formulas import OpView, Work, work_of
from tf_placer.graph.sizes import OutputSpec

FOLDER = pathlib.Path(__file__).parent
TRUTH, TEST_ROWS = FOLDER / "truth.csv.gz", FOLDER / "test_rows.csv"
MEASURED = FOLDER / "h100.csv"  # by us, after the fit (README.md)

_MODEL_OF_GPU = {
    "Tesla K40": "k40",
    "Tesla K80 (one of two GPUs)": "k80",
    "Tesla P100": "p100",
    "Tesla V100": "v100",
    "Tesla T4": "t4",
    "A100 40 GB (TF32)": "a100",
    "A100 40 GB (FP32)": "a100_fp32",
    "A100 80 GB PCIe (FP32)": "a100_80gb_fp32",
    "H100 80 GB SXM (FP32)": "h100_fp32",
    "H100 80 GB SXM (TF32)": "h100",
}
_SXM2_NOTE = "DGX-1 (SXM2, 10.6 Tflops)"
_ALONE = "CUDA graph"  # begins the framework of rows for which no host started kernels


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement."""

    # Texts as in the file.
    id: str
    source: str
    gpu: str
    framework: str
    what: str  # an op or a network
    direction: str
    note: str
    is_network: bool  # it is of a whole network
    batch: int  # of a network; 0 for an op
    shape: Mapping[str, Any]  # sizes
    measured_s: float  # seconds

    @property
    def device(self) -> Device | None:
        """The GPU as ``models.toml`` describes it; None where it has none."""
        model = _MODEL_OF_GPU.get(self.gpu)
        if model is None:
            return None
        return device_of_model("p100_sxm2" if self.note == _SXM2_NOTE else model)

    @property
    def is_fed_by_framework(self) -> bool:
        """Measured around a framework's ops, which it takes time to start, and not around a loop of kernels."""
        if self.framework.startswith(_ALONE):
            return False
        return self.is_network or self.framework.startswith("PyTorch")


def read_rows(path: pathlib.Path = TRUTH) -> list[Row]:
    """Rows of ops and networks, in the order of the file; those of links are left out."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    records: Iterable[dict[str, Any]] = csv.DictReader(io.StringIO(text))
    texts = ("id", "source", "gpu", "framework", "what", "direction", "note")
    return [
        Row(
            **{name: fields[name] for name in texts},
            is_network=fields["level"] == "model",
            batch=int(fields["batch"] or 0),
            shape=json.loads(fields["shape"] or "{}"),
            measured_s=float(fields["measured_ms"]) / 1e3,
        )
        for fields in records
        if fields["level"] != "link"
    ]


def kernels_of(row: Row) -> tuple[Work, ...] | None:
    """The kernels of a row of one op, by the formulas of the cost model; None for ops that are no single kernels.

    Left out are recurrent layers (one call of cuDNN runs many steps at once) and layers in TensorFlow 1 sessions, whose
    times have the session's call and two transposes in them (``single_convolution``).
    """
    make = _MAKERS.get(row.what)
    return None if make is None else tuple(map(work_of, make(row)))


def single_convolution(row: Row) -> Work:
    """The convolution of a ``conv_layer``, a NHWC convolution in a TensorFlow 1 session."""
    shape = row.shape
    sides = (("h", "r", "sh"), ("w", "s", "sw"))
    if shape["pad"] == "SAME":
        outputs = [-(-shape[side] // shape[stride]) for side, _, stride in sides]
    else:
        outputs = [(shape[side] - shape[window]) // shape[stride] + 1 for side, window, stride in sides]
    return work_of(_convolution(shape, outputs, "fwd"))


def op_view(
    op_type: str,
    inputs: tuple[OutputSpec, ...],
    outputs: tuple[OutputSpec, ...],
    integers: Mapping[str, Sequence[int]] = MappingProxyType({}),
    flags: Sequence[str] = (),
) -> OpView:
    """An op on these tensors, with attributes that are lists of integers and those that are true."""
    node = tf.compat.v1.NodeDef(name="op", op=op_type)
    for name, values in integers.items():
        node.attr[name].list.i.extend(values)
    for name in flags:
        node.attr[name].b = True
    return OpView(node, inputs, outputs)


def _convolutions(row: Row) -> list[OpView]:
    shape = row.shape
    outputs = [
        (shape[side] + 2 * shape[padding] - shape[window]) // shape[stride] + 1
        for side, padding, window, stride in (("h", "ph", "r", "sh"), ("w", "pw", "s", "sw"))
    ]
    directions = {"bwd": ("bwd_input", "bwd_filter")}.get(row.direction, (row.direction,))
    # Nobody asks for the gradient of the images.
    if row.direction == "bwd" and shape["c"] <= _IMAGE_CHANNELS:
        directions = ("bwd_filter",)
    return [_convolution(shape, outputs, direction) for direction in directions]


_IMAGE_CHANNELS = 3


def _convolution(shape: Mapping[str, int], outputs: Sequence[int], direction: str) -> OpView:
    y, strides = _spec(shape["n"], *outputs, shape["k"]), [shape["sh"], shape["sw"]]
    return _pass_of("Conv2D", _sides(shape, "nhwc"), _sides(shape, "rsck"), y, direction, strides)


def _depthwise(row: Row) -> list[OpView]:
    shape, stride, window = row.shape, row.shape["sh"], row.shape["r"]
    side = (shape["h"] + 2 * shape["ph"] - window) // stride + 1
    weights, y = _spec(window, window, shape["c"], 1), _spec(shape["n"], side, side, shape["c"])
    x, op_type = _sides(shape, "nhwc"), "DepthwiseConv2dNative"
    return [_pass_of(op_type, x, weights, y, row.direction, [stride, stride])]


def _pass_of(
    op_type: str, x: OutputSpec, weights: OutputSpec, y: OutputSpec, direction: str, strides: Sequence[int]
) -> OpView:
    """The forward pass of a convolution, or the gradient of its images or of its filter."""
    suffix, inputs, result = {
        "fwd": ("", (x, weights), y),
        "bwd_input": ("BackpropInput", (_indices(4), weights, y), x),
        "bwd_filter": ("BackpropFilter", (x, _indices(4), y), weights),
    }[direction]
    return op_view(op_type + suffix, inputs, (result,), {"strides": [1, *strides, 1]})


def _product(row: Row) -> list[OpView]:
    batch = [row.shape["b"]] if "b" in row.shape else []
    m, n, k = (row.shape[side] for side in "mnk")
    inputs = (_spec(*batch, m, k), _spec(*batch, k, n))
    return [op_view("BatchMatMulV2" if batch else "MatMul", inputs, (_spec(*batch, m, n),))]


# PyTorch has one kernel for gelu; TensorFlow's tanh reads and writes as much.
_OP_OF_ONE = {"gelu": "Tanh", "neg": "Neg", "relu": "Relu", "tanh": "Tanh", "softmax": "Softmax"}
_OP_OF_TWO = {"add": "AddV2", "div": "RealDiv", "mul": "Mul"}


def _elementwise(row: Row) -> list[OpView]:
    name, x = row.shape.get("op", row.what), _sides(row.shape, _MATRIX)
    return [op_view((_OP_OF_ONE | _OP_OF_TWO)[name], (x,) * (1 + (name in _OP_OF_TWO)), (x,))]


def _layer(row: Row, op_type: str, gradient: str, *flags: str) -> list[OpView]:
    """An op on images that keeps their sizes, or its gradient."""
    x = _sides(row.shape, "nhwc")
    is_forward = row.direction == "fwd"
    return [op_view(op_type if is_forward else gradient, (x,) if is_forward else (x, x), (x,), {}, flags)]


def _max_pool(row: Row) -> list[OpView]:
    x, y = _sides(row.shape, "nhwc"), _sides(row.shape, ("n", "oh", "ow", "c"))
    windows = {"ksize": row.shape["k"], "strides": row.shape["st"]}
    integers = {name: [1, size, size, 1] for name, size in windows.items()}
    if row.direction == "fwd":
        return [op_view("MaxPool", (x,), (y,), integers)]
    return [op_view("MaxPoolGrad", (x, y, y), (x,), integers)]


_OP_OF_REDUCTION = {"sum": "Sum", "mean": "Mean", "max": "Max", "argmax": "ArgMax"}


def _reduction(row: Row) -> list[OpView]:
    """Of a matrix over its columns (``_last``), its rows (``_first``) or both (``_all``)."""
    name, _, over = row.shape["op"].partition("_")
    kept = {"last": ["rows"], "first": ["cols"], "all": []}[over]
    inputs = (_sides(row.shape, _MATRIX), _indices(1))
    return [op_view(_OP_OF_REDUCTION[name], inputs, (_sides(row.shape, kept),))]


def _rearrangement(row: Row) -> list[OpView]:
    shape, name = row.shape, row.shape["op"]
    if name == "heads":  # [batch, time, heads, depth] to [batch, heads, time, depth]
        x, y = (_sides(shape, sides) for sides in (("b", "t", "heads", "d"), ("b", "heads", "t", "d")))
        return [op_view("Transpose", (x, _indices(4)), (y,))]
    if name == "nchw_to_nhwc":
        return [op_view("Transpose", (_sides(shape, "nchh"), _indices(4)), (_sides(shape, "nhhc"),))]
    if name == "concat_channels":
        x = _spec(shape["n"], shape["h"], shape["h"], shape["c"] // 4)
        return [op_view("ConcatV2", (x, x, x, x, _indices()), (_sides(shape, "nhhc"),))]
    rows, columns, x = shape["rows"], shape["cols"], _sides(shape, _MATRIX)
    op_type, inputs, result = {
        "transpose": ("Transpose", (x, _indices(2)), (columns, rows)),
        "concat_last": ("ConcatV2", (x, x, _indices()), (rows, 2 * columns)),
        "concat_first": ("ConcatV2", (x, x, _indices()), (2 * rows, columns)),
        "slice_last": ("Slice", (x, _indices(2), _indices(2)), (rows, columns // 2)),
        "slice_first": ("Slice", (x, _indices(2), _indices(2)), (rows // 2, columns)),
        "pad_last": ("Pad", (x, _indices(2, 2)), (rows, columns + 2)),
        "tile_first": ("Tile", (x, _indices(2)), (2 * rows, columns)),
    }[name]
    return [op_view(op_type, inputs, (_spec(*result),))]


def _irregular(row: Row) -> list[OpView]:
    """Reads rows of a table, or adds to them where they are, as updates of an embedding do."""
    shape, table = row.shape, _sides(row.shape, _MATRIX)
    ids, some = _indices(shape["ids"]), _sides(shape, ("ids", "cols"))
    if shape["op"] == "gather":
        return [op_view("GatherV2", (table, ids, _indices()), (some,))]
    return [op_view("ResourceScatterAdd", (_spec(), ids, some), ())]


def _random(row: Row) -> list[OpView]:
    op_type = {"uniform": "RandomUniform", "normal": "RandomStandardNormal"}[row.shape["op"]]
    return [op_view(op_type, (_indices(2),), (_sides(row.shape, _MATRIX),))]


def _update(row: Row, op_type: str, inputs: str) -> list[OpView]:
    """The update of a variable; ``inputs`` has an ``x`` for each of its size, and other letters for numbers."""
    x, number = _spec(row.shape["size"]), _spec()
    return [op_view(op_type, tuple(x if letter == "x" else number for letter in inputs), ())]


_MAKERS: Mapping[str, Callable[[Row], list[OpView]]] = {
    "conv": _convolutions,
    "depthwise": _depthwise,
    **dict.fromkeys(("gemm", "linear", "bmm"), _product),
    **dict.fromkeys(("elementwise", "softmax"), _elementwise),
    "batchnorm": lambda row: _layer(row, "FusedBatchNormV3", "FusedBatchNormGradV3", "is_training"),
    "relu": lambda row: _layer(row, "Relu", "ReluGrad"),
    "maxpool": _max_pool,
    "reduction": _reduction,
    "rearrangement": _rearrangement,
    "random": _random,
    "irregular": _irregular,
    "adam": lambda row: _update(row, "ResourceApplyAdam", "xxx......x"),
    "momentum": lambda row: _update(row, "ResourceApplyKerasMomentum", "xx.x."),
}
_MATRIX = ("rows", "cols")


def _sides(shape: Mapping[str, int], names: Iterable[str]) -> OutputSpec:
    return _spec(*(shape[name] for name in names))


def _spec(*shape: int) -> OutputSpec:
    return OutputSpec.of(shape, tf.float32)


def _indices(*shape: int) -> OutputSpec:
    return OutputSpec.of(shape, tf.int32)
