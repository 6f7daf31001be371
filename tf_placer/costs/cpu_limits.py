"""What TensorFlow's CPU kernels refuse when they run, though the kernel registry has them.

Found by running each op on a CPU, which ``tests/tf_placer/costs/cpu_limits_test.py`` does again. Some are there with
oneDNN, for float32, which is on or off by the environment and the processor (``IN_ONEDNN``).
"""

from __future__ import annotations

from collections.abc import Iterator

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


def cpu_limit(
    op: OpView, has_onednn: bool = False, is_shape_known: bool = True, is_paired: bool = False
) -> str | None:
    """Why nothing but a GPU runs an op, and the remedy, in one clause; None where nothing is known to keep it off CPUs.

    Args:
      op: the op.
      has_onednn: the CPUs are known to run oneDNN's kernels.
      is_shape_known: the shapes of its tensors are what they will be.
      is_paired: it is the gradient of a pool that runs next to it (``paired_pools``).
    """
    is_float32 = "T" in op.node.attr and op.node.attr["T"].type == types_pb2.DT_FLOAT
    in_onednn = has_onednn and is_float32
    what, remedy = (
        ("", "") if is_paired and in_onednn else next(_limits(op, in_onednn, is_shape_known), ("", ""))
    )
    return f"TensorFlow has no CPU kernel of {op.type} for {what}; {remedy}" if what else None


def _limits(op: OpView, in_onednn: bool, is_shape_known: bool) -> Iterator[tuple[str, str]]:
    """What of an op CPU kernels refuse, and what who holds the program can do."""
    layout = op.node.attr["data_format"].s if "data_format" in op.node.attr else b""
    channels = 1 if layout in _LAYOUTS else -1
    if layout in _LAYOUTS and _refuses(op, layout, in_onednn):
        yield f"the layout {layout.decode()}", f"{_CHANNELS_LAST} or {_NEEDS_GPU}"
    dilations = op.ints("dilations")
    if op.type in NO_DILATION and not in_onednn and max(dilations, default=1) > 1:
        yield f"dilations {list(dilations)}", _NEEDS_GPU
    if op.type in NO_GROUPS and is_shape_known and not (in_onednn and op.type in _GROUPS_IN_ONEDNN):
        given, weights = (
            op.outputs[0].shape if position < 0 else op.inputs[position].shape
            for position in NO_GROUPS[op.type]
        )
        if 3 <= len(given) == len(weights) and 0 < weights[-2] < given[channels]:
            yield f"{given[channels] // weights[-2]} groups", _NEEDS_GPU
    window = op.ints("ksize")
    pools = op.type in NO_POOLING_OF_CHANNELS and not (in_onednn and op.type in _CHANNELS_IN_ONEDNN)
    if pools and window and window[channels] > 1:
        yield f"a window over channels ({list(window)})", "pool over rows and columns alone"


def _refuses(op: OpView, layout: bytes, in_onednn: bool) -> bool:
    """Whether CPU kernels of an op refuse one of ``_LAYOUTS``."""
    if op.type in CHANNELS_LAST_IN_INFERENCE and "is_training" in op.node.attr and not op.flag("is_training"):
        return not (in_onednn and layout == b"NCHW")
    return op.type in CHANNELS_LAST_ONLY and not (in_onednn and op.type in IN_ONEDNN)
