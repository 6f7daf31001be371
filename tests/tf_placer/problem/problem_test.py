"""Problems from arrays and files: what is simulated is what was given; bad arrays and files are told in one line."""

import dataclasses
import json

import numpy as np
import pytest

from tests.refused import refused
from tests.tf_placer.problem.small_problems import altered, problem_of, random_problem, small_cluster
from tf_placer.base.files import array_file_bytes, read_array_file
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Link
from tf_placer.costs.formulas import OpWork, WorkClass
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.program import Splitting
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.problem import Problem


def runtime_ns(problem: Problem, device_of_unit) -> int:
    measurement = SimulatedEvaluator(problem).evaluate(np.array([device_of_unit], np.int32))
    return round(float(measurement.runtime_s[0]) * 1e9)


def peak_bytes(problem: Problem, device_of_unit) -> list[int]:
    measured = SimulatedEvaluator(problem).evaluate(np.array([device_of_unit], np.int32)).peak_bytes
    assert measured is not None
    return [int(b) for b in measured[0]]


def test_edges_of_one_tensor_cross_once():
    shape = {"compute_ns": [100, 50, 50], "edges": [(0, 1), (0, 2)], "edge_bytes": 1000}
    # One transfer: 100 + (10 + 1000), then both readers one after the other.
    assert runtime_ns(problem_of(**shape, edge_tensor=[7, 7]), [0, 1, 1]) == 100 + 1010 + 50 + 50
    # Two transfers queue on the channel; the first reader runs during the second.
    assert runtime_ns(problem_of(**shape), [0, 1, 1]) == 100 + 1010 + 1010 + 50


def test_equal_tensor_ids_of_different_producers_are_different_tensors():
    problem = problem_of([100, 100, 50], [(0, 2), (1, 2)], [1000, 1000], edge_tensor=[0, 0])
    # Producers end at 100 and 200; the second transfer starts when the first is over, at 1110.
    assert runtime_ns(problem, [0, 0, 1]) == 100 + 1010 + 1010 + 50


def test_an_edge_listed_twice_is_read_once():
    problem = problem_of([100, 50], [(0, 1), (0, 1)], 1000, edge_tensor=[3, 3])
    assert list(problem.consumer_op) == [1]
    assert runtime_ns(problem, [0, 1]) == 100 + 1010 + 50


def test_units_and_ops_may_be_numbered_against_the_flow():
    # 2 -> 1 -> 0, all apart: 30 + 110 + 20 + 60 + 10.
    problem = problem_of([10, 20, 30], [(1, 0), (2, 1)], [50, 100])
    assert runtime_ns(problem, [0, 1, 0]) == 30 + 110 + 20 + 60 + 10
    assert problem.op_names == ("unit_2", "unit_1", "unit_0")
    assert problem.name_of_unit(2) == "unit_2"
    assert list(problem.compute_ns[:, 0]) == [30, 20, 10]
    problem = problem_of([10, 20, 30], [(1, 0), (2, 1)], 50, unit_of_op=[0, 1, 0], resident_bytes=[1, 2, 4])
    assert problem.op_names == ("op_2", "op_1", "op_0")
    assert problem.unit_of_op.tolist() == [0, 1, 0]
    assert problem.resident_bytes.tolist() == [5, 2]
    renumbered = problem_of([10, 20, 30], [(1, 0), (2, 1)], 50, unit_of_op=[1, 0, 0])
    assert renumbered.unit_of_op.tolist() == [0, 0, 1]


@pytest.mark.parametrize("seed", range(5))
def test_renumbered_units_take_the_same_time(seed):
    # With a device for every unit no two ops compete, so a step takes as long under any numbering.
    generator = np.random.default_rng(seed)
    units = 7
    cost = generator.integers(1, 500, units)
    edges = [(a, b) for a in range(units) for b in range(a + 1, units) if generator.random() < 0.5]
    num_bytes = generator.integers(0, 300, len(edges))
    new = generator.permutation(units)
    shuffled = generator.permutation(len(edges))
    cluster = small_cluster(units)
    forward = problem_of(cost, edges, num_bytes, cluster)
    permuted = problem_of(cost[np.argsort(new)], new[np.array(edges)][shuffled], num_bytes[shuffled], cluster)
    device_of_unit = generator.permutation(units)
    expected = runtime_ns(forward, device_of_unit)
    assert expected > cost.max(), f"seed {seed}"
    assert runtime_ns(permuted, device_of_unit[np.argsort(new)]) == expected, f"seed {seed}"


