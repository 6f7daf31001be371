"""Features of units, groups and devices, and inputs of policies; what must not matter to them does not."""

import dataclasses
import math
import types

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tests.tf_placer.planners.full_devices import sized_cluster
from tests.tf_placer.problem.small_problems import (
    problem_of,
    random_problem,
    small_cluster,
    with_slower_links,
)
from tf_placer import workloads
from tf_placer.agents.features import (
    DEVICE_NUMBERS,
    DEVICE_WIDTH,
    FIXED_WIDTH,
    LEVEL_COLUMNS,
    NUM_TYPES,
    OP_TYPES,
    OTHER_TYPES,
    RELATIVE_WIDTH,
    costliest_ops,
    device_features,
    device_numbers,
    draw_weights,
    graph_inputs,
    load_and_slowness,
    prior_choices,
    relative_features,
    type_numbers,
    unit_features,
)
from tf_placer.cluster.cluster import Cluster
from tf_placer.grouper.groups import Groups, op_levels
from tf_placer.problem.unit_graph import unit_graph

UNIT_COLUMNS = {"sizes": slice(0, 24), "producers": slice(24, 30), "consumers": slice(30, 36)}
UNIT_COLUMNS |= {
    name: slice(column, column + 1)
    for column, name in enumerate(["top", "bottom", "slack", "work", "resident"], LEVEL_COLUMNS.start)
}
_RELATIVE = """top bottom slack work slowdown resident held in_time out_time in_degree out_degree choice
    parallelism pressure message devices"""
RELATIVE_COLUMNS = {name: column for column, name in enumerate(_RELATIVE.split())}
_DEVICE = "flops memory_speed capacity streams launch newest_first latency bandwidth"
DEVICE_COLUMNS = {"type": slice(0, 2)}
DEVICE_COLUMNS |= {name: slice(column, column + 1) for column, name in enumerate(_DEVICE.split(), 2)}


def test_known_types_have_their_own_numbers():
    numbers = type_numbers(["", "MatMul", "Conv2DBackpropFilter", "MatMul"])
    assert numbers.dtype == np.int32 and numbers[0] == 0 and numbers[1] == numbers[3]
    assert [OP_TYPES[n] for n in numbers] == ["", "MatMul", "Conv2DBackpropFilter", "MatMul"]


def test_unknown_types_share_the_last_numbers():
    numbers = type_numbers([f"MyOp{i}" for i in range(200)])
    assert set(numbers) == set(range(len(OP_TYPES), NUM_TYPES))
    # zlib.crc32(b"MyOp0") = 39192404 = 8 * 4899050 + 4: of the name alone, not of the process.
    assert numbers[0] == len(OP_TYPES) + 4


def test_the_list_is_that_of_this_version():
    # Weights are saved with the version and not with the list: whoever changes the list raises FEATURES_VERSION, and
    # then these numbers.
    assert (NUM_TYPES, OP_TYPES.index("AddV2"), OP_TYPES.index("_Send")) == (367, 6, 341)
    assert OP_TYPES[0] == "" and len(set(OP_TYPES)) == len(OP_TYPES) == NUM_TYPES - OTHER_TYPES


def test_a_training_step_has_no_type_without_a_name():
    types = {node.op for node in workloads.build("transformer_small").graph_def.node}
    assert len(types) > 40 and types <= set(OP_TYPES), types - set(OP_TYPES)


def test_levels_by_hand():
    # 0 (10) -> 1 (50) -> 3 (20), 0 -> 2 (5) -> 3; 4 (8) alone. The critical path is 0, 1, 3: 80.
    levels = op_levels(problem_of([10, 50, 5, 20, 8], [(0, 1), (0, 2), (1, 3), (2, 3)], 1000))
    # Ops stand in topological order, ties by number: as given.
    assert levels.path_ns == 80
    np.testing.assert_allclose(levels.top, np.array([0, 10, 10, 60, 0]) / 80)
    np.testing.assert_allclose(levels.bottom, np.array([80, 70, 25, 20, 8]) / 80)
    np.testing.assert_allclose(levels.slack, np.array([0, 0, 45, 0, 72]) / 80, atol=1e-12)


