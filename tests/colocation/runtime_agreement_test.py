"""Hard units are TensorFlow's: what they allow, the runtime does; what they forbid, it does not.

Seeded random graphs are placed on four logical CPU devices with soft placement and Grappler
off, and what ran where is read from the partition graphs of the run.
"""

import collections
import dataclasses
import functools
import logging

import numpy as np
import pytest
import tensorflow as tf

from colocation.constraints import RULES, Merge
from colocation.op_facts import GraphIndex, index_graph
from colocation.units import Units, form_units
from tests.colocation.random_graphs import GADGETS, RandomGraph, random_graph

pytestmark = pytest.mark.medium

tf1 = tf.compat.v1

NUM_GRAPHS = 210
NUM_DEVICES = 4
DEVICES = tuple(f"/job:localhost/replica:0/task:0/device:CPU:{d}" for d in range(NUM_DEVICES))
# Rules of ours: when asked, TensorFlow spreads a loop, and sends a dataset within a process or a reference's value.
OUR_RULES = frozenset({"loop_frames", "reference_readers", "variant_readers"})
THEIR_RULES = frozenset(rule.__name__ for rule in RULES) - OUR_RULES
# Every rule of theirs is undone in at least so many graphs.
FORBIDDEN_PER_RULE = 5
# Ops that the runtime replaces by others, named after them, before it places the graph.
LOWERED = ("While", "StatelessWhile", "If", "StatelessIf")
# What the lowering adds around the body. It puts these on the device of the input that they carry,
# wherever the loop is: the body's work is where the While is, its plumbing need not be.
_PLUMBING = (
    "Enter Exit Merge Switch NextIteration LoopCond Identity NoOp _Send _Recv _HostSend _HostRecv Const"
)
PLUMBING = frozenset([*_PLUMBING.split(), "ControlTrigger"])


@dataclasses.dataclass(frozen=True)
class Case:
    """A seeded graph, indexed, with its units."""

    seed: int
    random: RandomGraph
    index: GraphIndex
    units: Units


@functools.cache
def case(seed: int) -> Case:
    random = random_graph(seed)
    index = index_graph(random.graph_def)
    return Case(seed, random, index, form_units(index))


def run_placed(subject: Case, device_of_op: np.ndarray) -> dict[str, set[tuple[str, str]]]:
    """Runs the graph once under a placement.

    Returns:
      (op type, device) of each node that ran, by name; those of a lowered op's body included.

    Raises:
      tf.errors.OpError: the runtime refused the placement, or the step failed.
    """
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(subject.random.graph_def, name="")
        for op, device in zip(subject.index.names, device_of_op, strict=True):
            # Set after the import, which would give a node the device of its `_class` target.
            graph.get_operation_by_name(op)._set_device(DEVICES[device])
    threads = {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 2}
    config = tf1.ConfigProto(device_count={"CPU": NUM_DEVICES}, allow_soft_placement=False, **threads)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf1.OptimizerOptions.L0
    ran: dict[str, set[tuple[str, str]]] = collections.defaultdict(set)
    with tf1.Session(graph=graph, config=config) as session:
        for targets in (subject.random.initializers, subject.random.step):
            metadata = tf1.RunMetadata()
            options = tf1.RunOptions(output_partition_graphs=True, timeout_in_ms=20_000)
            if targets:
                session.run(targets, options=options, run_metadata=metadata)
            for partition in metadata.partition_graphs:
                for node in partition.node:
                    ran[node.name].add((node.op, node.device))
    return ran


def moved_ops(subject: Case, device_of_op: np.ndarray, ran: dict[str, set[tuple[str, str]]]) -> list[str]:
    """Names the ops that did not run where they were put, work in lowered bodies included."""
    type_of = dict(zip(subject.index.names, subject.index.op_types, strict=True))
    wanted = {name: DEVICES[device] for name, device in zip(type_of, device_of_op, strict=True)}
    lowered = {name for name, op_type in type_of.items() if op_type in LOWERED}
    # The runtime copies a small constant to each device that reads it.
    replicated = {name.partition("/replicate/_")[0] for name in ran}
    moved = []
    for name, device in wanted.items():
        if name in ran:
            if {d for _, d in ran[name]} != {device}:
                moved.append(name)
        elif name not in lowered and name not in replicated:
            raise AssertionError(f"seed {subject.seed}: {name} did not run, so this says nothing about it")
    for name, places in ran.items():
        scope = next((n for n in lowered if name.startswith(n + "/") and name not in wanted), None)
        if scope is not None and any(t not in PLUMBING and d != wanted[scope] for t, d in places):
            moved.append(name)
    return moved


