"""Ops that are split only together: a fused batch normalization in training, and its gradient.

What such an op keeps for its gradient is its kernel's own affair: mean and variance on a CPU, mean and inverse
deviation on a GPU. A split one keeps mean and variance wherever it runs, and a split gradient reads these. So either
form keeps what the other cannot read.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

from colocation.op_facts import GraphIndex
from tf_placer.transform.split.rules import GRADIENT, NORMALIZATION, rule_name
from tf_placer.transform.split.states import Split

Tensor = tuple[int, int]  # op, output

_KEPT = range(
    3, 6
)  # outputs of the op, and inputs of its gradient: statistics, and a workspace in later versions
_HANDS_ON = ("Identity", "IdentityN")


def without_partner(
    index: GraphIndex,
    inputs: Sequence[Sequence[Tensor]],
    fetched: Iterable[Tensor],
    splits: Mapping[int, Split],
) -> dict[int, str]:
    """Split ops that have to stay whole, since another is whole -> why, one clause.

    Args:
      index: a program of N ops.
      inputs: [N] producers of each op's data inputs.
      fetched: results of the program.
      splits: op -> how it is split.
    """
    named = {
        name: [op for op, op_type in enumerate(index.op_types) if rule_name(op_type) == name]
        for name in (NORMALIZATION, GRADIENT)
    }
    found: dict[int, str] = {}
    for op in named[GRADIENT]:
        makers = {_maker(index, inputs, tensor) for tensor in inputs[op][_KEPT.start :]}
        if op in splits and not all(
            maker in splits and rule_name(index.op_types[maker]) == NORMALIZATION for maker, _ in makers
        ):
            found[op] = "the normalization whose statistics it reads is whole"
    training = {op for op in named[NORMALIZATION] if op in splits and _is_training(index, op)}
    if not training:
        return found
    readers = _readers(index, inputs, fetched)
    for op in sorted(training):
        for output in _KEPT:
            if any(
                reader not in splits or rule_name(index.op_types[reader]) != GRADIENT
                for reader in readers[op, output]
            ):
                found[op] = "what it keeps for its gradient is read by an op that is whole"
    return found


def _is_training(index: GraphIndex, op: int) -> bool:
    attributes = index.graph_def.node[op].attr
    return "is_training" not in attributes or attributes["is_training"].b


def _maker(index: GraphIndex, inputs: Sequence[Sequence[Tensor]], tensor: Tensor) -> Tensor:
    """The tensor that was handed on, maybe many times."""
    while index.op_types[tensor[0]] in _HANDS_ON:
        tensor = inputs[tensor[0]][tensor[1]]
    return tensor


def _readers(
    index: GraphIndex, inputs: Sequence[Sequence[Tensor]], fetched: Iterable[Tensor]
) -> dict[Tensor, set[int]]:
    """Tensor -> ops that read it, itself or handed on; -1 for the program's caller."""
    found: dict[Tensor, set[int]] = collections.defaultdict(set)
    for op, op_type in enumerate(index.op_types):
        if op_type not in _HANDS_ON:
            for tensor in inputs[op]:
                found[_maker(index, inputs, tensor)].add(op)
    for tensor in fetched:
        found[_maker(index, inputs, tensor)].add(-1)
    return found
