"""Item and cluster to Problem, with estimated costs: units, op costs, tensors; and pins, which narrow it.

A pin says that ops must be on a device, by a user's or the program's request; the rest is placed around them.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from colocation.op_facts import having, values
from colocation.units import Units, attach_constants, attach_pools, form_units
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import without_collections
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import device_position, named_parts
from tf_placer.costs.analytic import OpCosts, analytic_costs, frame_trips
from tf_placer.graph.fusible import why_not_fusible
from tf_placer.graph.item import Item
from tf_placer.graph.program import PARKED, tensor_bytes
from tf_placer.problem.layers import scopes_of
from tf_placer.problem.op_graph import TensorTable, tensor_table
from tf_placer.problem.placement import Placement, device_positions
from tf_placer.problem.problem import Problem

_NAMED = 3  # ops, in a message
_TOLD = 3  # reasons; a message is one line
_LOCALHOST = "/job:localhost/replica:0/task:0"

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


@dataclasses.dataclass(frozen=True)
class Pin:
    """Ops by name, and the device that they must be on.

    Raises:
      InputError: ``ops`` is no regular expression, or ``device`` is no device name.
    """

    # Regular expression that matches their whole names, for example ``"encoder/.*"``; where none
    # has such a name, those in layers whose names it matches, ``"dense_1"`` or
    # ``"encoder/dense_1"``, with their gradients.
    ops: str
    device: str  # TensorFlow device name, whole or in part, for example ``"GPU:1"``; it must mean one device

    def __post_init__(self) -> None:
        try:
            re.compile(self.ops)
        except re.error as error:
            raise InputError(
                f"pin {self.ops!r} is no regular expression ({error}); write it like 'encoder/.*'"
            ) from error
        with arguments.named(f"pin {self.ops!r}"):
            named_parts(self.device)

    @staticmethod
    def parse(text: str) -> Pin:
        """A pin from ``"ops=device"``."""
        ops, equals, device = text.rpartition("=")
        if not (ops and equals and device):
            raise InputError(
                f"pin {text!r} is not of the form 'ops=device'; write it like 'encoder/.*=/device:CPU:0'"
            )
        return Pin(ops, device)

    def matching(self, op_names: Sequence[str]) -> list[int]:
        """Positions of the pinned ops."""
        pattern = re.compile(self.ops)
        matches = [op for op, name in enumerate(op_names) if pattern.fullmatch(name)]
        if matches:
            return matches
        # Of an op in ("a", "dense") these are the layers a, dense and a/dense.
        return [
            op
            for op, scope in enumerate(scopes_of(op_names, [""] * len(op_names)))
            if any(
                pattern.fullmatch("/".join(scope[begin:end]))
                for begin, end in itertools.combinations(range(len(scope) + 1), 2)
            )
        ]


def pins_of_each(op_names: Mapping[str, Sequence[str]], pins: Sequence[Pin]) -> dict[str, tuple[Pin, ...]]:
    """The pins that match ops of each program (program -> names), such as the signatures of one model."""
    matched = {
        program: tuple(pin for pin in pins if pin.matching(names)) for program, names in op_names.items()
    }
    for pin in pins:
        if not any(pin in pins_found for pins_found in matched.values()):
            examples = "; ".join(
                f"{program}: {', '.join(map(repr, names[-_NAMED:]))}" for program, names in op_names.items()
            )
            raise InputError(
                f"pin {pin.ops!r} matches no op of any signature; their ops have names such as {examples}"
            )
    return matched


def with_pins(item: Item, problem: Problem, pins: Sequence[Pin]) -> Problem:
    """The item's problem with the pinned ops, and with them their units, allowed on their device only.

    Several pins may match an op, if they agree.
    """
    fixed: dict[int, int] = {}
    pin_of_op: dict[int, Pin] = {}
    for pin in pins:
        with arguments.named(f"pin {pin.ops!r}"):
            device = device_position(problem.cluster.devices, pin.device)
        ops = pin.matching(problem.op_names)
        if not ops:
            raise InputError(
                f"pin {pin.ops!r} matches no op of {problem.name!r}; its ops have names such as "
                f"{', '.join(map(repr, problem.op_names[-_NAMED:]))}"
            )
        for op in ops:
            if fixed.setdefault(op, device) != device:
                raise InputError(
                    f"op {problem.op_names[op]!r} is pinned to {pin_of_op[op].device} by {pin_of_op[op].ops!r} and to "
                    f"{pin.device} by {pin.ops!r}; keep one"
                )
            pin_of_op.setdefault(op, pin)
    return with_fixed_ops(item, problem, fixed)


def check_is_of(item: Item, problem: Problem) -> None:
    """Raises InputError where a problem is of another program."""
    arguments.instance_of("item", item, Item, "give what Item.from_function or Item.from_saved_model returns")
    arguments.instance_of(
        "problem", problem, Problem, "give what tf_placer.build_problem returns for the item"
    )
    if problem.fingerprint != item.fingerprint:
        raise InputError(
            f"problem {problem.name!r} ({problem.num_ops} ops) is not about item {item.name!r} "
            f"({item.index.num_ops} ops); build it from this item"
        )


def pinned(item: Item, problem: Problem, device_of_op: Mapping[str, str] | Placement) -> Problem:
    """The item's problem with some ops, and with them their units, allowed on one device only.

    For a second signature of a SavedModel, say, whose variables are where the plan of the first has them.

    Args:
      device_of_op: ops -> device, as a ``Pin`` has them: names, regular expressions or layers; or another program's
        placement, of which the ops that the problem lacks are left out.
    """
    check_is_of(item, problem)
    if isinstance(device_of_op, Placement):
        return with_fixed_ops(item, problem, device_positions(problem, device_of_op.device_names))
    devices = arguments.texts_by_text("device_of_op", device_of_op, "give ops -> device, both as texts")
    with arguments.named("device_of_op"):
        return with_pins(item, problem, [Pin(ops, device) for ops, device in devices.items()])


def with_fixed_ops(item: Item, problem: Problem, fixed: Mapping[int, int]) -> Problem:
    """The item's problem with some ops (op -> device, as positions) and their units allowed on one device only.

    Raises:
      InputError: two ops of one unit are fixed to different devices, or one to a device where an op of its unit has no
        kernel; says which ops, and what ties them.
    """
    allowed, names = problem.allowed.copy(), [device.name for device in problem.cluster.devices]
    first_of_unit: dict[int, int] = {}
    for op, device in fixed.items():
        unit, about = int(problem.unit_of_op[op]), f"op {problem.op_names[op]!r}"
        leader = first_of_unit.setdefault(unit, op)
        if fixed[leader] != device:
            raise InputError(
                f"op {problem.op_names[leader]!r} must be on {names[fixed[leader]]} and {about} on {names[device]}, "
                f"but they share a device: {what_ties(item, leader, op)}"
            )
        if not problem.allowed[unit, device]:
            raise InputError(
                f"{about} must be on {names[device]}, where {why_not_allowed(item, problem, op, device)}"
            )
        allowed[unit] = np.arange(len(names)) == device
    return dataclasses.replace(problem, allowed=allowed)


def what_ties(item: Item, op_a: int, op_b: int) -> str:
    """The chain of rules that puts two ops of one unit on one device, as one line."""
    return "; ".join(f"{merge.reason} ({merge.rule})" for merge in units_of(item).why(op_a, op_b))


def why_not_allowed(item: Item, problem: Problem, op: int, device: int) -> str:
    """Reason why an op's unit cannot be on a device: the op without a kernel there, and their tie; one line."""
    has_kernel = analytic_costs(item, problem.cluster).allowed[:, device]
    members = (problem.unit_of_op == problem.unit_of_op[op]).nonzero()[0]
    blocking = [int(member) for member in members if not has_kernel[member]]
    if not blocking:
        on_host = [name for member in members if (name := problem.op_names[int(member)]) in item.host_ops]
        if on_host:
            why = item.host_ops[on_host[0]]
            return f"it cannot be: op {on_host[0]!r}, which shares its device, stays on the host ({why})"
        return "another pin or plan does not let it be"
    if op in blocking:
        return f"{problem.op_types[op]} has no kernel"
    blocker = blocking[0]
    return (
        f"op {problem.op_names[blocker]!r} ({problem.op_types[blocker]}) has no kernel, and they share a device: "
        f"{what_ties(item, op, blocker)}"
    )


