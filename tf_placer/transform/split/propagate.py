"""States of all tensors of a program, from its example inputs on: which ops are split, and why others are not.

The batch is the length by which most of the program is in parts: propagation decides, not names.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from colocation.op_facts import having, parse_input
from tf_placer.base.arguments import InputError
from tf_placer.graph.item import Item
from tf_placer.graph.sizes import OutputSpec
from tf_placer.transform.split.rules import NORMALIZATION, rule_name, split_by_rule, without_partner
from tf_placer.transform.split.states import (
    OWN,
    SIZES,
    WHOLE,
    Batch,
    NotSplit,
    OpStates,
    Own,
    Part,
    Split,
    State,
    Sum,
    Tensor,
    known_values,
)

_MOST_PASSES = 12
_HANDLES = (tf.resource, tf.variant)
_ITERATORS, _VARIABLES = having("iterator_read"), having("variable")
_PRODUCTS = ("matmul", "batch_matmul", "einsum")
_EXAMPLE_AXES = (0, 1)  # the second only where no first axis puts most bytes in parts
_MOST_BYTES = 0.5  # share of the bytes
_ENTERS, _EXITS = having("enter"), having("exit")


@dataclasses.dataclass(frozen=True)
class Program:
    """Propagation's view of an item, the same for every batch."""

    item: Item  # N ops
    inputs: Sequence[Sequence[Tensor]]  # [N] producers of each op's data inputs
    fetched: tuple[Tensor, ...]
    known: Mapping[Tensor, np.ndarray]  # values that depend on no data
    looping: frozenset[int]  # ops inside loops of Enter and Exit: all that they read has to be in there

    @staticmethod
    def of(item: Item) -> Program:
        index, depth = item.index, dict[str, int]()
        for node in index.graph_def.node:  # an edge back to a ``Merge`` comes from the same loop
            depth_of_inputs = max((depth.get(parse_input(text)[1], 0) for text in node.input), default=0)
            depth[node.name] = depth_of_inputs + (node.op in _ENTERS) - (node.op in _EXITS)
        fetches = [parse_input(text)[1:] for text in item.fetches]
        return Program(
            item,
            index.inputs,
            tuple((index.id_of_name[name], output) for name, output in fetches),
            known_values(index, item.outputs),
            frozenset(op for op, name in enumerate(index.names) if depth[name] > 0),
        )

    def spec(self, tensor: Tensor) -> OutputSpec:
        return self.item.outputs[tensor[0]][tensor[1]]


