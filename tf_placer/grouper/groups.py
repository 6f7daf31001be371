"""Groups of units that are decided together, the ways to make them, and decisions beyond their devices."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pymetis
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.graph.program import COPY
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import Problem, made_once
from tf_placer.problem.unit_graph import UnitGraph, order_of_use, unit_graph
from tf_placer.transform.fusion import merged_by_priority
from tf_placer.transform.split.plans import copies_of_units

SLACK_CLASSES = (0.05, 0.4)
"""Shares of the critical path between classes: what is near it, weight gradients, and what hardly anybody waits for."""

_SUM = 2**28  # of all weights, which METIS adds up in 32 bits


def min_cut_partition(
    problem: Problem, graph: UnitGraph, parts: int, shares: np.ndarray | None = None
) -> np.ndarray:
    """[U] int32 parts of like work, few bytes crossing (Karypis & Kumar 1998); some may be empty.

    With no more units than parts, each is a part. ``shares`` [parts] of the work on fastest devices sum to 1; equal
    without.
    """
    if parts <= 1:
        return np.zeros(graph.num_units, np.int32)
    if graph.num_units <= parts:
        return np.arange(graph.num_units, dtype=np.int32)
    offset, neighbor, num_bytes = adjacency(graph)
    with _silence():
        _, part = pymetis.part_graph(
            parts,
            pymetis.CSRAdjacency(offset, neighbor),
            vweights=whole_shares(problem.work_ns()),
            eweights=whole_shares(num_bytes),
            tpwgts=None if shares is None else shares.tolist(),
        )
    return np.array(part, np.int32)


def slack_groups(problem: Problem, parts: int) -> np.ndarray:
    """[U] int32 groups: min-cut parts (METIS), each split by slack; numbered in the order of their first units.

    Few bytes cross between parts. But a min cut keeps a weight gradient, which only an update waits for, with the
    activation that it reads, which the whole backward pass waits for; a good plan has them apart.
    """
    part = min_cut_partition(problem, unit_graph(problem), parts).astype(np.int64)
    slack = op_levels(problem).slack[costliest_ops(problem)]
    slack_class = np.searchsorted(np.array(SLACK_CLASSES), slack, side="right")
    keys = part * (len(SLACK_CLASSES) + 1) + slack_class
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return rank[group]


_NUMBER = re.compile(r"_?\d+")


def repeated_groups(problem: Problem) -> np.ndarray:
    """[U] int32 groups of units that do the same in repeated layers and time steps, for the same part of the batch.

    The name of a unit's costliest op without its numbers tells: ``layer_3/dense/MatMul_1`` and ``layer_4/dense/MatMul``
    go together. So a few groups decide what all layers do alike, and which part is where.
    """
    names = [_NUMBER.sub("", COPY.sub("", problem.op_names[op])) for op in costliest_ops(problem).tolist()]
    number: dict[tuple[str, int], int] = {}
    pairs = zip(names, copies_of_units(problem)[0].tolist(), strict=True)
    return np.array([number.setdefault(pair, len(number)) for pair in pairs], np.int32)


def costliest_ops(problem: Problem) -> np.ndarray:
    """[U] the op of each unit that takes longest; of equal ones the first."""
    order = np.lexsort((-np.arange(problem.num_ops), problem.fastest_ns(), problem.unit_of_op))
    last = np.searchsorted(problem.unit_of_op[order], np.arange(problem.num_units), side="right") - 1
    return order[last]


class Levels(NamedTuple):
    """Position of each op around the critical path, with every op on its fastest device and transfers free.

    Ops that little precedes and little follows have slack: weight gradients, which only an update waits for.
    """

    top: np.ndarray  # [N] float64, longest chain of ops before this one, over the critical path
    bottom: np.ndarray  # [N] float64, longest chain that begins with this op, itself included
    slack: np.ndarray  # [N] float64, rest of the critical path; 0 for an op on the path
    path_ns: int  # the critical path, at least 1


def op_levels(problem: Problem) -> Levels:
    """Both levels of every op (Kwok & Ahmad 1999); all are 0 where a step takes no time."""
    top, bottom = problem.op_graph.top_level_ns, problem.op_graph.bottom_level_ns
    longest_ns = int(bottom.max(initial=0))
    path_ns = max(longest_ns, 1)
    return Levels(top / path_ns, bottom / path_ns, (longest_ns - top - bottom) / path_ns, path_ns)


def adjacency(graph: UnitGraph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The graph without directions: offsets [U + 1], neighbors [2 * pairs] and the bytes between, as METIS has them."""
    both = np.concatenate([graph.edges, graph.edges[:, ::-1]]).astype(np.int64)
    keys, position = np.unique(both[:, 0] * graph.num_units + both[:, 1], return_inverse=True)
    num_bytes = np.zeros(len(keys), np.int64)
    np.add.at(num_bytes, position, np.concatenate([graph.edge_bytes, graph.edge_bytes]))
    offset = np.searchsorted(keys // graph.num_units, np.arange(graph.num_units + 1))
    return offset, keys % graph.num_units, num_bytes


def whole_shares(weights: np.ndarray) -> list[int]:
    """Weights of at least 1 that METIS and Scotch can add up; the same for the same shares, in whatever unit."""
    amounts = weights.tolist()
    total = max(sum(amounts), 1)
    return [max(1, amount * _SUM // total) for amount in amounts]  # whole numbers: nothing is rounded


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps what METIS prints about odd graphs off the user's terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    try:
        with open(os.devnull, "w", encoding="utf8") as nowhere:
            for descriptor in saved:
                os.dup2(nowhere.fileno(), descriptor)
            try:
                yield
            finally:
                ctypes.CDLL(None).fflush(None)  # C's stdio would print its buffer at exit
                for descriptor, copy in saved.items():
                    os.dup2(copy, descriptor)
    finally:
        for copy in saved.values():
            os.close(copy)


KINDS = ("slack", "min_cut")
"""Ways to cut units into groups: min-cut parts split by slack, or min-cut parts alone."""


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Units in G groups, each of which is on one device.

    groups = Groups.of(problem, slack_groups(problem, 64))
    rows = groups.expand(device_of_group)  # [B, G] -> [B, U]
    device_of_group = groups.project(rows)  # and back: where most of each group is
    """

    problem: Problem
    # [U] int32 in [0, G]; G for a unit of no group, which stays on its first legal device.
    group_of_unit: np.ndarray
    # [G, D] bool, at least one True in each row: where some unit of a group may be; all its units, of one kind.
    legal: np.ndarray

    @staticmethod
    def of(problem: Problem, keys: np.ndarray, one_kind: bool = True) -> Groups:
        """Groups of the units that have equal keys [U], whole numbers from -1 on, in the order of the keys.

        Of one kind, groups are split until all units of each may be on the same devices.
        """
        keys = np.asarray(keys, np.int64)
        if one_kind:
            rows, kind = np.unique(problem.allowed, axis=0, return_inverse=True)
            keys = keys * len(rows) + kind.reshape(-1)
        group = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int32)
        legal = np.zeros((int(group.max(initial=-1)) + 1, problem.num_devices), bool)
        np.logical_or.at(legal, group, problem.allowed)
        return Groups(problem, group, legal)

    @property
    def count(self) -> int:
        """G."""
        return len(self.legal)

    @property
    def only_device(self) -> np.ndarray:
        """[U] int32, where a unit of no group is."""
        return self.problem.allowed.argmax(axis=1).astype(np.int32)

    @property
    def first_unit(self) -> np.ndarray:
        """[G] the first unit of each group, where every group has units and every unit has a group."""
        return np.unique(self.group_of_unit, return_index=True)[1]

    @property
    def class_of_group(self) -> np.ndarray:
        """[G] int32, of groups of one kind with a choice: their class (``legality_classes``)."""
        classes = legality_classes(self.problem.allowed)
        same = (self.legal[:, np.newaxis] == classes.legal).all(axis=2)
        return same.argmax(axis=1).astype(np.int32)

    def expand(self, device_of_group: np.ndarray) -> np.ndarray:
        """[B, U] int32 legal placements of devices [B, G]; a unit that may not be there goes to its first device."""
        padded = np.pad(device_of_group, ((0, 0), (0, 1)))
        return self.problem.legalized(padded[:, self.group_of_unit])

    def project(self, rows: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        """[B, G] int32: each group's legal device with most of its weight [U] in placements [B, U].

        Without a weight it is a unit's share of all work and its share of all bytes.
        """
        if weight is None:
            problem = self.problem
            amounts = (problem.work_ns(), problem.resident_bytes + problem.held_bytes())
            # A little for units that have none.
            work, size = ((of_unit + 1e-9) / (of_unit.sum() + 1e-9 * len(of_unit)) for of_unit in amounts)
            weight = work + size
        votes = np.zeros((len(rows), self.count + 1, self.problem.num_devices))
        for row, table in zip(rows, votes, strict=True):
            np.add.at(table, (self.group_of_unit, row), weight)
        return np.where(self.legal, votes[:, :-1], -1).argmax(axis=2).astype(np.int32)

    def best_of(
        self, plans: np.ndarray, simulate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    ) -> np.ndarray:
        """[G] int32 devices: the fastest of K plans [K, U] once every group is on one device; the first if none fits.

        ``simulate`` gives seconds [B] of placements [B, U], and whether each fits.
        """
        device_of_group = self.project(plans)
        runtime_s, fits = simulate(self.expand(device_of_group))
        return device_of_group[int(np.argmin(np.where(fits, runtime_s, np.inf)))]

    def sums(self, amounts: np.ndarray) -> np.ndarray:
        """[G, ...] float64 of what each unit [U, ...] has."""
        total = np.zeros((self.count + 1, *amounts.shape[1:]))
        np.add.at(total, self.group_of_unit, amounts)
        return total[:-1]

    def compute_ns(self) -> np.ndarray:
        """[G, D] float64, time that each group's ops take on each device."""
        total = np.zeros((self.count + 1, self.problem.num_devices))
        np.add.at(total, self.group_of_unit[self.problem.unit_of_op], self.problem.compute_ns)
        return total[:-1]

    @functools.cached_property
    def places(self) -> np.ndarray:
        """[G] float64 when the step needs a group: its units' mean place in ``order_of_use``; inf of no unit."""
        place = np.empty(self.problem.num_units)
        place[order_of_use(self.problem)] = np.arange(self.problem.num_units)
        units = self.sums(np.ones(self.problem.num_units))
        return np.divide(self.sums(place), units, out=np.full(self.count, np.inf), where=units > 0)

    def reordered(self, order: np.ndarray) -> Groups:
        """The groups [G'] of ``order``, in that order; units of a group that is left out are of none."""
        number = np.full(self.count + 1, len(order), np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        return Groups(self.problem, number[self.group_of_unit], self.legal[order])

    @property
    def edges(self) -> np.ndarray:
        """[E', 2] int64 producer group, consumer group; sorted, distinct, of two groups each."""
        keys, groups = self._between[0], self.count + 1
        return np.stack([keys // groups, keys % groups], axis=1)

    @property
    def edge_bytes(self) -> np.ndarray:
        """[E'] int64, of all units' edges between two groups."""
        return self.over_edges(unit_graph(self.problem).edge_bytes).astype(np.int64)

    def over_edges(self, amounts: np.ndarray) -> np.ndarray:
        """[E'] float64, sums of what each edge between units [E] has."""
        keys, position, crossing = self._between
        return np.bincount(position, amounts[crossing], len(keys))

    @functools.cached_property
    def _between(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A key for each of ``edges``, the position there of each crossing edge of units, and which cross [E]."""
        ends = self.group_of_unit[unit_graph(self.problem).edges.reshape(-1, 2)].astype(np.int64)
        crossing = ends[:, 0] != ends[:, 1]
        keys, position = np.unique(ends[crossing] @ np.array([self.count + 1, 1]), return_inverse=True)
        return keys, position.reshape(-1), crossing

    def coarse_problem(self) -> Problem:
        """A problem whose units are the groups, for groups of one kind that every unit is in.

        Ops, tensors and what a step takes stay as they are: a placement of groups takes as long as ``expand`` of it.
        """
        resident_bytes = np.zeros(self.count, np.int64)
        np.add.at(resident_bytes, self.group_of_unit, self.problem.resident_bytes)
        return dataclasses.replace(
            self.problem,
            unit_of_op=self.group_of_unit[self.problem.unit_of_op],
            resident_bytes=resident_bytes,
            allowed=self.legal,
        )


def expanded(device_of_group: tf.Tensor, group_of_unit: tf.Tensor, only_device: tf.Tensor) -> tf.Tensor:
    """[B, U] int32: a unit goes where its group [U] goes [B, G], or, of no group (G), to its only legal device [U]."""
    # A column for the units of no group, whose devices are put there afterwards.
    device = tf.gather(tf.pad(device_of_group, [[0, 0], [0, 1]]), group_of_unit, axis=1)
    return tf.where(group_of_unit < device_of_group.shape[1], device, only_device)


@dataclasses.dataclass(frozen=True, eq=False)
class LegalityClasses:
    """Units by the devices that they may run on, so that whatever is decided for several units is legal for all."""

    class_of_unit: np.ndarray  # [U] int32; -1 where there is one legal device and so nothing to decide
    # [C, D] bool, at least two devices a row. Where no unit has a choice there is one class of none, on all devices.
    legal: np.ndarray
    units_of_class: np.ndarray  # [C] int64, how many units each class has


def legality_classes(allowed: np.ndarray) -> LegalityClasses:
    """Units sorted into classes by ``allowed`` [U, D], the most units first."""
    rows, row_of_unit, count = np.unique(allowed, axis=0, return_inverse=True, return_counts=True)
    choice = rows.sum(axis=1) > 1
    kept = np.array([row for row in np.argsort(-count, kind="stable") if choice[row]], np.int64)
    class_of_row = np.full(len(rows), -1, np.int32)
    class_of_row[kept] = np.arange(len(kept))
    class_of_unit = class_of_row[row_of_unit.reshape(-1)]
    if not len(kept):
        return LegalityClasses(class_of_unit, np.ones((1, allowed.shape[1]), bool), np.zeros(1, np.int64))
    return LegalityClasses(class_of_unit, rows[kept], count[kept])


def unit_groups(problem: Problem, num_groups: int, kind: str = "slack") -> Groups:
    """Groups of the units that have a choice: each legality class cut into its share of groups, by one of ``KINDS``.

    There are at most ``num_groups``, or a group for each class; some may be left without units.
    """
    classes = legality_classes(problem.allowed)
    class_of_group = group_shares(classes.units_of_class, num_groups)
    group_of_unit = np.full(problem.num_units, len(class_of_group), np.int32)
    for number in range(len(classes.legal)):
        members = classes.class_of_unit == number
        groups = np.flatnonzero(class_of_group == number)
        count = len(groups)
        if members.sum() <= count:
            part = np.arange(members.sum())
        else:
            parts = count if kind == "slack" else 0
            while parts:
                # Numbered without gaps among the members.
                part = np.unique(slack_groups(problem, parts)[members], return_inverse=True)[1]
                used = int(part.max()) + 1
                if used <= count:
                    break
                parts = min(parts - 1, parts * count // used)
            else:
                part = min_cut_partition(problem, unit_graph(problem), count)[members]
        group_of_unit[members] = groups[part]
    return Groups(problem, group_of_unit, classes.legal[class_of_group])


def ordered_groups(problem: Problem, num_groups: int | None) -> Groups:
    """Groups of all units in the order of use: ``unit_groups``, or each unit by itself where there is no number.

    Units with one legal device are a group for each such device, of which nothing is decided.
    """
    if num_groups is None:
        keys = np.where(problem.allowed.sum(axis=1) > 1, np.arange(problem.num_units), -1)
    else:
        keys = made_once(_groups_of_units, problem, num_groups)
    groups = Groups.of(problem, keys)
    return groups.reordered(np.lexsort((groups.first_unit, groups.places)))


def _groups_of_units(problem: Problem, num_groups: int) -> np.ndarray:
    return unit_groups(problem, num_groups).group_of_unit.copy()


def cut_by_plans(keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """[U] keys of groups [U], cut where plans [K, U] have them on different devices: what all plans keep together."""
    for row in rows:
        pairs = keys.astype(np.int64) * (int(row.max()) + 1) + row
        keys = np.unique(pairs, return_inverse=True)[1].reshape(-1)
    return keys


def group_shares(units_of_class: np.ndarray, num_groups: int) -> np.ndarray:
    """[G'] int32 class of each group, ascending: groups shared by the classes' numbers of units [C]; each gets one.

    G' is less than ``num_groups`` where there are fewer units than groups, and more where there are more classes.
    """
    classes = len(units_of_class)
    beyond_one = np.maximum(units_of_class - 1, 0)
    spare = min(max(num_groups - classes, 0), int(beyond_one.sum()))
    exact = spare * beyond_one / max(int(beyond_one.sum()), 1)
    shares = np.floor(exact).astype(np.int64)
    # Largest remainders; a class with a remainder has a unit left for it.
    shares[np.argsort(shares - exact, kind="stable")[: spare - int(shares.sum())]] += 1
    return np.repeat(np.arange(classes, dtype=np.int32), 1 + shares)


DEVICES, PRIORITIES, FUSION = "devices", "priorities", "fusion"
_EVERY = (DEVICES, PRIORITIES, FUSION)
TASKS = tuple(",".join(some) for count in (1, 2, 3) for some in itertools.combinations(_EVERY, count))
"""What may be decided: one task, two or all, in the order in which they are decided."""


def fusing(groups: Groups) -> np.ndarray:
    """[G] bool, groups with an op that XLA compiles."""
    problem = groups.problem
    fuses = np.zeros(groups.count + 1, bool)  # the last is of units in none
    fuses[groups.group_of_unit[problem.unit_of_op[problem.fusible_of_op]]] = True
    return fuses[:-1]


@dataclasses.dataclass(frozen=True, eq=False)
class JointPlans:
    """Plans whose groups have a device and, for each task beyond that, one of K levels.

    The priority of an op is the level of its group less ``neutral``, so that with neutral levels nothing is decided.
    Its fusion priority is the level of its group, and with 0 it is not fused (``merged_by_priority``).

    Raises:
      InputError: fusion is to be decided, and no op is known to be one that XLA compiles.
    """

    groups: Groups  # G of them, that every unit is in
    tasks: tuple[str, ...]  # what is decided, in order
    levels: int  # K

    def __post_init__(self) -> None:
        if FUSION in self.tasks and not self.groups.problem.fusible_of_op.any():
            raise InputError(
                f"tasks is {','.join(self.tasks)}, and {self.groups.problem.name!r} has no op that is known to be one "
                f"that XLA compiles; leave {FUSION} out"
            )

    @property
    def leveled(self) -> tuple[str, ...]:
        """[L] tasks that are decided by levels."""
        return tuple(task for task in self.tasks if task != DEVICES)

    @property
    def neutral(self) -> np.ndarray:
        """[L, G] int32, levels with which nothing is decided."""
        of_task = [self.levels // 2 if task == PRIORITIES else 0 for task in self.leveled]
        return np.repeat(np.array(of_task, np.int32)[:, np.newaxis], self.groups.count, axis=1)

    @functools.cached_property
    def legal(self) -> np.ndarray:
        """[L, G, K] bool: a group without an op that can be fused has fusion level 0."""
        every = np.ones((len(self.leveled), self.groups.count, self.levels), bool)
        for of_task, task in zip(every, self.leveled, strict=True):
            if task == FUSION:
                of_task[~fusing(self.groups), 1:] = False
        return every

    def decisions(self, device_of_unit: np.ndarray, levels: np.ndarray) -> Decisions:
        """Plans of devices [B, U] and levels [B, L, G]."""
        priority_of_op = cluster_of_op = None
        problem = self.groups.problem
        for task, of_group in zip(self.leveled, np.moveaxis(levels, 1, 0), strict=True):
            of_op = of_group[:, self.groups.group_of_unit[problem.unit_of_op]]
            if task == PRIORITIES:
                priority_of_op = of_op - self.levels // 2
            else:
                device_of_op = device_of_unit[:, problem.unit_of_op]
                merged = [merged_by_priority(problem, *row) for row in zip(device_of_op, of_op, strict=True)]
                cluster_of_op = np.array(merged, np.int32).reshape(of_op.shape)
        return Decisions(device_of_unit, priority_of_op, cluster_of_op)
