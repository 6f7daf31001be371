"""Does Mars' encoder, taught by contrast on some families, know graphs of others?

    python -m experiments.mars_encoder --leave_out=gnmt,wavenet [--iterations=2000] [--out=FILE.npz]

Pre-trains the encoder on each program of the course (``experiments/pretraining/course.toml``) but those of the families
that are left out, and prints the share of units that it tells from the same graph with its units mixed up (0.5 by
chance), before and after, as a table. ``--out`` keeps the encoder, for ``place --method=mars --weights=FILE.npz``.
"""

from __future__ import annotations

import pathlib

import numpy as np
import tensorflow as tf
from absl import flags

from experiments.main_program import run_program
from experiments.pretraining.course import Program, read_course, without
from tf_placer import workloads
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.mars.student import MarsStudent
from tf_placer.agents.weights import weights_bytes
from tf_placer.files import write_atomically
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem

_LEAVE_OUT = flags.DEFINE_list("leave_out", ["gnmt", "wavenet"], "Families that are not taught.")
_ITERATIONS = flags.DEFINE_integer("iterations", 2000, "Steps, a program each.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "Fixes everything random.", lower_bound=0)
_OUT = flags.DEFINE_string("out", None, "File for the encoder's weights.")


def main(argv: list[str]) -> None:
    """Prints a line for each family."""
    del argv
    course = read_course(_SEED.value)
    taught = without(course, _LEAVE_OUT.value)
    student = MarsStudent(MarsConfig(), _SEED.value)
    graphs = {program.name: student.meets(_problem(program)) for program in course}
    before = {name: float(student.accuracy(graph)) for name, graph in graphs.items()}
    generator = np.random.default_rng(_SEED.value)
    for number in range(_ITERATIONS.value):
        if number % len(taught) == 0:
            order = generator.permutation(len(taught))
        student.learn(graphs[taught[order[number % len(taught)]].name], tf.constant(1.0))
    print("| family | programs | taught | before | after | least of its programs |")
    print("|---|---|---|---|---|---|")
    for family in sorted({program.family for program in course}):
        names = [program.name for program in course if program.family == family]
        after = [float(student.accuracy(graphs[name])) for name in names]
        is_taught = "no" if family in _LEAVE_OUT.value else "yes"
        untaught = np.mean([before[name] for name in names])
        told = f"{untaught:.2f} | {np.mean(after):.2f} | {min(after):.2f}"
        print(f"| {family} | {len(names)} | {is_taught} | {told} |", flush=True)
    if _OUT.value is not None:
        history = {"left_out": list(_LEAVE_OUT.value), "seed": _SEED.value, "iterations": _ITERATIONS.value}
        write_atomically(pathlib.Path(_OUT.value), weights_bytes(student.kind, student.policy, history))


def _problem(program: Program) -> Problem:
    """On the first of its machines."""
    item = workloads.build(program.workload, **program.settings)
    return analytic_problem(item, program.machines[0].build())


if __name__ == "__main__":
    run_program(main)
