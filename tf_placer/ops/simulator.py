"""Simulates batches of placements with the C++ op, eagerly or inside a ``tf.function``."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import NamedTuple

import tensorflow as tf

from tf_placer.ops.simulator_inputs import SimulatorInputs


class Simulation(NamedTuple):
    """What placements cost."""

    runtime_ns: tf.Tensor  # [B] int64
    peak_bytes: tf.Tensor  # [B, D] int64


class Schedule(NamedTuple):
    """When each op of each placement starts and ends."""

    start_ns: tf.Tensor  # [B, N] int64
    end_ns: tf.Tensor  # [B, N] int64


def simulate(inputs: SimulatorInputs, device_of_unit: tf.Tensor) -> Simulation:
    """Simulates a batch of placements, on TensorFlow's own threads.

    Args:
      inputs: the graph and the cluster; keep and reuse it, since what the op prepares from it (about
        the cost of one simulation) is kept as long as it is given the same object.
      device_of_unit: [B, U] int32, in [0, D).

    Raises:
      tf.errors.InvalidArgumentError: an array has a wrong shape or value; the message names it.
    """
    runtime_ns, peak_bytes, _, _ = _run(inputs, device_of_unit, with_schedule=False)
    return Simulation(runtime_ns, peak_bytes)


def simulate_schedule(inputs: SimulatorInputs, device_of_unit: tf.Tensor) -> Schedule:
    """As ``simulate``, giving the schedule: for reports, and to see why a placement takes its time."""
    _, _, start_ns, end_ns = _run(inputs, device_of_unit, with_schedule=True)
    return Schedule(start_ns, end_ns)


def _run(inputs: SimulatorInputs, device_of_unit: tf.Tensor, with_schedule: bool) -> tuple[tf.Tensor, ...]:
    with tf.device("CPU:0"):
        device_of_unit = tf.convert_to_tensor(device_of_unit, tf.int32)
        return _library().tf_placer_simulate_placements(
            device_of_unit=device_of_unit, with_schedule=with_schedule, **inputs.tensors
        )


@functools.cache
def _library() -> ModuleType:
    # Imported here so that `python -m tf_placer.ops.build` does not find itself imported already.
    from tf_placer.ops.build import build_library

    return tf.load_op_library(str(build_library()))
