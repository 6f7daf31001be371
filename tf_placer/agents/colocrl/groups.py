"""ColocRL's groups: units that its co-location rules bring together, folded further where they are too many."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from colocation.graph_index import GraphIndex
from colocation.heuristics import default_groups, name_scope, single_consumer
from colocation.units import Heuristic, extend_units
from colocation.unrolled_calls import unrolled_calls
from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.legality import legality_classes
from tf_placer.planners.coarse_problem import coarse_problem
from tf_placer.planners.partition import min_cut_partition
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph


@dataclasses.dataclass(frozen=True, eq=False)
class ColocatedGroups:
    """What is decided together.

    Attributes:
      group_of_unit: [U] int32 in [0, G]; G for a unit that has one legal device, so that nothing is decided. Groups
        are in the order of their first ops that take time.
      legal: [G, D] bool, what is legal for each unit of a group; at least two devices a row.
      only_device: [U] int32, where the units of no group are.
      by_rules: how many groups the rules alone leave, before any is split or folded; units of no group not counted.
    """

    group_of_unit: np.ndarray
    legal: np.ndarray
    only_device: np.ndarray
    by_rules: int

    @property
    def count(self) -> int:
        """G."""
        return len(self.legal)

    def rows(self, device_of_group: np.ndarray) -> np.ndarray:
        """[B, U] int32 placements of devices of groups [B, G]."""
        none = np.zeros((len(device_of_group), 1), np.int32)
        row = np.concatenate([device_of_group, none], axis=1)[:, self.group_of_unit]
        return np.where(self.group_of_unit < self.count, row, self.only_device).astype(np.int32)


def colocated_groups(problem: Problem, config: ColocRlConfig) -> ColocatedGroups:
    """Groups the units of a problem (Mirhoseini et al. 2017, section 3.3).

    1. Gradients go with what they differentiate (``default_groups``); variables are with their updates already.
    2. What has one reader goes with it, groups taken as ops, until nothing merges (``single_consumer``).
    3. Steps of an unrolled layer are a group each (``unrolled_calls``), and so are layers (``name_scope``).

    The rules of names come first, because the second one treats their groups as ops. Departures: a group that units of
    several kinds are in, by the devices that they may run on, is split; and where more than ``max_groups`` are left,
    those of each kind are folded into min-cut parts, as many as its share of groups.

    Args:
      problem: what is placed.
      config: which rules, and how many groups.
    """
    classes = legality_classes(problem.allowed)
    tied = _tied(problem, config) if config.colocate else np.arange(problem.num_units)
    free = classes.class_of_unit >= 0
    keys = tied.astype(np.int64) * (len(classes.legal) + 1) + classes.class_of_unit + 1
    group = np.unique(keys[free], return_inverse=True)[1].reshape(-1)
    by_rules = len(np.unique(tied[free]))
    if group.max(initial=-1) >= config.max_groups:
        group = _folded(problem, keys, classes.class_of_unit, config.max_groups)[free]
    first = _first_op_with_work(problem)[free]
    count = int(group.max(initial=-1)) + 1
    begins = np.full(count, 2 * problem.num_ops)
    np.minimum.at(begins, group, first)
    rank = np.empty(count, np.int32)
    rank[np.argsort(begins, kind="stable")] = np.arange(count)
    group_of_unit = np.full(problem.num_units, count, np.int32)
    group_of_unit[free] = rank[group]
    if not count:  # a policy needs something to decide: a group without units
        return ColocatedGroups(group_of_unit + 1, classes.legal, classes.first_legal, by_rules)
    legal = np.zeros((count, problem.num_devices), bool)
    legal[rank[group]] = problem.allowed[free]
    return ColocatedGroups(group_of_unit, legal, classes.first_legal, by_rules)


def _tied(problem: Problem, config: ColocRlConfig) -> np.ndarray:
    """[U] which units the rules bring together."""
    index = _index(problem)
    work_ns = problem.fastest_ns().astype(np.float64)
    by_name: list[Heuristic] = [default_groups]
    by_name += [unrolled_calls(config.step_pattern)] if config.step_pattern else []
    by_name += [name_scope(config.layer_pattern)] if config.layer_pattern else []
    most = config.largest_share * work_ns.sum()
    units = extend_units(index, problem.unit_of_op, [*by_name, single_consumer()])
    if most and np.bincount(units.unit_of_op, work_ns).max() > most:
        limited = single_consumer(weight_of_op=work_ns, most=most)
        units = extend_units(index, problem.unit_of_op, [*by_name, limited])
    tied = np.empty(problem.num_units, np.int64)
    tied[problem.unit_of_op] = units.unit_of_op
    return tied


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


def _folded(problem: Problem, keys: np.ndarray, class_of_unit: np.ndarray, most: int) -> np.ndarray:
    """[U] groups, at most ``most`` (or one for each class): min-cut parts of the groups of each class.

    Args:
      problem: whose units.
      keys: [U] the group of each unit, of one class each.
      class_of_unit: [U]; -1 for what is not decided.
      most: how many, in all.
    """
    coarse, tied = coarse_problem(problem, np.unique(keys, return_inverse=True)[1].reshape(-1))
    class_of_tied = np.empty(coarse.num_units, np.int32)
    class_of_tied[tied] = class_of_unit
    counts = np.bincount(class_of_tied[class_of_tied >= 0])
    spare = max(most - len(counts), 0)
    graph = unit_graph(coarse)
    group, used = np.full(coarse.num_units, -1), 0
    for number, count in enumerate(counts):
        members = class_of_tied == number
        share = 1 + int(spare * count // counts.sum())
        parts = np.cumsum(members) - 1 if count <= share else min_cut_partition(coarse, graph, share)
        _, group[members] = np.unique(parts[members], return_inverse=True)
        group[members] += used
        used = int(group.max()) + 1
    return group[tied]


def _first_op_with_work(problem: Problem) -> np.ndarray:
    """[U] each unit's first op that takes time; its first one, behind all those, where none does."""
    position = np.arange(problem.num_ops)
    order = np.where(problem.fastest_ns() > 0, position, position + problem.num_ops)
    first = np.full(problem.num_units, 2 * problem.num_ops)
    np.minimum.at(first, problem.unit_of_op, order)
    return first