def test_output_bytes_count_at_the_peak():
    assert peak_bytes(problem_of([10], [], resident_bytes=100, output_bytes=500), [1]) == [0, 600]
    # 300 of unit 0's 500 bytes are read by unit 1: 500 while unit 0 runs, then 300 + 250 while unit 1 runs.
    both = problem_of([10, 10], [(0, 1)], 300, output_bytes=[500, 250])
    assert peak_bytes(both, [0, 0]) == [300 + 250, 0]
    # Apart, the far device holds the copy and unit 1's output.
    assert peak_bytes(both, [0, 1]) == [500, 300 + 250]
    # A tensor with two readers is one tensor: its 300 bytes cover an output of 300.
    shared = problem_of([10, 1, 1], [(0, 1), (0, 2)], 300, output_bytes=[300, 0, 0], edge_tensor=[0, 0])
    assert peak_bytes(shared, [0, 0, 0]) == [300, 0]


def test_no_unit_and_one_unit():
    with refused("compute_ns has no rows; give at least one unit"):
        problem_of(np.zeros((0, 2)), [])
    assert runtime_ns(problem_of([42], []), [1]) == 42


def test_the_digest_is_of_everything_but_the_name():
    given = {"compute_ns": [100, 50], "edges": [(0, 1)], "edge_bytes": 8, "resident_bytes": 1}
    digest = problem_of(**given).digest()
    assert problem_of(**given, name="other").digest() == digest
    changes = [{"compute_ns": [100, 51]}, {"edges": []}, {"edge_bytes": 9}, {"resident_bytes": 2}]
    changes += [{"names": ["a", "b"]}, {"allowed": np.array([[True, True], [True, False]])}]
    changes += [{"cluster": small_cluster(memory_bytes=7)}, {"cluster": small_cluster(3)}]
    assert len({digest, *(problem_of(**given | change).digest() for change in changes)}) == 1 + len(changes)


def test_the_digest_is_what_it_was():
    # Printed by commit 15ed4d9, before problems had work: checkpoints of its searches go on.
    problem = problem_of(
        [[100, 50], [7, 9], [0, 3]],
        [(2, 0), (2, 1), (0, 1)],
        [1000, 1000, 8],
        resident_bytes=[1, 2, 3],
        output_bytes=[500, 0, 0],
        edge_tensor=[5, 5, 6],
        names=["a", "b", "c"],
        allowed=np.array([[True, True], [True, False], [False, True]]),
    )
    assert problem.fingerprint == "ecb5c4cba3a08d54506c481821030a29cb06abbb4c1bc9af726a3d4d522ae589"
    assert problem.digest() == "e5cff9d7db6e4115"
    work = OpWork(flops=np.ones(3), num_bytes=np.ones(3), launches=np.ones(3))
    assert dataclasses.replace(problem, work=work).digest() == "e5cff9d7db6e4115"


def test_the_fingerprint_is_of_the_graph_and_its_units():
    graph = {"compute_ns": [10, 20], "edges": [(0, 1)], "edge_bytes": 5}
    assert problem_of(**graph).fingerprint == problem_of(**graph).fingerprint
    changes = ({}, {"compute_ns": [10, 21]}, {"edges": [(1, 0)]}, {"edge_bytes": 6})
    assert len({problem_of(**graph | change).fingerprint for change in changes}) == 4
    prints = {problem_of(**STEP, unit_of_op=units).fingerprint for units in ([0, 1, 0], [0, 0, 1], [0, 0, 0])}
    assert len(prints) == 3


def test_a_cycle_names_a_unit_or_an_op():
    with refused(r"cycle through unit 1 \('b'\)"):
        problem_of([1, 1, 1], [(0, 1), (1, 1)], names=["a", "b", "c"])
    # Unit 0 waits for the cycle but is not on it.
    with refused(r"cycle through unit [12] "):
        problem_of([1, 1, 1], [(1, 2), (2, 1), (2, 0)])
    with refused(r"edges form a cycle through op [01] \('[ab]'\)"):
        problem_of([1, 1], [(0, 1), (1, 0)], unit_of_op=[0, 0], names=["a", "b"])


