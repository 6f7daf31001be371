"""Ops stay where the program itself asks for them, as far as the cluster has such devices."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.problem import Problem

_TOLD = 3  # reasons; a message is one line
_LOCALHOST = "/job:localhost/replica:0/task:0"


@dataclasses.dataclass(frozen=True)
class Respected:
    """What became of the devices that a program asks for.

    Attributes:
      problem: each op that gets what it asks for, and with it its unit, allowed on such devices only.
      num_respected, num_dropped: ops that get it, and that ask for something they do not get.
      reasons: one line that says what is not respected and why; empty where everything is.
    """

    problem: Problem
    num_respected: int
    num_dropped: int
    reasons: str


def narrowed_units(before: Problem, after: Problem) -> np.ndarray:
    """Returns [U] whether pins or a plan took devices from a unit."""
    return (before.allowed != after.allowed).any(axis=1)


def with_requested_devices(item: Item, problem: Problem, is_decided: np.ndarray | None = None) -> Respected:
    """Narrows a problem to the devices that the item's ops ask for (``Item.requested_devices``).

    A request leaves what fits it: ``/device:GPU:*`` any GPU, ``/device:CPU:0`` the first CPU of every task. It is
    dropped, never an error, where the cluster has no such device, where an op cannot be there or is fixed elsewhere,
    and where an op that comes earlier in the graph and shares a device with it asks for another.

    Args:
      item: the program.
      problem: of that item.
      is_decided: [U] units of which a pin or a plan says something: that counts, and nothing is told.
    """
    if is_decided is None:
        is_decided = np.zeros(problem.num_units, bool)
    allowed = problem.allowed.copy()
    asked_by: dict[int, tuple[str, str]] = {}  # unit -> the op that narrowed it first, and what it asked for
    fitting = {device: _fitting(problem.cluster, device) for device in _all(item.requested_devices)}
    dropped: dict[tuple[str, str], list[str]] = {}  # (device, why) -> ops
    respected = set()
    for op, name in enumerate(problem.op_names):
        unit = int(problem.unit_of_op[op])
        for device in item.requested_devices.get(name, ()) if not is_decided[unit] else ():
            left = allowed[unit] & fitting[device]
            if left.any():
                allowed[unit] = left
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
    return Respected(
        problem=dataclasses.replace(problem, allowed=allowed),
        num_respected=len(respected - losers),
        num_dropped=len(losers),
        reasons=_reasons(dropped),
    )


def _all(requests: Mapping[str, Sequence[str]]) -> set[str]:
    return {device for devices in requests.values() for device in devices}


def _fitting(cluster: Cluster, device: str) -> np.ndarray:
    """[D] whether a device has every part that a device string asks for; none where it is no device string."""
    wanted = _spec(device)
    if wanted is None:
        return np.zeros(len(cluster.devices), bool)
    return np.array(
        [
            any(spec.make_merged_spec(wanted) == spec for spec in _specs_of(cluster, one.name))
            for one in cluster.devices
        ]
    )


def _specs_of(cluster: Cluster, name: str) -> list[tf.DeviceSpec]:
    """A device by its name; local GPUs also by the name that they have in the process that uses them."""
    names = [name]
    if cluster.kind == "local" and any(device.type == "GPU" for device in cluster.devices):
        names.append(_LOCALHOST + name[name.index("/device:") :])
    return [spec for one in names if (spec := _spec(one)) is not None]


@functools.cache
def _spec(device: str) -> tf.DeviceSpec | None:
    try:
        return tf.DeviceSpec.from_string(device)
    except ValueError:
        return None


def _reasons(dropped: dict[tuple[str, str], list[str]]) -> str:
    """The most frequent reasons, each with how many ops it concerns and one of them."""
    ordered = sorted(dropped.items(), key=lambda entry: -len(entry[1]))
    told = []
    for (device, why), names in ordered[:_TOLD]:
        who = f"op {names[0]!r} asks" if len(names) == 1 else f"{len(names)} ops such as {names[0]!r} ask"
        told.append(f"{who} for {device}, {why}")
    if len(ordered) > _TOLD:
        told.append(f"and {len(ordered) - _TOLD} other reasons")
    return "; ".join(told)
