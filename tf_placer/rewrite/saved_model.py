"""Placements written into a SavedModel: signatures run where their plans say, all else is unchanged."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import re
import shutil
import urllib.parse
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf
from tensorflow.core.framework import function_pb2, types_pb2

from colocation.constraints import class_lists, ref_edges
from colocation.op_facts import copy_of, index_graph, new_node, parse_input, reached
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.files import appearing_whole
from tf_placer.graph import read_graph
from tf_placer.graph.clean import READ_ONLY_OPS
from tf_placer.graph.item import Item
from tf_placer.graph.program import (
    Program,
    fresh_name,
    functions_of,
    op_def,
    renamed_input,
    renamed_node,
    with_nodes,
    write_body,
)
from tf_placer.graph.read_graph import FILE_NAME, SERVING, InputShapes, SavedModel, read_saved_model
from tf_placer.problem.placement import Placement, PlanFile
from tf_placer.rewrite import functions
from tf_placer.rewrite.placed_function import fits
from tf_placer.rewrite.rewrite import apply_placement, check_placement, program_of_plan


def state_of(graph_def: tf.compat.v1.GraphDef) -> list[str]:
    """The ops of a graph that make a handle or a reference, variables and tables: there must not be two of them."""
    library = functions_of(graph_def.library)
    return [
        node.name
        for node in graph_def.node
        if any(out.is_ref or out.type == types_pb2.DT_RESOURCE for out in op_def(node, library).output_arg)
    ]


def add_graph(model: SavedModel, signature: str, placed: Program) -> None:
    """Adds a placed program to the main graph, as ``placed/SIGNATURE/...``; ``model`` is changed.

    The signature's own ops stay for whoever else needs them. What is fed and what holds state is the same for both.
    """
    graph_def = model.meta_graph.graph_def
    outputs = model.signature(signature).outputs
    scope = f"placed/{re.sub('[^A-Za-z0-9_.]', lambda found: f'-{ord(found[0])}', signature)}/"
    if all(output.name.startswith(scope) for output in outputs.values()):  # of an earlier export
        nodes = [node for node in graph_def.node if not node.name.startswith(scope)]
        del graph_def.node[:]
        graph_def.node.extend(nodes)
    renamed = functions.with_functions_renamed(placed.graph_def, f"__placed_{signature}")
    stays = {*state_of(renamed), *(feed.node for feed in placed.feeds)}
    name_of = {
        node.name: node.name if node.name in stays else scope + node.name.removeprefix(scope)
        for node in renamed.node
    }
    graph_def.node.extend(renamed_node(node, name_of) for node in renamed.node if node.name not in stays)
    graph_def.library.function.extend(renamed.library.function)
    graph_def.library.gradient.extend(renamed.library.gradient)
    node_of_name = {node.name: node for node in renamed.node}
    effects = [
        f"^{name_of[name]}" for name in placed.control_outputs if node_of_name[name].op not in READ_ONLY_OPS
    ]
    for key, fetch in zip(sorted(outputs), placed.fetches, strict=True):
        tensor = renamed_input(fetch, name_of)
        if effects:  # happen whatever is fetched, as those of a call do
            device = node_of_name[parse_input(fetch)[1]].device
            name, dtype = f"{scope}result/{key}", tf.as_dtype(outputs[key].dtype)
            result = new_node("Identity", name, [tensor, *effects], device, T=dtype)
            graph_def.node.append(result)
            tensor = f"{result.name}:0"
        outputs[key].name = tensor


PLANS = pathlib.Path("assets.extra") / "placement"
_NAMED = 5  # functions in a warning


class HasPlacement(Protocol):
    """A ``SearchResult``, say."""

    @property
    def placement(self) -> Placement: ...


def plan_file(signature: str) -> pathlib.Path:
    """Path, in an exported SavedModel, of the plan of a signature."""
    return PLANS / f"{urllib.parse.quote(signature, safe='')}.json"


def export_saved_model(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    result: Placement | HasPlacement | Mapping[str, Placement | HasPlacement],
    signature: str = "serving_default",
    batch_size: int = 32,
    input_shapes: InputShapes | None = None,
    tags: Iterable[str] = SERVING,
) -> None:
    """Writes a copy of a SavedModel in which signatures' ops, and what they share, are where placements put them.

    The signature's function gets the placed graph, calls inlined, for its body; a model of TensorFlow 1, which has
    none, gets that graph beside its ops. Other signatures, assets and values of variables are as they were. What the
    signature calls and an object has, too (``serve`` of a Keras export), runs where the plan says; a warning names what
    reads the same variables and does not. ``load_saved_model`` loads variables where they belong, too.

    Variables and tables that several placed signatures share are in one place, where the plan of the first has them,
    in the order of ``result``; plans that ``source`` was exported with come before all of those, but for one that is
    replaced. A later plan must agree (``pinned`` makes a problem whose plans do).

    Each plan lies in ``assets.extra/placement/SIGNATURE.json``. ``fingerprint.pb`` is the source's, byte for byte: it
    tells of what model this is a placement, and TensorFlow compares it with nothing. Its hash of the checkpoint holds
    for the copy as well, and for a model of TensorFlow 2 that of the signatures.

    Args:
      source: folder of the SavedModel; nothing of it is run.
      target: folder that is not there yet; it appears when it is complete, or not at all.
      result: a placement for ``Item.from_saved_model(source, signature, batch_size)`` or of its batch in parts
        (``tf_placer.split``), or a search's result with one; or one of these for each of several signatures, by name.
      signature: the placed signature, where ``result`` is not a mapping.
      batch_size: what the placements were made for; other sizes may be served. Where the batch is in parts, the sizes
        of parts are computed from an input; where nothing proves that this is right for other batches, these run
        whole, and a warning says so.
      input_shapes, tags: as ``Item.from_saved_model`` was given them.

    Raises:
      InputError: the model is damaged or cannot be copied, a placement is for another graph, plans disagree about a
        variable, or ``target`` is there or inside of the model.
    """
    source = arguments.path("source", source, "the folder of a SavedModel")
    target = arguments.path("target", target, "the folder to write")
    arguments.text("signature", signature, "give the name of one of its signatures")
    batch_size = arguments.whole_number("batch_size", batch_size, least=1)
    results = result if isinstance(result, Mapping) else {signature: result}
    if not results:
        raise InputError("result has no placement for any signature; give at least one")
    for name in results:
        arguments.text("result", name, "give name of signature -> placement")
    placements = {
        name: check_placement("result", getattr(plan, "placement", plan)) for name, plan in results.items()
    }
    if target.exists():
        raise InputError(f"target={target} is there already; give a new folder")
    if target.resolve().is_relative_to(pathlib.Path(source).resolve()):
        raise InputError(f"target={target} is inside of the model that is copied; give a folder elsewhere")
    model = read_saved_model(source, tags)
    items = {
        name: Item.from_saved_model(model, name, batch_size, input_shapes=input_shapes) for name in placements
    }
    export_placed(model, target, items, placements, input_shapes)


def export_placed(
    model: SavedModel,
    target: pathlib.Path,
    items: Mapping[str, Item],
    placements: Mapping[str, Placement],
    input_shapes: InputShapes | None = None,
) -> None:
    """``export_saved_model`` of a model that is already read; the same ``target`` and errors.

    ``items`` and ``placements`` have the placed signatures; ``input_shapes`` are those that the items were read with.
    """
    source, model = model, dataclasses.replace(model, proto=copy_of(model.proto))
    plans = {name: plan for name, plan in plans_in(model.path).items() if name not in placements}
    unplaced: dict[str, list[str]] = {}
    of_one_batch: dict[str, str] = {}
    for name, placement in placements.items():
        item = program_of_plan(items[name], placement)
        placement = placement.for_program(item.index.names)
        placed = dataclasses.replace(item.as_program(), graph_def=apply_placement(item, placement))
        devices = {node.name: node.device for node in placed.graph_def.node}
        in_parts = item.splitting is not None and item.splitting.parts > 1
        if in_parts:
            placed, why = _beside_the_whole(source, name, items[name], placement, placed, input_shapes)
            if why:
                of_one_batch[name] = f"{item.splitting} {why}"
        plans[name] = placement.device_names
        _check_agreement(source, plans)
        unplaced[name] = _place(model, name, placed, devices, item.splitting is not None)
    with appearing_whole(target) as unfinished:
        try:
            shutil.copytree(model.path, unfinished, dirs_exist_ok=True)
        except OSError as error:  # shutil's own too: a list of what it could not copy
            raise InputError(
                f"cannot copy {model.path} to {unfinished}: {error}; see that both can be read and written"
            ) from error
        for name in read_graph.SAVED_MODEL_FILES:
            (unfinished / name).unlink(missing_ok=True)
        (unfinished / FILE_NAME).write_bytes(model.proto.SerializeToString(deterministic=True))
        (unfinished / PLANS).mkdir(parents=True, exist_ok=True)
        for name, placement in placements.items():
            (unfinished / plan_file(name)).write_text(placement.to_json(), encoding="utf8")
    for name, clause in of_one_batch.items():
        warnings.warn(f"{model.path}: signature {name!r} runs {clause}", stacklevel=2)
    for name, paths in unplaced.items():
        if paths:
            rest = len(paths) - _NAMED
            listed = ", ".join(paths[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
            warnings.warn(
                f"{model.path}: {listed} run unplaced, wholly or in part: the plan of signature {name!r} is "
                f"for what that calls; call the signature, or export the model with one for them",
                stacklevel=2,
            )


def _beside_the_whole(
    model: SavedModel,
    name: str,
    item: Item,
    placement: Placement,
    placed: Program,
    input_shapes: InputShapes | None,
) -> tuple[Program, str]:
    """The placed program of a batch in parts for inputs of its sizes, and the whole one for all others.

    Also a clause about other batches, where there may be any.
    """
    splitting, cluster = placement.problem.splitting, placement.problem.cluster
    assert splitting is not None  # of a batch in parts
    host = "" if cluster.host is None else cluster.devices[cluster.host].name
    if item.splitting is not None:
        item = Item.from_saved_model(model, name, splitting.batch, input_shapes=input_shapes)
    nodes = {node.name: node for node in model.meta_graph.graph_def.node}
    declared = {feed.node: tf.TensorShape(nodes[feed.node].attr["shape"].shape) for feed in item.feeds}
    program = _chosen_by_size(item, placed, declared, host)
    if program is not None:
        return program, "" if program is placed else "alone, and whole for all others"
    with tf.Graph().as_default():
        program = _with_sizes(item, placed, _placeholders(item, declared), tf.ensure_shape)
    return program, "alone, and refuses all others: it has reference variables, which no branch can be given"


def plans_in(path: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """Signature -> op name -> device, of the plans that a SavedModel was exported with; most have none."""
    return {
        urllib.parse.unquote(file.stem): dict(PlanFile.read(file).devices)
        for file in sorted((pathlib.Path(path) / PLANS).glob("*.json"))
    }


def _check_agreement(model: SavedModel, plans: Mapping[str, Mapping[str, str]]) -> None:
    """Raises InputError where signatures are one function, or a plan disagrees with an earlier one.

    ``plans`` are signature -> op name -> device; signatures may have variables and tables in common.
    """
    decided: dict[str, tuple[str, str]] = {}  # main-graph op -> signature, device
    signature_of_body: dict[str, str] = {}
    for signature, devices in plans.items():
        call = functions.call_of(model, signature)
        body = signature if call is None else call.body.signature.name
        earlier = signature_of_body.setdefault(body, signature)
        if earlier != signature:
            raise InputError(
                f"{model.path}: signatures {earlier!r} and {signature!r} are one function, which has one plan; place "
                "one"
            )
        shared = state_of(model.meta_graph.graph_def) if call is None else call.handles
        for op in filter(devices.__contains__, shared):
            deciding, device = decided.setdefault(op, (signature, devices[op]))
            if device != devices[op]:
                raise InputError(
                    f"{model.path}: signature {signature!r} puts {op!r} on {devices[op]}, but {deciding!r}, whose plan "
                    f"counts, has it on {device}; search {signature!r} on "
                    f"tf_placer.pinned(item, problem, the placement of {deciding!r})"
                )


def _place(
    model: SavedModel, signature: str, placed: Program, devices: Mapping[str, str], is_split: bool
) -> list[str]:
    """Writes one signature's placed program into ``model``; returns the functions of objects that run unplaced."""
    call, graph_def = functions.call_of(model, signature), model.meta_graph.graph_def
    handles = set(state_of(graph_def) if call is None else call.handles)
    moved = {name: devices[name] for name in handles if name in devices}
    unplaced: list[str] = []
    if call is None:
        add_graph(model, signature, placed)
    else:
        unplaced = functions.place_object_functions(model, signature, call, devices, is_split)
        functions.replace_body(model, signature, call, placed)
        # TensorFlow 2 looks for the devices of variables and tables in the objects. A call's last inputs are what its
        # function captures, in the same order.
        objects, body = model.meta_graph.object_graph_def, call.body.signature.name
        captured = objects.concrete_functions[body].bound_inputs
        for argument, number in zip(reversed(call.arguments), reversed(captured), strict=False):
            if number not in range(len(objects.nodes)):
                raise InputError(
                    f"{model.path} is damaged: function {body!r} captures object {number}, which is not there"
                )
            kind = objects.nodes[number].WhichOneof("kind")
            if argument in devices and kind in ("variable", "resource"):
                getattr(objects.nodes[number], kind).device = devices[argument]
    for node in graph_def.node:
        node.device = moved.get(node.name, node.device)
    if call is None:
        # Importing puts what shares the device of a variable or a table there, whatever device it asks for: ops of
        # other signatures, too.
        index = index_graph(graph_def)
        tied: dict[int, list[int]] = collections.defaultdict(list)
        for merge in (*class_lists(index), *ref_edges(index)):
            tied[merge.op_a].append(merge.op_b)
            tied[merge.op_b].append(merge.op_a)
        for name, device in moved.items():
            for op in reached([index.id_of_name[name]], tied.__getitem__):
                graph_def.node[op].device = device
    return unplaced


