"""Item and cluster to Problem, with estimated costs: units, op costs, tensors."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from colocation.op_facts import having, values
from colocation.units import Units, attach_constants, attach_pools, form_units
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import without_collections
from tf_placer.cluster.cluster import Cluster
from tf_placer.costs.analytic import OpCosts, analytic_costs, frame_trips
from tf_placer.graph.fusible import why_not_fusible
from tf_placer.graph.item import Item
from tf_placer.graph.program import PARKED, tensor_bytes
from tf_placer.problem.op_graph import TensorTable, tensor_table
from tf_placer.problem.problem import Problem

# Op type -> the input that its outputs are views of. Of one with several outputs: all of that input.
VIEWS: Mapping[str, int] = {op_type: int(position) for op_type, position in values("view").items()}

# The outputs of these exist before the step, or belong to a kernel or to the caller.
_KEEPS_ITS_OUTPUT = having("held_elsewhere")
# A variable that one of these touches gives away copies.
_SPARSE_ACCESS = ("ResourceGather", "ResourceScatter", "ResourceSparseApply")
_SPLITS = {"Split": (1, 0), "SplitV": (0, 2)}  # op type -> positions of the value and of the axis
# Op type -> the input that is put where a loop of TensorFlow 1 holds it of all its iterations.
_HELD = {op_type: int(position) for op_type, position in values("puts").items()}


# Op type -> output, and the inputs that it may be written into, of which the first that fits is taken.
WRITES_INTO: Mapping[str, tuple[int, Sequence[int]]] = {
    op_type: (int(output), range(2**31 - 1) if inputs == "any" else tuple(map(int, inputs.split(","))))
    for op_type, (output, _, inputs) in ((name, text.partition(":")) for name, text in values("into").items())
}


def _view_of(item: Item, op: int, inputs: Sequence[tuple[int, int]]) -> int | None:
    """Position of the input (op, output) that the outputs of an op are views of."""
    op_type, nodes = item.index.op_types[op], item.graph_def.node
    if op_type == "Pack":
        return 0 if len(inputs) == 1 else None
    if op_type == "Unpack":  # rows of the first dimension lie one after the other
        return 0 if nodes[op].attr["axis"].i == 0 else None
    if op_type in _SPLITS:
        value, axis = _SPLITS[op_type]
        where = nodes[inputs[axis][0]]
        is_first = where.op == "Const" and int(tf.make_ndarray(where.attr["value"].tensor)) == 0
        return value if is_first else None
    return VIEWS.get(op_type)


def aliases(item: Item, table: TensorTable) -> np.ndarray:
    """[T] int32: input tensor whose memory each tensor reuses on its own device, -1 for memory of its own.

    What the program is fed has itself: the caller holds it for the whole step.
    """
    index, keys = item.index, list(zip(table.producer.tolist(), table.output.tolist(), strict=True))
    tensor_of = {key: t for t, key in enumerate(keys)}
    inputs = index.inputs
    reads = collections.Counter(itertools.chain.from_iterable(inputs))
    for fetch in item.fetches:
        name, _, output_number = fetch.partition(":")
        reads[index.id_of_name[name], int(output_number or 0)] += 1
    copied = {
        inputs[op][0][0]
        for op, op_type in enumerate(index.op_types)
        if op_type.startswith(_SPARSE_ACCESS) and inputs[op]
    }
    alias = np.full(len(keys), -1, np.int32)
    fed = {index.id_of_name[feed.node] for feed in item.feeds}
    is_alone = np.zeros(len(keys), bool)  # no other tensor can hold its memory
    for t, (op, output) in enumerate(keys):  # an op's inputs come before its outputs
        if table.num_bytes[t] == 0:
            continue
        op_type, source = index.op_types[op], None
        position = _view_of(item, op, inputs[op])
        is_copy = op_type == "ReadVariableOp" and inputs[op][0][0] in copied
        if position is not None and position < len(inputs[op]) and not is_copy:
            source = tensor_of.get(inputs[op][position])
        is_part = source is not None and len(item.outputs[op]) > 1
        written, positions = WRITES_INTO.get(op_type, (-1, ()))
        if source is None and output == written:
            spec = item.outputs[op][output]
            for producer, read in (inputs[op][position] for position in positions[: len(inputs[op])]):
                candidate, read_spec = tensor_of.get((producer, read)), item.outputs[producer][read]
                fits = (read_spec.dtype, read_spec.num_bytes) == (spec.dtype, spec.num_bytes)
                if candidate is not None and is_alone[candidate] and fits:
                    source = candidate
                    break
        if op in fed:
            alias[t] = t
        elif source is None or source == t:
            is_alone[t] = op_type not in _KEEPS_ITS_OUTPUT and reads[op, output] == 1
        else:
            alias[t] = source
            is_alone[t] = not is_part and is_alone[source] and reads[op, output] == 1
    return alias


@without_collections()
def analytic_problem(item: Item, cluster: Cluster) -> Problem:
    """Describes placing ``item`` on ``cluster``, with analytic op costs."""
    if not item.index.num_ops:
        raise InputError(
            f"{item.name!r} has no op: it gives back what it is given, so there is nothing to place"
        )
    units = units_of(item)
    costs = analytic_costs(item, cluster)
    allowed = np.ones((units.num_units, len(cluster.devices)), bool)
    np.logical_and.at(allowed, units.unit_of_op, costs.allowed)
    counted = cluster.accelerators()
    if not counted.all():
        parked = [op for op, node in enumerate(item.graph_def.node) if PARKED in node.attr]
        allowed[units.unit_of_op[parked]] &= ~counted
    _check_every_unit_has_a_device(allowed, costs, units, item, cluster)
    _keep_on_host(allowed, units, item, cluster)
    resident_bytes = np.zeros(units.num_units, np.int64)
    for variable in item.variables:
        resident_bytes[units.unit_of_op[item.index.id_of_name[variable.node]]] += variable.num_bytes
    # Bytes behind a handle for most of a step, which no tensor of the graph shows.
    for op, op_type in enumerate(item.index.op_types):
        if op_type == "TemporaryVariable":
            (spec,) = item.outputs[op]
            resident_bytes[units.unit_of_op[op]] += tensor_bytes(spec.shape, spec.dtype)
    if not _HELD.keys().isdisjoint(item.index.op_types):
        runs, _ = frame_trips(item.index, item.outputs)
        for producer, output, consumer, position in item.index.data_edges.tolist():
            if _HELD.get(item.index.op_types[consumer]) == position:
                num_bytes = float(runs[consumer]) * item.outputs[producer][output].num_bytes
                resident_bytes[units.unit_of_op[consumer]] += round(num_bytes)
    table = item_tensors(item)
    return Problem(
        name=item.name,
        cluster=cluster,
        unit_of_op=units.unit_of_op,
        compute_ns=costs.compute_ns,
        tensor_producer=table.producer,
        tensor_bytes=table.num_bytes,
        consumer_offset=table.consumer_offset,
        consumer_op=table.consumer_op,
        resident_bytes=resident_bytes,
        allowed=allowed,
        priority=np.zeros(item.index.num_ops, np.int32),
        op_names=item.index.names,
        op_types=item.index.op_types,
        output_shapes=tuple(tuple(spec.shape for spec in outputs) for outputs in item.outputs),
        fingerprint=item.fingerprint,
        guessed_op_types=dict(costs.guessed),
        estimated_sizes=item.estimated_sizes,
        work=costs.work,
        alias_of_tensor=aliases(item, table),
        stage_of_op=item.stage_of_op,
        fusible_of_op=np.array([not why for why in why_not_fusible(item)], bool),
        splitting=item.splitting,
    )


def units_of(item: Item) -> Units:
    """The item's units: TensorFlow's hard colocation rules, and what helps nobody on different devices.

    These are constants and their only reader, and a channels-first pool and its gradient.
    """
    return form_units(item.index, heuristics=(attach_pools, attach_constants))


def item_tensors(item: Item) -> TensorTable:
    """The item's tensors: every output with bytes or readers, and one of 0 bytes per op with control readers."""
    index = item.index
    op_of_output = np.repeat(np.arange(index.num_ops), [len(o) for o in item.outputs])
    output_number = np.concatenate([np.arange(len(o)) for o in item.outputs] or [np.zeros(0, int)])
    output_bytes = np.array([spec.num_bytes for outputs in item.outputs for spec in outputs], np.int64)
    first_output = np.concatenate([[0], np.cumsum([len(o) for o in item.outputs])]).astype(np.int64)
    # What goes back in a TensorFlow 1 loop stays in its unit: nobody waits for it.
    data = index.data_edges[index.data_edges[:, 2] > index.data_edges[:, 0]]
    control = index.control_edges
    held = output_bytes > 0
    edges = np.concatenate([data[:, [0, 2]], control, np.stack([op_of_output, op_of_output], axis=1)[held]])
    tensor = np.concatenate([data[:, 1], np.full(len(control), -1), output_number[held]])
    num_bytes = np.concatenate(
        [
            output_bytes[first_output[data[:, 0]] + data[:, 1]],
            np.zeros(len(control), np.int64),
            output_bytes[held],
        ]
    )
    return tensor_table(edges, tensor, num_bytes)


