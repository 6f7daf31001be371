"""Throughput of the simulator in placements a second, what it depends on, and what bounds it.

    python -m experiments.simulator_throughput [--workload=inception_v3] [--cluster=k40x2] [--seconds=3]

Placements of a real training step, on one core and on two: random ones, which no search asks for, everything on one
device, and the plan of a search of a few seconds. Then what every method of ``methods`` makes of as many seconds, and
random layered graphs of 1,000 to 100,000 ops on one core. Times per placement are CPU time, so that other work on the
machine matters little.
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
from experiments.studies.random_arrays import random_layered_inputs
from tf_placer import workloads
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.ops.simulator import SimulatorInputs, simulate
from tf_placer.planners.plain import single_device_placements
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.methods import PLAIN

_WORKLOAD = flags.DEFINE_string("workload", "inception_v3", "The training step that is placed.")
_CLUSTER = flags.DEFINE_string("cluster", "k40x2", "Preset of the cluster it is placed on.")
_SECONDS = flags.DEFINE_float("seconds", 3.0, "Time of each measurement.", lower_bound=0.001)
_BATCH = flags.DEFINE_integer("batch", 64, "Placements of each call.", lower_bound=1)
_SIZES = flags.DEFINE_list(
    "sizes", ["1000", "3000", "10000", "30000", "100000"], "Ops of the synthetic graphs."
)

# As many times as long as other measurements: a learned method takes seconds to be traced.
_SEARCHES = 6
_BOUND = """\
What bounds it: the events. Every computation and every transfer that ends is a turn of a loop whose
branches (what ends next, who is where, who becomes ready) are as random as the placement: a processor
mispredicts about three of them a turn (by callgrind's count). Time grows with the events, that is with
the edges that cross devices, and an event costs somewhat more where the arrays outgrow the caches."""


class Throughput(NamedTuple):
    """Measurements of one process."""

    per_s: float  # placements per second of wall time
    cpu_us: float  # CPU time of one placement
    events: float  # computations and transfers that end in one placement


def main() -> None:
    item = workloads.build(_WORKLOAD.value)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset(_CLUSTER.value))
    simulator = SimulatedEvaluator(problem)
    inputs = simulator.inputs
    size = f"{inputs.num_ops} ops, {inputs.num_units} units, {len(inputs.consumer_op)} edges"
    print(f"{_WORKLOAD.value} on {_CLUSTER.value}: {size}")
    cores = sorted(os.sched_getaffinity(0))[:2]
    placements = {"random": _random_placements(inputs, _BATCH.value), **_plans(problem, simulator)}
    for kind, rows in placements.items():
        for count in range(1, len(cores) + 1):
            with _pinned_process(cores[:count]) as process:
                result = process.submit(_measure, inputs, rows, _SECONDS.value).result()
            print(f"  {kind}, {count} core(s): {result.per_s:8,.0f} placements/s, {_costs(inputs, result)}")
    print(f"evaluations of each method, {len(cores)} core(s):")
    for name in methods.names():
        if methods.find(name).goes_on:
            with _pinned_process(cores) as process:
                print(f"  {name:14} {process.submit(_search, problem, name, _SECONDS.value).result()}")
    print("random layered graphs, 3 devices, 1 core:")
    with _pinned_process(cores[:1]) as process:
        for num_ops in map(int, _SIZES.value):
            inputs = random_layered_inputs(num_ops, 3, seed=0)
            rows = _random_placements(inputs, _BATCH.value)
            result = process.submit(_measure, inputs, rows, _SECONDS.value).result()
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


def _search(problem: Problem, method: str, seconds: float) -> str:
    """Evaluations a second of a method, once it is under way: its preparations are reported apart."""
    found = tf_placer.search(problem, method, budget_s=_SEARCHES * seconds)
    if len(found.history) < 3:
        return f"still preparing after {_SEARCHES * seconds:g} s"
    first, last = found.history[1], found.history[-1]
    per_s = (last.evaluations - first.evaluations) / (last.elapsed_s - first.elapsed_s)
    return f"{per_s:8,.0f} a second, after {first.elapsed_s:.1f} s"


def _measure(inputs: SimulatorInputs, placements: np.ndarray, seconds: float) -> Throughput:
    batch, device_of_unit = len(placements), tf.constant(placements)
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


def _plans(problem: Problem, simulator: SimulatedEvaluator) -> dict[str, np.ndarray]:
    """[batch, U] rows of each kind of plan that searches ask for, by kind."""
    singles = single_device_placements(problem)
    single = singles[np.argmin(simulator.times(tf.constant(singles)).runtime_s)]
    searched = tf_placer.search(problem, PLAIN, budget_s=_SECONDS.value).placement.device_of_unit
    rows = {"one device": single, "a searched plan": searched}
    return {kind: np.repeat(row[np.newaxis], _BATCH.value, axis=0) for kind, row in rows.items()}


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
