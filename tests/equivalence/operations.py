"""Everything a random program can do: its operations by name, with their signatures."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tests.equivalence import block_operations, pure_operations, stateful_operations
from tests.equivalence.programs import Program, Signature, random_program


@dataclasses.dataclass(frozen=True)
class Operation:
    """What a step does."""

    signature: Signature  # what it takes and gives
    # called with a ``Scope`` and a tensor of each kind that it takes; returns the value
    build: Callable[..., tf.Tensor]


def _pure(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    return lambda scope, *tensors: function(*tensors)


def _operation(signature: str, build: Callable[..., tf.Tensor], blocks: int = 0) -> Operation:
    takes, _, gives = signature.partition(">")
    return Operation(Signature(takes, gives, blocks), build)


_PURE = {
    name: _operation(signature, _pure(function))
    for name, (signature, function) in pure_operations.OPERATIONS.items()
}
_STATEFUL = {name: _operation(*entry) for name, entry in stateful_operations.OPERATIONS.items()}
_BLOCKS = {name: _operation(*entry) for name, entry in block_operations.OPERATIONS.items()}
OPERATIONS: dict[str, Operation] = {**_PURE, **_STATEFUL, **_BLOCKS}

# How often each family is drawn: what is pure is most of a program, what a rewriter can break is most of a family.
_FAMILIES = (
    tuple(_PURE),
    tuple(_PURE),
    tuple(_STATEFUL),
    tuple(_STATEFUL),
    tuple(_BLOCKS),
    (
        "after",
        "barrier",
        "colocated",
        "colocated_three",
        "identity_n",
        "identity_n_waited_for",
        "restacked",
        "top_k",
    ),
)


def program_of_seed(seed: int) -> Program:
    """The random program of a seed."""
    return random_program(
        seed, {name: operation.signature for name, operation in OPERATIONS.items()}, _FAMILIES
    )
