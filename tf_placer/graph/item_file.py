"""Items in files: everything that tracing found out, so that a large graph is traced once.

What an item has of the process that traced it (tables, iterators, queues, Python functions) cannot be in a file:
``can_be_kept`` tells. Everything else can, the values of variables and inputs included.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2

from colocation.graph_index import index_graph
from tf_placer.array_file import array_file_bytes, read_array_file
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.program import Feed, ItemVariable
from tf_placer.graph.sizes.output_specs import OutputSpec

SCHEMA_VERSION = 1
_KIND = "a tf_placer item"
_REMEDY = "trace the program again"


def can_be_kept(item: Item) -> bool:
    """Whether a file can hold all of an item: it needs nothing of the process that traced it."""
    return item.runs_standalone and not item.host_captures


def item_bytes(item: Item) -> bytes:
    """The content of a file for an item.

    Raises:
      InputError: it needs the process that traced it.
    """
    if not can_be_kept(item):
        why = item.why_not_standalone or "it has captured what is in this process"
        raise InputError(f"{item.name!r} cannot be in a file: {why}; trace it in every process")
    arrays = {"graph_def": np.frombuffer(item.graph_def.SerializeToString(), np.uint8)}
    held: dict[str, list[dict[str, Any]]] = {"feeds": [], "variables": []}
    for field, entries in held.items():
        for position, one in enumerate(getattr(item, field)):
            array, how = _packed(one.value)
            arrays[f"{field}_{position}"] = array
            entry = {f.name: getattr(one, f.name) for f in dataclasses.fields(one) if f.name != "value"}
            entries.append({**entry, "dtype": one.dtype.name, "how": how})
    header = {
        "name": item.name,
        "outputs": [
            [[list(s.shape), s.dtype.name, s.num_bytes, s.rule] for s in specs] for specs in item.outputs
        ],
        "fetches": item.fetches,
        "control_outputs": item.control_outputs,
        "requested_devices": dict(item.requested_devices),
        "stages": item.stages,
        **held,
    }
    return array_file_bytes(_KIND, SCHEMA_VERSION, header, arrays)


def read_item_file(path: pathlib.Path) -> Item:
    """The item of a file: equal in every field to the one that it was made of.

    Raises:
      InputError: the file is missing, damaged, of something else, or of another version.
    """
    header, arrays = read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)
    try:
        graph_def = tf.compat.v1.GraphDef.FromString(arrays["graph_def"].tobytes())
        return Item(
            name=header["name"],
            graph_def=graph_def,
            index=index_graph(graph_def),
            outputs=tuple(tuple(_spec(*spec) for spec in specs) for specs in header["outputs"]),
            feeds=tuple(_entries(Feed, "feeds", header, arrays)),
            fetches=tuple(header["fetches"]),
            control_outputs=tuple(header["control_outputs"]),
            variables=tuple(_entries(ItemVariable, "variables", header, arrays)),
            requested_devices={op: tuple(names) for op, names in header["requested_devices"].items()},
            stages=tuple(header.get("stages", ())),  # files of before have none
        )
    except (InputError, DecodeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} lacks a part of an item ({error}); {_REMEDY}") from error


def _spec(shape: list[int], dtype: str, num_bytes: int, rule: str) -> OutputSpec:
    return OutputSpec(tuple(shape), tf.as_dtype(dtype), num_bytes, rule)


def _entries(kind: type, field: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> list[Any]:
    """The feeds or the variables of a file."""
    found = []
    for position, entry in enumerate(header[field]):
        given = {**entry, "dtype": tf.as_dtype(entry["dtype"]), "shape": tuple(entry["shape"])}
        value = _unpacked(arrays[f"{field}_{position}"], given.pop("how"), given["dtype"], given["shape"])
        found.append(kind(**given, value=value))
    return found


def _packed(value: np.ndarray) -> tuple[np.ndarray, str]:
    """A value as bytes [.] uint8, and how: ``"whole"``, ``"one"`` where all elements are equal, or ``"text"``.

    Slots of optimizers are all zeros, half of what an item holds. The file knows no types but numbers', so that
    those that NumPy does not write (bfloat16) are kept like others.
    """
    if value.dtype.hasobject:
        return np.frombuffer(tf.make_tensor_proto(value).SerializeToString(), np.uint8), "text"
    raw = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
    elements = raw.reshape(-1, value.dtype.itemsize)
    if value.size > 1 and (elements == elements[0]).all():
        return elements[0], "one"
    return raw, "whole"


def _unpacked(raw: np.ndarray, how: str, dtype: tf.DType, shape: tuple[int, ...]) -> np.ndarray:
    if how == "text":
        texts = tf.make_ndarray(tensor_pb2.TensorProto.FromString(raw.tobytes()))
        return np.asarray(texts, object).reshape(shape)
    value = raw.view(dtype.as_numpy_dtype)
    if how == "whole":
        return value.reshape(shape)
    if how != "one":
        raise ValueError(f"a value is kept as {how!r}")
    # Of zeros the system gives pages when they are read.
    return np.zeros(shape, value.dtype) if not raw.any() else np.full(shape, value[0])
