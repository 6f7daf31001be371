"""Recomputation: forward ops done again where the backward pass needs them, so that their outputs need not live.

After Chen et al. 2016 ("Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174); Checkmate (Jain et al. 2020,
MLSys) decides it op by op.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Sequence

import numpy as np
import tensorflow as tf

from colocation.constraints import outermost_loops
from colocation.op_facts import alone, control_inputs, copy_of, having, op_definition, parse_input, values
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import eagerly, without_collections
from tf_placer.graph.item import Item, rewritten
from tf_placer.graph.program import (
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

    def copies(self, ops: Collection[int]) -> dict[int, tuple[int, tuple[int, ...]]]:
        """Op that is done again -> the late op that first needs its copy, and the late ops that the copy waits for.

        A late op needs copies of what it reads, and of what these read. A copy waits for what else the late op waits
        for, or else for an op of the depth before. No op of less depth waits for the copy, so there is no cycle. What
        no late op needs, or nothing can hold back, has no copy.
        """
        readers: dict[int, list[int]] = {op: [] for op in ops}
        late_inputs = collections.defaultdict[int, list[int]](list)
        for producer, consumer in self.edges.tolist():
            if producer in readers and (self.is_late[consumer] or consumer in readers):
                readers[producer].append(consumer)
            if self.is_late[producer]:
                late_inputs[consumer].append(producer)
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
            position = np.searchsorted(self.depth[late], self.depth[reader])
            if waits := tuple(late_inputs[reader]) or tuple(late[max(position - 1, 0) : position].tolist()):
                copies[op] = reader, waits
        return copies


def recomputable(item: Item, passes: Passes) -> np.ndarray:
    """[N] bool: unfetched ops before the backward pass, outside of loops, without state, effects or random numbers."""
    draws = {op_type for op_type, work in values("work").items() if work == "draw"}
    index, library = item.index, functions_of(item.graph_def.library)
    may = ~passes.is_late & (np.array(outermost_loops(index)) < 0)
    fixed = (*item.host_ops, *(feed.node for feed in item.feeds), *item.control_outputs)
    fixed += tuple(parse_input(text)[1] for text in item.fetches)
    may[[index.id_of_name[name] for name in fixed]] = False
    for op in np.flatnonzero(may).tolist():
        node, definition = item.graph_def.node[op], op_definition(index.op_types[op])
        may[op] = (
            definition is not None
            and not definition.is_stateful
            and node.op not in _HELD | draws
            and not library.keys() & function_names(node)
            and not control_inputs(node)
            and all(spec.dtype not in _NO_NUMBERS for spec in item.outputs[op])
        )
    return may


@eagerly()
@without_collections()
def recompute(item: Item, ops: Collection[int]) -> tuple[Item, dict[str, str]]:
    """The program with some ops done again, and the origin of its ops.

    The backward pass reads the copies, so the originals are freed before it.

    A copy waits, by control edges, for what else its first reader waits for, and runs right before that. It computes
    the same bits. TensorFlow cannot merge it with its original, which does not wait.

    Args:
      item: a training step, whole or with its batch in parts.
      ops: positions of ops.

    Raises:
      InputError: one of them cannot be done twice, or there is no backward pass that needs any.
    """
    index, nodes, passes = item.index, item.graph_def.node, Passes.of(item.index.names, item.index.edges)
    may = recomputable(item, passes)
    wrong = [op for op in ops if not 0 <= op < len(may) or not may[op]]
    if wrong:
        op = index.names[wrong[0]] if 0 <= wrong[0] < len(may) else wrong[0]
        raise InputError(
            f"recomputed has op {op!r}, which {item.name!r} lacks or cannot do twice; take it out"
        )
    copies = passes.copies(ops)
    if not copies:
        raise InputError(
            f"{item.name!r} has no backward pass that needs what is recomputed; leave recomputing out"
        )
    inputs = [[index.id_of_name[parse_input(text)[1]] for text in node.input] for node in nodes]
    names = set(index.names)
    name_of_copy = {op: fresh_name(f"{index.names[op]}_recomputed", names) for op in sorted(copies)}

    def from_copies(op: int) -> list[str]:
        texts = [parse_input(text) for text in nodes[op].input]
        return [
            f"{name_of_copy[producer]}:{output}" if producer in copies and not is_control else text
            for text, producer, (is_control, _, output) in zip(
                nodes[op].input, inputs[op], texts, strict=True
            )
        ]

    written = [
        copy_of(node, from_copies(op)) if passes.is_late[op] else node for op, node in enumerate(nodes)
    ]
    for op, name in name_of_copy.items():
        copy = alone(nodes[op], from_copies(op))
        copy.name = name
        if all(copies.get(producer) != copies[op] for producer in inputs[op]):
            copy.input.extend(f"^{index.names[before]}" for before in dict.fromkeys(copies[op][1]))
        written.append(copy)
    origin_of = {name: name for name in index.names} | {
        name: index.names[op] for op, name in name_of_copy.items()
    }
    sizes = {name: item.outputs[index.id_of_name[origin]] for name, origin in origin_of.items()}
    program = dataclasses.replace(item.as_program(), graph_def=with_nodes(item.graph_def, written))
    how = item.splitting or Splitting(item.fingerprint)
    again = rewritten(item, program, origin_of, sizes, dataclasses.replace(how, recomputed=tuple(ops)))
    return again, origin_of


def with_copies(problem: Problem, passes: Passes, ops: Collection[int]) -> Problem:
    """The problem of the program with some ops done again, each copy where its original is: to compare choices of ops.

    ``recompute`` makes the program, whose problem leaves copies free.
    """
    copies, graph = passes.copies(ops), problem.op_graph
    num_ops, num_tensors = problem.num_ops, len(problem.tensor_producer)
    early_readers: dict[int, list[int]] = {op: [] for op in copies}
    for producer, consumer in passes.edges.tolist():
        if producer in copies and not passes.is_late[consumer]:
            early_readers[producer].append(consumer)
    late = set[int]()  # originals that only the backward pass reads: they are not done before
    for op in sorted(copies, reverse=True):
        if late.issuperset(early_readers[op]):
            late.add(op)
    # Producer, tensor and consumer; copies of ops and of tensors are counted on, control edges come behind them. An op
    # that reads its own tensor stands for none that does.
    rows = [(op, tensor, op) for tensor, op in enumerate(problem.tensor_producer.tolist())]
    rows += [(num_ops + op, num_tensors + tensor, num_ops + op) for op, tensor, _ in rows if op in copies]
    is_held_back, read_again = set[int](), set[int]()
    edges = zip(graph.producer.tolist(), graph.tensor.tolist(), graph.consumer.tolist(), strict=True)
    for producer, tensor, consumer in edges:
        original, copy = (producer, tensor), (num_ops + producer, num_tensors + tensor)
        has_copy = producer in copies
        rows.append((*(copy if has_copy and passes.is_late[consumer] else original), consumer))
        if consumer in copies:
            rows.append((*(copy if has_copy else original), num_ops + consumer))
            if not has_copy:
                read_again.add(tensor)
            elif copies[producer] == copies[consumer]:
                is_held_back.add(consumer)
    for op in copies.keys() - is_held_back:
        rows += [(wait, 2 * num_tensors, num_ops + op) for wait in copies[op][1]]
    rows = [row for row in rows if row[0] not in late and row[2] not in late]
    kept, copied = [op for op in range(num_ops) if op not in late], sorted(copies)
    source = np.array([*kept, *copied], int)
    # A copy runs right before what first needs it.
    at = np.concatenate([2 * passes.depth[kept], [2 * passes.depth[copies[op][0]] - 1 for op in copied]])
    order = np.lexsort((source, at))
    rank = np.full(2 * num_ops, -1)
    rank[[*kept, *(num_ops + op for op in copied)]] = np.argsort(order)
    producers, tensors, consumers = np.array(rows).T
    num_bytes = np.concatenate([problem.tensor_bytes, problem.tensor_bytes, [0]])
    table = tensor_table(np.stack([rank[producers], rank[consumers]], axis=1), tensors, num_bytes[tensors])
    source = source[order]
    return dataclasses.replace(
        problem,
        unit_of_op=problem.unit_of_op[source],
        compute_ns=problem.compute_ns[source],
        tensor_producer=table.producer,
        tensor_bytes=table.num_bytes,
        consumer_offset=table.consumer_offset,
        consumer_op=table.consumer_op,
        priority=problem.priority[source],
        op_names=tuple(f"{position}_{problem.op_names[op]}" for position, op in enumerate(source.tolist())),
        op_types=tuple(problem.op_types[op] for op in source.tolist()),
        output_shapes=tuple(problem.output_shapes[op] for op in source.tolist()),
        work=None,
        alias_of_tensor=_aliases(problem, passes, read_again, table.output),
        stage_of_op=np.zeros(0, np.int32),
        fusible_of_op=np.zeros(0, bool),
    )


def _aliases(
    problem: Problem, passes: Passes, read_again: Collection[int], tensors: np.ndarray
) -> np.ndarray:
    """[T'] int32 input whose memory each tensor has, of ``tensors`` [T'] by number, copies counted on behind all T."""
    position, num_tensors = (
        {tensor: n for n, tensor in enumerate(tensors.tolist())},
        len(problem.tensor_producer),
    )
    alias = np.full(len(tensors), -1, np.int32)
    for tensor in np.flatnonzero(problem.alias_of_tensor >= 0).tolist():
        target, op = int(problem.alias_of_tensor[tensor]), int(problem.tensor_producer[tensor])
        copy, copy_of_target = num_tensors + tensor, num_tensors + target
        is_view = problem.op_types[op] in _VIEWS
        nearest = copy_of_target if copy_of_target in position else target
        if copy in position and (is_view or nearest == copy_of_target):
            alias[position[copy]] = position[nearest]
        if tensor in position and passes.is_late[op]:
            alias[position[tensor]] = position[nearest]
        # What is not a view and whose input is read again does not write over that input.
        elif tensor in position and (is_view or target not in read_again):
            alias[position[tensor]] = position[target]
    return alias
