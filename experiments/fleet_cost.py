"""Costs of measuring on a fleet beside measuring here: bytes over the network, and seconds of a call.

python -m experiments.fleet_cost --workload=two_towers --actors=2
"""

from __future__ import annotations

import importlib
import statistics
import tempfile
import time

import numpy as np
from absl import flags

import tf_placer
from experiments.main_program import run_program
from tf_placer import workloads
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.fleet.address import MOST_LOCAL, FleetAddress
from tf_placer.fleet.connection import open_fleet
from tf_placer.fleet.evaluator import FleetEvaluator
from tf_placer.fleet.fleet import Fleet
from tf_placer.fleet.machine import MachineConfig, Program, Reply, Trial, trial_id
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.runtime.timing import RuntimeConfig

FLAGS = flags.FLAGS
flags.DEFINE_enum("workload", "two_towers", workloads.names(), "what is measured")
flags.DEFINE_integer("actors", 2, "on this machine", lower_bound=1, upper_bound=MOST_LOCAL)
flags.DEFINE_integer("calls", 200, "that measure nothing, for what a call takes", lower_bound=1)

_CONFIG = RuntimeConfig()


def print_bytes(pickled: object, item: tf_placer.Item, problem: Problem, plan: Decisions) -> None:
    """Prints the bytes of a program, which a machine is sent once, and of a trial and its reply."""
    program = Program.packed(item, problem, plan, _CONFIG)
    trial = Trial(trial_id(program.digest, plan.digest(0, problem), "CPU local_cpu", 0), plan, program.digest)
    reply = Reply(trial.id, 0, "", 0.1234, 0.0012, (1,) * problem.num_devices, 0.2345)
    sizes = [len(pickled(one)) for one in (program, trial, reply)]  # type: ignore[operator]
    print(
        f"{problem.name}, {problem.num_ops} ops in {problem.num_units} units: {sizes[0]} bytes of program once for "
        f"each machine, {sizes[1]} bytes a trial, {sizes[2]} bytes a reply"
    )


def print_call(fleet: Fleet, item: tf_placer.Item, problem: Problem, calls: int) -> None:
    """Prints how long a call takes that measures nothing: plans that are not legal, each answered and journaled."""
    evaluator = FleetEvaluator(item, problem, fleet)
    reference = evaluator.reference.device_of_unit
    evaluator.evaluate(reference)  # loads the program, and measures the reference plan
    rows = reference.repeat(calls, axis=0)
    rows[:, 0] = problem.num_devices + 1 + np.arange(calls)
    with (
        tempfile.TemporaryDirectory() as folder,
        JournaledEvaluator(evaluator, f"{folder}/m.jsonl") as journal,
    ):
        journal.evaluate(reference)
        begin_s = time.monotonic()
        journal.evaluate(rows)
        took_s = time.monotonic() - begin_s
    print(f"a call that measures nothing, sent, answered and journaled: {took_s / calls * 1e3:.1f} ms")


def print_measured(fleet: Fleet, item: tf_placer.Item, problem: Problem) -> None:
    """Prints what the reference plan takes here and by the fleet, wall-clock seconds of a measurement."""
    evaluator = FleetEvaluator(item, problem, fleet)
    reference = evaluator.reference.device_of_unit
    with tf_placer.RuntimeEvaluator(item, problem, _CONFIG) as runtime:
        runtime.evaluate(reference)
        for name, one in (("here", runtime), ("by the fleet", evaluator)):
            seconds = []
            for _ in range(5):
                begin_s = time.monotonic()
                one.evaluate(reference)
                seconds.append(time.monotonic() - begin_s)
            print(f"a measurement of one plan {name}: {statistics.median(seconds):.2f} s, median of 5")


def main(argv: list[str]) -> None:
    del argv
    item = workloads.build(FLAGS.workload)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.local(), costs="analytic")
    plan = Decisions([problem.everything_on(0)])
    begin_s = time.monotonic()
    machine = MachineConfig(reference_every=10**6, recycle_after=10**6)
    with open_fleet(FleetAddress(actors=FLAGS.actors), problem.cluster, machine=machine) as fleet:
        print(f"starting {FLAGS.actors} actors: {time.monotonic() - begin_s:.1f} s")
        print_bytes(importlib.import_module("ray.cloudpickle").dumps, item, problem, plan)
        print_call(fleet, item, problem, FLAGS.calls)
        print_measured(fleet, item, problem)


if __name__ == "__main__":
    run_program(main)
