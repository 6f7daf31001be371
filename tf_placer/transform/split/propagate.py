"""States of all tensors of a program, from its example inputs on: which ops are split, and why others are not.

A fused batch normalization in training and its gradient are split only together. What such an op keeps for its
gradient is its kernel's own affair: mean and variance on a CPU, mean and inverse deviation on a GPU. A split one keeps
mean and variance wherever it runs, and a split gradient reads these. So either form keeps what the other cannot read.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from colocation.op_facts import GraphIndex, having, parse_input
from tf_placer.graph.item import Item
from tf_placer.transform.split.known_values import known_values
from tf_placer.transform.split.rules import GRADIENT, NORMALIZATION, rule_name, split_by_rule, split_types
from tf_placer.transform.split.states import (
    OWN,
    WHOLE,
    Batch,
    NotSplit,
    OpStates,
    Own,
    Part,
    Split,
    State,
    Sum,
    Whole,
)

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


_SIZES = having("metadata")
_MOST_PASSES = 12
_FASTER_WHOLE = "it is faster whole"
_HANDLES = (tf.resource, tf.variant)
_ENTERS, _EXITS = having("enter"), having("exit")


@dataclasses.dataclass(frozen=True)
class Program:
    """An item as propagation reads it, the same for every batch.

    Attributes:
      item: N ops.
      inputs: [N] producers of each op's data inputs.
      known: values that depend on no data.
      looping: ops inside of a loop of ``Enter`` and ``Exit``: what they read has to be in there, too.
    """

    item: Item
    inputs: tuple[tuple[Tensor, ...], ...]
    known: Mapping[Tensor, np.ndarray]
    looping: frozenset[int]

    @staticmethod
    def of(item: Item) -> Program:
        """Reads an item."""
        inputs: list[list[Tensor]] = [[] for _ in item.index.names]
        for producer, output, consumer, _ in item.index.data_edges.tolist():
            inputs[consumer].append((producer, output))
        known = known_values(item.index, item.outputs)
        return Program(item, tuple(map(tuple, inputs)), known, _looping(item.index))


def _looping(index: GraphIndex) -> frozenset[int]:
    depth: dict[str, int] = {}
    for node in index.graph_def.node:  # an edge back to a ``Merge`` comes of the loop that it is in
        inside = max((depth.get(parse_input(text)[1], 0) for text in node.input), default=0)
        depth[node.name] = inside + (node.op in _ENTERS) - (node.op in _EXITS)
    return frozenset(op for op, name in enumerate(index.names) if depth[name] > 0)


@dataclasses.dataclass(frozen=True)
class States:
    """What propagation found.

    Attributes:
      batch: the examples.
      of: state of each tensor that is not whole.
      splits: op -> how it is split.
      why_whole: op that reads examples, and stays whole -> why, one clause.
      depends: [N] bool, the op reads an example, with no sum over the batch between.
      statistics: ops whose result each part has its own of.
    """

    batch: Batch
    of: Mapping[Tensor, State]
    splits: Mapping[int, Split]
    why_whole: Mapping[int, str]
    depends: np.ndarray
    statistics: frozenset[int]

    def state(self, tensor: Tensor) -> State:
        return self.of.get(tensor, WHOLE)


def propagate(
    program: Program,
    examples: Mapping[Tensor, Part],
    batch: Batch,
    has_own_statistics: bool = False,
    kept_whole: Iterable[int] = (),
) -> States:
    """Finds the state of every tensor.

    A sum whose value is wanted by some reader is joined for all: addends go on only where every reader takes them. What
    is split only together with another op stays whole where that one does.

    Args:
      program: the item.
      examples: tensor that holds the examples -> where.
      batch: the examples.
      has_own_statistics: sums over the batch that go back to the examples are of each part alone.
      kept_whole: ops that are not split, though they could be.
    """
    joined: set[Tensor] = set()
    kept = dict.fromkeys(kept_whole, _FASTER_WHOLE)
    statistics: frozenset[int] = frozenset()
    fetched = _fetched(program.item)
    found = _pass(program, examples, batch, joined, kept, statistics, has_own_statistics)
    if has_own_statistics:
        statistics = _going_back(program, found)
        found = _pass(program, examples, batch, joined, kept, statistics, has_own_statistics)
    for number in itertools.count():
        more = _wanted_whole(program, found) - joined if number < _MOST_PASSES else set()
        alone = without_partner(program.item.index, program.inputs, fetched, found.splits)
        if not more and not alone:
            break
        joined |= more
        kept |= alone
        found = _pass(program, examples, batch, joined, kept, statistics, has_own_statistics)
    return found


def _pass(
    program: Program,
    examples: Mapping[Tensor, Part],
    batch: Batch,
    joined: set[Tensor],
    kept: Mapping[int, str],
    statistics: frozenset[int],
    has_own_statistics: bool,
) -> States:
    item = program.item
    of: dict[Tensor, State] = dict(examples)
    splits: dict[int, Split] = {}
    why_whole: dict[int, str] = {}
    depends_tensor: set[Tensor] = set(examples)
    depends = np.zeros(item.index.num_ops, bool)
    types = split_types()
    for op, node in enumerate(item.graph_def.node):
        inputs = program.inputs[op]
        if node.op in _SIZES or not inputs:
            continue  # the sizes of the whole are known, and nobody has to join anything for them
        states = tuple(of.get(tensor, WHOLE) for tensor in inputs)
        depends[op] = any(tensor in depends_tensor for tensor in inputs)
        if all(state == WHOLE for state in states):
            if depends[op]:
                why_whole[op] = "what it reads is whole"
                depends_tensor.update((op, i) for i in range(len(item.outputs[op])))
                of.update(_taken_out(program, op, batch))
            continue
        try:
            if node.op not in types:
                raise NotSplit("it has no rule")
            if op in program.looping:
                raise NotSplit("it is in a loop that is no single op")
            split = _split(program, op, states, batch, op in statistics, has_own_statistics)
        except NotSplit as reason:
            if depends[op]:
                why_whole[op] = str(reason)
                depends_tensor.update((op, i) for i in range(len(item.outputs[op])))
                of.update(_divided_again(program, op, states, batch))
            continue
        if op in kept:
            in_parts = {(op, i): state for i, state in enumerate(split.gives) if isinstance(state, Part)}
            if depends[op]:
                why_whole[op] = kept[op]
                depends_tensor.update(in_parts)
            of.update(in_parts)
            continue
        splits[op] = split
        for i, state in enumerate(split.gives):
            if isinstance(state, Part) or (isinstance(state, Own | Sum) and (op, i) not in joined):
                of[op, i] = state
            if isinstance(state, Part):
                depends_tensor.add((op, i))
    return States(batch, of, splits, why_whole, depends, statistics)


def _split(
    program: Program,
    op: int,
    states: tuple[State, ...],
    batch: Batch,
    is_statistic: bool,
    has_own_statistics: bool,
) -> Split:
    """How an op is split; an estimate of its own is whole for a rule, and stays its own."""
    item = program.item
    inputs = program.inputs[op]
    given = [item.outputs[producer][output] for producer, output in inputs]
    made = item.outputs[op]
    if any(spec.rule for spec in [*given, *made]):
        raise NotSplit("the sizes of its tensors depend on data")
    has_own = any(isinstance(state, Own) for state in states)
    seen = tuple(WHOLE if isinstance(state, Own) else state for state in states)
    view = OpStates(
        node=item.graph_def.node[op],
        states=seen,
        shapes=tuple(spec.shape for spec in given),
        values=tuple(program.known.get(tensor) for tensor in inputs),
        dtypes=tuple(spec.dtype for spec in given),
        out_shapes=tuple(spec.shape for spec in made),
        out_dtypes=tuple(spec.dtype for spec in made),
        batch=batch,
    )
    if all(state == WHOLE for state in seen):
        split = Split(seen, (WHOLE,) * len(made))
    else:
        split = split_by_rule(view, has_own_statistics)
    _check(view, split)
    if not has_own and not is_statistic:
        return split
    takes = tuple(
        OWN if isinstance(state, Own) and take == WHOLE else take
        for state, take in zip(states, split.takes, strict=True)
    )
    if has_own and split.write is None:
        split = dataclasses.replace(
            split, gives=tuple(OWN if state == WHOLE else state for state in split.gives)
        )
    elif has_own and any(state == WHOLE for state in split.gives):
        raise NotSplit("it would make one value of what each part has its own of")
    if is_statistic:
        return dataclasses.replace(_estimate(view, split), takes=takes)
    return dataclasses.replace(split, takes=takes)


def _divided_again(program: Program, op: int, states: tuple[State, ...], batch: Batch) -> dict[Tensor, State]:
    """Outputs of a whole op that look like an input in parts: who works on examples takes slices of them.

    Any axis that is long enough may be cut, so a wrong guess costs time and changes no number.
    """
    found: dict[Tensor, State] = {}
    if op in program.looping:
        return found
    shapes = [program.item.outputs[producer][output].shape for producer, output in program.inputs[op]]
    for output, spec in enumerate(program.item.outputs[op]):
        if spec.rule or spec.dtype in _HANDLES:
            continue
        for state, shape in zip(states, shapes, strict=True):
            if not isinstance(state, Part) or spec.shape[state.axis : state.axis + 1] != (shape[state.axis],):
                continue
            if batch.holds(spec.shape[state.axis], state.outer):
                found[op, output] = state
                break
    return found


def _taken_out(program: Program, op: int, batch: Batch) -> dict[Tensor, State]:
    """What comes out of a list of tensors, or of a loop with lists, and has one axis as long as the batch."""
    item, found = program.item, dict[Tensor, State]()
    if op not in program.looping and any(
        item.outputs[producer][output].dtype == tf.variant for producer, output in program.inputs[op]
    ):
        for output, spec in enumerate(item.outputs[op]):
            if not spec.rule and spec.dtype not in _HANDLES and spec.shape.count(batch.size) == 1:
                found[op, output] = Part(spec.shape.index(batch.size))
    return found


def _check(view: OpStates, split: Split) -> None:
    """Raises NotSplit for a state that the batch does not fit."""
    shapes = [*zip(split.takes, view.shapes, strict=True), *zip(split.gives, view.out_shapes, strict=True)]
    for state, shape in shapes:
        if isinstance(state, Part) and not (
            0 <= state.axis < len(shape) and view.batch.holds(shape[state.axis], state.outer)
        ):
            raise NotSplit("its examples are not on one axis")
    for take, dtype in zip(split.takes, view.dtypes, strict=True):
        if isinstance(take, Part | Sum) and dtype in _HANDLES:
            raise NotSplit("it takes a handle")


def _estimate(view: OpStates, split: Split) -> Split:
    """A sum over the batch as each part estimates it: its own sum, in proportion to its examples; its own mean."""
    batch = view.batch
    if split.write is not None:  # a mean: of the part
        return dataclasses.replace(split, gives=(OWN,), write=None)

    def write(writer, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        sums = [writer.copy(c, inputs, name="sum") for c, inputs in enumerate(copies)]
        ratio = [batch.size / size for size in batch.sizes]
        return [[writer.binary("Mul", one, ratio[c], view.out_dtypes[0], c) for c, one in enumerate(sums)]]

    return dataclasses.replace(split, gives=(OWN,), write=write)


def _going_back(program: Program, found: States) -> frozenset[int]:
    """Sums and means over the batch whose value reaches an op that gives examples."""
    item = program.item
    reaches = np.zeros(
        item.index.num_ops, bool
    )  # the op's outputs are read, by whole ops on, by one that gives parts
    for op in reversed(range(item.index.num_ops)):
        split = found.splits.get(op)
        gives_parts = split is not None and any(isinstance(state, Part) for state in split.gives)
        if gives_parts or reaches[op]:
            for producer, output in program.inputs[op]:
                if not isinstance(found.state((producer, output)), Part):
                    reaches[producer] = True
    return frozenset(
        op
        for op, split in found.splits.items()
        if reaches[op]
        and rule_name(item.index.op_types[op]) in ("reduction", "bias_gradient")
        and split.gives == (Sum(),)
        and item.outputs[op][0].dtype.is_floating
        and any(isinstance(state, Part) for state in split.takes)
    )


def _wanted_whole(program: Program, found: States) -> set[Tensor]:
    """Addends that some op or result takes joined, and another takes as they are."""
    item = program.item
    taken: dict[Tensor, set[bool]] = {}
    for op, inputs in enumerate(program.inputs):
        split = found.splits.get(op)
        for position, tensor in enumerate(inputs):
            if isinstance(found.state(tensor), Sum) and item.index.op_types[op] not in _SIZES:
                takes: State = WHOLE if split is None else split.takes[position]
                taken.setdefault(tensor, set()).add(isinstance(takes, Sum))
    for tensor in _fetched(item):
        if isinstance(found.state(tensor), Sum):
            taken.setdefault(tensor, set()).add(False)
    return {tensor for tensor, how in taken.items() if len(how) == 2}


def _fetched(item: Item) -> list[Tensor]:
    named = [text.partition(":") for text in item.fetches]
    return [(item.index.id_of_name[name], int(output or 0)) for name, _, output in named]


def is_whole(state: State) -> bool:
    """Whether all copies read one tensor."""
    return isinstance(state, Whole)
