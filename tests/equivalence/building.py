"""A program as a traced TensorFlow function, with its state and arguments."""

import collections
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import concrete_function

from tests.equivalence.operations import OPERATIONS
from tests.equivalence.programs import KINDS, Block, Program, Step
from tests.equivalence.state import Scope, State

Pair = collections.namedtuple("Pair", ["first", "rest"])


@dataclasses.dataclass(frozen=True)
class Built:
    """A program that can be called."""

    program: Program  # what it was built from
    state: State  # its variables and captures
    concrete: concrete_function.ConcreteFunction  # the traced function

    def arguments(self, call: int) -> list[tf.Tensor]:
        """One tensor of each kind for a call; other values for every call, of the same shapes."""
        return _arguments(self.program.seed, call)


def build(program: Program) -> Built:
    """Traces a program; twice the same program gives twice the same graph and values."""
    tf.random.set_seed(program.seed)
    state = State(program.seed)

    @tf.function(autograph=False)
    def function(m, v, s, i, f, t):
        values = _run(program.steps, [m, v, s, i, f, t], state)
        return structured([values[k] for k in program.outputs], program.form)

    return Built(program, state, function.get_concrete_function(*_arguments(program.seed, 0)))


def structured(values: Sequence[tf.Tensor], form: int) -> Any:
    """Values as a function may return them: None without any, else a tuple or nested containers with a None."""
    if not values:
        return None
    if form == 0:
        return tuple(values)
    if form == 1:
        return {"first": values[0], "rest": [None, *values[1:]]}
    if form == 2:
        return Pair(values[0], {"rest": tuple(values[1:]), "none": None})
    return values[0] if len(values) == 1 else [values[::-1], {"again": values[0]}]


def _run(steps: Sequence[Step], arguments: Sequence[tf.Tensor], state: State) -> list[tf.Tensor]:
    values = list(arguments)
    for step in steps:
        blocks = [functools.partial(_run_block, block, state) for block in step.blocks]
        scope = Scope(state, step.number, blocks)
        values.append(OPERATIONS[step.operation].build(scope, *(values[k] for k in step.inputs)))
    return values


def _run_block(block: Block, state: State, *arguments: tf.Tensor) -> tf.Tensor:
    return _run(block.steps, arguments, state)[block.result]


def _arguments(seed: int, call: int) -> list[tf.Tensor]:
    rng = np.random.default_rng([seed, call])
    values = {
        "m": tf.constant(rng.normal(size=(4, 4)).astype(np.float32)),
        "v": tf.constant(rng.normal(size=4).astype(np.float32)),
        "s": tf.constant(np.float32(rng.normal())),
        "i": tf.constant(rng.integers(0, 9, size=4).astype(np.int32)),
        "f": tf.constant(bool((seed + call) % 2)),
        "t": tf.constant([f"a{number}" for number in rng.integers(0, 20, size=4)]),
    }
    return [values[kind] for kind in KINDS]
