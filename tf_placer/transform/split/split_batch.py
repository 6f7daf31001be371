"""Splitting of a program's batch: one graph with a copy for each part of every op that works on examples."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Mapping

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly, without_collections
from tf_placer.graph.item import Item
from tf_placer.graph.program import Splitting
from tf_placer.transform import BATCH_STATISTICS, PART, WHOLE
from tf_placer.transform.recompute import recompute
from tf_placer.transform.split.propagate import Program, States, best_states, propagate
from tf_placer.transform.split.states import WHOLE as ALL
from tf_placer.transform.split.states import Part
from tf_placer.transform.split.unroll import Unrolled, unrolled
from tf_placer.transform.split.writer import Writer


@dataclasses.dataclass(frozen=True)
class StayedWhole:
    """An op that works on examples and is not split."""

    name: str
    op_type: str
    why: str  # one clause


@dataclasses.dataclass(frozen=True)
class SplitProgram:
    """A program whose batch is in parts, and the record of how its ops were split."""

    item: Item  # whole inputs in, whole outputs out; ops ``part_0/...`` are the first part's
    origin_of: Mapping[str, str]  # op of ``item`` -> op of the whole program
    parts: int
    batch: int  # examples of a step
    split_ops: tuple[str, ...]  # ops of the whole program that have copies
    stayed_whole: tuple[StayedWhole, ...]
    straight: Unrolled | None = None  # the whole program with loops written out; None in one part
    states: States | None = None  # of the tensors of ``straight``; None in one part

    def whole_of(self, batch: int) -> Item:
        """The whole program, loops written out, with tensors as large as of another batch: for costs, not to be run."""
        assert self.straight is not None and self.states is not None  # in several parts
        item, states, inputs = self.straight.item, self.states, self.straight.item.index.inputs
        state_of = dict(states.of)
        for op in states.why_whole:
            for n, spec in enumerate(item.outputs[op]):
                if self.batch in spec.shape:
                    state_of[op, n] = Part(spec.shape.index(self.batch))
        for op in reversed(range(len(inputs))):  # what is made whole and then cut: random masks, say
            split = states.splits.get(op)
            for position, (producer, n) in enumerate(inputs[op]):
                is_alike = item.outputs[op] and item.outputs[op][0].shape == item.outputs[producer][n].shape
                state = split.takes[position] if split else is_alike and state_of.get((op, 0))
                if isinstance(state, Part):
                    state_of.setdefault((producer, n), state)
        outputs = tuple(
            tuple(
                states.batch.resized(spec, state_of.get((op, n), ALL), batch) for n, spec in enumerate(specs)
            )
            for op, specs in enumerate(item.outputs)
        )
        return dataclasses.replace(item, outputs=outputs)

    def made_again(self, again: Item, origin_of: Mapping[str, str]) -> SplitProgram:
        """The program with a changed item, whose ops ``origin_of`` maps to ops of this one."""
        origins = {name: self.origin_of[origin_of[name]] for name in again.index.names}
        return dataclasses.replace(self, item=again, origin_of=origins)

    def sentences(self, time_of_op: Mapping[str, float], most: int = 5) -> list[str]:
        """A sentence for each op type and reason of the ops that stayed whole, the longest time first."""
        total = sum(time_of_op.values())
        groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for op in self.stayed_whole:
            groups[op.op_type, op.why].append(op.name)
        times = {key: sum(time_of_op[name] for name in names) for key, names in groups.items()}
        return [
            f"{len(groups[key])} {key[0]} ({groups[key][0]}, ...) stay whole, "
            f"{100 * times[key] / total if total else 0:.1f} % of the step: {key[1]}"
            for key in sorted(groups, key=lambda key: -times[key])[:most]
        ]


def split(
    item: Item,
    parts: int,
    batch_statistics: str = "whole",
    kept_whole: Collection[str] = (),
    recomputed: Collection[int] = (),
    parked: Collection[tuple[int, int]] = (),
) -> Item:
    """Splits the batch of a program: every op that works on examples gets a copy for each part.

    The result has the program's inputs, outputs and variables, all whole, so it is placed, run and exported like any
    Item. For the batch of its example inputs it computes the same, up to the order of sums. Random ops draw for the
    whole batch. With ``batch_statistics="part"`` sums over the batch that go back to the examples, as in batch
    normalization, are of each part alone, as under ``tf.distribute``: this changes the numbers.

    Args:
      item: the program.
      parts: copies; 1 gives the item itself.
      batch_statistics: ``"whole"`` or ``"part"``.
      kept_whole: names of ops that stay whole, because their copies would take longer than they gain.
      recomputed: positions, among the ops of the program in parts, of those that are done again in the backward pass,
        so that their outputs need not live until then (``recompute``).
      parked: likewise pairs of an op whose outputs wait on the host, and the backward op after which they come back.

    Raises:
      InputError: ``parts`` is below 1 or above the batch, no input holds examples, or no op is left to split; or an op
        cannot be done again or parked.
    """
    return split_program(item, parts, batch_statistics, kept_whole, recomputed, parked).item


@eagerly()
@without_collections()
def split_program(
    item: Item,
    parts: int,
    batch_statistics: str = "whole",
    kept_whole: Collection[str] = (),
    recomputed: Collection[int] = (),
    parked: Collection[tuple[int, int]] = (),
) -> SplitProgram:
    """Splits the batch like ``split``, and records origins of ops and reasons of ops that stay whole.

    The batch is the length of a first axis that most inputs share, and of several such lengths the one that puts most
    bytes of the program in parts. Where no first axis puts half of them in parts, second axes are tried as well. An
    axis along which weights are cut is no batch, but features.
    """
    arguments.instance_of("item", item, Item, "give an Item")
    parts = arguments.whole_number("parts", parts, least=1)
    arguments.one_of("batch_statistics", batch_statistics, BATCH_STATISTICS)
    for op in arguments.items_of("recomputed", recomputed, int, "give positions of ops"):
        arguments.whole_number("recomputed", op, least=0)
    pairs = arguments.items_of("parked", parked, tuple, "give pairs of positions of ops")
    if any(len(pair) != 2 or not all(isinstance(op, int) for op in pair) for pair in pairs):
        raise InputError(f"parked is {arguments.shown(parked)}; give pairs of positions of ops")
    if recomputed or pairs:
        parted = split_program(item, parts, batch_statistics, kept_whole)
        return parted.made_again(*recompute(parted.item, recomputed, pairs))
    if parts == 1:
        return SplitProgram(item, {name: name for name in item.index.names}, 1, 0, (), ())
    if isinstance(kept_whole, str) or not isinstance(kept_whole, Collection):
        raise InputError(f"kept_whole is {arguments.shown(kept_whole)}; give a list of names of ops")
    for name in kept_whole:
        if name not in item.index.id_of_name:
            raise InputError(f"kept_whole has {name!r}, which is no op of {item.name!r}; take it out")
    whole = sorted({item.index.id_of_name[name] for name in kept_whole})
    names_kept = [item.index.names[op] for op in whole]
    has_own_statistics, loops_kept = batch_statistics == PART, set(names_kept)
    while True:  # loops are written out where their ops are then split
        straight = unrolled(item, loops_kept)
        program = Program.of(straight.item)
        states, examples = best_states(program, parts, has_own_statistics)
        useless = straight.loops - {straight.origin_of[program.item.index.names[op]] for op in states.splits}
        if not useless:
            break
        loops_kept |= useless
    if whole:  # the batch was chosen without regard to them
        id_of_name = straight.item.index.id_of_name
        positions = [id_of_name[name] for name in names_kept if name in id_of_name]
        states = propagate(program, examples, states.batch, has_own_statistics, positions)
    if not states.splits:
        raise InputError(
            f"kept_whole leaves no op of {item.name!r} to split; name fewer, or leave parts at 1"
        )
    names = straight.item.index.names
    writer = Writer(program, states, examples)
    writer.write()
    scope = PART if states.statistics else WHOLE
    result = writer.item(Splitting(item.fingerprint, states.batch.size, parts, scope, tuple(whole)))
    stayed_whole: dict[str, StayedWhole] = {}  # by name; among them every loop with such an op inside
    for op, why in states.why_whole.items():
        origin = straight.origin_of[names[op]]
        op_type = item.index.op_types[item.index.id_of_name[origin]]
        stayed_whole.setdefault(origin, StayedWhole(origin, op_type, straight.why_not.get(names[op], why)))
    split_ops = dict.fromkeys(straight.origin_of[names[op]] for op in states.splits if states.depends[op])
    return SplitProgram(
        item=result,
        origin_of={name: straight.origin_of[writer.origin_of[name]] for name in result.index.names},
        parts=parts,
        batch=states.batch.size,
        split_ops=tuple(name for name in split_ops if name not in stayed_whole),
        stayed_whole=tuple(stayed_whole.values()),
        straight=straight,
        states=states,
    )
