"""The devices that TensorFlow has in this process."""

from __future__ import annotations

import tensorflow as tf


def present_devices() -> tuple[str, ...]:
    """Full names of this process's devices: logical ones, and those of the workers it is connected to."""
    specs = (tf.DeviceSpec.from_string(device.name) for device in tf.config.list_logical_devices())
    return tuple(
        spec.replace(job=spec.job or "localhost", replica=0, task=spec.task or 0).to_string()
        for spec in specs
    )
