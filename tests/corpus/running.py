"""Runs a program of the corpus undecorated and placed, and compares what it returned."""

import dataclasses
import itertools
import pathlib
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_placer
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
    cluster, kept = tf_placer.Cluster.logical(NUM_DEVICES), folder / str(number)
    return tf_placer.auto_place(function, cluster=cluster, method=METHOD, seed=number, cache_dir=kept)


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


def observed(value: Any) -> Any:
    """Tensors of every kind, variables, arrays and structures of them as lists, tuples, strings and bytes."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, tf.RaggedTensor):
        return ["ragged", *(observed(part) for part in (value.flat_values, *value.nested_row_splits))]
    if isinstance(value, tf.SparseTensor):
        return ["sparse", observed(value.indices), observed(value.values), observed(value.dense_shape)]
    if isinstance(value, tf.IndexedSlices):
        return ["slices", observed(value.indices), observed(value.values)]
    if isinstance(value, Mapping):
        return {str(key): observed(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(observed(part) for part in value)]
    if isinstance(value, tf.experimental.ExtensionType):
        parts = tf.nest.flatten(value, expand_composites=True)
        return [type(value).__name__, *map(observed, parts)]
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        content = array.tolist() if array.dtype == object else array.tobytes().hex()
        return [str(array.dtype), list(array.shape), content]
    if isinstance(value, bytes):  # a scalar of strings
        return repr(value)
    raise TypeError(f"a program returned a {type(value).__name__}, which cannot be compared")