@dataclasses.dataclass(frozen=True)
class Respected:
    """Problem narrowed to the devices that a program requests, and a count of the requests that were dropped."""

    problem: Problem  # each op that gets what it asks for, and with it its unit, allowed on such devices only
    # Ops that get it, and that ask for something they do not get.
    num_respected: int
    num_dropped: int
    reasons: str  # one line that says what is not respected and why; empty where everything is


def narrowed_units(before: Problem, after: Problem) -> np.ndarray:
    """Returns [U] whether pins or a plan took devices from a unit."""
    return (before.allowed != after.allowed).any(axis=1)


def with_requested_devices(item: Item, problem: Problem, is_decided: np.ndarray | None = None) -> Respected:
    """Narrows a problem to the devices that the item's ops ask for (``Item.requested_devices``).

    A request leaves what fits it: ``/device:GPU:*`` any GPU, ``/device:CPU:0`` the first CPU of every task. It is
    dropped, never an error, where the cluster has no such device, where an op cannot be there or is fixed elsewhere,
    and where an op that comes earlier in the graph and shares a device with it asks for another.

    Of units that a pin or a plan decides, ``is_decided`` [U], that counts, and nothing is told.
    """
    if is_decided is None:
        is_decided = np.zeros(problem.num_units, bool)
    allowed = problem.allowed.copy()
    asked_by: dict[int, tuple[str, str]] = {}  # unit -> the op that narrowed it first, and what it asked for
    requested = {device for devices in item.requested_devices.values() for device in devices}
    fitting = {device: _fitting(problem, device) for device in requested}
    dropped: dict[tuple[str, str], list[str]] = {}  # (device, why) -> ops
    respected = set()
    for op, name in enumerate(problem.op_names):
        unit = int(problem.unit_of_op[op])
        for device in item.requested_devices.get(name, ()) if not is_decided[unit] else ():
            remaining = allowed[unit] & fitting[device]
            if remaining.any():
                allowed[unit] = remaining
                asked_by.setdefault(unit, (name, device))
                respected.add(name)
                continue
            if not fitting[device].any():
                why = f"which cluster {problem.cluster.name!r} lacks"
            elif not (problem.allowed[unit] & fitting[device]).any():
                why = "where it or an op beside it cannot run"
            elif asked_by[unit][0] == name:
                why = f"but also for {asked_by[unit][1]}, and it runs on one device"
            else:
                why = "but shares a device with {!r}, which asks for {}".format(*asked_by[unit])
            dropped.setdefault((device, why), []).append(name)
    losers = {name for names in dropped.values() for name in names}
    # The most frequent reasons, each with the number of its ops and one example.
    reasons = []
    for (device, why), names in sorted(dropped.items(), key=lambda entry: -len(entry[1])):
        subject = f"op {names[0]!r} asks" if len(names) == 1 else f"{len(names)} ops such as {names[0]!r} ask"
        reasons.append(f"{subject} for {device}, {why}")
    if len(reasons) > _TOLD:
        reasons[_TOLD:] = [f"and {len(reasons) - _TOLD} other reasons"]
    return Respected(
        problem=dataclasses.replace(problem, allowed=allowed),
        num_respected=len(respected - losers),
        num_dropped=len(losers),
        reasons="; ".join(reasons),
    )


def _fitting(problem: Problem, request: str) -> np.ndarray:
    """[D] devices that have every part of a device string; none for other texts."""
    cluster = problem.cluster
    # Local GPUs also have the name that they have in the process that uses them.
    has_local_gpus = cluster.kind == "local" and any(device.type == "GPU" for device in cluster.devices)
    fitting = np.zeros(len(cluster.devices), bool)
    for d, device in enumerate(cluster.devices):
        names = [device.name]
        if has_local_gpus:
            names.append(_LOCALHOST + device.name[device.name.index("/device:") :])
        for name in names:
            with contextlib.suppress(ValueError):  # no device string
                spec = tf.DeviceSpec.from_string(name)
                fitting[d] |= spec.make_merged_spec(tf.DeviceSpec.from_string(request)) == spec
    return fitting
