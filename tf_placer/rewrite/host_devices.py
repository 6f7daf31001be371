"""Keeps what needs the calling process in it, where a plan is for other processes."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from colocation.tensorflow_internals import host_address_space
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import units_of


def with_host_ops_here(item: Item, device_of_op: Mapping[str, str]) -> Mapping[str, str]:
    """The devices of a plan, in which the ops that need this process are on its CPU.

    A cluster of workers has no device in this process, so a plan puts these ops on one that stands for it
    (``Cluster.host``). What shares a device with them goes along. A resource is where its handle says.

    Args:
      item: the program.
      device_of_op: a full device string for each of its ops; left alone.
    """
    here = host_address_space()
    away = [name for name in item.host_ops if not _is_at(device_of_op[name], here)]
    if not away:
        return device_of_op
    unit_of_op = units_of(item).unit_of_op
    at = {capture.node: capture.device for capture in item.host_captures if _is_at(capture.device, here)}
    at |= {variable.node: variable.device for variable in item.variables if variable.stays}
    device_of_unit: dict[int, str] = {}
    for name in sorted(away, key=lambda name: name not in at):
        device = at.get(name, f"{here}/device:CPU:0")
        device_of_unit.setdefault(int(unit_of_op[item.index.id_of_name[name]]), device)
    return {
        name: device_of_unit.get(int(unit), device_of_op[name])
        for name, unit in zip(item.index.names, unit_of_op, strict=True)
    }


def _is_at(device: str, address_space: str) -> bool:
    """Whether a device is one of a process."""
    have, want = tf.DeviceSpec.from_string(device), tf.DeviceSpec.from_string(address_space)
    return (have.job, have.replica, have.task) == (want.job, want.replica, want.task)
