"""Oracle: two graphs lifted to float64, run once, and compared in every output and every variable afterwards."""

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2

from colocation.op_facts import LOOPS, REFERENCE_VARIABLES, copy_of, data_inputs, having, index_graph
from colocation.tensorflow_internals import registered_op
from tf_placer.costs.analytic import find_kernel
from tf_placer.graph.item import Item
from tf_placer.graph.program import tensor_bytes, with_nodes, with_output
from tf_placer.graph.sizes import OutputSpec
from tf_placer.runtime.graph_program import build_program, open_program

RELATIVE = (
    1e-10  # that two orders of the same float64 sums differ by less than; a wrong divisor is off by 1e-3
)
_LEAST_SCALE = 1e-5  # tensors of smaller numbers are compared as if their largest were this
_FLOATS = frozenset({tf.float32, tf.float16, tf.bfloat16})
_LIFTED = {**dict.fromkeys(_FLOATS, tf.float64), tf.complex64: tf.complex128}
_WITHOUT_KERNEL = having("variable") | having("loop") | having("branch") | having("call")
_READS = having("reads_variable")
_DRAWS = ("seed", "seed2")
_NORMALIZES = {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"}
_NORMALIZES_GRADIENT = {"FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"}


@dataclasses.dataclass(frozen=True)
class Step:
    """What one step of a program gives."""

    outputs: tuple[np.ndarray, ...]  # value of each fetch
    variables: Mapping[str, np.ndarray]  # node of a variable -> value after the step


def run_lifted(
    item: Item,
    deadline_s: float = 600.0,
    rewritten: Callable[[Item], tf.compat.v1.GraphDef] = lambda lifted: lifted.graph_def,
) -> Step:
    """Runs one step in float64, from the item's inputs and variables.

    Op types without a float64 kernel compute in the type that they had. Random ops without a seed get one by name.
    """
    lifted = lift(item)
    program = build_program(lifted, rewritten(lifted), is_call=True)
    reads = []
    for variable in item.variables:
        handle = next(node for node in program.graph_def.node if node.name == variable.node)
        if handle.op in REFERENCE_VARIABLES:
            reads.append(f"{variable.node}:0")
            continue
        read = program.graph_def.node.add(
            name=f"after/{variable.node}", op="ReadVariableOp", input=[variable.node]
        )
        read.attr["dtype"].CopyFrom(handle.attr["dtype"])
        reads.append(f"{read.name}:0")
    fetched = {name: position for position, name in enumerate(program.fetches)}
    values = {with_output(name): value for name, value in program.feeds}
    with open_program("", program, deadline_s) as loaded:
        found = loaded.outputs()
        after = loaded.read(reads) if reads else []
    outputs = [
        found[fetched[text]] if text in fetched else values[with_output(text)] for text in item.fetches
    ]
    variables = {variable.node: value for variable, value in zip(item.variables, after, strict=True)}
    return Step(tuple(outputs), variables)


def differences(expected: Step, found: Step, relative: float = RELATIVE) -> list[str]:
    """A line for each output or variable that differs by more than rounding, and for each that is missing."""
    complaints = []
    if len(expected.outputs) != len(found.outputs):
        return [f"{len(found.outputs)} outputs, expected {len(expected.outputs)}"]
    pairs = [
        (f"output {i}", a, b) for i, (a, b) in enumerate(zip(expected.outputs, found.outputs, strict=True))
    ]
    for name, value in expected.variables.items():
        if name not in found.variables:
            complaints.append(f"variable {name!r} is missing")
        else:
            pairs.append((f"variable {name!r}", value, found.variables[name]))
    for name, one, other in pairs:
        error = relative_difference(one, other)
        if not error <= relative:
            complaints.append(f"{name} differs by {error:.3g} of its largest number")
    return complaints


def largest_difference(expected: Step, found: Step) -> float:
    """The largest relative difference of any output or variable."""
    pairs = [*zip(expected.outputs, found.outputs, strict=True)]
    pairs += [(value, found.variables[name]) for name, value in expected.variables.items()]
    return max((relative_difference(*pair) for pair in pairs), default=0.0)


def relative_difference(one: np.ndarray, other: np.ndarray) -> float:
    """Largest difference of two arrays over the largest number of the first; inf where shapes or texts differ."""
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if not one.size or np.array_equal(one, other):
        return 0.0
    if one.dtype.kind not in "fc":
        return float("inf")
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    if same.all():
        return 0.0
    if not np.isfinite(one[~same]).all() or not np.isfinite(other[~same]).all():
        return float("inf")
    finite = np.abs(one[np.isfinite(one)])
    scale = max(float(finite.max()) if finite.size else 0.0, _LEAST_SCALE)
    return float(np.abs(one - other)[~same].max()) / scale


def lost_order(item: Item, found: Item, origin_of: Mapping[str, str]) -> list[str]:
    """A line for each pair of ops on one variable, one of which may write, whose order a split program has lost."""
    of_variable: dict[str, list[str]] = {}
    handles = {variable.node for variable in item.variables}
    for node in item.graph_def.node:
        for text in data_inputs(node):
            if text.partition(":")[0] in handles:
                of_variable.setdefault(text.partition(":")[0], []).append(node.name)
    before, before_found = _ancestors(item), _ancestors(found)
    became: dict[str, list[str]] = {}
    for name, old in origin_of.items():
        node = found.graph_def.node[found.index.id_of_name[name]]
        if any(text.partition(":")[0] in handles for text in data_inputs(node)):
            became.setdefault(old, []).append(name)
    types = zip(item.index.names, item.index.op_types, strict=True)
    # A loop that is written out is none that writes.
    reads = {
        name
        for name, kind in types
        if kind in _READS or (kind in LOOPS and name not in found.index.id_of_name)
    }
    lost = []
    for names in of_variable.values():
        for first, second in itertools.permutations(names, 2):
            if not before[second] >> item.index.id_of_name[first] & 1 or {first, second} <= reads:
                continue
            for new_first, new_second in itertools.product(became.get(first, []), became.get(second, [])):
                if not before_found[new_second] >> found.index.id_of_name[new_first] & 1:
                    lost.append(f"{new_second!r} no longer waits for {new_first!r}")
    return lost


def _ancestors(item: Item) -> dict[str, int]:
    """Op -> bits of the ops before it."""
    found: dict[str, int] = {}
    for node in item.graph_def.node:
        bits = 0
        for text in node.input:
            name = text.removeprefix("^").partition(":")[0]
            bits |= found.get(name, 0) | 1 << item.index.id_of_name[name]
        found[node.name] = bits
    return found


def lift(item: Item) -> Item:
    """The program in float64: types, constants, inputs and variables."""
    nodes = []
    for node, outputs in zip(item.graph_def.node, item.outputs, strict=True):
        nodes += _lifted(node, [spec.dtype for spec in outputs])
    graph_def = with_nodes(item.graph_def, nodes)
    for function in graph_def.library.function:
        for argument in [*function.signature.input_arg, *function.signature.output_arg]:
            argument.type = _wider(argument.type)
        for node in function.node_def:
            _lift_attributes(node)
    specs_of = dict(zip(item.index.names, item.outputs, strict=True))
    index = index_graph(graph_def)
    specs = tuple(tuple(map(_lifted_spec, specs_of.get(name, ()))) for name in index.names)
    return dataclasses.replace(
        item,
        graph_def=graph_def,
        index=index,
        outputs=specs,
        feeds=tuple(_lifted_value(feed) for feed in item.feeds),
        variables=tuple(_lifted_value(variable) for variable in item.variables),
    )


def _lifted_spec(spec: OutputSpec) -> OutputSpec:
    dtype = _LIFTED.get(spec.dtype, spec.dtype)
    return dataclasses.replace(spec, dtype=dtype, num_bytes=tensor_bytes(spec.shape, dtype))


def _lifted_value(one):
    dtype = _LIFTED.get(one.dtype, one.dtype)
    if dtype == one.dtype:
        return one
    return dataclasses.replace(one, dtype=dtype, value=np.asarray(one.value).astype(dtype.as_numpy_dtype))


def _wider(dtype: int) -> int:
    return _LIFTED.get(tf.as_dtype(dtype), tf.as_dtype(dtype)).as_datatype_enum


def _lift_attributes(node: node_def_pb2.NodeDef) -> None:
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "type":
            value.type = _wider(value.type)
        elif kind == "list" and value.list.type:
            value.list.type[:] = [_wider(one) for one in value.list.type]
        elif kind == "tensor" and tf.as_dtype(value.tensor.dtype) in _LIFTED:
            array = tf.make_ndarray(value.tensor).astype(
                tf.as_dtype(_wider(value.tensor.dtype)).as_numpy_dtype
            )
            value.tensor.CopyFrom(tf.make_tensor_proto(array))
    if all(key in node.attr and not node.attr[key].i for key in _DRAWS):
        node.attr["seed"].i = zlib.crc32(node.name.encode()) + 1
        node.attr["seed2"].i = 1


def _lifted(node: node_def_pb2.NodeDef, dtypes: Sequence[tf.DType]) -> list[node_def_pb2.NodeDef]:
    lifted = copy_of(node)
    _lift_attributes(lifted)
    if node.op in _NORMALIZES | _NORMALIZES_GRADIENT:
        return _normalization(lifted)
    definition = registered_op(node.op)
    arguments = [*definition.input_arg, *definition.output_arg] if definition is not None else []
    is_narrow = any(argument.type and tf.as_dtype(argument.type) in _LIFTED for argument in arguments)
    if is_narrow or (
        lifted != node and node.op not in _WITHOUT_KERNEL and find_kernel(lifted, "CPU") is None
    ):
        return _between_casts(node, dtypes)
    return [lifted]


def _between_casts(node: node_def_pb2.NodeDef, dtypes: Sequence[tf.DType]) -> list[node_def_pb2.NodeDef]:
    """An op in the type that it has, between casts from and to float64; an ``IdentityN`` of these has its name."""
    single = copy_of(node, name=f"{node.name}/single")
    controls = [text for text in node.input if text.startswith("^")]
    inputs, nodes = [], []
    types = _input_types(node)
    for position, (text, dtype) in enumerate(zip(data_inputs(node), types, strict=True)):
        if dtype not in _LIFTED:
            inputs.append(text)
            continue
        name = f"{node.name}/narrow_{position}"
        nodes.append(_cast(name, text, _LIFTED[dtype], dtype))
        inputs.append(name)
    single.input[:] = [*inputs, *controls]
    nodes.append(single)
    outputs = []
    for output, dtype in enumerate(dtypes):
        text = f"{single.name}:{output}"
        if dtype in _LIFTED:
            name = f"{node.name}/wide_{output}"
            nodes.append(_cast(name, text, dtype, _LIFTED[dtype]))
            text = name
        outputs.append(text)
    both = node_def_pb2.NodeDef(name=node.name, op="IdentityN", input=outputs)
    both.attr["T"].list.type.extend(_wider(dtype.as_datatype_enum) for dtype in dtypes)
    return [*nodes, both]


def _input_types(node: node_def_pb2.NodeDef) -> list[tf.DType]:
    found: list[int] = []
    for argument in registered_op(node.op).input_arg:  # type: ignore[union-attr]
        if argument.type_list_attr:
            found += node.attr[argument.type_list_attr].list.type
            continue
        dtype = argument.type or node.attr[argument.type_attr].type
        found += [dtype] * (node.attr[argument.number_attr].i if argument.number_attr else 1)
    return [tf.as_dtype(dtype) for dtype in found]


def _cast(name: str, text: str, source: tf.DType, target: tf.DType) -> node_def_pb2.NodeDef:
    node = node_def_pb2.NodeDef(name=name, op="Cast", input=[text])
    node.attr["SrcT"].type, node.attr["DstT"].type = source.as_datatype_enum, target.as_datatype_enum
    return node


def _normalization(node: node_def_pb2.NodeDef) -> list[node_def_pb2.NodeDef]:
    """Fused batch normalization, which has no float64, by its formulas (Ioffe and Szegedy, 2015)."""
    function = _normalized if node.op in _NORMALIZES else _normalized_gradient
    count = 6 if node.op.endswith("V3") else 5
    texts = data_inputs(node)
    with tf.Graph().as_default() as graph:
        given = [tf.compat.v1.placeholder(tf.float64, name=f"given_{i}") for i in range(len(texts))]
        made = function(node.attr, *given[:5])
        tf.raw_ops.IdentityN(input=[*made, *[tf.zeros([0], tf.float64)] * (count - len(made))], name="made")
    nodes = []
    for inner in graph.as_graph_def().node:
        if inner.name.startswith("given_"):
            continue
        inputs = []
        for text in inner.input:
            name = text.removeprefix("^").partition(":")[0]
            if name.startswith("given_"):
                inputs.append(texts[int(name.removeprefix("given_"))])
            else:
                inputs.append(text.replace(name, f"{node.name}/formula/{name}", 1))
        nodes.append(copy_of(inner, inputs, f"{node.name}/formula/{inner.name}"))
    nodes[-1].name = node.name
    nodes[-1].input.extend(text for text in node.input if text.startswith("^"))
    return nodes


def _channels_last(attributes: Mapping[str, attr_value_pb2.AttrValue]) -> bool:
    return attributes["data_format"].s not in (b"NCHW", b"NCDHW")


def _shaped(values: Iterable[tf.Tensor], is_last: bool, like: tf.Tensor) -> list[tf.Tensor]:
    if is_last:
        return list(values)
    ones = tf.ones([tf.rank(like) - 2], tf.int32)
    return [tf.reshape(value, tf.concat([[1], [-1], ones], 0)) for value in values]


def _axes(is_last: bool, x: tf.Tensor) -> tf.Tensor:
    return tf.range(tf.rank(x) - 1) if is_last else tf.concat([[0], tf.range(2, tf.rank(x))], 0)


def _normalized(attributes, x, scale, offset, old_mean, old_variance) -> list[tf.Tensor]:
    is_last, epsilon = _channels_last(attributes), attributes["epsilon"].f
    axes = _axes(is_last, x)
    if attributes["is_training"].b:
        mean = tf.reduce_mean(x, axes)
        (around,) = _shaped([mean], is_last, x)
        variance = tf.reduce_mean(tf.square(x - around), axes)
    else:
        mean, variance = old_mean, old_variance
    m, v, s, o = _shaped([mean, variance, scale, offset], is_last, x)
    y = (x - m) * tf.math.rsqrt(v + tf.constant(epsilon, tf.float64)) * s + o
    if not attributes["is_training"].b:
        return [y, old_mean, old_variance, old_mean, old_variance]
    count = tf.cast(tf.size(x), tf.float64) / tf.cast(tf.size(mean), tf.float64)
    unbiased = variance * count / tf.maximum(count - 1.0, 1.0)
    factor = attributes["exponential_avg_factor"].f if "exponential_avg_factor" in attributes else 1.0
    if factor != 1.0:
        kept = float(np.float32(1.0 - factor))  # as the kernel has it
        new_mean = kept * old_mean + factor * mean
        return [y, new_mean, kept * old_variance + factor * unbiased, mean, variance]
    return [y, mean, unbiased, mean, variance]


def _normalized_gradient(attributes, dy, x, scale, mean, variance) -> list[tf.Tensor]:
    is_last = _channels_last(attributes)
    axes = _axes(is_last, x)
    inverse = tf.math.rsqrt(variance + tf.constant(attributes["epsilon"].f, tf.float64))
    m, i, s = _shaped([mean, inverse, scale], is_last, x)
    normalized = (x - m) * i
    shift, total = tf.reduce_sum(dy, axes), tf.reduce_sum(dy * normalized, axes)
    if not attributes["is_training"].b:
        return [dy * i * s, total, shift]
    count = tf.cast(tf.size(x), tf.float64) / tf.cast(tf.size(mean), tf.float64)
    b, t = _shaped([shift / count, total / count], is_last, x)
    return [s * i * (dy - b - normalized * t), total, shift]