def _chosen_by_size(
    item: Item, placed: Program, declared: Mapping[str, tf.TensorShape], device: str
) -> Program | None:
    """A program that runs in parts where its inputs have the sizes of the plan, and whole where they have not.

    Where inputs can have no other sizes, the placed program alone. None where no function can be given its state.
    ``item`` is whole, ``placed`` in parts; ``declared`` is feed -> its shape, open where calls may have any size, which
    ``device`` compares.
    """
    shapes = [tf.TensorShape(feed.shape) for feed in item.feeds]
    with tf.Graph().as_default() as graph:
        feeds = _placeholders(item, declared)
        with tf.device(device), tf.name_scope("sizes_fit"):
            is_of_plan = fits(shapes, list(feeds.values()))
    if not isinstance(is_of_plan, tf.Tensor):  # all sizes that may come are the plan's
        return placed
    chooser = graph.as_graph_def()
    library, holding = functions_of(placed.graph_def.library), set(state_of(placed.graph_def))
    state = [node for node in placed.graph_def.node if not node.input and node.name in holding]
    if any(argument.is_ref for node in state for argument in op_def(node, library).output_arg):
        return None
    in_use = {*feeds, *(node.name for node in chooser.node), *(node.name for node in item.graph_def.node)}
    name = fresh_name("by_size", in_use)
    dtype_of = {node: tensor.dtype.as_datatype_enum for node, tensor in feeds.items()}
    dtype_of |= {node.name: tf.resource.as_datatype_enum for node in state}
    fetched = [parse_input(text)[1:] for text in item.fetches]
    types = [item.outputs[item.index.id_of_name[op]][i].dtype.as_datatype_enum for op, i in fetched]

    def cut(tensor: tf.Tensor, sizes: Sequence[int | None], name: str) -> tf.Tensor:
        # A slice from the begin of each axis, for the reason in ``placed_function.cut_to_fit``.
        return tf.slice(tensor, [0] * len(sizes), [-1 if size is None else size for size in sizes], name)

    branches = [
        _as_function(f"{name}_{branch}", program, dtype_of, types)
        for branch, program in (
            ("in_parts", _with_sizes(item, placed, feeds, cut)),
            ("whole", item.as_program()),
        )
    ]
    chooser.node.extend(state)
    has_state = any(function.signature.is_stateful for function in branches)
    attributes = {
        "Tcond": tf.bool,
        "Tin": list(map(tf.as_dtype, dtype_of.values())),
        "Tout": list(map(tf.as_dtype, types)),
        "_lower_using_switch_merge": True,  # ops in branches are on devices of their own
        "then_branch": branches[0].signature.name,
        "else_branch": branches[1].signature.name,
    }
    inputs = [is_of_plan.name, *dtype_of]
    chooser.node.append(new_node("If" if has_state else "StatelessIf", name, inputs, **attributes))
    for source in (placed.graph_def.library, item.graph_def.library):
        names = {function.signature.name for function in chooser.library.function}
        chooser.library.function.extend(f for f in source.function if f.signature.name not in names)
        chooser.library.gradient.extend(g for g in source.gradient if g not in chooser.library.gradient)
    chooser.library.function.extend(branches)
    chooser.versions.CopyFrom(placed.graph_def.versions)
    return dataclasses.replace(
        placed,
        graph_def=chooser,
        fetches=tuple(f"{name}:{i}" for i in range(len(types))),
        control_outputs=(name,) if item.control_outputs else (),
    )