@dataclasses.dataclass(frozen=True)
class States:
    """Result of propagation over a program of N ops."""

    batch: Batch
    of: Mapping[Tensor, State]  # of each tensor that is not whole
    splits: Mapping[int, Split]  # op -> how it is split, in the order of ops
    why_whole: Mapping[int, str]  # op that reads examples and stays whole -> why, one clause
    depends: np.ndarray  # [N] bool, the op reads an example, with no sum over the batch between
    statistics: frozenset[int]  # ops whose result is each part's own

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

    A sum is joined for all of its readers where one of them needs its value: addends go on only where
    every reader takes them. Ops that are split only together with a partner stay whole with the partner.

    ``examples`` is tensor that holds the examples -> where. With ``has_own_statistics``, sums over the batch that go
    back to the examples are of each part alone. Ops in ``kept_whole`` are not split, though they could be.
    """
    joined: set[Tensor] = set()
    why = dict.fromkeys(kept_whole, "it is faster whole")
    rule_of_op = [rule_name(op_type) for op_type in program.item.index.op_types]
    statistics: frozenset[int] = frozenset()

    one_pass = functools.partial(_one_pass, program, examples, batch, joined, why, has_own_statistics)
    result = one_pass(statistics)
    if has_own_statistics:
        statistics = _going_back(program, rule_of_op, result)
        result = one_pass(statistics)
    for number in itertools.count():
        # Addends that some op or result takes joined, and another takes as they are.
        taken_joined = {tensor for tensor in program.fetched if isinstance(result.state(tensor), Sum)}
        taken_as_addends: set[Tensor] = set()
        for op, inputs in enumerate(program.inputs):
            split = result.splits.get(op)
            for position, tensor in enumerate(inputs):
                if isinstance(result.state(tensor), Sum) and program.item.index.op_types[op] not in SIZES:
                    is_addend = split is not None and isinstance(split.takes[position], Sum)
                    (taken_as_addends if is_addend else taken_joined).add(tensor)
        to_join = (taken_joined & taken_as_addends) - joined if number < _MOST_PASSES else set()
        singles = without_partner(
            program.item.index, program.inputs, program.fetched, result.splits, rule_of_op
        )
        if not to_join and not singles:
            break
        joined |= to_join
        why |= singles
        result = one_pass(statistics)
    if has_own_statistics:
        normalizations = {op for op in result.splits if rule_of_op[op] == NORMALIZATION}
        result = dataclasses.replace(result, statistics=statistics | normalizations)
    return result


def _one_pass(
    program: Program,
    examples: Mapping[Tensor, Part],
    batch: Batch,
    joined: Collection[Tensor],
    kept: Mapping[int, str],
    has_own_statistics: bool,
    statistics: Collection[int],
) -> States:
    item = program.item
    of: dict[Tensor, State] = dict(examples)
    splits: dict[int, Split] = {}
    why_whole: dict[int, str] = {}
    tensors_depend: set[Tensor] = set(examples)
    depends = np.zeros(item.index.num_ops, bool)
    for op, node in enumerate(item.graph_def.node):
        inputs = program.inputs[op]
        if node.op in SIZES or not inputs:
            continue  # the sizes of the whole are known, and nothing has to be joined for them
        states = tuple(of.get(tensor, WHOLE) for tensor in inputs)
        depends[op] = any(tensor in tensors_depend for tensor in inputs)
        outputs = [(op, i) for i in range(len(item.outputs[op]))]
        if all(state == WHOLE for state in states):
            if depends[op]:
                why_whole[op] = "what it reads is whole"
                tensors_depend.update(outputs)
                # Of an op on lists of tensors, what has one axis as long as the batch.
                on_lists = any(program.spec(tensor).dtype == tf.variant for tensor in inputs)
                for i, spec in enumerate(item.outputs[op] if on_lists and op not in program.looping else ()):
                    if not spec.rule and spec.dtype not in _HANDLES and spec.shape.count(batch.size) == 1:
                        of[op, i] = Part(spec.shape.index(batch.size))
            continue
        try:
            if not rule_name(node.op):
                raise NotSplit("it has no rule")
            if op in program.looping:
                raise NotSplit("it is in a loop that is no single op")
            split = _split(program, op, states, batch, op in statistics, has_own_statistics)
        except NotSplit as reason:
            if depends[op]:
                why_whole[op] = str(reason)
                tensors_depend.update(outputs)
                of.update(_divided_again(program, op, states, batch))
            continue
        in_parts = {(op, i): state for i, state in enumerate(split.gives) if isinstance(state, Part)}
        of.update(in_parts)
        if op in kept:
            if depends[op]:
                why_whole[op] = kept[op]
                tensors_depend.update(in_parts)
            continue
        splits[op] = split
        tensors_depend.update(in_parts)
        for i, state in enumerate(split.gives):
            if isinstance(state, Own | Sum) and (op, i) not in joined:
                of[op, i] = state
    return States(batch, of, splits, why_whole, depends, frozenset(statistics))


def _split(
    program: Program,
    op: int,
    states: tuple[State, ...],
    batch: Batch,
    is_statistic: bool,
    has_own_statistics: bool,
) -> Split:
    """How an op is split. For a rule a part's own estimate is whole; afterwards an estimate stays the part's own."""
    item = program.item
    read, written = [program.spec(tensor) for tensor in program.inputs[op]], item.outputs[op]
    if any(spec.rule for spec in [*read, *written]):
        raise NotSplit("the sizes of its tensors depend on data")
    has_own = OWN in states
    view = OpStates(
        node=item.graph_def.node[op],
        states=tuple(WHOLE if state == OWN else state for state in states),
        shapes=tuple(spec.shape for spec in read),
        values=tuple(program.known.get(tensor) for tensor in program.inputs[op]),
        dtypes=tuple(spec.dtype for spec in read),
        out_shapes=tuple(spec.shape for spec in written),
        out_dtypes=tuple(spec.dtype for spec in written),
        batch=batch,
    )
    if all(state == WHOLE for state in view.states):
        split = Split(view.states, (WHOLE,) * len(written))
    else:
        split = split_by_rule(view, has_own_statistics)
    shapes = [*zip(split.takes, view.shapes, strict=True), *zip(split.gives, view.out_shapes, strict=True)]
    for state, shape in shapes:
        if isinstance(state, Part) and not (
            0 <= state.axis < len(shape) and batch.holds(shape[state.axis], state.outer)
        ):
            raise NotSplit("its examples are not on one axis")
    for take, dtype in zip(split.takes, view.dtypes, strict=True):
        if isinstance(take, Part | Sum) and dtype in _HANDLES:
            raise NotSplit("it takes a handle")
    if not has_own and not is_statistic:
        return split
    takes = tuple(
        OWN if state == OWN and take == WHOLE else take
        for state, take in zip(states, split.takes, strict=True)
    )
    if has_own and split.write is None:
        gives = tuple(OWN if state == WHOLE else state for state in split.gives)
        split = dataclasses.replace(split, gives=gives)
    elif has_own and WHOLE in split.gives:
        raise NotSplit("it would make one value of what each part has its own of")
    return dataclasses.replace(_estimate(view, split) if is_statistic else split, takes=takes)


def _estimate(view: OpStates, split: Split) -> Split:
    """A sum over the batch as estimated by each part: the part's sum, in proportion to its examples, or mean."""
    batch = view.batch
    if split.write is not None:  # a mean
        return dataclasses.replace(split, gives=(OWN,), write=None)

    def write(writer, copies: Sequence[Sequence[str]]) -> list[list[str]]:
        sums = [writer.copy(c, inputs, name="sum") for c, inputs in enumerate(copies)]
        ratio = [batch.size / size for size in batch.sizes]
        return [[writer.binary("Mul", text, ratio[c], view.out_dtypes[0], c) for c, text in enumerate(sums)]]

    return dataclasses.replace(split, gives=(OWN,), write=write)


