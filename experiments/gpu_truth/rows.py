"""Rows of published measurements, and the kernels of those that are single ops."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
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
    return None if make is None else make(row)


def single_convolution(row: Row) -> Work:
    """The convolution of a ``conv_layer``, a NHWC convolution in a TensorFlow 1 session."""
    shape = row.shape
    sides = (("h", "r", "sh"), ("w", "s", "sw"))
    if shape["pad"] == "SAME":
        outputs = [-(-shape[side] // shape[stride]) for side, _, stride in sides]
    else:
        outputs = [(shape[side] - shape[window]) // shape[stride] + 1 for side, window, stride in sides]
    return _convolution(shape, outputs, "fwd")


def _convolutions(row: Row) -> tuple[Work, ...]:
    shape = row.shape
    outputs = [
        (shape[side] + 2 * shape[padding] - shape[window]) // shape[stride] + 1
        for side, padding, window, stride in (("h", "ph", "r", "sh"), ("w", "pw", "s", "sw"))
    ]
    directions = {"bwd": ("bwd_input", "bwd_filter")}.get(row.direction, (row.direction,))
    # Nobody asks for the gradient of the images.
    if row.direction == "bwd" and shape["c"] <= _IMAGE_CHANNELS:
        directions = ("bwd_filter",)
    return tuple(_convolution(shape, outputs, direction) for direction in directions)


_IMAGE_CHANNELS = 3


def _convolution(shape: Mapping[str, int], outputs: Sequence[int], direction: str) -> Work:
    x = _spec(shape["n"], shape["h"], shape["w"], shape["c"])
    y = _spec(shape["n"], *outputs, shape["k"])
    weights = _spec(shape["r"], shape["s"], shape["c"], shape["k"])
    sizes = _indices(4)
    op_type, inputs, result = {
        "fwd": ("Conv2D", (x, weights), y),
        "bwd_input": ("Conv2DBackpropInput", (sizes, weights, y), x),
        "bwd_filter": ("Conv2DBackpropFilter", (x, sizes, y), weights),
    }[direction]
    return _work(op_type, inputs, (result,), strides=[1, shape["sh"], shape["sw"], 1])


def _product(row: Row) -> tuple[Work, ...]:
    batch = [row.shape["b"]] if "b" in row.shape else []
    m, n, k = (row.shape[side] for side in "mnk")
    inputs = (_spec(*batch, m, k), _spec(*batch, k, n))
    return (_work("BatchMatMulV2" if batch else "MatMul", inputs, (_spec(*batch, m, n),)),)


# PyTorch has one kernel for gelu; TensorFlow's tanh reads and writes as much.
_OP_OF_ONE = {"gelu": "Tanh", "neg": "Neg", "relu": "Relu", "tanh": "Tanh", "softmax": "Softmax"}
_OP_OF_TWO = {"add": "AddV2", "div": "RealDiv", "mul": "Mul"}


def _elementwise(row: Row) -> tuple[Work, ...]:
    name, x = row.shape.get("op", row.what), _matrix(row)
    is_of_two = name in _OP_OF_TWO
    return (_work((_OP_OF_TWO if is_of_two else _OP_OF_ONE)[name], (x, x) if is_of_two else (x,), (x,)),)


def _matrix(row: Row) -> OutputSpec:
    return _spec(row.shape["rows"], row.shape["cols"])


def _images(row: Row) -> OutputSpec:
    return _spec(*(row.shape[side] for side in "nhwc"))


def _batch_normalization(row: Row) -> tuple[Work, ...]:
    x = _images(row)
    if row.direction == "fwd":
        return (_work("FusedBatchNormV3", (x,), (x,), is_training=True),)
    return (_work("FusedBatchNormGradV3", (x, x), (x,), is_training=True),)


def _relu(row: Row) -> tuple[Work, ...]:
    x = _images(row)
    return (_work("Relu", (x,), (x,)) if row.direction == "fwd" else _work("ReluGrad", (x, x), (x,)),)


def _max_pool(row: Row) -> tuple[Work, ...]:
    shape, x = row.shape, _images(row)
    y = _spec(shape["n"], shape["oh"], shape["ow"], shape["c"])
    window: dict[str, Any] = {name: [1, shape[key], shape[key], 1] for name, key in _WINDOW.items()}
    if row.direction == "fwd":
        return (_work("MaxPool", (x,), (y,), **window),)
    return (_work("MaxPoolGrad", (x, y, y), (x,), **window),)


_WINDOW = {"ksize": "k", "strides": "st"}


def _depthwise(row: Row) -> tuple[Work, ...]:
    shape, stride, window = row.shape, row.shape["sh"], row.shape["r"]
    side = (shape["h"] + 2 * shape["ph"] - window) // stride + 1
    x, y = _spec(shape["n"], shape["h"], shape["w"], shape["c"]), _spec(shape["n"], side, side, shape["c"])
    weights = _spec(window, window, shape["c"], 1)
    op = "DepthwiseConv2dNative"
    op_type, inputs, result = {
        "fwd": (op, (x, weights), y),
        "bwd_input": (f"{op}BackpropInput", (_indices(4), weights, y), x),
        "bwd_filter": (f"{op}BackpropFilter", (x, _indices(4), y), weights),
    }[row.direction]
    return (_work(op_type, inputs, (result,), strides=[1, stride, stride, 1]),)


_OP_OF_REDUCTION = {"sum": "Sum", "mean": "Mean", "max": "Max", "argmax": "ArgMax"}


def _reduction(row: Row) -> tuple[Work, ...]:
    """Of a matrix over its columns (``_last``), its rows (``_first``) or both (``_all``)."""
    name, _, over = row.shape["op"].partition("_")
    rows, columns = row.shape["rows"], row.shape["cols"]
    y = {"last": _spec(rows), "first": _spec(columns), "all": _spec()}[over]
    return (_work(_OP_OF_REDUCTION[name], (_spec(rows, columns), _indices(1)), (y,)),)


def _rearrangement(row: Row) -> tuple[Work, ...]:
    shape, name = row.shape, row.shape["op"]
    if name == "heads":  # [batch, time, heads, depth] to [batch, heads, time, depth]
        x, y = (_spec(*(shape[side] for side in sides)) for sides in (_BY_TIME, _BY_HEAD))
        return (_work("Transpose", (x, _indices(4)), (y,)),)
    if name == "nchw_to_nhwc":
        x = _spec(shape["n"], shape["c"], shape["h"], shape["h"])
        y = _spec(shape["n"], shape["h"], shape["h"], shape["c"])
        return (_work("Transpose", (x, _indices(4)), (y,)),)
    if name == "concat_channels":
        x, y = (_spec(shape["n"], shape["h"], shape["h"], c) for c in (shape["c"] // 4, shape["c"]))
        return (_work("ConcatV2", (x, x, x, x, _indices()), (y,)),)
    rows, columns, x = shape["rows"], shape["cols"], _matrix(row)
    op_type, inputs, result = {
        "transpose": ("Transpose", (x, _indices(2)), (columns, rows)),
        "concat_last": ("ConcatV2", (x, x, _indices()), (rows, 2 * columns)),
        "concat_first": ("ConcatV2", (x, x, _indices()), (2 * rows, columns)),
        "slice_last": ("Slice", (x, _indices(2), _indices(2)), (rows, columns // 2)),
        "slice_first": ("Slice", (x, _indices(2), _indices(2)), (rows // 2, columns)),
        "pad_last": ("Pad", (x, _indices(2, 2)), (rows, columns + 2)),
        "tile_first": ("Tile", (x, _indices(2)), (2 * rows, columns)),
    }[name]
    return (_work(op_type, inputs, (_spec(*result),)),)


_BY_TIME, _BY_HEAD = ("b", "t", "heads", "d"), ("b", "heads", "t", "d")
_OP_OF_RANDOM = {"uniform": "RandomUniform", "normal": "RandomStandardNormal"}


def _irregular(row: Row) -> tuple[Work, ...]:
    """Reads rows of a table, or adds to them where they are, as updates of an embedding do."""
    shape, table, some = row.shape, _matrix(row), _spec(row.shape["ids"], row.shape["cols"])
    if shape["op"] == "gather":
        return (_work("GatherV2", (table, _indices(shape["ids"]), _indices()), (some,)),)
    return (_work("ResourceScatterAdd", (_spec(), _indices(shape["ids"]), some), ()),)


def _adam(row: Row) -> tuple[Work, ...]:
    x, factor = _spec(row.shape["size"]), _spec()
    return (_work("ResourceApplyAdam", (x, x, x, *(factor,) * 6, x), ()),)


def _momentum(row: Row) -> tuple[Work, ...]:
    x, factor = _spec(row.shape["size"]), _spec()
    return (_work("ResourceApplyKerasMomentum", (x, x, factor, x, factor), ()),)


_MAKERS = {
    "conv": _convolutions,
    "depthwise": _depthwise,
    "gemm": _product,
    "linear": _product,
    "bmm": _product,
    "elementwise": _elementwise,
    "softmax": _elementwise,
    "batchnorm": _batch_normalization,
    "relu": _relu,
    "maxpool": _max_pool,
    "reduction": _reduction,
    "rearrangement": _rearrangement,
    "random": lambda row: (_work(_OP_OF_RANDOM[row.shape["op"]], (_indices(2),), (_matrix(row),)),),
    "irregular": _irregular,
    "adam": _adam,
    "momentum": _momentum,
}


def _spec(*shape: int, dtype: tf.DType = tf.float32) -> OutputSpec:
    return OutputSpec(shape, dtype, math.prod(shape) * dtype.size)


def _indices(*shape: int) -> OutputSpec:
    return _spec(*shape, dtype=tf.int32)


def _work(
    op_type: str,
    inputs: tuple[OutputSpec, ...],
    outputs: tuple[OutputSpec, ...],
    is_training: bool | None = None,
    **of_integers: Sequence[int],
) -> Work:
    node = tf.compat.v1.NodeDef(name="op", op=op_type)
    for name, value in of_integers.items():
        node.attr[name].list.i.extend(value)
    if is_training is not None:
        node.attr["is_training"].b = is_training
    return work_of(OpView(node, inputs, outputs))
