"""Pins: ops that must be on a device by a user's or the program's request; the rest is placed around them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.cluster.device import device_position, named_parts
from tf_placer.costs.analytic import analytic_costs
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import units_of
from tf_placer.problem.layers import scopes_of
from tf_placer.problem.placement import Placement, device_positions
from tf_placer.problem.problem import Problem

_NAMED = 3  # ops, in a message
_TOLD = 3  # reasons; a message is one line
_LOCALHOST = "/job:localhost/replica:0/task:0"


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
