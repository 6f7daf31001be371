"""Runs programs of the corpus undecorated and placed, and prints what came of each, as JSON.

A process of its own: TensorFlow fixes its logical devices when its first op runs. Its arguments: a folder, and names of
programs; all without.
"""

from __future__ import annotations

import importlib
import itertools
import json
import pathlib
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_placer
from tests.corpus.observation import observed
from tests.corpus.program import PROGRAMS, Make, Program
from tests.logical_devices import exact_mode
from tf_placer.search import methods
from tf_placer.search.round import Context, Round, evaluated

NUM_DEVICES = 2
DEVICES_OF_PLANS: list[int] = []  # of the program that runs; objects that had plans may be gone when it ends
TOPICS = (
    "keras_layers",
    "keras_models",
    "recurrent",
    "composites",
    "strings_and_tables",
    "datasets",
    "control_flow",
    "randomness",
    "effects",
    "gradients",
    "surroundings",
    "python_objects",
    "order",
    "order_of_effects",
    "held_variables",
    "shared_state",
    "keras_recompiled",
    "methods",
    "traces",
)


def programs() -> dict[str, Program]:
    """All of them, by name."""
    for topic in TOPICS:
        importlib.import_module(f"tests.corpus.{topic}")
    return PROGRAMS


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
    return tf_placer.auto_place(
        function,
        cluster=tf_placer.Cluster.logical(NUM_DEVICES),
        method="scattered",
        seed=number,
        cache_dir=folder / str(number),
    )


def run(program: Program, make: Make) -> Any:
    """What is observed, all seeds the same."""
    make.folder.mkdir(parents=True)
    keras.utils.set_random_seed(1)
    random.seed(1)
    return observed(program.run(make))


def outcome_of(
    program: Program, folder: pathlib.Path, decorate: Callable[[Any, pathlib.Path, int], Any] = placed
) -> dict[str, Any]:
    """Whether both runs agree, what was placed, and what was said of what was not.

    Args:
      program: what to run.
      folder: for what it writes, and for plans.
      decorate: of a function, the folder for plans, and its number in the program.
    """
    expected = run(program, Make(folder / "undecorated", undecorated))
    DEVICES_OF_PLANS.clear()
    numbers = itertools.count()
    make = Make(
        folder / "placed",
        lambda function: decorate(function, folder / "plans", next(numbers)),
        is_placed=True,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = run(program, make)
    told = [str(w.message) for w in caught if issubclass(w.category, tf_placer.RunsAsItIs)]
    return {
        "same": found == expected,
        "difference": "" if found == expected else f"{str(found)[:500]} instead of {str(expected)[:500]}",
        "told": sorted(set(told)),
        "placements": len(DEVICES_OF_PLANS),
        "devices": max(DEVICES_OF_PLANS, default=0),
    }


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    exact_mode(soft_placement=True)
    tf.get_logger().setLevel("ERROR")
    methods.register("scattered", scattered)
    known = programs()
    names = sys.argv[2:] or list(known)
    outcomes = {}
    for name in names:
        try:
            outcomes[name] = outcome_of(known[name], folder / name)
        except Exception as error:  # noqa: BLE001 - reported, and the test fails on it
            trace = traceback.format_exc().splitlines()[-6:]
            outcomes[name] = {"error": f"{type(error).__name__}: {str(error)[:600]}", "trace": trace}
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
