"""Recomputation and parking: what the backward pass reads is made again, or comes back from the host, right before.

So it need not live on its device until then. After Chen et al. 2016 ("Training Deep Nets with Sublinear Memory Cost",
arXiv:1604.06174) and Rhu et al. 2016 ("vDNN", arXiv:1602.08124); Checkmate (Jain et al. 2020, MLSys) decides op by op
what is done again.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from colocation.constraints import outermost_loops
from colocation.op_facts import (
    alone,
    control_inputs,
    copy_of,
    having,
    new_node,
    op_definition,
    parse_input,
    values,
)
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly, without_collections
from tf_placer.graph.item import Item, rewritten
from tf_placer.graph.program import (
    PARKED,
    Splitting,
    backward_ops,
    fresh_name,
    function_names,
    functions_of,
    with_nodes,
)
from tf_placer.problem.op_graph import tensor_table
from tf_placer.problem.problem import Problem

_NO_NUMBERS = (tf.string, tf.resource, tf.variant)
_VIEWS, _HELD = having("view"), having("held_elsewhere")


@dataclasses.dataclass(frozen=True)
class Passes:
    """The forward and the backward pass of a step of N ops."""

    edges: np.ndarray  # [E, 2] producers, ascending, and consumers
    depth: np.ndarray  # [N] most edges on a way to each op
    # [N] bool: backward ops as deep as the one in which the longest way of all turns back. Others named after gradients
    # depend on the forward pass alone, and are done with it.
    is_late: np.ndarray

    @staticmethod
    def of(op_names: Sequence[str], edges: np.ndarray) -> Passes:
        """The passes of a graph in topological order, from its ``edges`` [E, 2]."""
        edges = edges[np.argsort(edges[:, 0], kind="stable")]
        depth, before = [0] * len(op_names), [-1] * len(op_names)
        for producer, consumer in edges.tolist():
            if depth[consumer] <= depth[producer]:
                depth[consumer], before[consumer] = depth[producer] + 1, producer
        is_backward, turn, op = backward_ops(op_names, edges), len(op_names), int(np.argmax(depth))
        while op >= 0:
            turn, op = (depth[op] if is_backward[op] else turn), before[op]
        return Passes(edges, np.array(depth), is_backward & (np.array(depth) >= turn))

    @functools.cached_property
    def late_inputs(self) -> dict[int, tuple[int, ...]]:
        """Op -> the late ops among its inputs."""
        inputs = collections.defaultdict[int, list[int]](list)
        for producer, consumer in self.edges[self.is_late[self.edges[:, 0]]].tolist():
            inputs[consumer].append(producer)
        return {op: tuple(producers) for op, producers in inputs.items()}

    def copies(
        self, ops: Collection[int], parked: Mapping[int, int] | None = None
    ) -> dict[int, tuple[int, tuple[int, ...]]]:
        """Op done again or parked -> the late op that first needs its copy, and the late ops that the copy waits for.

        A late op needs copies of what it reads, and of what those that are done again read. A copy waits for what else
        the late op waits for, or else for an op of the depth before; what is parked, for the op that it maps to. No op
        of less depth waits for the copy, so there is no cycle. What no late op needs, or nothing can hold back, has no
        copy.
        """
        parked = parked or {}
        is_again, has_copy = np.zeros((2, len(self.depth)), bool)
        is_again[list(ops)] = True
        is_again[list(parked)] = False
        has_copy[[*ops, *parked]] = True
        producer, consumer = self.edges.T
        readers = collections.defaultdict[int, list[int]](list)
        needs = has_copy[producer] & (self.is_late[consumer] | is_again[consumer])
        for op, reader in self.edges[needs].tolist():
            readers[op].append(reader)
        late = np.flatnonzero(self.is_late)
        late = late[np.argsort(self.depth[late], kind="stable")]
        copies: dict[int, tuple[int, tuple[int, ...]]] = {}
        for op in sorted(readers, reverse=True):
            needing = [
                r if self.is_late[r] else copies[r][0] for r in readers[op] if self.is_late[r] or r in copies
            ]
            if not needing:
                continue
            reader = min(needing, key=lambda reader: (self.depth[reader], reader))
            waits = self.late_inputs.get(reader, ())
            if op in parked:
                waits = tuple(wait for wait in (parked[op],) if self.depth[wait] < self.depth[reader])
            elif not waits:
                position = np.searchsorted(self.depth[late], self.depth[reader])
                waits = tuple(late[max(position - 1, 0) : position].tolist())
            if waits:
                copies[op] = reader, waits
        return copies


def recomputable(item: Item, passes: Passes) -> np.ndarray:
    """[N] bool: unfetched ops before the backward pass, outside of loops, without state, effects or random numbers."""
    draws = {op_type for op_type, work in values("work").items() if work == "draw"}
    index, library = item.index, functions_of(item.graph_def.library)
    may = parkable(item, passes)
    fixed = (*item.host_ops, *(feed.node for feed in item.feeds), *item.control_outputs)
    fixed += tuple(parse_input(text)[1] for text in item.fetches)
    may[[index.id_of_name[name] for name in fixed]] = False
    for op in np.flatnonzero(may).tolist():
        node, definition = item.graph_def.node[op], op_definition(index.op_types[op])
        may[op] = (
            definition is not None
            and not definition.is_stateful
            and node.op not in draws
            and not library.keys() & function_names(node)
            and not control_inputs(node)
        )
    return may


def parkable(item: Item, passes: Passes) -> np.ndarray:
    """[N] bool: ops before the backward pass, outside of loops, whose outputs are numbers that live from then on."""
    may = ~passes.is_late & (np.array(outermost_loops(item.index)) < 0)
    for op in np.flatnonzero(may).tolist():
        is_held = item.index.op_types[op] in _HELD
        may[op] = not is_held and all(spec.dtype not in _NO_NUMBERS for spec in item.outputs[op])
    return may


def _check(item: Item, passes: Passes, ops: Collection[int], wait_of: Mapping[int, int]) -> None:
    """Raises InputError where an op cannot be done twice, or parked until another has run."""
    names = item.index.names
    for name, may, chosen, cannot in (
        ("recomputed", recomputable(item, passes), ops, "do twice"),
        ("parked", parkable(item, passes), wait_of, "park"),
        ("parked", passes.is_late, wait_of.values(), "bring back after"),
    ):
        wrong = next((op for op in chosen if not 0 <= op < len(names) or not may[op]), None)
        if wrong is not None:
            op = repr(names[wrong]) if 0 <= wrong < len(names) else wrong
            raise InputError(f"{name} has op {op}, which {item.name!r} lacks or cannot {cannot}; take it out")


@eagerly()
@without_collections()
def recompute(
    item: Item, ops: Collection[int], parked: Iterable[tuple[int, int]] = ()
) -> tuple[Item, dict[str, str]]:
    """The program with some ops done again and outputs of others parked on the host, and the origin of its ops.

    The backward pass reads the copies, so the originals are freed before it.

    A copy waits, by control edges, for what else its first reader waits for, and runs right before that. It computes
    the same bits. TensorFlow cannot merge it with its original, which does not wait. What is parked crosses to a
    ``Snapshot`` on the host once it is made, which lets it go again after an op of the backward pass.

    Args:
      item: a training step, whole or with its batch in parts.
      ops: positions of ops.
      parked: pairs of an op and the backward op after which its outputs come back.

    Raises:
      InputError: one of them cannot be done twice or parked, or there is no backward pass that needs any.
    """
    index, nodes, passes = item.index, item.graph_def.node, Passes.of(item.index.names, item.index.edges)
    wait_of = dict(parked)
    _check(item, passes, ops, wait_of)
    copies = passes.copies(ops, wait_of)
    if not copies:
        raise InputError(
            f"{item.name!r} has no backward pass that needs what is recomputed or parked; leave that out"
        )
    names = set(index.names)
    name_of_copy = {
        op: fresh_name(f"{index.names[op]}_recomputed", names) for op in sorted(copies) if op not in wait_of
    }
    snapshots: dict[tuple[int, int], tf.compat.v1.NodeDef] = {}  # of outputs that are parked

    def copied(op: int, output: int) -> str:
        """The copy of a tensor, as the input of an op."""
        if op in name_of_copy:
            return f"{name_of_copy[op]}:{output}"
        if (op, output) not in snapshots:
            original = f"{index.names[op]}:{output}"
            snapshots[op, output] = snapshot = new_node(
                "Snapshot",
                fresh_name(f"{index.names[op]}_parked", names),
                [original, *(f"^{index.names[wait]}" for wait in copies[op][1])],
                T=item.outputs[op][output].dtype,
            )
            snapshot.attr[PARKED].b = True
        return f"{snapshots[op, output].name}:0"

    def from_copies(op: int) -> list[str]:
        texts = nodes[op].input
        parsed = [(index.id_of_name[name], output, waits) for waits, name, output in map(parse_input, texts)]
        return [
            copied(producer, output) if producer in copies and not waits else text
            for text, (producer, output, waits) in zip(texts, parsed, strict=True)
        ]

    written = [
        copy_of(node, from_copies(op)) if passes.is_late[op] else node for op, node in enumerate(nodes)
    ]
    for op, name in name_of_copy.items():
        copy = alone(nodes[op], from_copies(op), name)
        producers = (index.id_of_name[parse_input(text)[1]] for text in nodes[op].input)
        if all(copies.get(producer) != copies[op] for producer in producers):
            copy.input.extend(f"^{index.names[before]}" for before in dict.fromkeys(copies[op][1]))
        written.append(copy)
    written += snapshots.values()
    made_of = {name: op for op, name in (*enumerate(index.names), *name_of_copy.items())}
    on_host = {node.name: tensor for tensor, node in snapshots.items()}
    sizes = {name: item.outputs[op] for name, op in made_of.items()}
    sizes |= {name: (item.outputs[op][output],) for name, (op, output) in on_host.items()}
    made_of |= {name: op for name, (op, _) in on_host.items()}
    origin_of = {name: index.names[op] for name, op in made_of.items()}
    program = dataclasses.replace(item.as_program(), graph_def=with_nodes(item.graph_def, written))
    how = item.splitting or Splitting(item.fingerprint)
    how = dataclasses.replace(how, recomputed=tuple(ops), parked=tuple(wait_of.items()))
    result = rewritten(item, program, origin_of, sizes, how)
    asking = {name: devices for name, devices in result.requested_devices.items() if name not in on_host}
    origin_of = {name: origin_of[name] for name in result.index.names}
    return dataclasses.replace(result, requested_devices=asking), origin_of


def with_copies(
    problem: Problem, passes: Passes, ops: Collection[int], parked: Mapping[int, int] | None = None
) -> Problem:
    """The problem of the program with some ops done again, each copy where its original is: to compare choices of ops.

    What is parked is in units of its own, behind all others. ``recompute`` makes the program, whose problem leaves
    copies free.
    """
    copies, num_ops = passes.copies(ops, parked), problem.num_ops
    copied = np.array(sorted(copies), int)
    has_copy, is_parked, is_gone = np.zeros((3, num_ops), bool)
    has_copy[copied] = True
    is_parked[list(parked or ())] = True
    # Originals that only the backward pass reads are not done before.
    is_gone[copied] = ~is_parked[copied]
    early = passes.edges[has_copy[passes.edges[:, 0]] & ~passes.is_late[passes.edges[:, 1]]]
    for op, reader in early[::-1].tolist():
        is_gone[op] &= is_gone[reader]
    rows, read_again = _edges_with_copies(problem, passes, copies, is_parked)
    is_absent = np.concatenate([is_gone, ~has_copy])
    rows = rows[~(is_absent[rows[:, 0]] | is_absent[rows[:, 2]])]
    present = np.flatnonzero(~is_gone)
    source = np.concatenate([present, copied])
    # A copy runs right before what first needs it, and what is parked before what comes after its wait.
    at = [
        2 * passes.depth[copies[op][1][0]] + 1 if is_parked[op] else 2 * passes.depth[copies[op][0]] - 1
        for op in copied.tolist()
    ]
    order = np.lexsort((source, np.concatenate([2 * passes.depth[present], np.array(at, int)])))
    rank = np.full(2 * num_ops, -1)
    rank[np.concatenate([present, num_ops + copied])] = np.argsort(order)
    num_bytes = np.concatenate([problem.tensor_bytes, problem.tensor_bytes, [0]])
    table = tensor_table(rank[rows[:, ::2]], rows[:, 1], num_bytes[rows[:, 1]])
    unit, compute_ns = problem.unit_of_op[source], problem.compute_ns[source]
    on_host = len(present) + np.flatnonzero(is_parked[copied])
    unit[on_host] = problem.num_units + np.arange(len(on_host))
    compute_ns[on_host] = 0
    allowed = np.repeat(~problem.cluster.accelerators()[np.newaxis], len(on_host), axis=0)
    source = source[order]
    return dataclasses.replace(
        problem,
        unit_of_op=unit[order],
        compute_ns=compute_ns[order],
        allowed=np.concatenate([problem.allowed, allowed]),
        resident_bytes=np.concatenate([problem.resident_bytes, np.zeros(len(on_host), np.int64)]),
        tensor_producer=table.producer,
        tensor_bytes=table.num_bytes,
        consumer_offset=table.consumer_offset,
        consumer_op=table.consumer_op,
        priority=problem.priority[source],
        op_names=tuple(f"{position}_{problem.op_names[op]}" for position, op in enumerate(source.tolist())),
        op_types=tuple(problem.op_types[op] for op in source.tolist()),
        output_shapes=tuple(problem.output_shapes[op] for op in source.tolist()),
        work=None,
        alias_of_tensor=_aliases(problem, passes, read_again, is_parked, table.output),
        stage_of_op=np.zeros(0, np.int32),
        fusible_of_op=np.zeros(0, bool),
    )


def _edges_with_copies(
    problem: Problem,
    passes: Passes,
    copies: Mapping[int, tuple[int, tuple[int, ...]]],
    is_parked: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """[E, 3] producer, tensor and consumer, and [T] bool, whether copies read a tensor of an original.

    Copies of ops and of tensors are counted on, control edges come behind them. An op that reads its own tensor stands
    for none that does.
    """
    graph, num_ops, num_tensors = problem.op_graph, problem.num_ops, len(problem.tensor_producer)
    producer, tensor, consumer = graph.producer, graph.tensor, graph.consumer
    has_copy, choice = np.zeros(num_ops, bool), np.full(num_ops, -1)
    has_copy[list(copies)] = True
    number = {entry: position for position, entry in enumerate(dict.fromkeys(copies.values()))}
    choice[list(copies)] = [number[entry] for entry in copies.values()]
    is_again = (has_copy & ~is_parked)[consumer]
    # What only waits for a parked op need not wait until that is back.
    from_copy = has_copy[producer] & (~is_parked[producer] | (problem.tensor_bytes[tensor] > 0))
    crosses = from_copy & is_parked[producer] & (passes.is_late[consumer] | is_again)
    of_copy, late_copy = is_again & from_copy, from_copy & passes.is_late[consumer]
    held_back = set(consumer[of_copy & (choice[producer] == choice[consumer])].tolist())
    waits = [
        (wait, 2 * num_tensors, num_ops + op)
        for op, (_, before) in copies.items()
        if op not in held_back
        for wait in before
    ]
    self_edges = np.stack([problem.tensor_producer, np.arange(num_tensors), problem.tensor_producer], axis=1)
    edges, step = np.stack([producer, tensor, consumer], axis=1), np.array([num_ops, num_tensors, num_ops])
    from_copies = step * [1, 1, 0]
    rows = (
        self_edges,
        self_edges[has_copy[problem.tensor_producer]] + step,
        edges + late_copy[:, np.newaxis] * from_copies,
        (edges + of_copy[:, np.newaxis] * from_copies + step * [0, 0, 1])[is_again],
        edges[crosses][:, [0, 1, 0]] + step * [0, 0, 1],
        np.array(waits, int).reshape(-1, 3),
    )
    read_again = np.zeros(num_tensors, bool)
    read_again[tensor[crosses | (is_again & ~from_copy)]] = True
    return np.concatenate(rows), read_again


def _aliases(
    problem: Problem, passes: Passes, read_again: np.ndarray, is_parked: np.ndarray, tensors: np.ndarray
) -> np.ndarray:
    """[T'] int32 input whose memory each tensor has, of ``tensors`` [T'] by number, copies counted on behind all T."""
    num_tensors = len(problem.tensor_producer)
    position = np.full(2 * num_tensors + 1, -1)
    position[tensors] = np.arange(len(tensors))
    alias = np.full(len(tensors), -1, np.int32)
    tensor = np.flatnonzero(problem.alias_of_tensor >= 0)
    target, op = problem.alias_of_tensor[tensor], problem.tensor_producer[tensor]
    is_view = np.array([problem.op_types[producer] in _VIEWS for producer in op.tolist()], bool)
    is_view |= target == tensor  # what the program is fed stays, whoever reads it
    has_copy = position[num_tensors + target] >= 0
    nearest = np.where(has_copy, num_tensors + target, target)
    # What is not a view and whose input is read again does not write over that input.
    for tensors_made, read, may in (
        (num_tensors + tensor, nearest, ~is_parked[op] & (is_view | has_copy)),
        (tensor, nearest, passes.is_late[op]),
        (tensor, target, ~passes.is_late[op] & (is_view | ~read_again[target])),
    ):
        may &= position[tensors_made] >= 0
        alias[position[tensors_made[may]]] = position[read[may]]
    return alias
