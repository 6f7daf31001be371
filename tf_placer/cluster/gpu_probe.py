"""Measures what TensorFlow gets out of each device of one type; run as a child process.

Prints one line of JSON: a list of {"memory_bytes", "peak_flops", "memory_bytes_per_s", "model"}. A process
of its own, because a process that has looked at its GPUs holds their memory until it ends.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time

_REPEATS = 5
_LOOP = 8  # chained ops between two synchronizations, so that launching them does not count


def main() -> None:
    device_type, matrix_size = sys.argv[1], int(sys.argv[2])
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"

    import tensorflow as tf  # after the environment is set

    sys.path.append(str(pathlib.Path(__file__).parents[2]))  # run by path: this says where the packages are
    from colocation.tensorflow_internals import local_devices

    found = [device for device in local_devices() if device.device_type == device_type]
    report = []
    for device in found:
        with tf.device(device.name):
            matrix = tf.ones([matrix_size, matrix_size]) / matrix_size
            matmul_s = _seconds(lambda m=matrix: tf.linalg.matmul(m, m))
            copy_s = _seconds(lambda m=matrix: m + 1.0)
        report.append(
            {
                "memory_bytes": device.memory_limit,
                "peak_flops": 2 * matrix_size**3 / matmul_s,
                "memory_bytes_per_s": 2 * 4 * matrix_size**2 / copy_s,  # fp32, read and written
                "model": device.physical_device_desc.partition("name: ")[2].partition(",")[0],
            }
        )
    print(json.dumps(report))


def _seconds(op) -> float:
    """Seconds of one op: best of a few loops, each ended by fetching one number from the device."""
    best = float("inf")
    op()
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(_LOOP):
            result = op()
        result[0, 0].numpy()
        best = min(best, (time.perf_counter() - start) / _LOOP)
    return best


if __name__ == "__main__":
    main()
