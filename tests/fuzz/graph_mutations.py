"""Damage to a GraphDef that is still a GraphDef: its nodes, their inputs, the functions they call."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2, types_pb2

NAMES = ("", " ", "^x", "a:0", "a b", "ü", "😀", "_x", "x" * 5000, "a/../b", "a/", "\n", "0", "-")
WORDS = (*b"NHWC NCHW SAME VALID EXPLICIT bi,ij->bj ij,jk-> i...,j...->ij... ii->i".split(), b"")
_OPS = (
    "NoSuchOp Identity NoOp MatMul Reshape Placeholder Const While If Fill Range PyFunc EagerPyFunc "
    "PyFuncStateless WriteFile Print Add Conv2D ConcatV2 Split Einsum Merge Switch Enter "
    "NextIteration Assert VarHandleOp ReadVariableOp AssignVariableOp StridedSlice Pack Unpack Tile "
    "BroadcastTo Transpose Cumsum TensorListReserve GatherV2 StatefulPartitionedCall IdentityN _Arg "
    "_Send RestoreV2 HashTableV2 LookupTableFindV2 "
)
OPS = ("", *_OPS.split())


def damage_graph(graph_def: tf.compat.v1.GraphDef, rng: random.Random) -> str:
    """Damages a graph in place, once or a few times; says how."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if graph_def.library.function and rng.random() < 0.2:
            change, target = rng.choice(_OF_FUNCTIONS), graph_def.library
        else:
            bodies = [function.node_def for function in graph_def.library.function if function.node_def]
            target = rng.choice(bodies) if bodies and rng.random() < 0.5 else graph_def.node
            if rng.random() < 0.05:
                change, target = _versions, graph_def
            elif target:
                change = rng.choice(_OF_NODES)
            else:
                continue
        change(target, rng)
        done.append(change.__name__.strip("_").replace("_", " "))
    return ", ".join(done)


def _versions(graph_def: Any, rng: random.Random) -> None:
    graph_def.versions.min_consumer = rng.choice((0, 10**6))
    graph_def.versions.producer = rng.choice((0, 1, 10**6))


def _attribute(nodes: Any, rng: random.Random) -> None:
    damage_attribute(rng.choice(nodes), rng)


def _drop_node(nodes: Any, rng: random.Random) -> None:
    del nodes[rng.randrange(len(nodes))]


def _double_node(nodes: Any, rng: random.Random) -> None:
    node = rng.choice(nodes)
    nodes.add().CopyFrom(node)


def _rename_node(nodes: Any, rng: random.Random) -> None:
    node = rng.choice(nodes)
    node.name = rng.choice((*NAMES, rng.choice(nodes).name))


def _change_op(nodes: Any, rng: random.Random) -> None:
    node = rng.choice(nodes)
    node.op = rng.choice((*OPS, rng.choice(nodes).op))


def _dangling_input(nodes: Any, rng: random.Random) -> None:
    text = rng.choice(("nowhere", "", "^", "^nowhere", ":", "a:b", "a:-1", "a:99999999999999999999", *NAMES))
    _put_input(rng.choice(nodes), text, rng)


def _other_output(nodes: Any, rng: random.Random) -> None:
    name = rng.choice(nodes).name
    ending = rng.choice((":0", ":1", ":99", ":-1", ":x", ":output:0", ":output:7", ":Identity:0"))
    _put_input(rng.choice(nodes), name + ending, rng)


def _other_input(nodes: Any, rng: random.Random) -> None:
    _put_input(rng.choice(nodes), rng.choice(("", "^")) + rng.choice(nodes).name, rng)


def _own_input(nodes: Any, rng: random.Random) -> None:
    node = rng.choice(nodes)
    _put_input(node, rng.choice(("", "^")) + node.name, rng)


def _put_input(node: Any, text: str, rng: random.Random) -> None:
    if node.input and rng.random() < 0.7:
        node.input[rng.randrange(len(node.input))] = text
    else:
        node.input.append(text)


def _drop_input(nodes: Any, rng: random.Random) -> None:
    node = rng.choice([node for node in nodes if node.input] or nodes)
    if node.input:
        del node.input[rng.randrange(len(node.input))]


def _shuffle_inputs(nodes: Any, rng: random.Random) -> None:
    node = rng.choice([node for node in nodes if len(node.input) > 1] or nodes)
    texts = list(node.input)
    rng.shuffle(texts)
    node.input[:] = texts


