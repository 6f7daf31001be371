"""A placed program computes the same numbers, bit for bit, and runs where it was put: 20 random placements of each."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from colocation.units import form_units
from tests.tf_placer.rewrite.equivalence_programs import PROGRAMS
from tf_placer.graph.item import Item
from tf_placer.rewrite.rewrite import place_graph
from tf_placer.runtime.graph_program import build_program, session_config

pytestmark = [pytest.mark.medium, pytest.mark.own_process(timeout_s=600)]

DEVICES = [f"/job:localhost/replica:0/task:0/device:CPU:{d}" for d in range(4)]
STEPS = 3
PLACEMENTS = 20
# Lowered to Switch and Merge before anything runs; their nodes are gone, their bodies run.
LOWERED = {"While", "StatelessWhile", "If", "StatelessIf"}
# In the types of ops that stand for several: _FusedConv2D, Conv2DBackpropFilterWithBias, ...
FUSED_MARKS = ("Fused", "WithBias")


def run_eagerly(function, item: Item, example_args: tuple) -> dict[str, bytes]:
    """Losses of three calls of the unplaced function, and its variables afterwards."""
    values = {f"loss {i}": function(*example_args).numpy().tobytes() for i in range(STEPS)}
    concrete = function.get_concrete_function(*example_args)
    handles = {
        placeholder.op.name: capture
        for placeholder, capture in zip(
            concrete.graph.internal_captures, concrete.captured_inputs, strict=True
        )
    }
    for variable in item.variables:
        read = tf.raw_ops.ReadVariableOp(resource=handles[variable.capture], dtype=variable.dtype)
        values[variable.node] = read.numpy().tobytes()
    return values


def run_placed(item: Item, device_of_op: list[str]) -> tuple[dict[str, bytes], dict[str, tuple[str, str]]]:
    """The same from the placed graph in a session, and the (device, op type) that each op ran as."""
    devices = dict(zip(item.index.names, device_of_op, strict=True))
    program = build_program(item, place_graph(item.graph_def, devices))
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(program.graph_def, name="")
        reads = {
            variable.node: tf.raw_ops.ReadVariableOp(
                resource=graph.get_tensor_by_name(f"{variable.node}:0"), dtype=variable.dtype
            )
            for variable in item.variables
        }
    config = session_config()
    config.device_count["CPU"] = len(DEVICES)
    config.intra_op_parallelism_threads = 1
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    metadata = tf.compat.v1.RunMetadata()
    step = [graph.get_operation_by_name(name) for name in program.step_ops]
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        for assignment in program.assignments:
            session.run(
                graph.get_operation_by_name(assignment.op), {assignment.placeholder: assignment.value}
            )
        values = {}
        for i in range(STEPS):
            loss, _ = session.run([item.fetches[0], step], options=options, run_metadata=metadata)
            values[f"loss {i}"] = loss.tobytes()
        values |= {name: value.tobytes() for name, value in session.run(reads).items()}
    ran_as = {node.name: (node.device, node.op) for part in metadata.partition_graphs for node in part.node}
    return values, ran_as


class Witness:
    """Compares where ops ran with where they were put."""

    def __init__(self, item: Item) -> None:
        self._index = item.index
        self._readers: dict[int, set[int]] = {}
        self._read: dict[int, set[int]] = {}
        for producer, _, consumer, _ in item.index.data_edges.tolist():
            self._readers.setdefault(producer, set()).add(consumer)
            self._read.setdefault(consumer, set()).add(producer)

    def complaints(self, device_of_op: list[str], ran_as: dict[str, tuple[str, str]]) -> list[str]:
        """A line for each op that ran elsewhere, or did not run for no reason that we know."""
        lines = []
        for op, (name, device) in enumerate(zip(self._index.names, device_of_op, strict=True)):
            if name not in ran_as:
                if not (self._lowered(op) or self._fused(op, device_of_op, ran_as)):
                    lines.append(f"{name} ({self._index.op_types[op]}) did not run")
            elif ran_as[name][0] != device:
                lines.append(f"{name} planned {device}, ran on {ran_as[name][0]}")
        return lines

    def _lowered(self, op: int) -> bool:
        """A loop or branch node, or what only such nodes read and their lowered form does not."""
        readers = self._readers.get(op, set()) or {op}
        return self._index.op_types[op] in LOWERED or all(self._index.op_types[o] in LOWERED for o in readers)

    def _fused(self, op: int, device_of_op: list[str], ran_as: dict[str, tuple[str, str]]) -> bool:
        """oneDNN made it one with a neighbour on the same device, which runs as another type of op."""
        read = self._read.get(op, set())
        neighbours = read | self._readers.get(op, set())
        for producer in read:
            neighbours |= self._readers[producer]
        names, types = self._index.names, self._index.op_types
        running = [o for o in neighbours if device_of_op[o] == device_of_op[op] and names[o] in ran_as]
        run_types = [ran_as[names[o]][1] for o in running if ran_as[names[o]][1] != types[o]]
        return any(mark in run_type for run_type in run_types for mark in FUSED_MARKS)


@dataclasses.dataclass
class Comparison:
    """A program as it is, and with random placements."""

    item: Item
    expected: dict[str, bytes]  # losses and variables
    found: list[dict[str, bytes]]
    misplaced: list[str]
    devices_used: list[int]
    graph_before: bytes


@pytest.fixture(scope="module")
def exact_mode() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.experimental.enable_op_determinism()


@pytest.fixture(scope="module", params=PROGRAMS)
def comparison(exact_mode: None, request: pytest.FixtureRequest) -> Comparison:
    tf.random.set_seed(0)
    workload = PROGRAMS[request.param]()
    item = Item.from_function(workload.function, *workload.example_args, name=request.param)
    before = item.graph_def.SerializeToString(deterministic=True)
    expected = run_eagerly(workload.function, item, workload.example_args)
    comparison = Comparison(item, expected, [], [], [], before)
    units, witness = form_units(item.index), Witness(item)
    for seed in range(PLACEMENTS):
        device_of_unit = np.random.default_rng(seed).integers(len(DEVICES), size=units.num_units)
        device_of_op = [DEVICES[d] for d in device_of_unit[units.unit_of_op]]
        values, ran_as = run_placed(item, device_of_op)
        comparison.found.append(values)
        comparison.misplaced += [f"seed {seed}: {line}" for line in witness.complaints(device_of_op, ran_as)]
        comparison.devices_used.append(len({device for device, _ in ran_as.values()}))
    return comparison


def test_losses_and_variables_are_bitwise_equal(comparison):
    expected = comparison.expected
    assert [seed for seed, values in enumerate(comparison.found) if values != expected] == []
    # Three losses and each variable; and the steps do something, or equality would mean little.
    assert len(expected) == STEPS + len(comparison.item.variables) > STEPS
    assert len({expected[f"loss {i}"] for i in range(STEPS)}) == STEPS


def test_every_op_ran_where_it_was_put(comparison):
    assert comparison.misplaced == []
    assert min(comparison.devices_used) > 1


def test_the_item_is_left_alone(comparison):
    assert comparison.item.graph_def.SerializeToString(deterministic=True) == comparison.graph_before