def test_check_legal_names_the_unit_and_the_choice():
    problem = problem_of([1, 1], [], names=["a", "b"], allowed=np.array([[True, True], [True, False]]))
    problem.check_legal(np.array([1, 0]))
    with refused(r"'b' has no kernel on .*GPU:1; it can run on .*GPU:0"):
        problem.check_legal(np.array([1, 1]))
    with refused(r"unit 0 \('a'\) is on device 2.*devices 0 to 1"):
        problem.check_legal(np.array([2, 0]))
    with refused("on device -1"):
        problem.check_legal(np.array([-1, 0]))
    with refused(r"shape \(3,\), expected \(2,\)"):
        problem.check_legal(np.zeros(3, np.int32))


ALLOWED = np.array([[True, True, True], [False, True, True], [False, False, True]])


def test_legalized_keeps_what_is_legal_and_takes_the_first_device_else():
    problem = problem_of([1] * 3, [], cluster=small_cluster(3), allowed=ALLOWED)
    rows = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2]])
    assert problem.legalized(rows).tolist() == [[0, 1, 2], [1, 1, 2], [2, 2, 2]]
    assert problem.legalized(rows[0]).tolist() == [0, 1, 2]
    assert problem.legalized(rows[np.newaxis]).shape == (1, 3, 3)
    assert problem.legalized(rows).dtype == np.int32
    assert problem.legalized(rows[:0]).shape == (0, 3)
    # Unit 1's first legal device is 2 now.
    assert problem.legalized(rows, order=[2, 0, 1]).tolist() == [[0, 2, 2], [1, 1, 2], [2, 2, 2]]
    assert rows[0].tolist() == [0, 0, 0]
    assert problem.everything_on(0).tolist() == [0, 1, 2]


def test_name_of_a_unit_is_its_first_op():
    problem = dataclasses.replace(problem_of([1, 1, 1], []), unit_of_op=np.array([1, 0, 0], np.int32))
    assert problem.name_of_unit(0) == "unit_1"


KIND = "a tf_placer problem"


def full_of_everything() -> Problem:
    """A problem with a value in every field, on a cluster that is live, slow one way, and has a name to be quoted."""
    links = {"bytes_per_s": 1e9 / 3, "send_ns": 7, "receive_ps_per_byte": 11}
    cluster = altered(Cluster.preset("p100x2"), links=links)
    problem = random_problem(np.random.default_rng(0), 12, 3)
    return dataclasses.replace(
        problem,
        name='böx "1"',
        cluster=dataclasses.replace(cluster, links=cluster.links[::-1], kind="local"),
        priority=np.arange(12),
        op_types=("MatMul",) * 12,
        output_shapes=(((2, 3), ()), *((),) * 11),
        guessed_op_types={"Cholesky": 2},
        estimated_sizes={"half of them": 3},
        work=OpWork(np.arange(12) / 3, np.full(12, 1e18), np.ones(12)),
        alias_of_tensor=first_alias(problem),
        stage_of_op=np.arange(12) - 1,
        fusible_of_op=np.arange(12) % 3 > 0,
        splitting=Splitting("0f", 12, 2, "whole"),
    )


def first_alias(problem: Problem) -> np.ndarray:
    """[T] of which one tensor has the memory of an input of its op."""
    alias = np.full(len(problem.tensor_producer), -1)
    for tensor, op in enumerate(problem.tensor_producer):
        read = problem.op_graph.tensor[problem.consumer_op == op]
        if len(read) and problem.tensor_bytes[tensor]:
            alias[tensor] = read[0]
            return alias
    raise AssertionError("no op reads and makes bytes")


def same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, OpWork) and isinstance(b, OpWork):
        return all(map(same, vars(a).values(), vars(b).values()))
    return type(a) is type(b) and a == b


TWO_OPS = problem_of([1, 2], [(0, 1)], 4, unit_of_op=[0, 0])


@pytest.mark.parametrize("problem", [full_of_everything(), TWO_OPS])
def test_what_is_saved_is_read(tmp_path, problem):
    problem.save(tmp_path / "problem")
    loaded = Problem.load(str(tmp_path / "problem"))
    different = [
        field.name
        for field in dataclasses.fields(Problem)
        if not same(getattr(problem, field.name), getattr(loaded, field.name))
    ]
    assert different == []
    assert loaded.digest() == problem.digest()
    assert isinstance(loaded.cluster.links[0], Link)
    assert [path.name for path in tmp_path.iterdir()] == ["problem"]


