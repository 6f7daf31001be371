"""What TensorFlow's CPU kernels refuse when they run, though the kernel registry has them.

Found by running each op on a CPU, which ``tests/tf_placer/costs/cpu_limits_test.py`` does again. Some are there with
oneDNN, for float32, which is on or off by the environment and the processor (``IN_ONEDNN``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf
from tensorflow.core.framework import types_pb2

from colocation.op_facts import having, values
from tf_placer.costs.op_view import OpView

_LAYOUTS = frozenset({b"CHANNELS_FIRST", b"NCDHW", b"NCHW"})
_CHANNELS_LAST = "make the model channels-last (data_format='channels_last')"
_NEEDS_GPU = "give a cluster with a GPU"

CHANNELS_LAST_ONLY = having("channels_last")
CHANNELS_LAST_IN_INFERENCE = having("channels_last_in_inference")
NO_DILATION = having("undilated")
# Op type -> the convolution's input and its filter, each the number of an input, or -1 for the output.
NO_GROUPS = {op_type: tuple(map(int, value.split(","))) for op_type, value in values("ungrouped").items()}
NO_POOLING_OF_CHANNELS = having("unpooled_channels")
IN_ONEDNN = having("onednn")
_GROUPS_IN_ONEDNN, _CHANNELS_IN_ONEDNN = having("onednn_groups"), having("onednn_channels")


@dataclasses.dataclass(frozen=True)
class CpuLimit:
    """Why no CPU kernel runs an op.

    Attributes:
      what: of the op, one clause.
      remedy: what who holds the program can do.
    """

    what: str
    remedy: str


def cpu_limit(
    op: OpView, has_onednn: bool = False, is_shape_known: bool = True, is_paired: bool = False
) -> CpuLimit | None:
    """What keeps an op off every CPU; None where nothing is known to.

    Args:
      op: the op.
      has_onednn: the CPUs are known to run oneDNN's kernels.
      is_shape_known: the shapes of its tensors are what they will be.
      is_paired: it is the gradient of a pool that runs next to it (``paired_pools``).
    """
    if is_paired and has_onednn and _is_float32(op):
        return None
    for limit in _LIMITS:
        found = limit(op, has_onednn and _is_float32(op), is_shape_known)
        if found is not None:
            return found
    return None


def _is_float32(op: OpView) -> bool:
    return "T" in op.node.attr and op.node.attr["T"].type == types_pb2.DT_FLOAT


def _layout(op: OpView, has_onednn: bool, is_shape_known: bool) -> CpuLimit | None:
    del is_shape_known
    layout = _layout_of(op)
    if layout not in _LAYOUTS:
        return None
    if op.type in CHANNELS_LAST_IN_INFERENCE and "is_training" in op.node.attr and not op.flag("is_training"):
        return None if has_onednn and layout == b"NCHW" else _of_layout(layout)
    if op.type not in CHANNELS_LAST_ONLY or (has_onednn and op.type in IN_ONEDNN):
        return None
    return _of_layout(layout)


def _layout_of(op: OpView) -> bytes:
    return op.node.attr["data_format"].s if "data_format" in op.node.attr else b""


def _channels_axis(op: OpView) -> int:
    return 1 if _layout_of(op) in _LAYOUTS else -1


def _of_layout(layout: bytes) -> CpuLimit:
    return CpuLimit(f"the layout {layout.decode()}", f"{_CHANNELS_LAST} or {_NEEDS_GPU}")


def _dilation(op: OpView, has_onednn: bool, is_shape_known: bool) -> CpuLimit | None:
    del is_shape_known
    if op.type not in NO_DILATION or has_onednn or max(op.ints("dilations"), default=1) <= 1:
        return None
    return CpuLimit(f"dilations {list(op.ints('dilations'))}", _NEEDS_GPU)


def _groups(op: OpView, has_onednn: bool, is_shape_known: bool) -> CpuLimit | None:
    if op.type not in NO_GROUPS or not is_shape_known or (has_onednn and op.type in _GROUPS_IN_ONEDNN):
        return None
    given, weights = (
        op.outputs[0].shape if position < 0 else op.inputs[position].shape for position in NO_GROUPS[op.type]
    )
    if len(given) < 3 or len(weights) != len(given):
        return None
    channels, of_filter = given[_channels_axis(op)], weights[-2]
    if not of_filter or channels <= of_filter:
        return None
    return CpuLimit(f"{channels // of_filter} groups", _NEEDS_GPU)


def _pooled_channels(op: OpView, has_onednn: bool, is_shape_known: bool) -> CpuLimit | None:
    del is_shape_known
    size = op.ints("ksize")
    if op.type not in NO_POOLING_OF_CHANNELS or not size or (has_onednn and op.type in _CHANNELS_IN_ONEDNN):
        return None
    if size[_channels_axis(op)] <= 1:
        return None
    return CpuLimit(f"a window over channels ({list(size)})", "pool over rows and columns alone")


_LIMITS: tuple[Callable[[OpView, bool, bool], CpuLimit | None], ...] = (
    _layout,
    _dilation,
    _groups,
    _pooled_channels,
)


def described(node: tf.compat.v1.NodeDef, limit: CpuLimit) -> str:
    """Why nothing but a GPU runs a node, and the remedy: one clause."""
    return f"TensorFlow has no CPU kernel of {node.op} for {limit.what}; {limit.remedy}"