def _rewired(nodes: Any, rng: random.Random) -> None:
    used = sorted({text for node in nodes for text in node.input if not text.startswith("^")})
    readers = [node for node in nodes if any(not text.startswith("^") for text in node.input)]
    if readers:
        node = rng.choice(readers)
        position = rng.choice([i for i, text in enumerate(node.input) if not text.startswith("^")])
        node.input[position] = rng.choice(used)


def _other_constant(nodes: Any, rng: random.Random) -> None:
    constants = [node for node in nodes if node.op == "Const" and node.attr["dtype"].type in (3, 9)]
    if not constants:
        return
    tensor = rng.choice(constants).attr["value"].tensor
    values = tf.make_ndarray(tensor).copy()
    numbers = (0, 1, -1, 2, 3, 7, 1000, -(2**31), 2**31 - 1)
    numbers += (2**40, 2**62) if values.dtype == "int64" else ()
    for i in range(values.size):
        if rng.random() < 0.5:
            values.flat[i] = rng.choice(numbers)
    tensor.CopyFrom(tf.make_tensor_proto(values))


def _other_setting(nodes: Any, rng: random.Random) -> None:
    settings = [
        value
        for node in nodes
        for _, value in sorted(node.attr.items())
        if value.WhichOneof("value") in ("i", "s", "b", "f", "shape") or value.list.i
    ]
    if not settings:
        return
    value = rng.choice(settings)
    kind = value.WhichOneof("value")
    if kind == "i":
        value.i = rng.choice((0, 1, 2, 3, 5, -1, 1000, 2**31))
    elif kind == "s":
        value.s = rng.choice((*WORDS, value.s))
    elif kind == "shape":
        for dim in value.shape.dim:
            dim.size = rng.choice((0, 1, 2, 3, 5, 1000, 10**5, 2**31, 2**40, -1))
    elif kind == "list":
        value.list.i[rng.randrange(len(value.list.i))] = rng.choice((0, 1, 2, 5, -1, 1000, 2**31))
    elif kind == "b":
        value.b = not value.b
    else:
        value.f = rng.choice((0.0, -1.0, float("nan"), float("inf")))


def _device(nodes: Any, rng: random.Random) -> None:
    node = rng.choice(nodes)
    node.device = rng.choice(("/job:x/task:999", "nonsense", "/device:GPU:9", "ü", "/cpu:-1"))


def _drop_function(library: Any, rng: random.Random) -> None:
    del library.function[rng.randrange(len(library.function))]


def _double_function(library: Any, rng: random.Random) -> None:
    function = rng.choice(library.function)
    library.function.add().CopyFrom(function)


def _rename_function(library: Any, rng: random.Random) -> None:
    signature = rng.choice(library.function).signature
    signature.name = rng.choice((*NAMES, "MatMul", rng.choice(library.function).signature.name))


def _recursion(library: Any, rng: random.Random) -> None:
    function, called = rng.choice(library.function), rng.choice(library.function).signature.name
    for node in function.node_def:
        for value in node.attr.values():
            if value.WhichOneof("value") == "func":
                value.func.name = called
    if rng.random() < 0.5:
        node = function.node_def.add(name="again", op="StatefulPartitionedCall")
        node.attr["f"].func.name = called
        node.attr["Tin"].list.SetInParent()
        node.attr["Tout"].list.SetInParent()


def _signature(library: Any, rng: random.Random) -> None:
    function = rng.choice(library.function)
    arguments = rng.choice((function.signature.input_arg, function.signature.output_arg))
    if arguments and rng.random() < 0.5:
        del arguments[rng.randrange(len(arguments))]
    elif arguments and rng.random() < 0.5:
        rng.choice(arguments).type = rng.choice((0, 1, 3, 20, 21, 9999))
    else:
        arguments.add(name=rng.choice(("more", *NAMES)), type=1)


def _results(library: Any, rng: random.Random) -> None:
    function = rng.choice(library.function)
    table = function.ret if function.ret and rng.random() < 0.7 else function.control_ret
    keys = sorted(table) or ["more"]
    table[rng.choice(keys)] = rng.choice(("", "nowhere", "nowhere:out:0", "a:b", "x:y:z", *NAMES))


def _gradient(library: Any, rng: random.Random) -> None:
    names = [*NAMES, *(function.signature.name for function in library.function)]
    library.gradient.add(function_name=rng.choice(names), gradient_func=rng.choice(names))


_OF_NODES: tuple[Callable[[Any, random.Random], None], ...] = (
    *(_rewired,) * 6,
    *(_other_constant,) * 6,
    *(_other_setting,) * 6,
    *(_attribute,) * 5,
    *(_drop_node, _double_node, _rename_node, _change_op, _change_op, _dangling_input, _other_output),
    *(_other_input, _own_input, _drop_input, _shuffle_inputs, _device),
)
_OF_FUNCTIONS: tuple[Callable[[Any, random.Random], None], ...] = (
    *(_drop_function, _double_function, _rename_function, _recursion, _signature, _results, _gradient),
)


