"""The devices that a SavedModel names: for ops, for functions' ops, for variables and for tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tf_placer.errors import InputError
from tf_placer.graph.reading.saved_model import SavedModel


def saved_devices(model: SavedModel) -> tuple[str, ...]:
    """Every device that is asked for somewhere, full where it can mean one device of one task only, sorted.

    Raises:
      InputError: a device string is damaged.
    """
    return tuple(
        sorted({completed(one.device, str(model.path)) for one in _with_device(model) if one.device})
    )


def rename_saved_devices(model: SavedModel, name_of: Mapping[str, str]) -> None:
    """Writes other devices into ``model``, all at once, so that two may change places.

    Args:
      model: is changed.
      name_of: a device as ``saved_devices`` names it -> what to write. Other devices stay.
    """
    for one in _with_device(model):
        if one.device:
            one.device = name_of.get(completed(one.device, str(model.path)), one.device)


def completed(device: str, source: str) -> str:
    """``"/device:CPU:1"`` as ``"/job:localhost/replica:0/task:0/device:CPU:1"``; without type or index, as it is.

    Args:
      device: a device string.
      source: where it stands, for the message.

    Raises:
      InputError: TensorFlow would not take it for a device.
    """
    try:
        spec = tf.DeviceSpec.from_string(device)
    except ValueError as error:
        raise InputError(f"{source} names the device {device!r}, which is none ({error})") from error
    if spec.device_type is None or spec.device_index is None:
        return device
    return spec.replace(
        job=spec.job or "localhost", replica=spec.replica or 0, task=spec.task or 0
    ).to_string()


def _with_device(model: SavedModel) -> Iterator[Any]:
    """Every message with a field ``device``."""
    graph_def = model.meta_graph.graph_def
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def
    for saved in model.meta_graph.object_graph_def.nodes:
        if saved.WhichOneof("kind") == "variable":
            yield saved.variable
            yield from saved.variable.experimental_distributed_variable_components
        elif saved.WhichOneof("kind") == "resource":
            yield saved.resource
