"""The batch of a program in parts: one graph with a copy of each op that works on examples for each part."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from colocation.op_facts import having, parse_input
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly, without_collections
from tf_placer.graph import program as graphs
from tf_placer.graph.item import Item, rewritten
from tf_placer.graph.program import Splitting
from tf_placer.transform import BATCH_STATISTICS, PART, WHOLE
from tf_placer.transform.split.propagate import Program, States, Tensor, propagate
from tf_placer.transform.split.rules import NORMALIZATION, rule_name
from tf_placer.transform.split.states import Batch, Part, elements
from tf_placer.transform.split.unroll import Unrolled, unrolled
from tf_placer.transform.split.writer import Writer

_ITERATORS, _VARIABLES = having("iterator_read"), having("variable")
_PRODUCTS = ("matmul", "batch_matmul", "einsum")
_EXAMPLE_AXES = (0, 1)  # the second only where the first leads nowhere
_ENOUGH = 0.5  # share of bytes in parts


@dataclasses.dataclass(frozen=True)
class StayedWhole:
    """An op that works on examples and is not split.

    Attributes:
      name, op_type: of the op.
      why: one clause.
    """

    name: str
    op_type: str
    why: str


@dataclasses.dataclass(frozen=True)
class SplitProgram:
    """A program whose batch is in parts, and what became of its ops.

    Attributes:
      item: whole inputs in, whole outputs out; ops ``part_0/...`` are the first part's.
      origin_of: op of ``item`` -> op of the program that was split.
      parts: how many there are.
      batch: examples of a step.
      example_inputs: feeds and iterator outputs that hold the examples, "node:i" -> axis.
      split_ops: ops of the program that have copies.
      stayed_whole: those that work on examples and have none.
      own_statistics: ops whose result is of each part by itself; empty unless that was asked for.
      straight: the program with loops written out, of which copies are made; None in one part.
      states: of the tensors of ``straight``; None in one part.
    """

    item: Item
    origin_of: Mapping[str, str]
    parts: int
    batch: int
    example_inputs: Mapping[str, int]
    split_ops: tuple[str, ...]
    stayed_whole: tuple[StayedWhole, ...]
    own_statistics: tuple[str, ...] = ()
    straight: Unrolled | None = None
    states: States | None = None

    def split_share(self, time_of_op: Mapping[str, float]) -> float:
        """Share of the time of ops that work on examples that is in split ops; 1 where they take no time.

        Args:
          time_of_op: op of the program that was split -> its time, in any unit.
        """
        split_time = sum(time_of_op[name] for name in self.split_ops)
        whole_time = sum(time_of_op[one.name] for one in self.stayed_whole)
        total = split_time + whole_time
        return split_time / total if total else 1.0

    def sentences(self, time_of_op: Mapping[str, float], most: int = 5) -> list[str]:
        """What stayed whole, a sentence for each op type and reason, the longest time first.

        Args:
          time_of_op: op of the program that was split -> its time, in any unit.
          most: sentences.
        """
        total = sum(time_of_op.values())
        groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for one in self.stayed_whole:
            groups[one.op_type, one.why].append(one.name)
        times = {key: sum(time_of_op[name] for name in names) for key, names in groups.items()}
        return [
            f"{len(groups[key])} {key[0]} ({groups[key][0]}, ...) stay whole, "
            f"{100 * times[key] / total if total else 0:.1f} % of the step: {key[1]}"
            for key in sorted(groups, key=lambda key: -times[key])[:most]
        ]


def split(item: Item, parts: int, batch_statistics: str = "whole", kept_whole: Collection[str] = ()) -> Item:
    """Splits the batch of a program: every op that works on examples gets a copy for each part.

    The result takes and gives what the program does, whole, and has its variables; so it is placed, run and exported as
    any Item. It computes the same up to the order of sums, for the batch of its example inputs. Random ops draw for
    the whole batch. With ``batch_statistics="part"`` sums over the batch that go back to the examples, as in batch
    normalization, are of each part alone, as under ``tf.distribute``: other numbers, where there are such sums.

    Args:
      item: the program.
      parts: copies; 1 gives the item itself.
      batch_statistics: ``"whole"`` or ``"part"``.
      kept_whole: names of ops that stay whole, because their copies would take longer than they gain.

    Raises:
      InputError: ``parts`` is below 1 or above the batch, no input holds examples, or no op is left to split.
    """
    return split_program(item, parts, batch_statistics, kept_whole).item


@eagerly()
@without_collections()
def split_program(
    item: Item, parts: int, batch_statistics: str = "whole", kept_whole: Collection[str] = ()
) -> SplitProgram:
    """As ``split``, with the origin of every op and the record of what stayed whole.

    The batch is the length of an input's first axis that most inputs share, and of these the one for which most bytes
    of the program turn out to be in parts: propagation decides, not names. Where no first axis puts half of them in
    parts, second axes are tried as well, but not those of inputs that have one example. What weights are cut along is
    no batch, but features.

    Args:
      item: the program.
      parts: copies; 1 gives the item itself.
      batch_statistics: ``"whole"`` or ``"part"``.
      kept_whole: names of ops that stay whole.

    Raises:
      InputError: as ``split``.
    """
    arguments.instance_of("item", item, Item, "give an Item")
    parts = arguments.whole_number("parts", parts, least=1)
    arguments.one_of("batch_statistics", batch_statistics, BATCH_STATISTICS)
    if parts == 1:
        return SplitProgram(item, {name: name for name in item.index.names}, 1, 0, {}, (), ())
    kept = _known_ops(item, kept_whole)
    names_kept = [item.index.names[op] for op in kept]
    has_own_statistics = batch_statistics == PART
    left_alone = set(names_kept)
    while True:
        straight = unrolled(item, left_alone)
        program = Program.of(straight.item)
        states, examples = _best(program, parts, has_own_statistics)
        useless = straight.loops - {straight.origin_of[program.item.index.names[op]] for op in states.splits}
        if not useless:
            break
        left_alone |= useless
    if kept:  # they have no say in what the batch is
        id_of_name = straight.item.index.id_of_name
        still_there = [id_of_name[name] for name in names_kept if name in id_of_name]
        states = propagate(program, examples, states.batch, has_own_statistics, still_there)
    if not states.splits:
        raise InputError(
            f"kept_whole leaves no op of {item.name!r} to split; name fewer, or leave parts at 1"
        )
    writer = Writer(program, states, examples)
    writer.write()
    names, types = straight.item.index.names, straight.item.index.op_types
    own = states.statistics
    if batch_statistics == PART:
        own |= {op for op in states.splits if rule_name(types[op]) == NORMALIZATION}
    splitting = Splitting(item.fingerprint, states.batch.size, parts, PART if own else WHOLE, tuple(kept))
    result, origin_of = _as_item(straight.item, writer, splitting)
    stayed_whole = _stayed_whole(item, straight, states)
    split_ops = dict.fromkeys(straight.origin_of[names[op]] for op in states.splits if states.depends[op])
    return SplitProgram(
        item=result,
        origin_of={name: straight.origin_of[old] for name, old in origin_of.items()},
        parts=parts,
        batch=states.batch.size,
        example_inputs={f"{names[op]}:{output}": part.axis for (op, output), part in examples.items()},
        split_ops=tuple(name for name in split_ops if name not in stayed_whole),
        stayed_whole=tuple(stayed_whole.values()),
        own_statistics=tuple(dict.fromkeys(straight.origin_of[names[op]] for op in sorted(own))),
        straight=straight,
        states=states,
    )


def _stayed_whole(item: Item, straight: Unrolled, states: States) -> dict[str, StayedWhole]:
    """What stayed whole, by name; a loop of which some op did is one of these."""
    found: dict[str, StayedWhole] = {}
    for op, why in states.why_whole.items():
        name = straight.item.index.names[op]
        origin = straight.origin_of[name]
        op_type = item.index.op_types[item.index.id_of_name[origin]]
        found.setdefault(origin, StayedWhole(origin, op_type, straight.why_not.get(name, why)))
    return found


def _known_ops(item: Item, names: Collection[str]) -> list[int]:
    """Positions of ops, once each, from the first on.

    Raises:
      InputError: one is of no op of the program.
    """
    if isinstance(names, str) or not isinstance(names, Collection):
        raise InputError(f"kept_whole is {arguments.shown(names)}; give a list of names of ops")
    unknown = next((name for name in names if name not in item.index.id_of_name), None)
    if unknown is not None:
        raise InputError(f"kept_whole has {unknown!r}, which is no op of {item.name!r}; take it out")
    return sorted({item.index.id_of_name[name] for name in names})


def _best(program: Program, parts: int, has_own_statistics: bool) -> tuple[States, dict[Tensor, Part]]:
    """The states for the batch by which most bytes are in parts.

    Raises:
      InputError: there is none.
    """
    item = program.item
    inputs = _inputs(item)
    by_axis = [
        list(
            dict.fromkeys(
                shape[axis] for _, shape in inputs if len(shape) > axis and min(shape[: axis + 1]) > 1
            )
        )
        for axis in _EXAMPLE_AXES
    ]
    if not any(by_axis):
        raise InputError(
            f"{item.name!r} has no input with several examples, so there is no batch to split; "
            "leave its parts at 1"
        )
    best: tuple[tuple[int, int], States, dict[Tensor, Part]] | None = None
    share = 0.0
    for among in by_axis:
        for size in among:
            examples = _examples(inputs, size)
            batch = Batch.divided(size, min(parts, size))
            states = propagate(program, examples, batch, has_own_statistics)
            in_parts, total = _bytes_in_parts(program, states)
            key = (len(examples), in_parts)
            if in_parts and (best is None or key > best[0]) and _holds_examples(program, states):
                best, share = (key, states, examples), in_parts / total
        if share > _ENOUGH:
            break
    if best is None:
        raise InputError(
            f"no op of {item.name!r} can work on a part of its examples, so there is no batch to split; leave its "
            "parts at 1"
        )
    Batch.divided(best[1].batch.size, parts)
    return best[1], best[2]


def _holds_examples(program: Program, states: States) -> bool:
    """Whether some op that works on parts reads weights whole, or none cuts them: features are summed with weights."""
    item, is_cut = program.item, False
    weights: set[int] = set()  # ops that give them, from variables on
    for op, op_type in enumerate(item.index.op_types):
        inputs, split = program.inputs[op], states.splits.get(op)
        if op_type in _VARIABLES or (
            not states.depends[op] and any(producer in weights for producer, _ in inputs)
        ):
            weights.add(op)
        if split is None:
            continue
        is_product = rule_name(op_type) in _PRODUCTS
        for (producer, output), take in zip(inputs, split.takes, strict=True):
            spec, is_constant = item.outputs[producer][output], item.index.op_types[producer] == "Const"
            if producer not in weights and not (is_product and is_constant):
                continue
            if isinstance(take, Part):
                is_cut = True
            elif elements(spec.shape) > 1 and any(isinstance(given, Part) for given in split.gives):
                return True
    return not is_cut


def _inputs(item: Item) -> list[tuple[Tensor, tuple[int, ...]]]:
    """Feeds, and the elements that iterators give, with their shapes."""
    ops = [item.index.id_of_name[feed.node] for feed in item.feeds]
    ops += [op for op, op_type in enumerate(item.index.op_types) if op_type in _ITERATORS]
    return [
        ((op, output), spec.shape)
        for op in ops
        for output, spec in enumerate(item.outputs[op])
        if not spec.rule
    ]


def _examples(inputs: Sequence[tuple[Tensor, tuple[int, ...]]], size: int) -> dict[Tensor, Part]:
    found = {}
    for tensor, shape in inputs:
        axis = next((axis for axis in _EXAMPLE_AXES if len(shape) > axis and shape[axis] == size), None)
        if axis is not None:
            found[tensor] = Part(axis)
    return found


def _bytes_in_parts(program: Program, states: States) -> tuple[int, int]:
    """Bytes that split ops read and make which work on examples, and those of all ops that do."""
    outputs = program.item.outputs
    total = in_parts = 0
    for op in np.flatnonzero(states.depends).tolist():
        read = sum(outputs[producer][output].num_bytes for producer, output in program.inputs[op])
        moved = read + sum(spec.num_bytes for spec in outputs[op])
        total += moved
        in_parts += moved if op in states.splits else 0
    return in_parts, total


def _as_item(item: Item, writer: Writer, splitting: Splitting) -> tuple[Item, dict[str, str]]:
    fetches = tuple(_whole_text(item, writer, text) for text in item.fetches)  # writes what joins them
    program = dataclasses.replace(
        item.as_program(),
        graph_def=graphs.with_nodes(item.graph_def, writer.nodes),
        fetches=fetches,
        control_outputs=tuple(_flat(writer.done(name) for name in item.control_outputs)),
    )
    result = rewritten(item, program, writer.origin_of, writer.specs, splitting)
    return result, {name: writer.origin_of[name] for name in result.index.names}


def _whole_text(item: Item, writer: Writer, text: str) -> str:
    _, name, output = parse_input(text)
    found = writer.whole((item.index.id_of_name[name], output))
    return found if ":" in found else f"{found}:0"


def _flat(lists: Iterable[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in lists for name in names))
