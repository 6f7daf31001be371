"""How many placements a second the simulator does, on what it depends, and what bounds it.

    python -m experiments.simulator_throughput [--workload=inception_v3] [--cluster=k40x2] [--seconds=3]

Random placements of a real training step on one core and on two; then random layered graphs of 1,000 to
100,000 ops on one core. Times per placement are CPU time, so that other work on the machine matters little.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import flags

import tf_placer
from experiments.main_program import run_program
from tf_placer import workloads
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.ops.simulator import simulate
from tf_placer.ops.simulator_inputs import SimulatorInputs
from tf_placer.workloads.synthetic import random_layered_arrays

_WORKLOAD = flags.DEFINE_string("workload", "inception_v3", "The training step that is placed.")
_CLUSTER = flags.DEFINE_string("cluster", "k40x2", "Preset of the cluster it is placed on.")
_SECONDS = flags.DEFINE_float("seconds", 3.0, "Time of each measurement.", lower_bound=0.001)
_BATCH = flags.DEFINE_integer("batch", 64, "Placements of each call.", lower_bound=1)
_SIZES = flags.DEFINE_list(
    "sizes", ["1000", "3000", "10000", "30000", "100000"], "Ops of the synthetic graphs."
)


_BOUND = """\
What bounds it: the events. Every computation and every transfer that ends is a turn of a loop whose
branches (what ends next, who is where, who becomes ready) are as random as the placement: a processor
mispredicts about three of them a turn (by callgrind's count). Time grows with the events, that is with
the edges that cross devices, and an event costs somewhat more where the arrays outgrow the caches."""


class Throughput(NamedTuple):
    """What one process measured."""

    per_s: float  # placements per second of wall time
    cpu_us: float  # CPU time of one placement
    events: float  # computations and transfers that end in one placement


def main(argv: list[str]) -> None:
    del argv
    item = workloads.build(_WORKLOAD.value)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset(_CLUSTER.value))
    inputs = SimulatedEvaluator(problem).inputs
    size = f"{inputs.num_ops} ops, {inputs.num_units} units, {len(inputs.consumer_op)} edges"
    print(f"{_WORKLOAD.value} on {_CLUSTER.value}: {size}")
    cores = sorted(os.sched_getaffinity(0))[:2]
    for count in range(1, len(cores) + 1):
        with _pinned_process(cores[:count]) as process:
            result = process.submit(_measure, inputs, _BATCH.value, _SECONDS.value).result()
        print(f"  {count} core(s): {result.per_s:8,.0f} placements/s, {_costs(inputs, result)}")
    print("random layered graphs, 3 devices, 1 core:")
    with _pinned_process(cores[:1]) as process:
        for num_ops in map(int, _SIZES.value):
            inputs = SimulatorInputs(**random_layered_arrays(num_ops, 3, seed=0)._asdict())
            result = process.submit(_measure, inputs, _BATCH.value, _SECONDS.value).result()
            print(f"  {num_ops:7,} ops: {result.per_s:8,.0f} placements/s, {_costs(inputs, result)}")
    print(_BOUND)


def _costs(inputs: SimulatorInputs, result: Throughput) -> str:
    return (
        f"{result.cpu_us:8.0f} us CPU each: {1e3 * result.cpu_us / inputs.num_ops:4.0f} ns an op, "
        f"{1e3 * result.cpu_us / len(inputs.consumer_op):4.0f} an edge, "
        f"{1e3 * result.cpu_us / result.events:4.0f} an event ({result.events:,.0f} events)"
    )


def _pinned_process(cores: list[int]) -> concurrent.futures.ProcessPoolExecutor:
    """A fresh process: TensorFlow's thread pools are sized once."""
    spawn = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(1, spawn, _pin, (cores,))


def _pin(cores: list[int]) -> None:
    os.sched_setaffinity(0, cores)
    tf.config.threading.set_intra_op_parallelism_threads(len(cores))


def _measure(inputs: SimulatorInputs, batch: int, seconds: float) -> Throughput:
    placements = _random_placements(inputs, batch)
    device_of_unit = tf.constant(placements)
    simulate(inputs, device_of_unit)  # prepares
    calls, cpu_s, begin_s = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() < begin_s + seconds:
        simulate(inputs, device_of_unit)
        calls += 1
    wall_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - cpu_s
    events = float(np.mean([_num_events(inputs, row) for row in placements[:8]]))
    return Throughput(calls * batch / wall_s, 1e6 * cpu_s / (calls * batch), events)


def _random_placements(inputs: SimulatorInputs, batch: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, inputs.num_devices, (batch, inputs.num_units), np.int32)


def _num_events(inputs: SimulatorInputs, device_of_unit: np.ndarray) -> int:
    """Ops that cost something, and (tensor, other device) pairs."""
    device = device_of_unit[inputs.unit_of_op]
    tensor = np.repeat(np.arange(len(inputs.tensor_producer)), np.diff(inputs.consumer_offset))
    target = device[inputs.consumer_op]
    crossing = target != device[inputs.tensor_producer[tensor]]
    transfers = len(np.unique(tensor[crossing] * np.int64(inputs.num_devices) + target[crossing]))
    return transfers + int(np.count_nonzero(inputs.compute_ns[np.arange(inputs.num_ops), device]))


if __name__ == "__main__":
    run_program(main)
