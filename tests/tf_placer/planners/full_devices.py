"""Problems whose variables fill most of devices of different sizes."""

import numpy as np

from tests.tf_placer.problem.small_problems import altered, problem_of, small_cluster
from tf_placer.cluster.cluster import Cluster
from tf_placer.problem.problem import Problem


def sized_cluster(memory_bytes: list[int]) -> Cluster:
    return altered(small_cluster(len(memory_bytes)), {"memory_bytes": memory_bytes})


def full_problem(devices: int, fill: float, seed: int, units: int = 40, more_bytes: int = 0) -> Problem:
    """A chain with skips whose variables are ``fill`` of all memory, some many times as large as others.

    The largest device has about three times the memory of the smallest one. The largest units are a fourth of the
    smallest device.

    Args:
      devices: D.
      fill: resident bytes over all memory.
      seed: of sizes, times and skips.
      units: U.
      more_bytes: of memory for what is not resident, on every device.
    """
    generator = np.random.default_rng(seed)
    memory = (1_000_000 * np.linspace(1, 3, devices)).astype(np.int64)
    share = generator.lognormal(0, 1, units)
    resident = np.minimum(fill * memory.sum() * share / share.sum(), memory.min() / 4)
    for _ in range(20):  # what was cut off goes to the others
        resident = np.minimum(resident * fill * memory.sum() / resident.sum(), memory.min() / 4)
    edges = [(i, i + 1) for i in range(units - 1)] + [(i, i + 5) for i in range(0, units - 5, 7)]
    return problem_of(
        generator.integers(500, 2000, units),
        edges,
        generator.integers(1, 200, len(edges)),
        cluster=sized_cluster((memory + more_bytes).tolist()),
        resident_bytes=resident.astype(np.int64),
    )


def loads(problem: Problem, device_of_unit: np.ndarray) -> np.ndarray:
    """[D] resident bytes of each device."""
    return np.bincount(device_of_unit, problem.resident_bytes, minlength=problem.num_devices)