def split_at(units: Units, merge: Merge) -> np.ndarray:
    """Returns the ops that hang on ``merge.op_b`` when that one merge is undone."""
    neighbours: dict[int, list[int]] = collections.defaultdict(list)
    for other in units.merges:
        if other is not merge:
            neighbours[other.op_a].append(other.op_b)
            neighbours[other.op_b].append(other.op_a)
    side, stack = {merge.op_b}, [merge.op_b]
    while stack:
        for op in neighbours[stack.pop()]:
            if op not in side:
                side.add(op)
                stack.append(op)
    return np.array(sorted(side))


def test_every_gadget_and_rule_is_exercised():
    rules = collections.Counter(merge.rule for seed in range(NUM_GRAPHS) for merge in case(seed).units.merges)
    types = {t for seed in range(NUM_GRAPHS) for t in case(seed).index.op_types}
    assert set(rules) == {rule.__name__ for rule in RULES}
    assert len(GADGETS) == 15
    assert types >= {"While", "If", "Enter", "VariableV2", "VarHandleOp", "IteratorV2", "QueueDequeueV2"}


def test_what_units_allow_runs_where_it_was_put(record_property):
    checked = 0
    for seed in range(NUM_GRAPHS):
        subject = case(seed)
        rng = np.random.default_rng([seed, 1])
        for _ in range(2):
            device_of_unit = rng.integers(NUM_DEVICES, size=subject.units.num_units)
            device_of_op = device_of_unit[subject.units.unit_of_op]
            try:
                ran = run_placed(subject, device_of_op)
            except tf.errors.OpError as error:
                pytest.fail(f"seed {seed}: the runtime refused an allowed placement: {error}")
            moved = moved_ops(subject, device_of_op, ran)
            assert not moved, f"seed {seed}: not where they were put: {moved}"
            checked += 1
    record_property("placements_allowed_and_obeyed", checked)
    logging.getLogger(__name__).info("%d allowed placements of %d graphs obeyed", checked, NUM_GRAPHS)


def test_what_units_forbid_does_not_run_where_it_was_put(record_property):
    """Undoes one merge: with its two sides apart, TensorFlow refuses, fails, or moves an op."""
    outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
    for seed in range(NUM_GRAPHS):
        subject = case(seed)
        merges = [merge for merge in subject.units.merges if merge.rule not in OUR_RULES]
        if not merges:
            continue
        rng = np.random.default_rng([seed, 2])
        merge = merges[rng.integers(len(merges))]
        device_of_unit = rng.integers(NUM_DEVICES, size=subject.units.num_units)
        device_of_op = device_of_unit[subject.units.unit_of_op]
        side = split_at(subject.units, merge)
        device_of_op[side] = (device_of_op[side] + 1) % NUM_DEVICES
        try:
            moved = moved_ops(subject, device_of_op, run_placed(subject, device_of_op))
            outcome = "moved" if moved else "obeyed"
        except tf.errors.OpError:
            outcome = "refused"
        outcomes[merge.rule, outcome] += 1
        assert outcome != "obeyed", f"seed {seed}: TensorFlow can split what we merged: {merge}"
    assert sum(outcomes.values()) > NUM_GRAPHS // 2
    tried = collections.Counter(dict.fromkeys(THEIR_RULES, 0))
    for (rule, _), count in outcomes.items():
        tried[rule] += count
    assert set(tried) == THEIR_RULES
    assert min(tried.values()) >= FORBIDDEN_PER_RULE, tried
    record_property("placements_forbidden_and_not_obeyed", dict(outcomes))
    logging.getLogger(__name__).info("forbidden placements: %s", dict(outcomes))
