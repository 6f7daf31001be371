"""ColocRL's groups: units that its co-location rules bring together, folded further where they are too many."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from colocation.op_facts import GraphIndex
from colocation.units import (
    Heuristic,
    default_groups,
    extend_units,
    name_scope,
    single_consumer,
    unrolled_calls,
)
from tf_placer.grouper.groups import Groups, legality_classes, min_cut_partition
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


def tied_by_rules(
    problem: Problem, step_pattern: str, layer_pattern: str, largest_share: float
) -> np.ndarray:
    """[U] int64 keys of the units that the rules bring together (Mirhoseini et al. 2017, section 3.3).

    1. Gradients go with what they differentiate (``default_groups``); variables are with their updates already.
    2. What has one reader goes with it, groups taken as ops, until nothing merges (``single_consumer``).
    3. Steps of an unrolled layer are a group each (``unrolled_calls``), and so are layers (``name_scope``).

    The rules of names come first, because the second one treats their groups as ops.

    Args:
      problem: what is placed.
      step_pattern: where the name scope of one step of an unrolled layer ends; "" for none.
      layer_pattern: names of one layer capture the same; "" for none.
      largest_share: share of all work that the rule of the only reader may bring together; where a group has more, all
        are kept below.
    """
    index = _index(problem)
    work_ns = problem.fastest_ns().astype(np.float64)
    by_name: list[Heuristic] = [default_groups]
    by_name += [unrolled_calls(step_pattern)] if step_pattern else []
    by_name += [name_scope(layer_pattern)] if layer_pattern else []
    most = largest_share * work_ns.sum()
    units = extend_units(index, problem.unit_of_op, [*by_name, single_consumer()])
    if most and np.bincount(units.unit_of_op, work_ns).max() > most:
        limited = single_consumer(weight_of_op=work_ns, most=most)
        units = extend_units(index, problem.unit_of_op, [*by_name, limited])
    tied = np.empty(problem.num_units, np.int64)
    tied[problem.unit_of_op] = units.unit_of_op
    return tied


def tied_groups(problem: Problem, tied: np.ndarray, most: int) -> Groups:
    """Groups of the tied units that have a choice, in the order of their first ops that take time.

    Departures from the paper: a group that units of several kinds are in, by the devices that they may run on, is
    split; and where more than ``most`` are left, those of each kind are folded into min-cut parts, as many as its share
    of groups. Where no unit has a choice there is one group without units.

    Args:
      problem: what is placed.
      tied: [U] keys.
      most: how many groups, or one for each kind where there are more kinds.
    """
    classes = legality_classes(problem.allowed)
    groups = Groups.of(problem, tied.astype(np.int64) * (len(classes.legal) + 1) + classes.class_of_unit + 1)
    chosen = _with_choice(groups)
    if len(chosen) > most:
        groups = Groups.of(problem, _folded(groups, most))
        chosen = _with_choice(groups)
    if not len(chosen):
        return Groups(problem, np.ones(problem.num_units, np.int32), classes.legal)
    # Ops that take no time come behind all others.
    position = np.arange(problem.num_ops)
    position += np.where(problem.fastest_ns() > 0, 0, problem.num_ops)
    begins = np.full(groups.count, 2 * problem.num_ops)
    np.minimum.at(begins, groups.group_of_unit[problem.unit_of_op], position)
    return groups.reordered(chosen[np.argsort(begins[chosen], kind="stable")])


def _with_choice(groups: Groups) -> np.ndarray:
    return np.flatnonzero(groups.legal.sum(axis=1) > 1)


def _index(problem: Problem) -> GraphIndex:
    """The problem's ops as the rules read them; what has no bytes is a control edge."""
    graph = problem.op_graph
    edges = np.stack([graph.producer, graph.consumer], axis=1).astype(np.int32)
    has_bytes = graph.edge_bytes > 0
    zeros = np.zeros(int(has_bytes.sum()), np.int32)
    nodes = [
        tf.compat.v1.NodeDef(name=name, op=op_type)
        for name, op_type in zip(problem.op_names, problem.op_types, strict=True)
    ]
    return GraphIndex(
        graph_def=tf.compat.v1.GraphDef(node=nodes),
        names=problem.op_names,
        op_types=problem.op_types,
        id_of_name={name: op for op, name in enumerate(problem.op_names)},
        data_edges=np.stack([edges[has_bytes, 0], zeros, edges[has_bytes, 1], zeros], axis=1),
        control_edges=edges[~has_bytes],
    )


def _folded(groups: Groups, most: int) -> np.ndarray:
    """[U] keys, at most ``most`` (or one for each class), -1 for undecided units.

    They are min-cut parts of the groups of each class.
    """
    coarse = groups.coarse_problem()
    classes = legality_classes(coarse.allowed)
    counts = classes.units_of_class
    spare = max(most - len(counts), 0)
    graph = unit_graph(coarse)
    key, used = np.full(coarse.num_units, -1), 0
    for number, count in enumerate(counts):
        members = classes.class_of_unit == number
        share = 1 + int(spare * count // counts.sum())
        parts = np.cumsum(members) - 1 if count <= share else min_cut_partition(coarse, graph, share)
        key[members] = used + np.unique(parts[members], return_inverse=True)[1]
        used = int(key.max()) + 1
    return key[groups.group_of_unit]
