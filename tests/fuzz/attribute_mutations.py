"""Damage to the attributes of a graph's nodes: wrong kinds, types, shapes, numbers and constants."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.core.framework import attr_value_pb2, node_def_pb2, types_pb2

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
