"""Rows of published measurements, and the kernels of those that are single ops."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_placer.cluster.cluster_file import device_of_model
from tf_placer.cluster.device import Device
from tf_placer.costs.formulas import OpView, work_of
from tf_placer.costs.op_work import Work
from tf_placer.graph.sizes.output_specs import OutputSpec

FOLDER = pathlib.Path(__file__).parent
TRUTH, TEST_ROWS = FOLDER / "truth.csv.gz", FOLDER / "test_rows.csv"

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
}
_SXM2_NOTE = "DGX-1 (SXM2, 10.6 Tflops)"


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
      id, source, gpu, framework, what, direction, note: as in the file; ``what`` is an op or a network.
      is_network: it is of a whole network.
      batch: of a network; 0 for an op.
      shape: sizes.
      measured_s: seconds.
    """

    id: str
    source: str
    gpu: str
    framework: str
    what: str
    direction: str
    note: str
    is_network: bool
    batch: int
    shape: Mapping[str, Any]
    measured_s: float

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
        return self.is_network or self.framework.startswith("PyTorch")


def read_rows(path: pathlib.Path = TRUTH) -> list[Row]:
    """Rows of ops and networks, in the order of the file; those of links are left out."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [_row(fields) for fields in csv.DictReader(io.StringIO(text)) if fields["level"] != "link"]


def _row(fields: Mapping[str, str]) -> Row:
    same = ("id", "source", "gpu", "framework", "what", "direction", "note")
    of_row: dict[str, Any] = {name: fields[name] for name in same}
    return Row(
        **of_row,
        is_network=fields["level"] == "model",
        batch=int(fields["batch"] or 0),
        shape=json.loads(fields["shape"] or "{}"),
        measured_s=float(fields["measured_ms"]) / 1e3,
    )


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
    sizes = OutputSpec((4,), tf.int32, 16)
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
_OP_OF_ELEMENTWISE = {
    "add": "AddV2",
    "div": "RealDiv",
    "gelu": "Tanh",
    "mul": "Mul",
    "neg": "Neg",
    "relu": "Relu",
    "tanh": "Tanh",
}
_OF_TWO = frozenset({"add", "div", "mul"})


def _elementwise(row: Row) -> tuple[Work, ...]:
    name = row.shape["op"]
    x = _spec(row.shape["rows"], row.shape["cols"])
    return (_work(_OP_OF_ELEMENTWISE[name], (x, x) if name in _OF_TWO else (x,), (x,)),)


def _softmax(row: Row) -> tuple[Work, ...]:
    x = _spec(row.shape["rows"], row.shape["cols"])
    return (_work("Softmax", (x,), (x,)),)


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
    window: dict[str, Any] = {
        "ksize": [1, shape["k"], shape["k"], 1],
        "strides": [1, shape["st"], shape["st"], 1],
    }
    if row.direction == "fwd":
        return (_work("MaxPool", (x,), (y,), **window),)
    return (_work("MaxPoolGrad", (x, y, y), (x,), **window),)


_MAKERS = {
    "conv": _convolutions,
    "gemm": _product,
    "linear": _product,
    "bmm": _product,
    "elementwise": _elementwise,
    "softmax": _softmax,
    "batchnorm": _batch_normalization,
    "relu": _relu,
    "maxpool": _max_pool,
}


def _spec(*shape: int) -> OutputSpec:
    num_bytes = tf.float32.size
    for side in shape:
        num_bytes *= side
    return OutputSpec(shape, tf.float32, num_bytes)


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
