"""Simulates batches of placements with the C++ op, eagerly or inside a ``tf.function``."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_placer.ops.library import library
from tf_placer.ops.simulator_inputs import SimulatorInputs


class Simulation(NamedTuple):
    """What placements cost."""

    runtime_ns: tf.Tensor  # [B] int64
    peak_bytes: tf.Tensor  # [B, D] int64


class SimulatedStep(NamedTuple):
    """All that happens in a step of each placement. A tensor that crosses is sent, crosses and is received."""

    runtime_ns: tf.Tensor  # [B] int64
    peak_bytes: tf.Tensor  # [B, D] int64
    start_ns: tf.Tensor  # [B, N] int64
    end_ns: tf.Tensor  # [B, N] int64
    leg_start_ns: tf.Tensor  # [B, 3, T, D] int64, of each tensor to each device; -1 for what does not happen
    leg_end_ns: tf.Tensor  # [B, 3, T, D] int64


class Schedule(NamedTuple):
    """When each op of each placement starts and ends."""

    start_ns: tf.Tensor  # [B, N] int64
    end_ns: tf.Tensor  # [B, N] int64


def simulate(
    inputs: SimulatorInputs, device_of_unit: tf.Tensor, priority_of_op: tf.Tensor | None = None
) -> Simulation:
    """Simulates a batch of placements, on TensorFlow's own threads.

    Args:
      inputs: the graph and the cluster; keep and reuse it, since what the op prepares from it (about
        the cost of one simulation) is kept as long as it is given the same object.
      device_of_unit: [B, U] int32, in [0, D).
      priority_of_op: [B, N] int32, lower runs first among the ready ops of a device; the inputs' own ``priority`` then
        breaks ties only.

    Raises:
      tf.errors.InvalidArgumentError: an array has a wrong shape or value; the message names it.
    """
    runtime_ns, peak_bytes, *_ = _run(inputs, device_of_unit, priority_of_op, with_schedule=False)
    return Simulation(runtime_ns, peak_bytes)


def simulate_schedule(
    inputs: SimulatorInputs, device_of_unit: tf.Tensor, priority_of_op: tf.Tensor | None = None
) -> Schedule:
    """As ``simulate``, giving the schedule: for reports, and to see why a placement takes its time."""
    _, _, start_ns, end_ns, *_ = _run(inputs, device_of_unit, priority_of_op, with_schedule=True)
    return Schedule(start_ns, end_ns)


def simulate_step(
    inputs: SimulatorInputs, device_of_unit: tf.Tensor, priority_of_op: tf.Tensor | None = None
) -> SimulatedStep:
    """As ``simulate_schedule``, giving also what crosses and when: 48 bytes for each tensor, device and placement."""
    return SimulatedStep(*_run(inputs, device_of_unit, priority_of_op, with_schedule=True, with_legs=True))


def _run(
    inputs: SimulatorInputs,
    device_of_unit: tf.Tensor,
    priority_of_op: tf.Tensor | None,
    with_schedule: bool,
    with_legs: bool = False,
) -> tuple[tf.Tensor, ...]:
    with tf.device("CPU:0"):
        if priority_of_op is None:
            priority_of_op = tf.zeros([0, inputs.num_ops], tf.int32)
        return library().tf_placer_simulate_placements(
            device_of_unit=tf.convert_to_tensor(device_of_unit, tf.int32),
            priority_of_op=tf.convert_to_tensor(priority_of_op, tf.int32),
            with_schedule=with_schedule,
            with_legs=with_legs,
            **inputs.tensors,
        )
