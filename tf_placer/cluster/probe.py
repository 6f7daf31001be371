"""Measures what this machine's devices reach; run as a child process, which prints one line of JSON.

    probe.py core 0             {"peak_flops", "memory_bytes_per_s"} of one core, by NumPy
    probe.py devices GPU 4096   [{"memory_bytes", "peak_flops", "memory_bytes_per_s", "model"}] by TensorFlow, products
                                of matrices of that size

A process of its own: NumPy's thread count and the core that it is pinned to must be set before NumPy is imported, and
must not stick to the caller; and a process that has looked at its GPUs holds their memory until it ends.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
from typing import Any

_REPEATS = 5
_MATRIX_SIZE = 768  # 2 * 768^3 = 0.9 GFLOP: some 10 ms, long against the clock, in cache
_COPY_BYTES = 1 << 27  # 128 MiB: beyond the caches
_LOOP = 8  # chained ops between two synchronizations, so that launching them does not count


def measured_core(core: int) -> dict[str, float]:
    """FLOPs and bytes a second of one core, by NumPy products and copies; pins this process."""
    os.sched_setaffinity(0, {core})
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"

    import numpy as np  # after the thread counts are set

    matrix = np.ones((_MATRIX_SIZE, _MATRIX_SIZE), np.float32)
    source = np.zeros(_COPY_BYTES // 4, np.float32)
    target = np.ones_like(source)
    matmul_s, copy_s = [], []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        matrix @ matrix
        middle = time.perf_counter()
        np.copyto(target, source)
        matmul_s.append(middle - start)
        copy_s.append(time.perf_counter() - middle)
    # The best of a few: whatever else runs on the machine can only make it slower.
    flops = 2 * _MATRIX_SIZE**3 / min(matmul_s)
    bytes_per_s = 2 * _COPY_BYTES / min(copy_s)  # a copy reads and writes
    return {"peak_flops": flops, "memory_bytes_per_s": bytes_per_s}


def measured_devices(device_type: str, matrix_size: int) -> list[dict[str, Any]]:
    """What TensorFlow gets out of each device of a type, by products and sums of square matrices of a size."""
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"

    import tensorflow as tf  # after the environment is set

    sys.path.append(str(pathlib.Path(__file__).parents[2]))  # run by path: this says where the packages are
    from colocation.tensorflow_internals import local_devices

    devices = [device for device in local_devices() if device.device_type == device_type]
    report = []
    for device in devices:
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
    return report


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


def main() -> None:
    command, *arguments = sys.argv[1:]
    if command == "core":
        print(json.dumps(measured_core(int(arguments[0]))))
    else:
        print(json.dumps(measured_devices(arguments[0], int(arguments[1]))))


if __name__ == "__main__":
    main()