@pytest.mark.parametrize(
    ("field", "unknown", "known", "is_in_digest"),
    [
        ("stage_of_op", [-1, -1], [0, 1], True),
        ("fusible_of_op", [False, False], [True, False], False),
        ("alias_of_tensor", [-1, -1], [-1, 0], True),
    ],
)
def test_what_is_unknown_is_in_no_file_and_no_digest(tmp_path, field, unknown, known, is_in_digest):
    problem = problem_of([1, 2], [(0, 1)], 4, output_bytes=[4, 4])
    dataclasses.replace(problem, **{field: np.array(unknown)}).save(tmp_path / "problem")
    assert field not in read_array_file(tmp_path / "problem", KIND, 1, "")[1], "as before there was one"
    again = Problem.load(tmp_path / "problem")
    assert getattr(again, field).tolist() == unknown and again.digest() == problem.digest()
    other = dataclasses.replace(problem, **{field: np.array(known)})
    assert (other.digest() != problem.digest()) == is_in_digest


@pytest.fixture
def parts(tmp_path):
    """Header and arrays of a good file."""
    problem_of([[10, 20], [30, 40]], [(0, 1)], 4).save(tmp_path / "good")
    return read_array_file(tmp_path / "good", KIND, 1, "")


def written(path, header, arrays, version=1):
    path.write_bytes(array_file_bytes(KIND, version, header, arrays))
    return path


def test_a_truncated_file(tmp_path):
    path = tmp_path / "problem"
    problem_of([1], []).save(path)
    whole = path.read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with refused(r"problem is damaged, or no file of a tf_placer problem; give what Problem"):
            Problem.load(path)


def test_another_version(tmp_path, parts):
    with refused(r"has schema version 2, this program reads 1; .*save the problem again"):
        Problem.load(written(tmp_path / "a", *parts, version=2))


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        ({}, {"compute_ns": np.array([[-1, 1], [1, 1]])}, "here: compute_ns has the entry -1"),
        ({}, {"compute_ns": np.array([[1, 1]])}, "here: compute_ns has shape"),
        ({}, {"compute_ns": np.array([["a", "b"], ["c", "d"]])}, "here: compute_ns: expected whole numbers"),
        ({}, {"unit_of_op": np.array([0, 7])}, "here: unit_of_op has the entry 7"),
        ({}, {"consumer_op": np.array([0])}, "here: consumer_op has an op that is not after its producer"),
        ({}, {"allowed": np.zeros((2, 2), bool)}, "here: allowed gives unit 0 no device"),
        ({"name": 3}, {}, r"here: name is 3"),
        ({"op_names": ["a", "a"]}, {}, r"here: op_names has 'a' twice"),
        ({"op_names": None}, {}, r"here lacks a part of a problem"),
        ({"output_shapes": [3, 4]}, {}, r"here lacks a part of a problem"),
        ({"cluster": {}}, {}, r"here lacks a part of a problem \('name'\); give what Problem.save wrote"),
        ({"cluster": "p100x2"}, {}, r"here lacks a part of a problem"),
        ({"has_work": True}, {}, r"here lacks a part of a problem"),
        ({"guessed_op_types": [1]}, {}, r"here: guessed_op_types is"),
    ],
)
def test_headers_and_arrays_that_are_no_problem(tmp_path, parts, header, arrays, message):
    with refused(message):
        Problem.load(written(tmp_path / "here", parts[0] | header, parts[1] | arrays))


def test_missing_parts_and_clusters_that_cannot_be(tmp_path, parts):
    header, arrays = parts
    with refused(r"lacks a part of a problem \('priority'\)"):
        Problem.load(written(tmp_path / "a", header, {k: v for k, v in arrays.items() if k != "priority"}))
    cluster = json.loads(json.dumps(header["cluster"]))
    cluster["links"].pop()
    with refused(r"a: .*link"):
        Problem.load(written(tmp_path / "a", {**header, "cluster": cluster}, arrays))
    cluster["devices"][0]["colour"] = "red"
    with refused(r"lacks a part of a problem .*'colour'"):
        Problem.load(written(tmp_path / "a", {**header, "cluster": cluster}, arrays))