def _divided_again(program: Program, op: int, states: Iterable[State], batch: Batch) -> dict[Tensor, State]:
    """Outputs of a whole op that look like an input in parts: split readers take slices of them.

    Any axis that is long enough may be cut, so a wrong guess costs time and changes no number.
    """
    divided: dict[Tensor, State] = {}
    if op in program.looping:
        return divided
    shapes = [program.spec(tensor).shape for tensor in program.inputs[op]]
    for output, spec in enumerate(program.item.outputs[op]):
        if spec.rule or spec.dtype in _HANDLES:
            continue
        for state, shape in zip(states, shapes, strict=True):
            if not isinstance(state, Part) or spec.shape[state.axis : state.axis + 1] != (shape[state.axis],):
                continue
            if batch.holds(spec.shape[state.axis], state.outer):
                divided[op, output] = state
                break
    return divided


def _going_back(program: Program, rule_of_op: Sequence[str], states: States) -> frozenset[int]:
    """Sums and means over the batch whose value reaches an op that gives examples."""
    item = program.item
    reaches = np.zeros(item.index.num_ops, bool)  # by way of whole ops, an op that gives parts
    for op in reversed(range(item.index.num_ops)):
        split = states.splits.get(op)
        gives_parts = split is not None and any(isinstance(state, Part) for state in split.gives)
        if gives_parts or reaches[op]:
            for tensor in program.inputs[op]:
                if not isinstance(states.state(tensor), Part):
                    reaches[tensor[0]] = True
    return frozenset(
        op
        for op, split in states.splits.items()
        if reaches[op]
        and rule_of_op[op] in ("reduction", "bias_gradient")
        and split.gives == (Sum(),)
        and item.outputs[op][0].dtype.is_floating
        and any(isinstance(state, Part) for state in split.takes)
    )


