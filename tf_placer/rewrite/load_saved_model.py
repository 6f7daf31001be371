"""Loader of a SavedModel with its ops and variables on the devices that it names."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, told
from tf_placer.cluster.cluster import LOCAL, Cluster, full_device_name
from tf_placer.graph.program import all_nodes
from tf_placer.graph.read_graph import FILE_NAME, SERVING, SavedModel, read_saved_model
from tf_placer.problem.placement import PlanFile
from tf_placer.rewrite.functions import call_of
from tf_placer.rewrite.saved_model import PLANS
from tf_placer.rewrite.variables import move_to_devices
from tf_placer.workers.local_workers import attach, present_devices


def rename_saved_devices(model: SavedModel, name_of: Mapping[str, str]) -> None:
    """Writes other devices into ``model``, all at once, so that two may change places; others stay.

    The keys of ``name_of`` are devices as ``completed`` names them.
    """
    for message in _with_device(model):
        if message.device:
            message.device = name_of.get(completed(message.device, str(model.path)), message.device)


def completed(device: str, source: str) -> str:
    """``"/device:CPU:1"`` as ``"/job:localhost/replica:0/task:0/device:CPU:1"``; unchanged without type or index.

    Raises InputError for a text that TensorFlow would not take; ``source`` is where it stands, for the message.
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
    yield from all_nodes(model.meta_graph.graph_def)
    for saved in model.meta_graph.object_graph_def.nodes:
        if saved.WhichOneof("kind") == "variable":
            yield saved.variable
            yield from saved.variable.experimental_distributed_variable_components
        elif saved.WhichOneof("kind") == "resource":
            yield saved.resource


def load_saved_model(
    path: str | os.PathLike[str], devices: Mapping[str, str] | None = None, tags: Iterable[str] = SERVING
) -> Any:
    """Loads a SavedModel as ``tf.saved_model.load`` does, and answers for where its ops, variables and tables are.

    TensorFlow's own loader puts variables elsewhere unless it is told twice not to, and runs what was meant for a
    device that is not there on the first one, or fails in the middle of a call.

    Args:
      path: folder of a SavedModel, exported with a placement or not; it is not changed.
      devices: planned device -> device of this process, ``{"GPU:1": "GPU:0"}`` say; devices that are not in it are
        meant as they are. Several planned devices may go to one.
      tags: exactly those of the graph in it that is meant.

    Of a plan for this machine's workers (``Cluster.local()``), those that the model names are started first, if this
    process is not attached to them.

    Returns:
      What ``tf.saved_model.load`` returns, with ``signatures``. While it loads, soft device placement is on.

    Raises:
      InputError: the model is damaged, names a device that this process lacks, or is not where it should be once
        loaded; or ``devices`` names a device that the model does not, or that this process lacks.
      WorkerError: the workers cannot be started.
    """
    model = read_saved_model(arguments.path("path", path, "the folder of a SavedModel"), tags)
    if devices is not None:
        devices = arguments.texts_by_text(
            "devices", devices, 'give planned device -> device, {"GPU:1": "CPU:0"} say'
        )
    name_of = _checked(model, devices or {})
    rename_saved_devices(model, name_of)
    with _folder_of(model, rewritten=bool(name_of)) as folder:
        was_soft = tf.config.get_soft_device_placement()
        tf.config.set_soft_device_placement(True)  # or variables are not put where they were saved
        try:
            root = tf.saved_model.load(
                str(folder),
                tags=list(model.meta_graph.meta_info_def.tags),
                options=tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices"),
            )
        except (tf.errors.OpError, OSError, KeyError, ValueError) as error:
            raise InputError(
                f"TensorFlow cannot load {model.path} ({told(error)}); export the model again"
            ) from error
        finally:
            tf.config.set_soft_device_placement(was_soft)
    _check_resources(model, root)
    for name, function in root.signatures.items():
        call = call_of(model, name)
        nodes = model.meta_graph.graph_def.node if call is None else call.body.node_def
        device_of = {node.name: node.device for node in nodes}
        for op in function.graph.get_operations():
            if op.name in device_of:
                _check(model, f"op {op.name!r} of {name!r}", op.device, device_of[op.name])
    return root