def test_a_step_that_takes_no_time_has_no_levels():
    for level in op_levels(problem_of([0, 0], [(0, 1)]))[:3]:
        assert level.tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_levels_against_every_path(seed):
    problem = random_problem(np.random.default_rng(seed), units=8, num_devices=2)
    cost = problem.fastest_ns()
    producer = np.repeat(problem.tensor_producer, np.diff(problem.consumer_offset))
    readers = {op: set(problem.consumer_op[producer == op].tolist()) for op in range(8)}

    def paths_from(op):
        yield [op]
        for reader in readers[op]:
            for path in paths_from(reader):
                yield [op, *path]

    paths = [path for op in range(8) for path in paths_from(op)]
    levels = op_levels(problem)
    assert levels.path_ns == max(cost[path].sum() for path in paths)
    for op in range(8):
        bottom = max(cost[path].sum() for path in paths if path[0] == op)
        top = max(cost[path[:-1]].sum() for path in paths if path[-1] == op)
        assert round(levels.bottom[op] * levels.path_ns) == bottom
        assert round(levels.top[op] * levels.path_ns) == top


@pytest.fixture
def shaped():
    """Units 0 = {a}, 1 = {b, c}, 2 = {d}, 3 = {e}; edges a->b, a->d, c->e, d->e."""
    return dataclasses.replace(
        problem_of([10, 1, 50, 20, 5], [(0, 1), (0, 3), (2, 4), (3, 4)], 1000, names=list("abcde")),
        unit_of_op=np.array([0, 1, 1, 2, 3], np.int32),
        resident_bytes=np.array([0, 300, 100, 0], np.int64),
        allowed=np.ones((4, 2), bool),
        op_types=("Relu", "Const", "MatMul", "MatMul", "Relu"),
        output_shapes=(
            ((2, 3),), ((),), ((4,), (5, 6, 7, 8)), ((9,) * 6,), tuple((n,) for n in range(11, 18)),
        ),
    )  # fmt: skip


def columns(problem, name, landmarks=3):
    features = unit_features(problem, unit_graph(problem), landmarks, seed=0)
    assert features.shape == (problem.num_units, FIXED_WIDTH + landmarks) and features.dtype == np.float32
    return features[:, UNIT_COLUMNS[name]]


def test_the_costliest_op_speaks_for_its_unit(shaped):
    assert costliest_ops(shaped).tolist() == [0, 2, 3, 4]


def test_sizes_of_six_outputs_of_four_dimensions(shaped):
    sizes = np.full((4, 6, 4), -1.0)
    sizes[0, 0, :2] = np.log1p([2, 3]) / 10
    sizes[1, 0, 0] = np.log1p(4) / 10  # of op c, which costs more than b
    sizes[1, 1] = np.log1p([5, 6, 7, 8]) / 10
    sizes[2, 0] = np.log1p([9, 9, 9, 9]) / 10  # four of its six dimensions
    sizes[3, :, 0] = np.log1p([11, 12, 13, 14, 15, 16]) / 10  # six of its seven outputs, the sixth among them
    np.testing.assert_allclose(columns(shaped, "sizes"), sizes.reshape(4, 24), rtol=1e-5)


def test_neighbors_are_ranks_padded_with_minus_one(shaped):
    # Breadth-first from unit 0: 0, 1, 2, 3 by number; ranks are divided by the 4 units.
    none, pad = [-1] * 6, [-1] * 4
    producers = [none, [0, -1, *pad], [0, -1, *pad], [0.25, 0.5, *pad]]
    consumers = [[0.25, 0.5, *pad], [0.75, -1, *pad], [0.75, -1, *pad], none]
    np.testing.assert_allclose(columns(shaped, "producers"), producers)
    np.testing.assert_allclose(columns(shaped, "consumers"), consumers)


def test_levels_work_and_memory_are_shares(shaped):
    # a (10) -> b (1), c (50) -> e (5), a -> d (20) -> e: the paths are a d e = 35 and c e = 55, the critical one.
    ns = {"top": [0, 0, 10, 50], "bottom": [35, 55, 25, 5], "slack": [20, 0, 20, 0], "work": [10, 51, 20, 5]}
    for name, of_units in ns.items():
        np.testing.assert_allclose(
            columns(shaped, name)[:, 0], np.array(of_units) / 55, 1e-6, 1e-7, err_msg=name
        )
    np.testing.assert_allclose(columns(shaped, "resident")[:, 0], [0, 0.75, 0.25, 0])


