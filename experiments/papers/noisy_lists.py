"""The control of a taught list scheduler: list schedules whose priorities are noisy."""

from __future__ import annotations

import numpy as np

from tf_placer.planners.peft import ready_order
from tf_placer.planners.schedule import Schedule, first_op_decides, scheduled
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import alike_devices, fastest_devices

_NOISE = 0.3  # standard deviation of the logarithm of the priorities


def noisy_lists(problem: Problem, seed: int, number: int) -> np.ndarray:
    """[number, U] list schedules, the first without noise; on all devices and on the fast ones in turn."""
    generator = np.random.default_rng(seed)
    rank = problem.op_graph.bottom_level_with_transfers_ns.astype(np.float64)
    rows: list[np.ndarray] = []
    for sample in range(number):
        noise = _NOISE * generator.standard_normal(len(rank)) if sample else np.zeros(len(rank))
        order = ready_order(problem, rank * np.exp(noise))

        def run(schedule: Schedule, order: np.ndarray = order) -> None:
            first_op_decides(problem, schedule, order, schedule.end_ns)

        devices = (fastest_devices, alike_devices)[sample % 2](problem)
        rows += scheduled(problem, devices, run)[:1]
    return np.array(rows)