def _keep_on_host(allowed: np.ndarray, units: Units, item: Item, cluster: Cluster) -> None:
    """Leaves units of ops that must be in the calling process one device: where their resource is, or the host.

    ``allowed`` [U, D] is changed in place.
    """
    position = {device.name: d for d, device in enumerate(cluster.devices)}
    device_of_capture = {capture.node: position.get(capture.device) for capture in item.host_captures}
    device_of_capture |= {variable.node: position.get(variable.device) for variable in item.variables}
    home_of_unit: dict[int, tuple[int, str]] = {}
    # Captures first: a resource is where it is, and what else its unit holds goes along.
    for name in sorted(item.host_ops, key=lambda name: device_of_capture.get(name) is None):
        reason, unit = item.host_ops[name], int(units.unit_of_op[item.index.id_of_name[name]])
        home = device_of_capture.get(name)
        earlier, _ = home_of_unit.get(unit, (None, ""))
        if home is None:
            home = cluster.host if earlier is None else earlier
        if home is None:
            raise InputError(
                f"op {name!r} must stay on the host ({reason}), but cluster {cluster.name!r} has no CPU; give it one"
            )
        if earlier not in (None, home):
            raise InputError(
                f"ops {home_of_unit[unit][1]!r} and {name!r} are resources on {cluster.devices[earlier].name} and "
                f"{cluster.devices[home].name}, but they share a device; make both on one"
            )
        if not allowed[unit, home]:
            raise InputError(
                f"op {name!r} must stay on {cluster.devices[home].name} ({reason}), where an op that shares its "
                "device has no kernel"
            )
        home_of_unit[unit] = (home, name)
    for unit, (device, _) in home_of_unit.items():
        allowed[unit] = False
        allowed[unit, device] = True


def _check_every_unit_has_a_device(
    allowed: np.ndarray, costs: OpCosts, units: Units, item: Item, cluster: Cluster
) -> None:
    homeless = ~allowed.any(axis=1)
    if not homeless.any():
        return
    unit = int(np.argmax(homeless))
    ops = np.flatnonzero(units.unit_of_op == unit)
    blocked = next((op for op in ops if not costs.allowed[op].any()), None)
    limited = next((op for op in ops if int(op) in costs.why_not_on_cpu), None)
    why = "" if limited is None else f": {costs.why_not_on_cpu[int(limited)]}"
    if blocked is not None:
        name, op_type = item.index.names[blocked], item.index.op_types[blocked]
        raise InputError(
            f"op {name!r} ({op_type}) has a kernel on no device of cluster {cluster.name!r}{why}"
        )
    worst = sorted(ops, key=lambda op: costs.allowed[op].sum())[:2]
    names = " and ".join(repr(item.index.names[op]) for op in worst)
    raise InputError(
        f"ops {names} must share a device, but no device of cluster {cluster.name!r} runs both{why}"
    )