def test_landmarks_are_a_matter_of_the_seed_and_come_last(shaped):
    graph = unit_graph(shaped)
    one, same = (unit_features(shaped, graph, 5, seed=1) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(one[:, :FIXED_WIDTH], unit_features(shaped, graph, 0, seed=2))
    # Hops over those of the farthest unit: each landmark is at 0 from itself.
    assert (one[:, FIXED_WIDTH:].min(axis=0) == 0).all() and one[:, FIXED_WIDTH:].max() == 1


def two_ways(order):
    """a (10) -> b (50, or 150 on device 1) -> d (5), a -> c (20) -> d; edges of 90 bytes take 100 ns.

    ``order`` has the numbers of b and c, which is on device 0 alone.
    """
    rows = np.array([0, *order, 3])  # of a, b, c, d
    place = np.argsort(rows)
    return problem_of(
        np.array([[10, 10], [50, 150], [20, 20], [5, 5]])[place],
        [(0, 1), (0, 2), (1, 3), (2, 3)],
        edge_bytes=90,
        resident_bytes=np.array([0, 500, 1500, 0])[place],
        output_bytes=90,
        cluster=small_cluster(2, memory_bytes=1000),
        allowed=np.array([[True, True], [True, True], [True, False], [True, True]])[place],
    )


@pytest.fixture
def problem():
    return two_ways([1, 2])


def column(problem, name):
    features = relative_features(problem, unit_graph(problem))
    assert features.shape == (problem.num_units, RELATIVE_WIDTH) and features.dtype == np.float32
    return features[:, RELATIVE_COLUMNS[name]]


def share(*amounts):
    return 1 + np.log10(np.maximum(amounts, 1e-6)) / 6


def test_every_column_by_hand(problem):
    # The critical path is a b d = 65; all work is 85; both devices hold 2000 bytes, one holds 1000.
    by_hand = {
        "top": np.array([0, 10, 10, 60]) / 65,
        "bottom": np.array([65, 55, 25, 5]) / 65,
        "slack": np.array([0, 0, 30, 0]) / 65,
        "work": share(10 / 65, 50 / 65, 20 / 65, 5 / 65),
        "slowdown": [0, np.log10(100 / 50) / 3, 0, 0],
        "resident": share(0, 0.25, 0.75, 0),
        "choice": [1, 1, 0.5, 1],
        "in_time": share(0, 100 / 65, 100 / 65, 200 / 65),
        "out_time": share(200 / 65, 100 / 65, 100 / 65, 0),
        "in_degree": np.log2([1, 2, 2, 3]) / 8,
        "out_degree": np.log2([3, 2, 2, 1]) / 8,
        "parallelism": np.full(4, np.log2(85 / 65) / 4),
        "message": np.full(4, share(10 / 65)[0]),
        "devices": np.full(4, 0.25),
    }
    for name, values in by_hand.items():
        np.testing.assert_allclose(column(problem, name), values, rtol=1e-5, atol=1e-6, err_msg=name)
    assert set(RELATIVE_COLUMNS) - set(by_hand) == {"held", "pressure"}  # below


def test_pressure_is_what_is_held_and_ends_at_four(problem):
    held = column(problem, "held")
    bytes_held = np.where(held > 0, 10 ** ((held - 1) * 6) * 2000, 0).sum()
    assert bytes_held > 0
    np.testing.assert_allclose(column(problem, "pressure"), (2000 + bytes_held) / 1000, rtol=1e-3)
    assert column(dataclasses.replace(problem, resident_bytes=np.full(4, 10**6)), "pressure")[0] == 4


def test_a_slower_machine_is_the_same_problem():
    """Ten times slower ops on ten times slower links: nothing relative has changed."""
    ns, edges, cluster = np.array([10, 50, 20]), [(0, 1), (1, 2)], small_cluster(3)
    problems = [problem_of(ns * times, edges, 90, with_slower_links(cluster, times)) for times in (1, 10)]
    np.testing.assert_allclose(*(relative_features(each, unit_graph(each)) for each in problems), rtol=1e-6)


def test_the_numbers_of_units_do_not_matter(problem):
    """The same graph with b and c in the other order: the rows change places, and nothing else changes."""
    # But for what is held: that depends on which of the two is run first.
    others = [column for name, column in RELATIVE_COLUMNS.items() if name != "held"]
    rows = [relative_features(one, unit_graph(one))[:, others] for one in (problem, two_ways([2, 1]))]
    np.testing.assert_allclose(rows[0][[0, 2, 1, 3]], rows[1], rtol=1e-6)


@pytest.mark.parametrize(("columns", "width"), [(UNIT_COLUMNS, FIXED_WIDTH), (DEVICE_COLUMNS, DEVICE_WIDTH)])
def test_the_columns_cover_the_width_once(columns, width):
    assert [i for part in columns.values() for i in range(part.start, part.stop)] == list(range(width))


def test_a_preset_by_hand():
    cluster = Cluster.preset("k40x2")
    rows = device_features(problem_of([1], [], cluster=cluster))
    gpu, _, cpu = cluster.devices
    assert rows.shape == (3, DEVICE_WIDTH) and rows.dtype == np.float32
    column = {name: rows[:, columns] for name, columns in DEVICE_COLUMNS.items()}
    assert column["type"].tolist() == [[0, 1], [0, 1], [1, 0]]  # CPU, GPU
    flops = math.log10(cpu.peak_flops / gpu.peak_flops)
    assert flops < 0
    np.testing.assert_allclose(column["flops"][:, 0], [0, 0, flops], rtol=1e-5)
    memory = math.log10(gpu.memory_bytes / cpu.memory_bytes)
    np.testing.assert_allclose(column["capacity"][:, 0], [memory, memory, 0], rtol=1e-5)
    np.testing.assert_allclose(column["launch"][0], math.log10(1 + gpu.launch_ns) / 5, rtol=1e-5)
    np.testing.assert_allclose(column["streams"][:, 0], [0, 0, math.log2(cpu.streams) / 4], rtol=1e-5)
    # The two GPUs are alike, and numbered behind all CPUs.
    np.testing.assert_array_equal(rows[0], rows[1])
    assert device_numbers(problem_of([1], [], cluster=cluster)).tolist() == [64, 65, 0]


def test_the_most_devices_have_a_number_each():
    problem = problem_of([1], [], cluster=small_cluster(64))
    assert len(np.unique(device_features(problem), axis=0)) == 1
    assert device_numbers(problem).tolist() == list(range(64, DEVICE_NUMBERS))


def test_one_device_without_links_has_features():
    alone = problem_of([1, 2], [(0, 1)], 5, cluster=small_cluster(1))
    features, rows = relative_features(alone, unit_graph(alone)), device_features(alone)
    assert np.isfinite(features).all() and features[0, RELATIVE_COLUMNS["message"]] == 0
    assert np.isfinite(rows).all()
    assert rows[0, DEVICE_COLUMNS["latency"]] == rows[0, DEVICE_COLUMNS["bandwidth"]] == 0
    assert graph_inputs(problem_of([1, 2], [], cluster=small_cluster(1)), 0, 0).edges.shape == (0, 2)


def test_load_and_slowness_by_hand():
    # Units 0 and 1 are a group, of 10 + 20 ns on device 0 and 100 + 200 on device 1; the other one takes 70 and 6.
    problem = problem_of([[10, 100], [20, 200], [70, 6]], [], 0, sized_cluster([100, 50]), [5, 5, 20])
    load, slowness = load_and_slowness(Groups.of(problem, np.array([0, 0, 1])))
    # All work is 10 + 20 + 6 ns; nothing is held, as nothing is sent.
    np.testing.assert_allclose(load[:, :, 0], np.array([[30, 300], [70, 6]]) / 36, rtol=1e-6)
    np.testing.assert_allclose(load[:, :, 1], [[0.1, 0.2], [0.2, 0.4]], rtol=1e-6)
    np.testing.assert_allclose(slowness, np.log10([[1, 301 / 31], [71 / 7, 1]]), rtol=1e-6)


def test_sizes_are_the_problems_and_widths_are_not():
    for units, devices in ((5, 2), (9, 3)):
        problem = random_problem(np.random.default_rng(units), units, devices)
        inputs = graph_inputs(problem, landmarks=4, seed=0)
        assert inputs.unit_features.shape == (units, FIXED_WIDTH + 4)
        assert inputs.relative_features.shape == (units, RELATIVE_WIDTH)
        assert inputs.device_features.shape == (devices, DEVICE_WIDTH)
        assert inputs.edges.shape[1] == 2
        assert inputs.type_of_unit.shape == (units,) and int(tf.reduce_max(inputs.type_of_op)) < NUM_TYPES
        np.testing.assert_array_equal(inputs.unit_of_op, problem.unit_of_op)


BOUND = math.exp(2 * 0.99)


@pytest.mark.parametrize(
    ("probability", "bound", "heat", "shares"),
    [
        (0.8, 5.0, 10.0, [[1, 1, 8], [0, 4, 1]]),
        # C = 1: logits are at most 2 apart, and 0.99 of the way.
        (0.999, 1.0, 3.0, [[1, 1, BOUND], [0, BOUND, 1]]),
        (0.0, 5.0, 10.0, [[1, 1, 1], [0, 1, 1]]),
    ],
)
def test_the_device_is_drawn_as_often_as_asked_or_as_the_bound_lets_it(probability, bound, heat, shares):
    legal = np.array([[1, 1, 1], [0, 1, 1]], bool)
    config = types.SimpleNamespace(start_probability=probability, tanh_constant=bound, temperature=heat)
    groups = Groups(problem_of([1], [], cluster=small_cluster(3)), np.zeros(1, np.int32), legal)
    rows = prior_choices(groups, np.array([2, 1]), config).prior_logits.numpy()
    assert rows.dtype == np.float32 and np.isfinite(rows).all() and rows.any() == (probability > 0)
    weight = np.exp(bound * np.tanh(rows / heat)) * legal
    expected = np.array(shares) / np.sum(shares, axis=1, keepdims=True)
    np.testing.assert_allclose(weight / weight.sum(axis=1, keepdims=True), expected, rtol=1e-5)


def drawn(seed):
    layer = snt.nets.MLP([400, 300])
    layer(tf.zeros([1, 100]))
    draw_weights(layer, seed)
    return {v.name: v.numpy() for v in layer.trainable_variables}


def test_weights_are_a_matter_of_the_seed_alone():
    tf.random.set_seed(1)
    first = drawn(7)
    tf.random.set_seed(2)
    again, other = drawn(7), drawn(8)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
        assert (other[name] != first[name]).any() or "/b:" in name


def test_deviation_is_one_over_the_root_of_the_fan_in_and_biases_stay():
    for name, value in drawn(3).items():
        if value.ndim == 1:
            assert (value == 0).all(), name
            continue
        # Truncation at two deviations leaves 0.88 of the deviation (sqrt(1 - 4 phi(2) / (2 Phi(2) - 1))).
        deviation = value.std() * np.sqrt(value.shape[0])
        assert abs(deviation - 0.88) < 0.02, (name, deviation)
    matrices = [v for v in drawn(3).values() if v.ndim == 2]
    assert abs(np.corrcoef(matrices[0].ravel()[:30000], matrices[1].ravel()[:30000])[0, 1]) < 0.05


def test_the_fan_in_of_a_convolution_is_its_whole_window():
    layer = snt.Conv2D(200, 5)
    layer(tf.zeros([1, 8, 8, 16]))
    layer.w.assign(tf.zeros_like(layer.w))
    draw_weights(layer, 0)
    # 5 * 5 * 16 inputs; truncated as above.
    assert abs(layer.w.numpy().std() * np.sqrt(5 * 5 * 16) - 0.88) < 0.02


def test_what_has_no_fan_in_is_refused():
    class Scaled(snt.Module):
        def __init__(self):
            super().__init__()
            self.scale = tf.Variable(1.0, name="scale")

    with pytest.raises(ValueError, match=r"weight '.*scale:0' is a number without dimensions"):
        draw_weights(Scaled(), 0)
