"""Measures one core's matrix-product and copy rates; run as a child process.

Prints one line of JSON. A process of its own, because NumPy's thread count and the core it is pinned to
must be set before NumPy is imported, and must not stick to the caller.
"""

from __future__ import annotations

import json
import os
import sys
import time

_MATRIX_SIZE = 768  # 2 * 768^3 = 0.9 GFLOP: some 10 ms, long against the clock, in cache
_COPY_BYTES = 1 << 27  # 128 MiB: beyond the caches
_REPEATS = 5


def main() -> None:
    os.sched_setaffinity(0, {int(sys.argv[1])})
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
    print(json.dumps({"peak_flops": flops, "memory_bytes_per_s": bytes_per_s}))


if __name__ == "__main__":
    main()
