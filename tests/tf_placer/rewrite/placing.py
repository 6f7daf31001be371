"""Functions placed over logical devices, and what they compute compared."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tests.logical_devices import NUM_DEVICES
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.read_function import traced
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.placed_function import placed_function

CLOSE = 1e-5  # of the largest number: the order of sums, in float32


def place(function, *example_args, seed: int = 0):
    """A random legal placement of what ``function`` does with such arguments."""
    concrete = traced(function, example_args)
    problem = analytic_problem(Item.from_function(concrete, *example_args), Cluster.logical(NUM_DEVICES))
    row = np.random.default_rng(seed).integers(NUM_DEVICES, size=problem.num_units)
    row = np.where(problem.allowed[np.arange(problem.num_units), row], row, problem.allowed.argmax(axis=1))
    return placed_function(concrete, Placement(problem, row), *example_args)


def place_some(function, device_of_op: dict[str, int], *example_args):
    """A placement with some ops on the devices of these numbers, and the others on device 0."""
    concrete = function.get_concrete_function(*example_args)
    problem = analytic_problem(Item.from_function(concrete, *example_args), Cluster.logical(NUM_DEVICES))
    row = np.zeros(problem.num_units, np.int32)
    for name, device in device_of_op.items():
        row[problem.unit_of_op[problem.op_names.index(name)]] = device
    return placed_function(concrete, Placement(problem, row), *example_args)


def are_close(expected: object, found: object) -> bool:
    return all(
        np.abs(np.asarray(a) - np.asarray(b)).max() <= CLOSE * max(np.abs(np.asarray(a)).max(), 1e-3)
        for a, b in zip(tf.nest.flatten(expected), tf.nest.flatten(found), strict=True)
    )


def refusal(run: Callable[[], object]) -> str:
    """The one line with which something is refused; empty where it is not."""
    try:
        run()
    except InputError as error:
        return str(error)
    return ""