def best_states(program: Program, parts: int, has_own_statistics: bool) -> tuple[States, dict[Tensor, Part]]:
    """States for the batch by which most bytes are in parts, and the inputs that hold its examples.

    Raises InputError where no input holds examples, no op works on a part of them, or there are fewer than ``parts``.
    """
    item = program.item
    feeds = [item.index.id_of_name[feed.node] for feed in item.feeds]
    iterators = [op for op, op_type in enumerate(item.index.op_types) if op_type in _ITERATORS]
    inputs = [
        ((op, output), spec.shape)
        for op in feeds + iterators
        for output, spec in enumerate(item.outputs[op])
        if not spec.rule
    ]
    lengths_by_axis = [
        dict.fromkeys(shape[axis] for _, shape in inputs if len(shape) > axis and min(shape[: axis + 1]) > 1)
        for axis in _EXAMPLE_AXES
    ]
    if not any(lengths_by_axis):
        raise InputError(
            f"{item.name!r} has no input with several examples, so there is no batch to split; "
            "leave its parts at 1"
        )
    best: tuple[States, dict[Tensor, Part]] | None = None
    best_key, share = (0, 0), 0.0
    for lengths in lengths_by_axis:
        for size in lengths:
            examples = {}
            for tensor, shape in inputs:
                axes = [axis for axis in _EXAMPLE_AXES if len(shape) > axis and shape[axis] == size]
                if axes:
                    examples[tensor] = Part(axes[0])
            states = propagate(program, examples, Batch.divided(size, min(parts, size)), has_own_statistics)
            # Bytes read and written by ops that work on examples, and by those that are split.
            total = in_parts = 0
            for op in np.flatnonzero(states.depends).tolist():
                specs = [*map(program.spec, program.inputs[op]), *item.outputs[op]]
                moved = sum(spec.num_bytes for spec in specs)
                total += moved
                in_parts += moved if op in states.splits else 0
            key = (len(examples), in_parts)
            if in_parts and key > best_key and _reads_weights_whole(program, states):
                best, best_key, share = (states, examples), key, in_parts / total
        if share > _MOST_BYTES:
            break
    if best is None:
        raise InputError(
            f"no op of {item.name!r} can work on a part of its examples, so there is no batch to split; leave its "
            "parts at 1"
        )
    Batch.divided(best[0].batch.size, parts)  # refuses more parts than examples
    return best


def _reads_weights_whole(program: Program, states: States) -> bool:
    """Whether some op that works on parts reads weights whole, or none cuts them.

    An axis along which weights are cut is no batch but features, which are summed with weights.
    """
    op_types, is_cut = program.item.index.op_types, False
    weights: set[int] = set()  # variables, and ops that hand them on
    for op, op_type in enumerate(op_types):
        inputs, split = program.inputs[op], states.splits.get(op)
        reads_weights = any(producer in weights for producer, _ in inputs)
        if op_type in _VARIABLES or (reads_weights and not states.depends[op]):
            weights.add(op)
        if split is None:
            continue
        is_product = rule_name(op_type) in _PRODUCTS
        for tensor, take in zip(inputs, split.takes, strict=True):
            if tensor[0] not in weights and not (is_product and op_types[tensor[0]] == "Const"):
                continue
            if isinstance(take, Part):
                is_cut = True
            elif math.prod(program.spec(tensor).shape) > 1 and any(
                isinstance(state, Part) for state in split.gives
            ):
                return True
    return not is_cut