_Change = Callable[[attr_value_pb2.AttrValue, random.Random], None]
HUGE = (2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
NUMBERS = (0, -1, 1, 2, -(2**31), -(2**63), *HUGE)
DTYPES = (0, *types_pb2.DataType.values(), 9999)
TEXTS = (
    *(b"", b"\xff\xfe", "ünï😀".encode(), b"loc:@", b"loc:@nowhere", b"x" * 10_000),
    *(b"NHWC", b"SAME", b"ab,bc->ac"),
)


def damage_attribute(node: node_def_pb2.NodeDef, rng: random.Random) -> str:
    """Damages one attribute of a node, in place; says how."""
    names = sorted(node.attr)
    if not names:
        node.attr[rng.choice(("T", "_class", "dtype", "N"))].CopyFrom(_any_value(rng))
        return "an attribute added"
    name = rng.choice(names)
    if rng.random() < 0.15:
        del node.attr[name]
        return f"{name} dropped"
    if rng.random() < 0.15:
        node.attr[name].CopyFrom(_any_value(rng))
        return f"{name} of another kind"
    value = node.attr[name]
    kind = value.WhichOneof("value") or "i"
    _CHANGES[kind](value, rng)
    return f"{name} ({kind}) changed"


def damage_shape(shape, rng: random.Random) -> None:
    """Damages a TensorShapeProto."""
    how = rng.randrange(5)
    if how == 0:
        shape.unknown_rank = True
    elif how == 1 and shape.dim:
        shape.dim[rng.randrange(len(shape.dim))].size = rng.choice(NUMBERS)
    elif how == 2 and shape.dim:
        del shape.dim[rng.randrange(len(shape.dim))]
    elif how == 3:
        for _ in range(rng.choice((1, 300))):
            shape.dim.add(size=rng.choice((1, 2, *NUMBERS)))
    else:
        for dim in shape.dim:
            dim.size = rng.choice((1, 1000, 2**31))


def _any_value(rng: random.Random) -> attr_value_pb2.AttrValue:
    value = attr_value_pb2.AttrValue()
    kind = rng.choice(tuple(_CHANGES))
    getattr(value, kind).SetInParent() if kind in ("list", "shape", "tensor", "func") else None
    _CHANGES[kind](value, rng)
    return value


def _set(field: str, values: Sequence[Any]) -> _Change:
    return lambda value, rng: setattr(value, field, rng.choice(values))


def _tensor(value: attr_value_pb2.AttrValue, rng: random.Random) -> None:
    tensor, how = value.tensor, rng.randrange(5)
    if how == 0:
        damage_shape(tensor.tensor_shape, rng)
    elif how == 1:
        tensor.dtype = rng.choice(DTYPES)
    elif how == 2:
        tensor.tensor_content = rng.randbytes(rng.choice((0, 1, 3, 4, 8, 40)))
    elif how == 3:
        tensor.int_val.extend(rng.choices((0, 1, -1, 2**31 - 1), k=rng.choice((1, 2, 100))))
    else:
        tensor.ClearField("tensor_content")
        tensor.float_val.extend([float("nan")] * rng.choice((1, 5)))


def _list(value: attr_value_pb2.AttrValue, rng: random.Random) -> None:
    found = value.list
    field = rng.choice(("i", "s", "type", "f", "b", "shape", "func"))
    numbers = getattr(found, field)
    if len(numbers) and rng.random() < 0.5:
        del numbers[rng.randrange(len(numbers))]
    elif field in ("shape", "func"):
        numbers.add()
    else:
        new = {"i": NUMBERS, "s": TEXTS, "type": DTYPES, "f": (float("nan"), 1e30), "b": (True, False)}[field]
        for _ in range(rng.choice((1, 1, 5, 300))):
            numbers.append(rng.choice(new))


_CHANGES: dict[str, _Change] = {
    "i": _set("i", NUMBERS),
    "f": _set("f", (float("nan"), float("inf"), -float("inf"), 0.0, 3e38)),
    "b": lambda value, rng: setattr(value, "b", rng.random() < 0.5),
    "s": _set("s", TEXTS),
    "type": _set("type", DTYPES),
    "shape": lambda value, rng: damage_shape(value.shape, rng),
    "tensor": _tensor,
    "func": lambda value, rng: setattr(value.func, "name", rng.choice(("", "nowhere", "Identity", "ü"))),
    "list": _list,
}
