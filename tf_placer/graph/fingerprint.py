"""Digest of a graph: equal for two graphs that are the same program.

Equal in every process for the same program. In it: op types, data and control edges,
attributes, functions of loops and branches, fetches and side effects. Not in it: names (Keras
and TensorFlow number layers, ops and functions per process), devices, ``shared_name`` and
``container``, values of variables and inputs, and attributes with a leading underscore, which
are TensorFlow's notes to itself; of these only ``loc:@`` classes count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2

_NAMES = frozenset({"shared_name", "container", "debug_name"})


def fingerprint(graph_def: tf.compat.v1.GraphDef, fetches: Sequence[str], side_effects: Sequence[str]) -> str:
    """Returns the sha256 hex digest of a graph whose nodes are in topological order."""
    functions = _Functions(graph_def.library.function)
    position = {node.name: i for i, node in enumerate(graph_def.node)}
    digest = hashlib.sha256()
    for node in graph_def.node:
        _add(digest, _node_text(node, position, functions))
    _add(digest, [_input_text(text, position) for text in fetches])
    _add(digest, sorted(position[name] for name in side_effects))
    return digest.hexdigest()


class _Functions:
    """Digests of library functions, each computed once and by content, not by name."""

    def __init__(self, functions: Iterable[function_pb2.FunctionDef]):
        self._functions = {function.signature.name: function for function in functions}
        self._digests: dict[str, str] = {}

    def digest(self, name: str) -> str:
        """Returns a function's digest; an op type or unknown name stands for itself."""
        if name not in self._functions:
            return name
        if name not in self._digests:
            self._digests[name] = "recursive"  # what a function sees that calls itself
            self._digests[name] = self._compute(self._functions[name])
        return self._digests[name]

    def _compute(self, function: function_pb2.FunctionDef) -> str:
        names = [argument.name for argument in function.signature.input_arg]
        names += [node.name for node in function.node_def]
        position = {name: i for i, name in enumerate(names)}
        digest = hashlib.sha256()
        _add(digest, [argument.type for argument in function.signature.input_arg])
        for node in function.node_def:
            _add(digest, _node_text(node, position, self))
        _add(digest, [_input_text(function.ret[a.name], position) for a in function.signature.output_arg])
        _add(digest, sorted(position[name] for name in function.control_ret.values()))
        return digest.hexdigest()


def _node_text(node: node_def_pb2.NodeDef, position: dict[str, int], functions: _Functions) -> list:
    data = [_input_text(text, position) for text in node.input if not text.startswith("^")]
    control = sorted(position[text[1:]] for text in node.input if text.startswith("^"))
    attributes = [
        (key, _attribute_text(node.attr[key], functions))
        for key in sorted(node.attr)
        if key not in _NAMES and not key.startswith("_")
    ]
    classes = (
        sorted(
            str(position.get(value.decode().removeprefix("loc:@"), ""))
            for value in node.attr["_class"].list.s
        )
        if "_class" in node.attr
        else []
    )
    return [functions.digest(node.op), data, control, attributes, classes]


def _input_text(text: str, position: dict[str, int]) -> tuple[int, str]:
    """Returns (producer position, output); output 0 is written or left out by TensorFlow at will."""
    name, _, output = text.partition(":")
    return position[name], output or "0"


def _attribute_text(value: attr_value_pb2.AttrValue, functions: _Functions) -> str:
    kind = value.WhichOneof("value")
    if kind == "func":
        return functions.digest(value.func.name)
    if kind == "list" and value.list.func:
        return " ".join(functions.digest(function.name) for function in value.list.func)
    return value.SerializeToString(deterministic=True).hex()


def _add(digest, content) -> None:
    digest.update(repr(content).encode())
    digest.update(b"\n")