def _placeholders(item: Item, declared: Mapping[str, tf.TensorShape]) -> dict[str, tf.Tensor]:
    return {
        feed.node: tf.compat.v1.placeholder(feed.dtype, declared[feed.node], feed.node) for feed in item.feeds
    }


def _with_sizes(
    item: Item,
    placed: Program,
    feeds: Mapping[str, tf.Tensor],
    give: Callable[[tf.Tensor, Sequence[int | None], str], tf.Tensor],
) -> Program:
    """The program with its inputs given the plan's sizes by ``give``, None for known ones."""
    node_of = {node.name: node for node in placed.graph_def.node}
    in_use, new_name, nodes = set(node_of), dict[str, str](), []
    for feed in item.feeds:
        shape = feeds[feed.node].shape
        sizes = [
            None if shape.rank is not None and shape[axis] else size for axis, size in enumerate(feed.shape)
        ]
        if feed.node not in node_of or all(size is None for size in sizes):
            continue
        new_name[feed.node] = fresh_name(f"{feed.node}/of_the_plan", in_use)
        with tf.Graph().as_default() as graph, tf.device(node_of[feed.node].device):
            give(tf.compat.v1.placeholder(feed.dtype, name=feed.node), sizes, new_name[feed.node])
        nodes += [node for node in graph.as_graph_def().node if node.name != feed.node]
    renamed = [renamed_node(node, new_name) for node in placed.graph_def.node if node.name not in new_name]
    nodes += renamed + [node_of[name] for name in new_name]
    return dataclasses.replace(
        placed,
        graph_def=with_nodes(placed.graph_def, nodes),
        fetches=tuple(renamed_input(text, new_name) for text in placed.fetches),
    )


def _as_function(
    name: str, program: Program, dtype_of: Mapping[str, int], types: Sequence[int]
) -> function_pb2.FunctionDef:
    """A program as a function of its inputs and handles."""
    function = function_pb2.FunctionDef()
    signature = function.signature
    signature.name = name
    for i, dtype in enumerate(dtype_of.values()):
        signature.input_arg.add(name=f"argument_{i}", type=dtype)
    for i, dtype in enumerate(types):
        signature.output_arg.add(name=f"result_{i}", type=dtype)
    library = functions_of(program.graph_def.library)
    nodes = (node for node in program.graph_def.node if node.name not in dtype_of)
    signature.is_stateful = any(op_def(node, library).is_stateful for node in nodes)
    write_body(
        function,
        program.graph_def,
        {node: f"argument_{i}" for i, node in enumerate(dtype_of)},
        {f"result_{i}": fetch for i, fetch in enumerate(program.fetches)},
        program.control_outputs,
    )
    return function