def test_a_file_of_before_classes_of_work_is_read(tmp_path):
    problem = full_of_everything()
    problem.save(tmp_path / "new")
    header, arrays = read_array_file(tmp_path / "new", KIND, 1, "")
    del arrays["work_work_class"]
    loaded = Problem.load(written(tmp_path / "old", header, arrays))
    assert set(loaded.work.work_class.tolist()) == {WorkClass.UNCLASSIFIED}
    np.testing.assert_array_equal(loaded.work.flops, problem.work.flops)
    with refused("lacks a part of a problem"):
        Problem.load(written(tmp_path / "uneven", header, {**arrays, "work_flops": np.ones(1)}))


# A read (op 0), work (1) and the update (2), with the read and the update in one unit: between units a cycle.
STEP = {"compute_ns": [0, 100, 10], "edges": [(0, 1), (1, 2)], "edge_bytes": [40, 40]}
STEP_UNITS = [1, 0, 1]


def test_units_join_memory_and_devices_and_nothing_else():
    allowed = np.array([[True, False], [True, True], [True, True]])
    problem = problem_of(
        **STEP, unit_of_op=STEP_UNITS, resident_bytes=[100, 7, 20], allowed=allowed, names=["r", "w", "u"]
    )
    assert (problem.num_ops, problem.num_units) == (3, 2)
    assert problem.unit_of_op.tolist() == STEP_UNITS
    assert problem.resident_bytes.tolist() == [7, 120]
    assert problem.allowed.tolist() == [[True, True], [True, False]]
    assert problem.op_names == ("r", "w", "u")
    assert problem.compute_ns[:, 0].tolist() == [0, 100, 10]


def test_a_unit_that_opens_and_closes_the_step_is_simulated_op_by_op():
    problem = problem_of(**STEP, unit_of_op=STEP_UNITS)
    step_s = SimulatedEvaluator(problem).evaluate(np.array([[0, 0], [1, 0]])).runtime_s
    # Together 0 + 100 + 10; apart two tensors of 40 bytes take 50 ns each.
    assert np.rint(1e9 * step_s).tolist() == [110, 210]
    assert list_schedule(problem).tolist() == [[0, 0]]
    assert lower_bounds(problem).critical_path_ns == 110


@pytest.mark.parametrize("seed", range(5))
def test_a_unit_for_each_op_is_as_without(seed):
    generator = np.random.default_rng(seed)
    plain = random_problem(generator, 10, 3)
    given = {
        "compute_ns": plain.compute_ns,
        "edges": np.stack([plain.op_graph.producer, plain.op_graph.consumer], axis=1),
        "edge_bytes": plain.op_graph.edge_bytes,
        "cluster": plain.cluster,
        "allowed": plain.allowed[plain.unit_of_op],
        "names": plain.op_names,
    }
    without, with_units = problem_of(**given), problem_of(**given, unit_of_op=np.arange(10))
    changed = [
        field.name
        for field in dataclasses.fields(without)
        if not np.array_equal(getattr(without, field.name), getattr(with_units, field.name))
    ]
    assert changed == ["fingerprint"], f"seed {seed}"


GPU0, GPU1, BOTH = [True, False], [False, True], [True, True]


@pytest.mark.parametrize(
    ("unit_of_op", "allowed", "message"),
    [
        ([0, 0, 0], [GPU0, BOTH, GPU1], "unit_of_op puts ops 'op_[02]' and 'op_[02]' into unit 0, .*'toy2' for both;"),
        ([0, 1, 1], [GPU0, GPU0, GPU1], "unit_of_op puts ops 'op_[12]' and 'op_[12]' into unit 1"),
        # Any two could be together.
        ([0, 0, 0], ~np.eye(3, dtype=bool), "puts ops 'op_.' and 'op_.' into unit 0, .*for both with the rest of it"),
    ],
)  # fmt: skip
def test_bad_units_are_told(unit_of_op, allowed, message):
    more = {"unit_of_op": unit_of_op, "allowed": np.array(allowed)}
    with refused(message):
        problem_of([1] * 3, [(0, 1)], cluster=small_cluster(len(allowed[0])), **more)
