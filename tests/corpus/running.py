"""Runs a program of the corpus undecorated and placed, and compares what it returned."""

import dataclasses
import itertools
import pathlib
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_placer
from tests.corpus.observation import observed
from tests.corpus.program import Make, Program
from tf_placer.search import methods
from tf_placer.search.round import Context, Round, evaluated

NUM_DEVICES = 2
METHOD = "scattered"
DEVICES_OF_PLANS: list[int] = []  # of the program that runs; objects that had plans may be gone when it ends


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a program: where both runs differ, what was said of functions that were not placed, and plans."""

    difference: str  # empty if both returned the same
    warnings: frozenset[str]  # texts of ``RunsAsItIs``
    devices: tuple[int, ...]  # of each plan, how many it uses


def scattered(context: Context) -> Iterator[Round]:
    """Every unit on a device of its own choice: what breaks when it is split is split.

    Every other variable leaves the first device, where it was made; the seed says whether the first one does.
    """
    problem = context.problem
    draws = np.random.default_rng(context.seed).random(problem.allowed.shape)
    is_variable = [op_type == "VarHandleOp" for op_type in problem.op_types]
    units = np.unique(problem.unit_of_op[is_variable])
    draws[units, (np.arange(len(units)) + 1 + context.seed) % problem.num_devices] = 1.0  # draws are less
    row = (draws * problem.allowed).argmax(axis=1)
    DEVICES_OF_PLANS.append(len(set(row.tolist())))
    yield evaluated(context, row[np.newaxis])


def undecorated(function: Any) -> Any:
    return function if isinstance(function, type(tf.function(abs))) else tf.function(function)


def placed(function: Any, folder: pathlib.Path, number: int) -> Any:
    """The function with that number of a program: each is scattered otherwise."""
    if METHOD not in methods.methods():
        methods.register(METHOD, scattered)
    return tf_placer.auto_place(
        function,
        cluster=tf_placer.Cluster.logical(NUM_DEVICES),
        method=METHOD,
        seed=number,
        cache_dir=folder / str(number),
    )


def outcome_of(
    program: Program, folder: pathlib.Path, decorate: Callable[[Any, pathlib.Path, int], Any] = placed
) -> Outcome:
    """What came of both runs, all seeds the same."""

    def run(make: Make) -> Any:
        make.folder.mkdir(parents=True)
        keras.utils.set_random_seed(1)
        random.seed(1)
        return observed(program.run(make))

    numbers = itertools.count()
    DEVICES_OF_PLANS.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        expected = run(Make(folder / "undecorated", undecorated))
        make = Make(folder / "placed", lambda f: decorate(f, folder / "plans", next(numbers)), is_placed=True)
        result = run(make)
    return Outcome(
        "" if result == expected else f"{str(result)[:500]} instead of {str(expected)[:500]}",
        frozenset(str(w.message) for w in caught if issubclass(w.category, tf_placer.RunsAsItIs)),
        tuple(DEVICES_OF_PLANS),
    )