def _checked(model: SavedModel, devices: Mapping[str, str]) -> dict[str, str]:
    """``devices`` with full names, when every device that the model will then name is there."""
    try:
        name_of = {full_device_name(planned): full_device_name(device) for planned, device in devices.items()}
    except InputError as error:
        raise InputError(f"devices: {error}") from None
    source = str(model.path)
    in_model = sorted({completed(proto.device, source) for proto in _with_device(model) if proto.device})
    name_of = _of_local_workers(model, [name for name in in_model if name not in name_of]) | name_of
    present = present_devices()
    for planned, device in name_of.items():
        if planned not in in_model:
            raise InputError(
                f"{model.path} has nothing on {planned}; it names {', '.join(in_model) or 'no device'}"
            )
        if device not in present:
            raise InputError(
                f"{planned} is to be {device}, which this process lacks; it has {', '.join(present)}"
            )
    missing = [
        name for name in in_model if not any(_is_one(device, name_of.get(name, name)) for device in present)
    ]
    if missing:
        or_else = "join its servers before with tf_placer.attach(tf_placer.Cluster.from_file(FILE))"
        if tf.DeviceSpec.from_string(missing[0]).job in (None, "localhost"):
            or_else = "make logical devices with tf.config.set_logical_device_configuration before the first op runs"
        raise InputError(
            f"{model.path} names {', '.join(missing)}, which this process lacks; it has {', '.join(present)}. "
            f'Say where each goes, load_saved_model(path, devices={{"{missing[0]}": "{present[0]}"}}), or {or_else}'
        )
    return name_of


def _of_local_workers(model: SavedModel, named: Iterable[str]) -> dict[str, str]:
    """Device of ``Cluster.local()`` -> its name here, where a plan of the model is for that and the device is missing.

    Workers are started for that. ``named`` are the devices that the model asks for and nobody has mapped.
    """
    plans = [PlanFile.read(file) for file in sorted((model.path / PLANS).glob("*.json"))]
    planned = {device for plan in plans if plan.cluster == LOCAL for device in plan.devices.values()}
    present = present_devices()
    missing = sorted(planned.intersection(named).difference(present))
    if not missing:
        return {}
    specs = [tf.DeviceSpec.from_string(name) for name in missing]
    is_of_gpus = any(tf.DeviceSpec.from_string(name).device_type == "GPU" for name in planned)
    try:
        cluster = Cluster.local(None if is_of_gpus else 1 + max(spec.task for spec in specs))
        name_here = attach(cluster, missing)
    except InputError as error:
        raise InputError(
            f"{model.path} is placed on this machine's workers, {', '.join(missing)}, and {error}; or say where each "
            f'goes, load_saved_model(path, devices={{"{missing[0]}": "{present[0]}"}})'
        ) from error
    return {name: name_here[name] for name in missing if name_here.get(name, name) != name}


def _is_one(device: str, wanted: str) -> bool:
    """True if a full name matches a device string, in which parts may be left out."""
    have = tf.DeviceSpec.from_string(device)
    return have.make_merged_spec(tf.DeviceSpec.from_string(wanted)) == have


@contextlib.contextmanager
def _folder_of(model: SavedModel, rewritten: bool) -> Iterator[pathlib.Path]:
    """The model's own folder, or a temporary one that differs in ``saved_model.pb`` only."""
    if not rewritten:
        yield model.path
        return
    source = model.path.resolve()
    for asset in model.meta_graph.asset_file_def:  # outlive the folder: the loaded model can be saved again
        asset.filename = str(source / "assets" / asset.filename)
    with tempfile.TemporaryDirectory(prefix="tf_placer_") as name:
        folder = pathlib.Path(name)
        for entry in source.iterdir():
            if entry.name != FILE_NAME:
                (folder / entry.name).symlink_to(entry)
        (folder / FILE_NAME).write_bytes(model.proto.SerializeToString())
        yield folder


def _check_resources(model: SavedModel, root: Any) -> None:
    """Checks the devices of variables and tables, after moving variables of TensorFlow 1."""
    if not model.meta_graph.HasField("object_graph_def"):
        device_of = {node.name: node.device for node in model.meta_graph.graph_def.node}
        targets = [(variable, device_of[variable.name.partition(":")[0]]) for variable in root.variables]
        move_to_devices(
            (variable, completed(device, str(model.path))) for variable, device in targets if device
        )
        for variable, device in targets:
            _check(model, f"variable {variable.name!r}", variable.device, device)
        return
    saved = model.meta_graph.object_graph_def.nodes
    view = tf.train.TrackableView(root)
    seen, frontier = {0}, [(0, root)]
    while frontier:
        number, loaded = frontier.pop()
        kind = saved[number].WhichOneof("kind")
        if kind == "variable":
            _check(model, f"variable {loaded.name!r}", loaded.device, saved[number].variable.device)
        elif kind == "resource":
            _check(model, f"resource {number}", loaded.resource_handle.device, saved[number].resource.device)
        children = view.children(loaded)
        for child in saved[number].children:
            if child.local_name in children and child.node_id not in seen:
                seen.add(child.node_id)
                frontier.append((child.node_id, children[child.local_name]))


def _check(model: SavedModel, what: str, device: str, wanted: str) -> None:
    if wanted and not _is_one(completed(device, str(model.path)), wanted):
        remedy = (
            "load it outside of tf.device and tf.distribute scopes"
            if tf.distribute.has_strategy()
            else "the file asks for several devices for what shares one; export the model again"
        )
        raise InputError(
            f"{model.path}: TensorFlow put {what} on {device or 'no device'} instead of {wanted}; {remedy}"
        )
