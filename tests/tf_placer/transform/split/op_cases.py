"""One call of each op type that has a rule, on random numbers: arrays with the batch on an axis are example inputs."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.op_facts import values
from colocation.tensorflow_internals import registered_op
from tf_placer.graph.item import Item
from tf_placer.transform.split.rules import rule_name

_ELEMENTWISE = ("elementwise", "linear", "each", "add", "scale", "cast", "select", "bias")
NEEDS_STATISTICS = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
# What the others keep for these is not the same on every device, so a program that hands it out is not split there.
KEEPS_STATISTICS, HANDS_OUT = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), 3
BATCHES, WIDTH = (5, 7), 3  # primes, and no other dimension is one of them
Arguments = dict[str, Any]

# Of what is element by element: attributes without a default, and numbers that an op is defined for.
_ATTRIBUTES: Mapping[str, Arguments] = {
    "Bucketize": {"boundaries": [0.2, 0.5]},
    "Cast": {"DstT": tf.float64},
    "CheckNumerics": {"message": "checked"},
    "CheckNumericsV2": {"message": "checked"},
    "Complex": {"Tout": tf.complex64},
    "EnsureShape": {"shape": None},
    "PreventGradient": {"message": ""},
    "StaticRegexFullMatch": {"pattern": ".*1"},
    "StaticRegexReplace": {"pattern": "1", "rewrite": "x"},
    "StringToHashBucketFast": {"num_buckets": 7},
}
_TYPES = (tf.float32, tf.int32, tf.bool, tf.complex64, tf.string)


def op_types() -> list[str]:
    """All op types with a rule."""
    return sorted(values("split"))


def arguments_of(op_type: str, seed: int) -> tuple[int, Arguments]:
    """Examples in the batch, and the arguments of a call by name; lists hold several tensors."""
    rng = np.random.default_rng([seed, len(op_type)])
    batch = int(rng.choice(BATCHES))
    return batch, _drawn(op_type, rng, batch)


def cases_of(op_type: str, batch: int) -> Iterator[Arguments]:
    """The calls of an op type for a batch of any size, one for each combination of shapes and attributes."""
    seen: set[str] = set()
    for seed in range(8):
        drawn = _drawn(op_type, np.random.default_rng([seed, len(op_type)]), batch)
        signature = str(tf.nest.map_structure(lambda one: getattr(one, "shape", one), drawn))
        if signature not in seen:
            yield drawn
        seen.add(signature)
    rng = np.random.default_rng(batch)
    yield from (case(rng, batch) for case in _ALONG_EXAMPLES.get(op_type, ()))


def _drawn(op_type: str, rng: np.random.Generator, batch: int) -> Arguments:
    """Arguments of a call.

    Raises:
      KeyError: the op type is not element by element, and has no case; write one.
    """
    if op_type in _CASES or rule_name(op_type) not in _ELEMENTWISE:
        return _CASES[op_type](rng, batch)
    return _elementwise(op_type, rng, batch)


def examples(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """float32 numbers between 0.1 and 0.9."""
    return rng.uniform(0.1, 0.9, shape).astype(np.float32)


def _elementwise(op_type: str, rng: np.random.Generator, batch: int) -> Arguments:
    """Every input of one type, the batch first; of a second one sometimes a row for all."""
    definition = registered_op(op_type)
    types = {attr.name: _type_of(attr) for attr in definition.attr if attr.type == "type"}
    found: Arguments = {}
    for number, argument in enumerate(definition.input_arg):
        dtype = tf.as_dtype(argument.type) if argument.type else types.get(argument.type_attr, tf.float32)
        broadcasts = number == 1 and not argument.number_attr and op_type in _BROADCASTS
        shape = (1, WIDTH) if broadcasts and rng.random() < 0.3 else (batch, WIDTH)
        if argument.number_attr or argument.type_list_attr:
            found[argument.name] = [_numbers(rng, dtype, shape) for _ in range(3)]
        else:
            found[argument.name] = _numbers(rng, dtype, shape)
    return found | _ATTRIBUTES.get(op_type, {})


_BROADCASTS = frozenset(
    {"Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "Maximum", "Minimum", "Pow", "Less", "Equal"}
)


def _type_of(attribute: Any) -> tf.DType:
    allowed = [tf.as_dtype(one) for one in attribute.allowed_values.list.type]
    return next((one for one in _TYPES if not allowed or one in allowed), tf.float32)


def _numbers(rng: np.random.Generator, dtype: tf.DType, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == tf.string:
        return np.array([f"{number}" for number in rng.integers(0, 20, shape).flat], object).reshape(shape)
    if dtype == tf.bool:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        return rng.integers(1, 5, shape).astype(dtype.as_numpy_dtype)
    if dtype.is_complex:
        return (examples(rng, *shape) + 1j * examples(rng, *shape)).astype(dtype.as_numpy_dtype)
    return examples(rng, *shape).astype(dtype.as_numpy_dtype)


def _integers(rng: np.random.Generator, high: int, *shape: int) -> np.ndarray:
    return rng.integers(0, high, shape).astype(np.int32)


def _reduction(rng: np.random.Generator, batch: int, kind: type = np.float32) -> Arguments:
    axes = [[0], [0, 1], [1], [0, 2]][rng.integers(4)]
    given = examples(rng, batch, 2, WIDTH)
    given = given > 0.5 if kind is bool else given
    return {"input": given, "axis": axes, "keep_dims": bool(rng.random() < 0.5)}


def _window(rank: int, **more: Any) -> Arguments:
    return {"ksize": [1, *[2] * rank, 1], "strides": [1, *[1] * rank, 1], "padding": "SAME", **more}


def _pool_gradient(rng: np.random.Generator, batch: int, rank: int, second: bool = False) -> Arguments:
    image = examples(rng, batch, *[4] * rank, 2)
    pool = {2: tf.raw_ops.MaxPool, 3: tf.raw_ops.MaxPool3D}[rank]
    pooled = pool(input=image, **_window(rank)).numpy()
    return {"orig_input": image, "orig_output": pooled, "grad": image if second else pooled, **_window(rank)}


def _normalization(rng: np.random.Generator, batch: int) -> Arguments:
    vectors = {name: examples(rng, WIDTH) for name in ("scale", "offset", "mean", "variance")}
    training = bool(rng.random() < 0.7)
    return {"x": examples(rng, batch, 2, 2, WIDTH), **vectors, "is_training": training}


def _normalization_gradient(rng: np.random.Generator, batch: int, more: bool = False) -> Arguments:
    x = examples(rng, batch, 2, 2, WIDTH)
    return {
        "y_backprop": examples(rng, batch, 2, 2, WIDTH),
        "x": x,
        "scale": examples(rng, WIDTH),
        "reserve_space_1": x.mean((0, 1, 2)),
        "reserve_space_2": x.var((0, 1, 2)),
    } | ({"reserve_space_3": np.zeros([0], np.float32)} if more else {})


def _positive(rng: np.random.Generator, batch: int) -> np.ndarray:
    square = examples(rng, batch, WIDTH, WIDTH)
    return square @ square.transpose(0, 2, 1) + 2 * np.eye(WIDTH, dtype=np.float32)


def _batch_matmul(rng: np.random.Generator, batch: int) -> Arguments:
    return {"x": examples(rng, batch, 2, 3, 4), "y": examples(rng, batch, 2, 6, 4), "adj_y": True}


def _einsum(rng: np.random.Generator, batch: int) -> Arguments:
    cases = (
        ("bij,jk->bik", (batch, 2, 3), (3, 4)),
        ("bi,bj->ij", (batch, 2), (batch, 3)),
        ("bti,bsi->bts", (batch, 2, 3), (batch, 4, 3)),
        ("ab,bc->ac", (3, batch), (batch, 2)),
    )
    equation, *shapes = cases[rng.integers(len(cases))]
    return {"inputs": [examples(rng, *shape) for shape in shapes], "equation": equation}


def _image(**more: Any) -> Callable[[np.random.Generator, int], Arguments]:
    return lambda rng, b: {"images": examples(rng, b, 4, 4, 3), **more}


def _square(name: str) -> Callable[[np.random.Generator, int], Arguments]:
    return lambda rng, b: {name: _positive(rng, b)}


_PAIR = {"strides": [1, 1, 1, 1], "padding": "SAME"}
_TRIPLE = {"strides": [1, 1, 1, 1, 1], "padding": "SAME"}
_CASES: dict[str, Callable[[np.random.Generator, int], Arguments]] = {
    **dict.fromkeys(("Sum", "Mean", "Max", "Min", "Prod"), _reduction),
    **dict.fromkeys(("All", "Any"), functools.partial(_reduction, kind=bool)),
    "EuclideanNorm": lambda r, b: {"input": examples(r, b, 2, WIDTH), "axis": [1]},
    "L2Loss": lambda r, b: {"t": examples(r, b, WIDTH)},
    "BiasAdd": lambda r, b: {"value": examples(r, b, 2, WIDTH), "bias": examples(r, WIDTH)},
    "BiasAddV1": lambda r, b: {"value": examples(r, b, 2, WIDTH), "bias": examples(r, WIDTH)},
    "BiasAddGrad": lambda r, b: {"out_backprop": examples(r, b, 2, WIDTH)},
    "Select": lambda r, b: {"condition": r.random(b) < 0.5, "x": examples(r, b, 2), "y": examples(r, b, 2)},
    "ClipByValue": lambda r, b: {"t": examples(r, b, 2), "clip_value_min": 0.3, "clip_value_max": 0.6},
    "IdentityN": lambda r, b: {"input": [examples(r, b, 2), examples(r, b)]},
    "EnsureShape": lambda r, b: {"input": examples(r, b, 2), "shape": [b, 2]},
    "Snapshot": lambda r, b: {"input": examples(r, b, 2)},
    "StringJoin": lambda r, b: {"inputs": [_numbers(r, tf.string, (b,)), "x", _numbers(r, tf.string, (b,))]},
    "RegexReplace": lambda r, b: {"input": _numbers(r, tf.string, (b,)), "pattern": "1", "rewrite": "x"},
    "Substr": lambda r, b: {"input": _numbers(r, tf.string, (b,)), "pos": 0, "len": 1},
    "Bucketize": lambda r, b: {"input": examples(r, b, 2), "boundaries": [0.2, 0.5]},
    "Polygamma": lambda r, b: {"a": np.full((b, 2), 2, np.float32), "x": examples(r, b, 2)},
    "Zeta": lambda r, b: {"x": examples(r, b, 2) + 1, "q": examples(r, b, 2)},
    "Acosh": lambda r, b: {"x": examples(r, b, 2) + 1},
    "ArgMax": lambda r, b: {"input": examples(r, b, 4), "dimension": 1},
    "ArgMin": lambda r, b: {"input": examples(r, 4, b), "dimension": 0},
    **dict.fromkeys(
        ("Cumsum", "Cumprod", "CumulativeLogsumexp"), lambda r, b: {"x": examples(r, b, 4), "axis": 1}
    ),
    "ReverseV2": lambda r, b: {"tensor": examples(r, b, 2, 3), "axis": [-1]},
    "Roll": lambda r, b: {"input": examples(r, b, 4), "shift": 1, "axis": 1},
    "Softmax": lambda r, b: {"logits": examples(r, b, 2, 4)},
    "LogSoftmax": lambda r, b: {"logits": examples(r, b, 4)},
    "TopKV2": lambda r, b: {"input": examples(r, b, 4), "k": 2},
    "NthElement": lambda r, b: {"input": examples(r, b, 4), "n": 2},
    "MatrixDiagV3": lambda r, b: {
        "diagonal": examples(r, b, 3), "k": 0, "num_rows": -1, "num_cols": -1, "padding_value": np.float32(0),
    },
    "MatrixDiagPartV3": lambda r, b: {"input": examples(r, b, 3, 3), "k": 0, "padding_value": np.float32(0)},
    "MatrixBandPart": lambda r, b: {"input": examples(r, b, 3, 4), "num_lower": 1, "num_upper": 0},
    **dict.fromkeys(
        ("MatrixInverse", "Cholesky", "MatrixDeterminant", "LogMatrixDeterminant"), _square("input")
    ),
    **dict.fromkeys(("SelfAdjointEigV2", "Qr", "Svd"), _square("input")),
    "MatrixSolve": lambda r, b: {"matrix": _positive(r, b), "rhs": examples(r, b, 3, 2)},
    "CholeskyGrad": lambda r, b: {"l": np.linalg.cholesky(_positive(r, b)), "grad": examples(r, b, 3, 3)},
    **dict.fromkeys(("FFT", "IFFT"), lambda r, b: {"input": _numbers(r, tf.complex64, (b, 4))}),
    **dict.fromkeys(("FFT2D", "IFFT2D"), lambda r, b: {"input": _numbers(r, tf.complex64, (b, 4, 4))}),
    "RFFT": lambda r, b: {"input": examples(r, b, 8), "fft_length": [8]},
    "IRFFT": lambda r, b: {"input": _numbers(r, tf.complex64, (b, 3)), "fft_length": [4]},
    "RGBToHSV": _image(),
    "HSVToRGB": _image(),
    "AdjustHue": _image(delta=np.float32(0.1)),
    "AdjustSaturation": _image(scale=np.float32(0.5)),
    "AdjustContrastv2": _image(contrast_factor=np.float32(0.5)),
    "Conv2D": lambda r, b: {"input": examples(r, b, 4, 4, 2), "filter": examples(r, 2, 2, 2, 3), **_PAIR},
    "Conv3D": lambda r, b: {
        "input": examples(r, b, 3, 3, 3, 2), "filter": examples(r, 2, 2, 2, 2, 3), **_TRIPLE,
    },
    "DepthwiseConv2dNative": lambda r, b: {
        "input": examples(r, b, 4, 4, 2), "filter": examples(r, 2, 2, 2, 2), **_PAIR,
    },
    "Conv2DBackpropInput": lambda r, b: {
        "input_sizes": [b, 4, 4, 2], "filter": examples(r, 2, 2, 2, 3),
        "out_backprop": examples(r, b, 4, 4, 3), **_PAIR,
    },
    "Conv3DBackpropInputV2": lambda r, b: {
        "input_sizes": [b, 3, 3, 3, 2], "filter": examples(r, 2, 2, 2, 2, 3),
        "out_backprop": examples(r, b, 3, 3, 3, 3), **_TRIPLE,
    },
    "DepthwiseConv2dNativeBackpropInput": lambda r, b: {
        "input_sizes": [b, 4, 4, 2], "filter": examples(r, 2, 2, 2, 2),
        "out_backprop": examples(r, b, 4, 4, 4), **_PAIR,
    },
    "Conv2DBackpropFilter": lambda r, b: {
        "input": examples(r, b, 4, 4, 2), "filter_sizes": [2, 2, 2, 3],
        "out_backprop": examples(r, b, 4, 4, 3), **_PAIR,
    },
    "Conv3DBackpropFilterV2": lambda r, b: {
        "input": examples(r, b, 3, 3, 3, 2), "filter_sizes": [2, 2, 2, 2, 3],
        "out_backprop": examples(r, b, 3, 3, 3, 3), **_TRIPLE,
    },
    "DepthwiseConv2dNativeBackpropFilter": lambda r, b: {
        "input": examples(r, b, 4, 4, 2), "filter_sizes": [2, 2, 2, 2],
        "out_backprop": examples(r, b, 4, 4, 4), **_PAIR,
    },
    "MaxPool": lambda r, b: {"input": examples(r, b, 4, 4, 2), **_window(2)},
    "MaxPoolV2": lambda r, b: {"input": examples(r, b, 4, 4, 2), **_window(2)},
    "MaxPool3D": lambda r, b: {"input": examples(r, b, 3, 3, 3, 2), **_window(3)},
    "AvgPool": lambda r, b: {"value": examples(r, b, 4, 4, 2), **_window(2)},
    "AvgPool3D": lambda r, b: {"input": examples(r, b, 3, 3, 3, 2), **_window(3)},
    "AvgPoolGrad": lambda r, b: {
        "orig_input_shape": [b, 4, 4, 2], "grad": examples(r, b, 4, 4, 2), **_window(2),
    },
    "AvgPool3DGrad": lambda r, b: {
        "orig_input_shape": [b, 3, 3, 3, 2], "grad": examples(r, b, 3, 3, 3, 2), **_window(3),
    },
    "MaxPoolGrad": functools.partial(_pool_gradient, rank=2),
    "MaxPoolGradV2": functools.partial(_pool_gradient, rank=2),
    "MaxPool3DGrad": functools.partial(_pool_gradient, rank=3),
    "MaxPoolGradGrad": functools.partial(_pool_gradient, rank=2, second=True),
    "LRN": lambda r, b: {"input": examples(r, b, 4, 4, 3)},
    "LRNGrad": lambda r, b: {
        "input_grads": examples(r, b, 4, 4, 3), "input_image": examples(r, b, 4, 4, 3),
        "output_image": examples(r, b, 4, 4, 3),
    },
    **dict.fromkeys(
        ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"), _image(size=[6, 6])
    ),
    "ResizeBilinearGrad": lambda r, b: {
        "grads": examples(r, b, 6, 6, 3), "original_image": examples(r, b, 4, 4, 3),
    },
    "ResizeNearestNeighborGrad": lambda r, b: {"grads": examples(r, b, 6, 6, 3), "size": [4, 4]},
    "DepthToSpace": lambda r, b: {"input": examples(r, b, 2, 2, 4), "block_size": 2},
    "SpaceToDepth": lambda r, b: {"input": examples(r, b, 4, 4, 2), "block_size": 2},
    "ExtractImagePatches": _image(
        ksizes=[1, 2, 2, 1], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID"
    ),
    "Dilation2D": lambda r, b: {
        "input": examples(r, b, 4, 4, 2), "filter": examples(r, 2, 2, 2), "rates": [1, 1, 1, 1], **_PAIR,
    },
    "SoftmaxCrossEntropyWithLogits": lambda r, b: {
        "features": examples(r, b, 4), "labels": examples(r, b, 4),
    },
    "SparseSoftmaxCrossEntropyWithLogits": lambda r, b: {
        "features": examples(r, b, 4), "labels": _integers(r, 4, b),
    },
    "InTopKV2": lambda r, b: {"predictions": examples(r, b, 4), "targets": _integers(r, 4, b), "k": 2},
    **dict.fromkeys(
        ("LowerBound", "UpperBound"),
        lambda r, b: {"sorted_inputs": np.sort(examples(r, b, 4), axis=1), "values": examples(r, b, 3)},
    ),
    "MatMul": lambda r, b: [
        {"a": examples(r, b, 3), "b": examples(r, 3, 4)},
        {"a": examples(r, b, 3), "b": examples(r, b, 4), "transpose_a": True},
        {"a": examples(r, b, 3), "b": examples(r, b, 3), "transpose_b": True},
        {"a": examples(r, 3, 4), "b": examples(r, 4, b)},
    ][r.integers(4)],
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2"), _batch_matmul),
    "BatchMatMulV3": lambda r, b: {**_batch_matmul(r, b), "Tout": tf.float32},
    "Einsum": _einsum,
    "Gather": lambda r, b: {"params": examples(r, 4, 3), "indices": _integers(r, 4, b, 2)},
    "GatherV2": lambda r, b: [
        {"params": examples(r, 4, 3), "indices": _integers(r, 4, b, 2), "axis": 0},
        {"params": examples(r, b, 4), "indices": [2, 0, 3], "axis": 1},
        {"params": examples(r, b, 4), "indices": _integers(r, 4, b, 2), "axis": 1, "batch_dims": 1},
        {"params": examples(r, b, 4), "indices": _integers(r, 4, b), "axis": 1, "batch_dims": 1},
    ][r.integers(4)],
    "GatherNd": lambda r, b: {"params": examples(r, 4, 3), "indices": _integers(r, 3, b, 2)},
    "OneHot": lambda r, b: {
        "indices": _integers(r, 4, b, 2), "depth": 4, "on_value": np.float32(1), "off_value": np.float32(0),
        "axis": int(r.integers(-1, 3)),
    },
    **dict.fromkeys(
        (f"UnsortedSegment{how}" for how in ("Sum", "Max", "Min", "Prod")),
        lambda r, b: {"data": examples(r, b, WIDTH), "segment_ids": _integers(r, 4, b), "num_segments": 4},
    ),
    "ScatterNd": lambda r, b: {
        "indices": _integers(r, 4, b, 1), "updates": examples(r, b, 3), "shape": [4, 3],
    },
    "Reshape": lambda r, b: [
        {"tensor": examples(r, b, 2, 3), "shape": [-1, 3]},
        {"tensor": examples(r, 3, b, 2), "shape": [3 * b, 2]},
        {"tensor": examples(r, b, 4), "shape": [1, b, 2, 2]},
    ][r.integers(3)],
    "Transpose": lambda r, b: {"x": examples(r, b, 2, 3), "perm": [2, 0, 1]},
    "ConjugateTranspose": lambda r, b: {"x": _numbers(r, tf.complex64, (b, 2)), "perm": [1, 0]},
    "ExpandDims": lambda r, b: {"input": examples(r, b, 2), "axis": int(r.integers(-1, 3))},
    "Squeeze": lambda r, b: {"input": examples(r, b, 1, 2, 1)},
    "ConcatV2": lambda r, b: {"values": [examples(r, b, 2), examples(r, b, 2)], "axis": int(r.integers(2))},
    "Concat": lambda r, b: {
        "values": [examples(r, b, 2), examples(r, b, 2)], "concat_dim": int(r.integers(2)),
    },
    "Pack": lambda r, b: {"values": [examples(r, b, 2), examples(r, b, 2)], "axis": int(r.integers(-1, 3))},
    "Unpack": lambda r, b: {"value": examples(r, b, 3), "num": 3, "axis": 1},
    "Split": lambda r, b: {"value": examples(r, b, 4), "axis": 1, "num_split": 2},
    "SplitV": lambda r, b: {"value": examples(r, b, 4), "size_splits": [1, 3], "axis": 1, "num_split": 2},
    "Slice": lambda r, b: {"input": examples(r, b, 4), "begin": [0, 1], "size": [b, 2]},
    "StridedSlice": lambda r, b: [
        {"input": examples(r, b, 4), "begin": [0, 1], "end": [b, 4], "strides": [1, 2]},
        {
            "input": examples(r, b, 4), "begin": [0, 1], "end": [0, 2], "strides": [1, 1], "begin_mask": 1,
            "end_mask": 1, "shrink_axis_mask": 2,
        },
        {
            "input": examples(r, b, 2, 4), "begin": [0, 0, 1], "end": [0, 0, 3], "strides": [1, 1, 1],
            "ellipsis_mask": 1, "new_axis_mask": 2,
        },
    ][r.integers(3)],
    "StridedSliceGrad": lambda r, b: {
        "shape": [b, 4], "begin": [0, 1], "end": [0, 2], "strides": [1, 1], "begin_mask": 1, "end_mask": 1,
        "shrink_axis_mask": 2, "dy": examples(r, b),
    },
    "Pad": lambda r, b: {"input": examples(r, b, 2), "paddings": [[0, 0], [1, 2]]},
    "PadV2": lambda r, b: {
        "input": examples(r, b, 2), "paddings": [[0, 0], [1, 2]], "constant_values": np.float32(3),
    },
    "MirrorPad": lambda r, b: {"input": examples(r, b, 4), "paddings": [[0, 0], [1, 2]], "mode": "REFLECT"},
    "MirrorPadGrad": lambda r, b: {
        "input": examples(r, b, 6), "paddings": [[0, 0], [1, 1]], "mode": "REFLECT",
    },
    "Tile": lambda r, b: {"input": examples(r, b, 2), "multiples": [int(r.integers(1, 3)), 2]},
    "BroadcastTo": lambda r, b: {"input": examples(r, b, 1), "shape": [2, b, 3]},
    "SpaceToBatchND": lambda r, b: {"input": examples(r, b, 4, 2), "block_shape": [2], "paddings": [[0, 0]]},
    "BatchToSpaceND": lambda r, b: {
        "input": tf.raw_ops.SpaceToBatchND(
            input=examples(r, b, 4, 2), block_shape=[2], paddings=[[0, 0]]
        ).numpy(),
        "block_shape": [2],
        "crops": [[0, 0]],
    },
    "ReverseSequence": lambda r, b: {
        "input": examples(r, b, 4, 2), "seq_lengths": _integers(r, 4, b) + 1, "seq_dim": 1, "batch_dim": 0,
    },
    **dict.fromkeys(KEEPS_STATISTICS, _normalization),
    **dict.fromkeys(NEEDS_STATISTICS[:2], _normalization_gradient),
    NEEDS_STATISTICS[2]: functools.partial(_normalization_gradient, more=True),
}  # fmt: skip
# Calls that work along the examples, so that they are whole however these are spread.
_ALONG_EXAMPLES: Mapping[str, tuple[Callable[[np.random.Generator, int], Arguments], ...]] = {
    "Einsum": (
        lambda r, b: {"inputs": [examples(r, b, b)], "equation": "bb->b"},
        lambda r, b: {"inputs": [examples(r, b)], "equation": "b->bb"},
        lambda r, b: {"inputs": [examples(r, b, b)], "equation": "bb->"},
        lambda r, b: {"inputs": [examples(r, b, b), examples(r, b)], "equation": "bc,c->bcb"},
        lambda r, b: {"inputs": [examples(r, b, b, b)], "equation": "bcb->c"},
    ),
    "MatrixDiagV3": (
        lambda r, b: {
            "diagonal": examples(r, b, b + 1), "k": [0, b - 1], "num_rows": b + 1, "num_cols": b + 1,
            "padding_value": np.float32(0),
        },
        lambda r, b: {
            "diagonal": examples(r, b, b), "k": [-1, -1], "num_rows": -1, "num_cols": -1,
            "padding_value": np.float32(0),
        },
        lambda r, b: {
            "diagonal": examples(r, b, 3, b), "k": [-1, 1], "num_rows": b, "num_cols": b,
            "padding_value": np.float32(2),
        },
    ),
    "MatrixDiagPartV3": (
        lambda r, b: {"input": examples(r, b, b), "k": [1 - b, b - 1], "padding_value": np.float32(0)},
        lambda r, b: {"input": examples(r, b, 3, b), "k": [0, 1], "padding_value": np.float32(1)},
    ),
    "Equal": (lambda r, b: {"x": examples(r, b), "y": examples(r, b, b), "incompatible_shape_error": False},),
    "Cumsum": (lambda r, b: {"x": examples(r, b, b), "axis": 0, "exclusive": True},),
    "MatrixBandPart": (lambda r, b: {"input": examples(r, b, b), "num_lower": 0, "num_upper": -1},),
    "OneHot": (
        lambda r, b: {
            "indices": _integers(r, b, b), "depth": b, "on_value": np.float32(1), "off_value": np.float32(0),
        },
    ),
    "ScatterNd": (
        lambda r, b: {"indices": _integers(r, b, b, 1), "updates": examples(r, b, b), "shape": [b, b]},
    ),
    "UnsortedSegmentSum": (
        lambda r, b: {"data": examples(r, b, b), "segment_ids": _integers(r, b, b), "num_segments": b},
    ),
    "Reshape": (lambda r, b: {"tensor": examples(r, b, b), "shape": [-1]},),
    "Select": (
        lambda r, b: {"condition": r.random(b) < 0.5, "x": examples(r, b, b), "y": examples(r, b, b)},
    ),
}  # fmt: skip
# What has its argument from another op that the test puts before it: a variable, or blocks of examples.
NEEDS_A_VARIABLE, NEEDS_BLOCKS = "ResourceGather", "BatchToSpaceND"
KEPT_FOR_GRADIENTS = "IdentityN"  # a clean-up takes apart those without a gradient of their own
_CASES[NEEDS_A_VARIABLE] = lambda r, b: {"resource": None, "indices": _integers(r, 4, b), "dtype": tf.float32}


def has_batch(value: Any, batch: int) -> bool:
    return isinstance(value, np.ndarray) and batch in value.shape[:2]


def item_of(op_type: str, batch: int, arguments: dict[str, Any], has_gradients: bool = False) -> Item:
    """A program that calls the op on example inputs, and on constants for its other arguments.

    Args:
      op_type: of the op.
      batch: examples.
      arguments: of the call.
      has_gradients: gives gradients by the inputs, too, where TensorFlow has them.
    """
    fed: list[np.ndarray] = []
    lists: dict[str, list[int]] = {}
    single: dict[str, int] = {}
    for name, value in arguments.items():
        for one in value if isinstance(value, list) else [value]:
            if has_batch(one, batch):
                if isinstance(value, list):
                    lists.setdefault(name, []).append(len(fed))
                else:
                    single[name] = len(fed)
                fed.append(one)
    table = tf.Variable(tf.reshape(tf.range(12.0), [4, 3]))

    def called(*given: tf.Tensor) -> list[tf.Tensor]:
        call = dict(arguments)
        call |= {name: given[position] for name, position in single.items()}
        for name, positions in lists.items():
            left = iter(positions)
            call[name] = [given[next(left)] if has_batch(one, batch) else one for one in arguments[name]]
        if op_type == NEEDS_A_VARIABLE:
            call["resource"] = table.handle
        if op_type == NEEDS_BLOCKS:  # blocks are known as such by the op that made them
            call["input"] = tf.raw_ops.SpaceToBatchND(input=given[0], block_shape=[2], paddings=[[0, 0]])
        if op_type in NEEDS_STATISTICS:
            kept = [name for name in call if name.startswith("reserve_space")]
            zeros = tf.zeros_like(call["scale"])
            forward = tf.raw_ops.FusedBatchNormV3(
                x=call["x"], scale=call["scale"], offset=zeros, mean=zeros, variance=zeros
            )
            call |= dict(zip(kept, forward[HANDS_OUT:], strict=False))
        if op_type == KEPT_FOR_GRADIENTS:
            return tf.custom_gradient(lambda *these: (list(these), lambda *upstream: upstream))(
                *call["input"]
            )
        made = getattr(tf.raw_ops, op_type)(**call)
        if op_type in KEEPS_STATISTICS:
            made = made[:HANDS_OUT]
        return [one for one in tf.nest.flatten(made) if isinstance(one, tf.Tensor)]

    @tf.function(autograph=False)
    def step(*given: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(given)
            made = called(*given)
            smooth = [one for one in made if one.dtype.is_floating or one.dtype.is_complex]
            losses = [tf.reduce_sum(_weights(one) * tf.square(tf.abs(one))) for one in smooth]
        if not has_gradients:
            return made
        return [*made, *(one for one in _gradients(tape, losses, given) if isinstance(one, tf.Tensor))]

    if op_type == NEEDS_BLOCKS:
        fed = [np.random.default_rng(0).normal(size=(batch, 4, 2)).astype(np.float32)]
    return Item.from_function(step, *map(tf.constant, fed))


def _weights(value: tf.Tensor) -> tf.Tensor:
    """Another weight for each element: what is right only in sum is seen."""
    places = tf.reshape(tf.range(tf.size(value)), tf.shape(value))
    return tf.cast(tf.cos(tf.cast(places, tf.float64)) + 1.5, value.dtype.real_dtype)


def _gradients(
    tape: tf.GradientTape, losses: list[tf.Tensor], given: tuple[tf.Tensor, ...]
) -> list[tf.Tensor | None]:
    """Gradients by the inputs; none where TensorFlow has none of some op."""
    try:
        return tape.gradient(losses, given)
    except LookupError as error:
        assert "gradient registry has no entry" in str(error) or "Gradient explicitly disabled" in str(error)
        return []
