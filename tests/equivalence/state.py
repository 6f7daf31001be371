"""What a random program reads and changes outside its tensors, and what a step sees of it."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

NUM_MATRICES = 4
TABLE_ROWS = 20


class State:
    """Variables, captured tensors and a record of side effects.

    Attributes:
      matrices: float32 [4, 4] variables.
      count: an int64 scalar variable.
      generator: a random number generator, which keeps its state in a variable.
      table: a captured constant of more bytes than ``clone_constants`` copies.
      offset: a small captured constant.
      recorded: what the program wrote down by way of Python.
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.matrices = [
            tf.Variable(rng.normal(size=(4, 4)).astype(np.float32), name=f"matrix_{k}")
            for k in range(NUM_MATRICES)
        ]
        self.count = tf.Variable(np.int64(seed % 3), name="count")
        self.generator = tf.random.Generator.from_seed(seed + 1)
        self.table = tf.constant(rng.normal(size=(TABLE_ROWS, 20)).astype(np.float32))
        self.offset = tf.constant(rng.normal(size=(4, 4)).astype(np.float32))
        self.recorded: list[bytes] = []
        self._initial = [variable.numpy() for variable in self.variables]

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.matrices, self.count, self.generator.state]

    def reset(self) -> None:
        """Gives every variable the value it had at first, wherever it is now."""
        for variable, value in zip(self.variables, self._initial, strict=True):
            variable.assign(value)
        self.recorded.clear()


@dataclasses.dataclass(frozen=True)
class Scope:
    """What an operation sees besides its inputs."""

    state: State  # of the program
    number: int  # of the step
    # of the step, as functions of one tensor of each kind that return a matrix
    blocks: Sequence[Callable[..., tf.Tensor]] = ()

    @property
    def matrix(self) -> tf.Variable:
        """The variable that the step's number means."""
        return self.state.matrices[self.number % NUM_MATRICES]

    def other_matrix(self, distance: int) -> tf.Variable:
        """Another variable than ``matrix``."""
        return self.state.matrices[(self.number + distance) % NUM_MATRICES]
