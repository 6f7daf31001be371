"""Analytic op costs: work against the rates of each device, where kernels run, and trips of loops.

The CUDA build of TensorFlow lists its GPU kernels on machines without a GPU, too.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2, types_pb2

from colocation.constraints import find_frames, references_of
from colocation.op_facts import (
    BRANCHES,
    CALLS,
    LOOPS,
    GraphIndex,
    alone,
    copy_of,
    data_inputs,
    having,
    index_graph,
    new_node,
    values,
)
from colocation.tensorflow_internals import (
    folded_constant,
    graph_of_function_def,
    is_onednn_on,
    registered_kernels,
    registered_op,
)
from colocation.units import paired_pools
from tf_placer.base.arguments import InputError, told
from tf_placer.cluster.cluster import Cluster, Device
from tf_placer.costs.formulas import POWER, OpView, OpWork, WorkClass, efficiencies, work_of
from tf_placer.graph.item import Item
from tf_placer.graph.program import functions_of, returned_functions, tensor_bytes
from tf_placer.graph.size_rules import filled
from tf_placer.graph.sizes import OutputSpec, is_handle, keep_callbacks_from_running

_ON_EVERY_DEVICE = having("any_device")

_Values = tuple[Any, ...]  # DataType numbers, bytes, whole numbers or truth values

_registered = functools.cache(registered_kernels)

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

# Two weeks: longer than any step that the simulator takes, and still far from the end of int64.
LONGEST_NS = 1 << 50
_MOST_WORK = 1e30  # of one op: loops in loops do not overflow

# A maximum that takes more ops than this to compute is data, not a constant.
_MAX_ANCESTORS = 64
_MAX_ITERATIONS_INPUT = 1
_SHAPES = frozenset({"Rank", "Shape", "Size"})

Outputs = Sequence[Sequence[OutputSpec]]
_Tensor = tuple[int, int]  # op, output
_Body = tuple[GraphIndex, tuple[tuple[OutputSpec, ...], ...], bool]

_PASSES = frozenset({"Identity", "Enter", "Switch"})
_COMPARES = {"Less": "<", "LessEqual": "<=", "Greater": ">", "GreaterEqual": ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def find_kernel(node: tf.compat.v1.NodeDef, device_type: str) -> bool | None:
    """True if the kernel for a node on a device type is CPU code, False if not; None without a kernel.

    A device's kernel is CPU code (int32 shape arithmetic) where all its outputs lie in host memory. A kernel registered
    for ``DEFAULT`` serves every device type. Constraints (mostly on types, some on a layout or a policy) are checked
    against the node's attributes and their defaults; kernels with a label are for ``_kernel`` attributes.
    """
    if node.op in _ON_EVERY_DEVICE:
        return False
    op_def = registered_op(node.op)
    if op_def is None:
        return None
    constrained = _constrained(node.op)
    values: list[tuple[str, _Values]] = []
    for attr in op_def.attr:
        if attr.name in constrained:  # its values, a list or not, from the node or the op's default
            value = node.attr.get(attr.name, attr.default_value)
            field = value.WhichOneof("value")
            single = () if field is None else (getattr(value, field),)
            values.append((attr.name, _listed(value.list) if attr.type.startswith("list(") else single))
    label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
    return _find_kernel(node.op, device_type, tuple(values), label)


@functools.cache
def _constrained(op_type: str) -> frozenset[str]:
    """Names of the attributes that some kernel of an op type constrains."""
    return frozenset(constraint.name for kernel in _registered(op_type) for constraint in kernel.constraint)


@functools.cache
def _find_kernel(
    op_type: str, device_type: str, values: tuple[tuple[str, _Values], ...], label: str
) -> bool | None:
    value_of_attr = dict(values)
    definition = registered_op(op_type)
    assert definition is not None
    for registered_for in (device_type, "DEFAULT"):
        for kernel in _registered(op_type):
            if (kernel.device_type, kernel.label) != (registered_for, label):
                continue
            if all(
                set(value_of_attr.get(constraint.name, ())) <= set(_listed(constraint.allowed_values.list))
                for constraint in kernel.constraint
            ):
                outputs = {arg.name for arg in definition.output_arg}
                return bool(outputs) and outputs <= set(kernel.host_memory_arg)
    return None


def _listed(values: attr_value_pb2.AttrValue.ListValue) -> _Values:
    return tuple(value for _, entries in values.ListFields() for value in entries)


def cpu_limit(
    op: OpView, has_onednn: bool = False, is_shape_known: bool = True, is_paired: bool = False
) -> str | None:
    """Reason why only a GPU runs an op, and the remedy, in one clause; None if no limit of CPUs is known.

    Args:
      has_onednn: the CPUs are known to run oneDNN's kernels.
      is_shape_known: the shapes of its tensors are what they will be.
      is_paired: it is the gradient of a pool that runs next to it (``paired_pools``).
    """
    is_float32 = "T" in op.node.attr and op.node.attr["T"].type == types_pb2.DT_FLOAT
    in_onednn = has_onednn and is_float32
    if in_onednn and is_paired:
        return None
    no_kernel = f"TensorFlow has no CPU kernel of {op.type} for "
    layout = op.node.attr["data_format"].s if "data_format" in op.node.attr else b""
    channels = 1 if layout in _LAYOUTS else -1
    refuses = op.type in CHANNELS_LAST_ONLY and not (in_onednn and op.type in IN_ONEDNN)
    if op.type in CHANNELS_LAST_IN_INFERENCE and "is_training" in op.node.attr and not op.flag("is_training"):
        refuses = not (in_onednn and layout == b"NCHW")
    if layout in _LAYOUTS and refuses:
        return f"{no_kernel}the layout {layout.decode()}; {_CHANNELS_LAST} or {_NEEDS_GPU}"
    dilations = op.ints("dilations")
    if op.type in NO_DILATION and not in_onednn and max(dilations, default=1) > 1:
        return f"{no_kernel}dilations {list(dilations)}; {_NEEDS_GPU}"
    if op.type in NO_GROUPS and is_shape_known and not (in_onednn and op.type in _GROUPS_IN_ONEDNN):
        input_shape, weights = (
            op.outputs[0].shape if position < 0 else op.inputs[position].shape
            for position in NO_GROUPS[op.type]
        )
        if 3 <= len(input_shape) == len(weights) and 0 < weights[-2] < input_shape[channels]:
            return f"{no_kernel}{input_shape[channels] // weights[-2]} groups; {_NEEDS_GPU}"
    window = op.ints("ksize")
    pools = op.type in NO_POOLING_OF_CHANNELS and not (in_onednn and op.type in _CHANNELS_IN_ONEDNN)
    if pools and window and window[channels] > 1:
        return f"{no_kernel}a window over channels ({list(window)}); pool over rows and columns alone"
    return None


def run_time_ns(
    work_class: np.ndarray, flops: np.ndarray, num_bytes: np.ndarray, tiles: np.ndarray, device: Device
) -> np.ndarray:
    """Time of ops on one stream of a device, by the roofline model with the shares of ``formulas.py``.

    A CPU takes ``launch + max(compute, memory)`` with ``compute = flops / (peak_flops * share)``, ``memory = bytes /
    (memory_bytes_per_s * share)`` and the device's rates divided by its streams. A GPU takes ``LAUNCHES * launch +
    (compute^POWER + memory^POWER)^(1 / POWER)``; there a kernel whose result is cut into tiles computes ``1 +
    multiprocessors / tiles`` times as long: the last wave of tiles does not fill the GPU. ``WorkClass.FREE`` takes 0.

    Ops [N] are as of ``Work``. The result, [N] int64, is rounded, and at most ``LONGEST_NS`` and the launches.
    """
    shares = efficiencies(device.type, device.model)
    compute_s = flops * device.streams / (device.peak_flops * shares.compute[work_class])
    memory_s = num_bytes * device.streams / (device.memory_bytes_per_s * shares.memory[work_class])
    if device.type == "GPU":
        waves = np.where(tiles > 0, shares.multiprocessors / np.maximum(tiles, 1), 0.0)
        seconds = smooth_maximum(compute_s * (1 + waves), memory_s)
    else:
        seconds = np.maximum(compute_s, memory_s)
    kernel_ns = np.rint(np.minimum(1e9 * seconds, LONGEST_NS))
    run_ns = round(shares.launches * device.launch_ns) + kernel_ns.astype(np.int64)
    return np.where(work_class == WorkClass.FREE, 0, run_ns)


def smooth_maximum(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """``(one^POWER + other^POWER)^(1 / POWER)``, without overflow."""
    larger = np.maximum(one, other)
    share = np.divide(np.minimum(one, other), larger, out=np.zeros_like(larger), where=larger > 0)
    return larger * (1 + share**POWER) ** (1 / POWER)


@dataclasses.dataclass(frozen=True)
class OpCosts:
    """Time of every op on every device, and where each op may run."""

    compute_ns: np.ndarray  # [N, D] int64, launch included; 0 for ops that start no kernel (``free``)
    allowed: np.ndarray  # [N, D] bool, the device has a kernel for the op (and for all ops it calls)
    # op type -> ops of this type whose cost is a guess; ops in the body of a loop, branch or call count too
    guessed: dict[str, int]
    work: OpWork  # what the times were made of
    # op id -> why no CPU runs it though it has kernels there, and the remedy: one clause
    why_not_on_cpu: dict[int, str] = dataclasses.field(default_factory=dict)


def analytic_costs(item: Item, cluster: Cluster) -> OpCosts:
    """Estimates the time of every op of a program on every device of a cluster.

    An op takes what ``run_time_ns`` says, with class, FLOPs and bytes from its type's formula
    (``formulas.FORMULA_OF_TYPE``). An op of unknown type moves its inputs and
    outputs once and is counted in ``guessed``. An op whose GPU kernel keeps its outputs in host memory
    takes as long as on the cluster's first CPU. A loop takes its body and condition times its trip
    count (once, and guessed, where that is unknown), a branch its longest branch. An op in a loop of TensorFlow 1 takes
    all of its runs; of a branch of TensorFlow 1 (``Switch``) both sides count. Such an op of many kernels takes at
    least the ``dispatch_ns`` of all of them but the first, which the simulator counts.

    A row of ``allowed`` is all False where no device of the cluster has a kernel.
    """
    library = FunctionLibrary(item.graph_def)
    return _graph_costs(item.index, item.outputs, True, library, cluster)


def _graph_costs(
    index: GraphIndex,
    outputs: tuple[tuple[OutputSpec, ...], ...],
    is_shape_known: bool,
    library: FunctionLibrary,
    cluster: Cluster,
) -> OpCosts:
    outputs_if_known = outputs if is_shape_known else None
    views = op_views(index, outputs)
    works = list(map(work_of, views))
    calls_functions = LOOPS | BRANCHES | CALLS
    calling = [
        op for op, view in enumerate(views) if view.type in calls_functions or view.type in library.functions
    ]
    work_class = np.array([work.work_class for work in works], np.int64)
    flops, num_bytes, tiles = np.array(
        [(work.flops, work.num_bytes, work.tiles) for work in works], np.float64
    ).reshape(-1, 3).T  # fmt: skip
    launches = (work_class != WorkClass.FREE).astype(np.float64)
    times = [run_time_ns(work_class, flops, num_bytes, tiles, device) for device in cluster.devices]
    compute_ns = np.stack(times, axis=1) if len(works) else np.zeros((0, len(cluster.devices)), np.int64)
    allowed = np.zeros((index.num_ops, len(cluster.devices)), bool)
    on_host = np.zeros_like(allowed)  # where the kernel is CPU code
    for device_type in sorted({device.type for device in cluster.devices}):
        columns = [d for d, device in enumerate(cluster.devices) if device.type == device_type]
        for op, node in enumerate(index.graph_def.node):
            is_cpu_code = find_kernel(node, device_type)
            allowed[op, columns], on_host[op, columns] = is_cpu_code is not None, bool(is_cpu_code)
    # The kernels of described hardware and of other machines may be with oneDNN or without.
    has_onednn = cluster.kind in ("local", "logical") and is_onednn_on()
    paired = paired_pools(index)
    reasons = (cpu_limit(view, has_onednn, is_shape_known, op in paired) for op, view in enumerate(views))
    limited = {op: reason for op, reason in enumerate(reasons) if reason is not None}
    is_cpu = np.array([device.type == "CPU" for device in cluster.devices])
    allowed[np.ix_(np.array(list(limited), np.int64), is_cpu)] = False
    if cluster.host is not None:
        compute_ns = np.where(on_host, compute_ns[:, cluster.host, np.newaxis], compute_ns)
    guessed = collections.Counter(view.type for view, work in zip(views, works, strict=True) if work.guessed)
    for op in calling:
        guessed[views[op].type] -= 1
        costs = _call_costs(index, op, views[op], outputs_if_known, library, cluster)
        compute_ns[op], allowed[op] = costs.compute_ns[0], costs.allowed[0]
        work_class[op] = costs.work.work_class[0]
        flops[op], num_bytes[op], launches[op] = costs.work.sum()
        guessed.update(costs.guessed)
        if costs.why_not_on_cpu:
            limited[op] = costs.why_not_on_cpu[0]
    runs, unknown_trips = frame_trips(index, outputs_if_known)
    guessed["LoopCond"] += unknown_trips
    # In floats, which do not overflow.
    flops, num_bytes, launches = (
        np.minimum(amount * runs, _MOST_WORK) for amount in (flops, num_bytes, launches)
    )
    # The simulator dispatches an op once.
    fed_ns = np.maximum(launches - 1, 0)[:, np.newaxis] * cluster.dispatch_ns()
    run_ns = np.maximum(compute_ns * runs[:, np.newaxis], fed_ns)
    times_ns = np.minimum(run_ns, LONGEST_NS).astype(np.int64)
    return OpCosts(
        times_ns,
        allowed,
        guessed={op_type: count for op_type, count in guessed.items() if count > 0},
        work=OpWork(flops, num_bytes, launches, work_class),
        why_not_on_cpu=limited,
    )


def op_views(index: GraphIndex, outputs: tuple[tuple[OutputSpec, ...], ...]) -> list[OpView]:
    """[N] the ops of a graph as the cost formulas see them."""
    inputs: list[list[OutputSpec]] = [[] for _ in range(index.num_ops)]
    references = references_of(index)
    for producer, output, consumer, position in index.data_edges.tolist():
        spec = outputs[producer][output]
        if (producer, output) in references.outputs and (consumer, position) not in references.inputs:
            # Its value is read.
            spec = dataclasses.replace(spec, num_bytes=tensor_bytes(spec.shape, spec.dtype))
        inputs[consumer].append(spec)
    return [OpView(node, tuple(inputs[op]), outputs[op]) for op, node in enumerate(index.graph_def.node)]


def _call_costs(
    index: GraphIndex,
    op: int,
    view: OpView,
    outputs: tuple[tuple[OutputSpec, ...], ...] | None,
    library: FunctionLibrary,
    cluster: Cluster,
) -> OpCosts:
    """Costs of an op that calls functions, in one row, with the class of the op inside that takes longest."""
    inputs, times, guessed = view.inputs, 1, collections.Counter[str]()
    if view.type in LOOPS:
        names = [view.node.attr[key].func.name for key in ("body", "cond")]
        iterations = trip_count(index, op, outputs)
        if iterations is None:
            guessed[view.type] = 1
        else:
            times = iterations
    elif view.type in BRANCHES:
        names, inputs = returned_functions(view.node), inputs[1:]
    else:
        names = [view.type if view.type in library.functions else view.node.attr["f"].func.name]
    parts = []
    for name in names:
        body, body_outputs, is_shape_known = library.body(name, inputs)
        parts.append(_graph_costs(body, body_outputs, is_shape_known, library, cluster))
        guessed.update(parts[-1].guessed)
        if not is_shape_known:
            guessed[f"{name} (unknown shapes)"] = 1
    joined = np.max if view.type in BRANCHES else np.sum
    # In floats, which do not overflow.
    time_ns = times * joined([part.compute_ns.sum(axis=0, dtype=np.float64) for part in parts], axis=0)
    work = times * joined([part.work.sum() for part in parts], axis=0)
    flops, num_bytes, launches = np.minimum(work, _MOST_WORK)[:, np.newaxis]
    op_ns = np.concatenate([part.compute_ns[:, 0] for part in parts])
    op_class = np.concatenate([part.work.work_class for part in parts])
    longest = op_class[[op_ns.argmax()]] if len(op_ns) else np.array([WorkClass.FREE])
    limits = [why for part in parts for why in part.why_not_on_cpu.values()]
    return OpCosts(
        compute_ns=np.minimum(time_ns, LONGEST_NS).astype(np.int64)[np.newaxis],
        allowed=np.logical_and.reduce(np.concatenate([part.allowed for part in parts]), keepdims=True),
        guessed=guessed,
        work=OpWork(flops, num_bytes, launches, longest),
        why_not_on_cpu=dict(enumerate(limits[:1])),
    )


def trip_count(index: GraphIndex, loop: int, outputs: Outputs | None = None) -> int | None:
    """Iterations of a While op of a graph, or None when the graph does not say.

    ``tf.while_loop`` passes its ``maximum_iterations`` as the loop's second input (-1: no limit). Loops over
    a range and recurrent layers set it to their exact count, so it is taken for the count, which charges a
    loop that ends early too much; where it is a constant expression, its value is computed. With ``outputs`` [N],
    an op that asks for a shape is a constant.
    """
    inputs = index.inputs[loop]
    if len(inputs) <= _MAX_ITERATIONS_INPUT:
        return None
    value = constant_scalar(index, inputs[_MAX_ITERATIONS_INPUT], outputs)
    return value if value is not None and value >= 0 else None


def constant_scalar(index: GraphIndex, tensor: _Tensor, outputs: Outputs | None = None) -> int | None:
    """Value of an integer scalar that depends on constants only, or None; arguments as ``trip_count``."""
    op, output = tensor
    nodes = _constant_ancestors(index, op, outputs)
    if nodes is None:
        return None
    graph = tf.Graph()
    with graph.as_default():
        constants = tf.compat.v1.GraphDef(node=nodes)
        keep_callbacks_from_running(constants.node)
        tf.graph_util.import_graph_def(constants, name="")
        constant = graph.get_tensor_by_name(f"{index.names[op]}:{output}")
        if not constant.dtype.is_integer or constant.shape.rank != 0:
            return None
        # Not in a session: nothing of the graph may run.
        value = folded_constant(constant)
    return None if value is None else int(value)


def _constant_ancestors(
    index: GraphIndex, op: int, outputs: Outputs | None
) -> list[node_def_pb2.NodeDef] | None:
    """All that the value of ``op`` depends on, itself included, or None if that is much or not constant.

    What enters a loop and does not change there is the same inside; control inputs do not change a value.
    """
    ancestors: dict[int, node_def_pb2.NodeDef] = {}
    pending = [op]
    while pending:
        op = pending.pop()
        if op in ancestors:
            continue
        node, inputs = copy_of(index.graph_def.node[op]), index.inputs[op]
        if node.op in _SHAPES and outputs is not None:
            producer, output = inputs[0]
            spec = outputs[producer][output]
            if spec.dtype in (tf.resource, tf.variant):
                return None  # of a handle to rows, a ragged tensor's, nobody says how many there are
            shape = list(spec.shape)
            value = {"Rank": len(shape), "Shape": shape, "Size": int(np.prod(shape))}[node.op]
            dtype = tf.as_dtype(node.attr["out_type"].type) if "out_type" in node.attr else tf.int32
            tensor = tf.make_tensor_proto(np.array(value), dtype)
            node, inputs = new_node("Const", node.name, dtype=dtype, value=tensor), []
        elif node.op == "Enter":
            dtype = node.attr["T"].type
            node.op = "Identity"
            node.attr.clear()
            node.attr["T"].type = dtype
        if not inputs and node.op != "Const":
            return None
        ancestors[op] = alone(node, data_inputs(node))
        pending.extend(producer for producer, _ in inputs)
        if len(ancestors) > _MAX_ANCESTORS:
            return None
    return [ancestors[op] for op in sorted(ancestors)]


def frame_trips(index: GraphIndex, outputs: Outputs | None = None) -> tuple[np.ndarray, int]:
    """Runs of every op in a step, and the number of loops whose count the graph does not say.

    [N] float64; 1 outside of loops and in a loop of unknown count. Arguments as ``trip_count``.
    """
    frames = find_frames(index)
    loops = _Loops(index, frames.frame_of_op, outputs)
    runs = np.ones(len(frames.enter_of_frame))
    unknown = 0
    for frame in range(1, len(runs)):
        count = loops.trips(frame)
        unknown += count is None
        runs[frame] = runs[frames.parent_of_frame[frame]] * (1 if count is None else count)
    return runs[np.maximum(frames.frame_of_op, 0)], unknown


class _Loops:
    """Trip counts of loops of TensorFlow 1, where the graph states them.

    A ``Merge`` starts at a constant, what comes back to it is a constant more, and the condition compares it with one.
    That is how ``tf.compat.v1.while_loop`` with ``maximum_iterations``, loops over a range and recurrent networks are
    made, and the loops of their gradients, which count down from what the first has counted to.
    """

    def __init__(self, index: GraphIndex, frame_of_op: list[int], outputs: Outputs | None) -> None:
        self._index, self._frame_of_op, self._outputs = index, frame_of_op, outputs
        self._condition = {
            frame_of_op[op]: op for op, op_type in enumerate(index.op_types) if op_type == "LoopCond"
        }
        self._pushed: dict[int, _Tensor] = {}  # stack -> what is pushed there
        for op, op_type in enumerate(index.op_types):
            if op_type == "StackPushV2":
                handle, value = index.inputs[op][:2]
                self._pushed[self._passed(handle)] = value

    @functools.cache  # noqa: B019 - lives as long as one call of frame_trips
    def trips(self, frame: int) -> int | None:
        """Iterations of a loop, or None."""
        condition = self._condition.get(frame)
        return None if condition is None else self._least(self._index.inputs[condition][0])

    def _least(self, condition: _Tensor) -> int | None:
        """Iterations until a condition does not hold: of several that must, the first."""
        op = self._passed(condition)
        op_type = self._index.op_types[op]
        if op_type == "LogicalAnd":
            counts = [
                count for tensor in self._index.inputs[op] if (count := self._least(tensor)) is not None
            ]
            return min(counts, default=None)
        if op_type not in _COMPARES:
            return None
        counter, limit = self._index.inputs[op]
        sign = _COMPARES[op_type]
        if self._counter(counter) is None:
            counter, sign, limit = limit, _MIRRORED[sign], counter
        counted, end = self._counter(counter), self._value(limit)
        if counted is None or end is None:
            return None
        start, step = counted
        if sign in (">", ">="):
            start, step, end = -start, -step, -end
        if step <= 0:
            return None
        distance = end - start + (sign in ("<=", ">="))
        return max(0, -(-distance // step))

    def _counter(self, tensor: _Tensor) -> tuple[int, int] | None:
        """Start and increment of a loop variable; None for one that does not count."""
        merge = self._passed(tensor)
        if self._index.op_types[merge] != "Merge":
            return None
        inputs = self._index.inputs[merge]
        if len(inputs) != 2:
            return None
        enter, back = (op for op, _ in inputs)
        if self._index.op_types[back] != "NextIteration" or self._index.op_types[enter] != "Enter":
            return None
        added = self._passed(self._index.inputs[back][0])
        op_type = self._index.op_types[added]
        if op_type not in ("Add", "AddV2", "Sub"):
            return None
        a, b = self._index.inputs[added]
        if self._passed(a) != merge:
            a, b = b, a
            if op_type == "Sub":
                return None
        start, step = self._value(inputs[0]), self._value(b)
        if self._passed(a) != merge or start is None or step is None:
            return None
        return start, -step if op_type == "Sub" else step

    def _value(self, tensor: _Tensor) -> int | None:
        """Value of a scalar: a constant, or the final count of a loop."""
        op = self._passed(tensor)
        op_type = self._index.op_types[op]
        if op_type == "Exit":
            source = self._index.inputs[op][0]
            counter, trips = self._counter(source), self.trips(self._frame_of_op[op])
            return None if counter is None or trips is None else counter[0] + counter[1] * trips
        if op_type == "StackPopV2":
            pushed = self._pushed.get(self._passed(self._index.inputs[op][0]))
            return None if pushed is None else self._value(pushed)
        return constant_scalar(self._index, tensor, self._outputs)

    def _passed(self, tensor: _Tensor) -> int:
        """The op that makes a tensor, past ops that hand tensors on."""
        op, _ = tensor
        while self._index.op_types[op] in _PASSES:
            op, _ = self._index.inputs[op][0]
        return op


class FunctionLibrary:
    """The functions of a GraphDef; bodies are made once per function and input shapes."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef):
        self._library = function_pb2.FunctionDefLibrary()
        self._library.CopyFrom(graph_def.library)
        self.functions = functions_of(self._library)
        for function in self._library.function:
            keep_callbacks_from_running(function.node_def)
        self._bodies: dict[tuple[str, tuple[tuple[int, ...], ...]], _Body] = {}

    def body(self, name: str, inputs: tuple[OutputSpec, ...]) -> _Body:
        """Ops of a function called with these inputs, their outputs, and whether the size of every output was known.

        Arguments are placeholders. A dimension that stays unknown counts as 1, a tensor of unknown rank is a scalar.
        """
        key = (name, tuple(spec.shape for spec in inputs))
        if key in self._bodies:
            return self._bodies[key]
        # A handle's own shape would be taken for that of the variable behind it.
        shapes = [None if is_handle(spec) else tf.TensorShape(spec.shape) for spec in inputs]
        try:
            graph = self._rebuilt(name, shapes)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:  # RuntimeError: an unknown op
            if not any(spec.rule for spec in inputs):
                raise InputError(
                    f"TensorFlow does not accept function {name!r} of the graph: {told(error)}"
                ) from error
            # An estimate may contradict what the function knows.
            known_shapes = [None if spec.rule else shape for spec, shape in zip(inputs, shapes, strict=True)]
            graph = self._rebuilt(name, known_shapes)
        index = index_graph(graph.as_graph_def())
        ops = [graph.get_operation_by_name(node_name) for node_name in index.names]
        outputs = tuple(
            tuple(OutputSpec.of(filled(tensor.shape, 1), tensor.dtype) for tensor in op.outputs) for op in ops
        )
        # A handle or a list counts 0 bytes whatever its shape.
        is_shape_known = all(
            is_handle(tensor) or tensor.shape.is_fully_defined() for op in ops for tensor in op.outputs
        )
        self._bodies[key] = index, outputs, is_shape_known
        return self._bodies[key]

    def _rebuilt(self, name: str, shapes: list[tf.TensorShape | None]) -> tf.Graph:
        with tf.Graph().as_default():
            # The functions this one calls must be known where it is rebuilt.
            tf.graph_util.import_graph_def(tf.compat.v1.GraphDef(library=self._library), name="")
            return graph_of_function_def(self.functions[name], shapes)
