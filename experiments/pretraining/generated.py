"""The generated course: programs of families that no table has, drawn by number and seed, and digests of them."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import math
import pathlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.pretraining.course import Machine, Program, read_course
from tf_placer.base.arguments import InputError
from tf_placer.base.files import write_atomically

WORKLOADS, GENERATED = "workloads", "generated"
COUNT = 600  # programs, where no count is given
LEAST_OPS, MOST_OPS = 500, 20_000
CHOICES: Mapping[str, Any] = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text("utf8"))
_DEEPEST = 40
# Ops that are aimed at, as counts are estimates; times the parts, and more with slots, so that small networks are that
# large. The logarithms are spread evenly.
_LEAST_AIMED, _MOST_AIMED = 900, 12_000
_NEAR = 1.2  # an estimate of the ops is at most so many times what is aimed at, or that many times less
_MOST_WEIGHTS = 80e6  # tracing holds them, and up to two slots of an optimizer for each
_MOST_ACTIVATIONS = 5e9  # numbers: 20 GB, more than the smaller GPUs have
_UPDATE_OPS = {"sgd": 0, "momentum": 7, "rmsprop": 14, "adam": 35}  # for a variable, more than with SGD
_CELL_OPS = {"plain": 22, "minimal": 32, "gru": 56, "lstm": 48}  # of a recurrent layer in a step of time
# CPU seconds of an op on the machine of docs/results/taught_policy.md: once, in each problem and in each placement.
_TRACE_S, _PROBLEM_S, _PLACEMENT_S = 0.7e-3, 0.1e-3, 1e-7
_HEAD = ["number", "family", "settings", "machines", "ops", "fingerprint"]


@dataclasses.dataclass(frozen=True)
class Generated(Program):
    """A drawn program."""

    number: int  # in the course, from 0 on
    ops: int  # an estimate


@dataclasses.dataclass(frozen=True)
class Size:
    """Estimates of a program in one part with plain SGD."""

    ops: float
    variables: float
    weights: float  # numbers in the variables
    activations: float  # numbers that the backward pass waits for
    split: float  # ops in P parts are P times as many, times this


def _cells(depth: int, nodes: int, width: int, batch: int, size: int) -> Size:
    units, pixels = depth * (nodes + 1), batch * size**2 / 4
    return Size(45 * units, 3.7 * units, 20 * units * width**2, 2 * units * pixels * width, 1.2)


def _u_net(depth: int, levels: int, width: int, batch: int, size: int, **_: bool) -> Size:
    units, widest = depth * (2 * levels + 1), width << levels
    return Size(46 * units, 3 * units, 36 * depth * widest**2, 16 * depth * batch * size**2 * width, 1.15)


def _recurrent(
    depth: int, length: int, width: int, batch: int, vocabulary: int, cell: str, ways: int, attends: bool
) -> Size:
    layers = depth * (1 if ways == 1 else 2.4)
    ops = length * (_CELL_OPS[cell] * layers + 90 * attends) + 120
    weights = width * (5 * ways**2 * width * depth + 4 * vocabulary)
    return Size(ops, 3 * layers, weights, length * batch * (12 * layers * width + 3 * vocabulary), 0.82)


def _transformer(
    depth: int, width: int, batch: int, vocabulary: int, experts: int = 0, **others: int
) -> Size:
    length, hidden, is_gated = others["length"], others["hidden"], others["is_gated"]
    made = (depth + 1) // 2 * experts
    dense = depth // 2 + made if experts else depth
    tokens = depth * (width * (14 + 4 * hidden) + 3 * others["heads"] * length) + 3 * vocabulary
    return Size(
        390 * depth + 130 * made + 150,
        depth * (12 - 2 * others["is_parallel"]) + dense * (4 + 2 * is_gated) + 6,
        width * (width * (4 * depth + dense * hidden * (2 + is_gated)) + 2 * vocabulary),
        batch * length * tokens,
        0.7,
    )


def _towers(depth: int, towers: int, width: int, batch: int, vocabulary: int, **_: int) -> Size:
    layers = (depth + 1) * towers
    weights = width * (layers * width + towers * vocabulary)
    return Size(41 * layers, 2.2 * layers, weights, 4 * layers * batch * width, 0.7)


def _message_passing(
    depth: int, relations: int, width: int, batch: int, neighbours: int, attends: bool
) -> Size:
    ops, variables = 120 + relations * (128 if attends else 70), 4 + relations * (4 if attends else 2)
    kept = batch * width * (8 + relations * (1 + 3 * neighbours))
    return Size(depth * ops, depth * variables, depth * (relations + 2) * width**2, depth * kept, 0.55)


SIZES: Mapping[str, Callable[..., Size]] = {
    "cells": _cells,
    "u_net": _u_net,
    "recurrent": _recurrent,
    "transformer": _transformer,
    "mixture_of_experts": _transformer,
    "towers": _towers,
    "message_passing": _message_passing,
}


def draw(number: int, seed: int) -> Generated:
    """A program and its machines; families take turns."""
    generator, family = np.random.default_rng([seed, number]), [*SIZES][number % len(SIZES)]
    optimizer, parts = (_one_of(generator, CHOICES[name]) for name in ("optimizer", "parts"))
    update_ops = _UPDATE_OPS[optimizer]
    aimed = _log_uniform(generator, _LEAST_AIMED * parts * (1 + update_ops / 25), _MOST_AIMED)
    for tries in itertools.count():
        settings = {name: _one_of(generator, values) for name, values in CHOICES["families"][family].items()}
        settings["depth"] = int(generator.integers(1, _DEEPEST + 1))
        size = SIZES[family](**settings)
        ops = size.ops * (1 if parts == 1 else parts * size.split) + size.variables * update_ops
        fits = size.weights <= _MOST_WEIGHTS and size.activations <= _MOST_ACTIVATIONS
        near = _NEAR * 1.0002**tries  # few layers have few numbers of ops
        if fits and aimed / near <= ops <= aimed * near:
            break
    settings |= {"optimizer": optimizer, "parts": parts, "seed": int(generator.integers(2**31))}
    machines = tuple(draw_machine(generator) for _ in range(CHOICES["machines"]))
    return Generated(family, family, settings, machines, number, round(ops))


def draw_machine(generator: np.random.Generator) -> Machine:
    """GPUs of one model or two, on the links of a machine with at least as many, faster or slower."""
    count, clusters = _one_of(generator, CHOICES["gpus"]), CHOICES["clusters"]
    cluster = _one_of(generator, next(clusters[places] for places in clusters if int(places) >= count))
    other = _one_of(generator, [name for names in clusters.values() for name in names])
    own = int(generator.integers(1, count)) if generator.random() < 0.5 else count
    scale = round(_log_uniform(generator, *CHOICES["link_scale"]), 3)
    return Machine(cluster, scale, (cluster,) * own + (other,) * (count - own))


def _one_of(generator: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(generator.integers(len(values)))]


def _log_uniform(generator: np.random.Generator, least: float, most: float) -> float:
    return math.exp(generator.uniform(math.log(least), math.log(most)))


def course_named(text: str, seed: int) -> tuple[Program, ...]:
    """``workloads``, the programs of ``course.toml``, or ``generated``, with a count after a colon.

    Raises:
      InputError: there is no such course.
    """
    if text == WORKLOADS:
        return read_course(seed)
    name, colon, count = text.partition(":")
    if name != GENERATED or (colon and not (count.isdecimal() and 0 < int(count[:9]) < 10**6)):
        raise InputError(f"no course is called {text!r}; give workloads, generated or generated:100, say")
    return tuple(draw(number, seed) for number in range(int(count) if colon else COUNT))


def seconds(course: Sequence[Program], placements: int) -> float:
    """Estimate of CPU seconds in which the drawn programs are traced, and searched with so many placements."""
    return sum(
        program.ops * (_TRACE_S + len(program.machines) * (_PROBLEM_S + placements * _PLACEMENT_S))
        for program in course
        if isinstance(program, Generated)
    )


def check_digest(program: Generated, ops: int, fingerprint: str, file: pathlib.Path) -> None:
    """Writes the program's row into a CSV file, or finds that the file has the same.

    Raises:
      InputError: it has another, or is damaged.
    """
    drawn = json.dumps(program.settings), json.dumps([dataclasses.astuple(one) for one in program.machines])
    row = [str(program.number), program.family, *drawn, str(ops), fingerprint]
    text = file.read_text(encoding="utf8") if file.is_file() else ""
    rows = {cells[0]: cells for cells in csv.reader(io.StringIO(text)) if cells} or {_HEAD[0]: _HEAD}
    if rows.setdefault(row[0], row) != row or rows.get(_HEAD[0]) != _HEAD:
        raise InputError(
            f"{file}: program {row[0]} has fingerprint {fingerprint[:16]} and {ops} ops here, and another row there; "
            "another version of TensorFlow or of the course wrote it: delete it or use that version"
        )
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(rows.values())
    write_atomically(file, lines.getvalue())
