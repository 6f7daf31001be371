"""Placements, decisions, digests of them, and their files and schema."""

import dataclasses
import hashlib
import json

import jsonschema
import numpy as np
import pytest
import tensorflow as tf

from tests.refused import refused
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.problem.placement import (
    SCHEMA_PATH,
    SCHEMA_VERSIONS,
    Decisions,
    Placement,
    PlanFile,
    decisions_of,
)
from tf_placer.problem.problem import Problem

ORDER = {"schema_version": 2}
GPU0, GPU1 = (f"/job:localhost/replica:0/task:0/device:GPU:{d}" for d in (0, 1))


@pytest.fixture
def problem() -> Problem:
    """Ops a, b, c; a and b are one unit."""
    allowed = np.array([[True, True], [True, True], [True, False]])
    return problem_of([1, 2, 3], [(0, 1), (1, 2)], names=list("abc"), unit_of_op=[0, 0, 1], allowed=allowed)


def plan(problem: Problem, **changes) -> str:
    """The JSON of a good plan with some top-level entries replaced."""
    return json.dumps(json.loads(Placement(problem, np.array([1, 0])).to_json()) | changes)


def test_devices_of_units_and_ops(problem):
    placement = Placement(problem, [1, 0])
    assert placement.device_of_unit.dtype == np.int32
    assert placement.device_of_op.tolist() == [1, 1, 0]
    assert placement.device_names == {"a": GPU1, "b": GPU1, "c": GPU0}


def test_a_placement_keeps_its_own_read_only_copy(problem):
    given = np.array([1, 0], np.int32)
    placement = Placement(problem, given)
    given[0] = 0
    assert placement.device_of_unit.tolist() == [1, 0]
    with pytest.raises(ValueError, match="read-only"):
        placement.device_of_unit[0] = 0


@pytest.mark.parametrize(
    ("row", "told"), [([1, 1], "'c' has no kernel"), ([0], "shape"), ([0, 2], "device 2")]
)
def test_an_illegal_placement_cannot_be_made(problem, row, told):
    with refused(told):
        Placement(problem, np.array(row))


def test_file_round_trip(problem, tmp_path):
    path = tmp_path / "placement.json"
    Placement(problem, np.array([1, 0])).save(path)
    assert Placement.load(path, problem).device_of_unit.tolist() == [1, 0]
    written = json.loads(path.read_text())
    assert written["devices"] == {"a": GPU1, "b": GPU1, "c": GPU0}
    assert written["fingerprint"] == problem.fingerprint and written["schema_version"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["placement.json"]


def test_a_plan_that_decides_more_round_trips(problem, tmp_path):
    path = tmp_path / "placement.json"
    placement = Placement(problem, [1, 0], priority_of_op=[2, 0, -1], cluster_of_op=[-1, 0, 0])
    placement.save(path)
    written = json.loads(path.read_text())
    assert written["schema_version"] == 2
    assert written["priorities"] == {"a": 2, "b": 0, "c": -1}
    assert written["clusters"] == {"b": 0, "c": 0}, "op a is in none"
    again = Placement.load(path, problem)
    assert again.decisions.digest(0, problem) == placement.decisions.digest(0, problem)
    assert again.priority_of_op.tolist() == [2, 0, -1] and again.cluster_of_op.tolist() == [-1, 0, 0]
    assert placement.decisions.digest(0, problem) != Placement(problem, [1, 0]).decisions.digest(0, problem)


def test_what_decides_devices_alone_is_a_plan_of_version_1(problem):
    nothing_more = Placement(problem, [1, 0], priority_of_op=[0, 0, 0], cluster_of_op=[-1, -1, -1])
    assert nothing_more.priority_of_op is None and nothing_more.cluster_of_op is None
    assert nothing_more.to_json() == Placement(problem, [1, 0]).to_json()
    assert {*json.loads(nothing_more.to_json())} == {"schema_version", "fingerprint", "cluster", "devices"}
    assert Placement.from_json(plan(problem, schema_version=2), problem).priority_of_op is None


def test_a_plan_and_its_decisions_are_the_same(problem):
    placement = Placement(problem, [1, 0], priority_of_op=[2, 0, 1])
    assert len(placement.decisions) == 1
    again = Placement.from_decisions(problem, placement.decisions)
    for one in (placement, again):
        assert one.device_of_unit.tolist() == [1, 0] and one.priority_of_op.tolist() == [2, 0, 1]
        with pytest.raises(ValueError, match="read-only"):
            one.priority_of_op[0] = 1
    with refused("decisions has 2 plans, not one"):
        Placement.from_decisions(problem, Decisions([[1, 0], [0, 0]]))
    with refused("'c' has no kernel"):
        Placement.from_decisions(problem, Decisions([[1, 1]]))


def test_an_edited_plan_is_read(problem):
    edited = Placement(problem, np.array([1, 0])).to_json().replace(GPU1, GPU0)
    assert Placement.from_json(edited, problem).device_of_unit.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": "0" * 64}, "another graph"),
        ({"fingerprint": None}, r"schema of plans at \$.fingerprint"),
        ({"schema_version": 4}, "schema version 4, this program reads 1, 2, 3"),
        ({"devices": [GPU0]}, "not a placement"),
        ({**ORDER, "priorities": {"a": 1, "b": 2}}, "no priority for op 'c'"),
        ({**ORDER, "priorities": {"a": 1, "b": 2, "c": 3, "z": 4}}, "has op 'z' in priorities, which the graph"),
        ({**ORDER, "clusters": {"z": 1}}, "has op 'z' in clusters, which the graph lacks; take it out"),
        ({**ORDER, "priorities": {"a": 1.5, "b": 2, "c": 3}}, r"at \$.priorities.a: 1.5 is not of type 'integer'"),
        ({**ORDER, "priorities": {"a": True, "b": 2, "c": 3}}, r"at \$.priorities.a: True is not of type"),
        ({**ORDER, "priorities": {"a": 2**31, "b": 2, "c": 3}}, r"at \$.priorities.a: 2147483648 is greater"),
        ({**ORDER, "priorities": [1, 2, 3]}, r"at \$.priorities: \[1, 2, 3\] is not of type 'object'"),
        ({**ORDER, "clusters": {"a": -1}}, r"at \$.clusters.a: -1 is less than the minimum of 0"),
        ({"priorities": {"a": 1, "b": 2, "c": 3}}, r"at \$.schema_version: 1 is less than the minimum of 2"),
        ({"devices": {"a": GPU1, "b": GPU1}}, "no device for op 'c'"),
        ({"devices": {"a": GPU1, "b": GPU0, "c": GPU0}}, "op 'b' is on .*GPU:0.*'a'.*must share"),
        ({"devices": {"a": "GPU:7", "b": "GPU:7", "c": GPU0}}, "op 'a' is on 'GPU:7', which cluster 'toy2' lacks"),
        ({"devices": {"a": [GPU1], "b": GPU1, "c": GPU0}}, r"schema of plans at \$.devices.a"),
        ({"devices": {"a": GPU1, "b": GPU1, "c": GPU0, "z": GPU0}}, "names op 'z', which the graph lacks"),
        ({"devices": {"a": GPU1, "b": GPU1, "c": GPU1}}, "'c' has no kernel on .*GPU:1"),
    ],
)  # fmt: skip
def test_a_bad_plan_is_told_in_one_line(problem, tmp_path, changes, message):
    path = tmp_path / "edited.json"
    path.write_text(plan(problem, **changes))
    with refused(message) as error:
        Placement.load(path, problem)
    assert "edited.json" in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{truncated", r"edited\.json is not JSON that can be read \(.*line 1"),
        (b"[" * 100_000, r"edited\.json is not JSON that can be read \(maximum recursion"),
        (b"9" * 5000, r"edited\.json is not JSON that can be read \(Exceeds the limit"),
        (b"[]", r"edited\.json is not a placement"),
        (b"\xff\xfe\x00", r"cannot read placement file .*edited\.json"),
    ],
)
def test_other_files_are_no_plans(problem, tmp_path, content, message):
    path = tmp_path / "edited.json"
    path.write_bytes(content)
    with refused(message):
        Placement.load(path, problem)


def test_a_plan_for_a_cluster_with_more_devices_is_refused(problem):
    text = plan(problem)
    smaller = dataclasses.replace(
        problem, cluster=small_cluster(1), compute_ns=problem.compute_ns[:, :1], allowed=np.ones((2, 1), bool)
    )
    with refused(r"op 'a' is on .*GPU:1', which cluster 'toy1' lacks"):
        Placement.from_json(text, smaller)


def numbered(counts: tuple[str, ...]) -> Problem:
    """Two layers of one name, as Keras counts them in the order in which they are built, and what follows them."""
    first, second = counts
    names = [f"net/dense{first}/MatMul", f"net/dense{second}/MatMul"]
    names += [f"gradients/net/dense{second}/MatMul_1", "loss"]
    built = problem_of([1, 1, 1, 1], [(0, 1), (1, 2), (1, 3)], names=names)
    return dataclasses.replace(built, fingerprint="ab12")


@pytest.mark.parametrize(
    ("before", "after"),
    [(("", "_1"), ("_2", "_3")), (("_1", "_2"), ("", "_1")), (("_9", "_10"), ("_3_1", "_11"))],
)
def test_a_plan_is_for_the_same_program_built_again(before, after):
    old, new = numbered(before), numbered(after)
    plan = Placement(old, [0, 1, 1, 0], [3, 2, 1, 0], [-1, 5, 5, -1])
    for again in (Placement.from_json(plan.to_json(), new), plan.for_program(new.op_names)):
        assert list(again.device_names) == list(new.op_names)
        assert again.device_of_unit.tolist() == [0, 1, 1, 0]
        assert again.priority_of_op.tolist() == [3, 2, 1, 0]
        assert again.cluster_of_op.tolist() == [-1, 5, 5, -1]


def test_a_plan_of_layers_is_for_the_same_program_built_again():
    chain = problem_of([1] * 4, [(0, 1), (1, 2), (2, 3)])
    old, new = (
        dataclasses.replace(chain, op_names=tuple(f"{layer}/{op}" for layer in layers for op in "xy"))
        for layers in (("dense_9", "dense_10"), ("dense", "dense_1"))
    )
    text = Placement(old, [1, 1, 0, 0]).to_json(by_layer=True)
    assert list(json.loads(text)["layers"]) == ["dense_9", "dense_10"]
    assert Placement.from_json(text, new).device_of_unit.tolist() == [1, 1, 0, 0]


def test_names_that_differ_by_more_are_of_another_program():
    old, new = numbered(("", "_1")), numbered(("x", "x_1"))
    plan = Placement(old, [0, 1, 1, 0])
    with refused("op 'net/dense/MatMul', which is called 'net/densex/MatMul' here"):
        plan.for_program(new.op_names)
    with refused("no device for op 'net/densex/MatMul'"):
        Placement.from_json(plan.to_json(), new)
    mistyped = plan.to_json().replace("loss", "lost")
    with refused("no device for op 'loss'"):
        Placement.from_json(mistyped, old)


GOOD = {"schema_version": 1, "fingerprint": "ab12", "devices": {"a": "/device:CPU:0"}}


def test_the_schema_is_one_and_of_this_version():
    schema = json.loads(SCHEMA_PATH.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema_version"]["enum"] == list(SCHEMA_VERSIONS)


def test_a_plan_is_read_with_what_it_decides_beyond_devices():
    made_for = {"workload": "inception_v3", "batch_size": 8, "fetches": ["a:0"]}
    plan = PlanFile.parse(json.dumps(GOOD | {"made_for": made_for}), "here")
    assert plan == PlanFile("here", "ab12", {"a": "/device:CPU:0"}, made_for)
    more = {"schema_version": 2, "priorities": {"a": 3.0}, "clusters": {}}
    for decided, expected in ((more, ({"a": 3}, {})), ({"schema_version": 2}, (None, None))):
        plan = PlanFile.parse(json.dumps(GOOD | decided), "here")
        assert (plan.priorities, plan.clusters) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": 3}, r"schema of plans at \$.fingerprint: 3 is not of type"),
        ({"fingerprint": "xyz"}, r"at \$.fingerprint"),
        ({"device": {}}, r"at \$: Additional properties are not allowed \('device'"),
        ({"devices": {"a": ["CPU:0"]}}, r"at \$.devices.a: \['CPU:0'\] is not of type 'string'"),
        ({"devices": {"a": ""}}, r"at \$.devices.a"),
        ({"made_for": {"workload": {}}}, r"at \$.made_for.workload"),
    ],
)
def test_what_does_not_fit_the_schema_is_told_with_its_place(changes, message):
    with refused(message) as error:
        PlanFile.parse(json.dumps(GOOD | changes), "here.json")
    assert str(error.value).startswith("here.json ")


def test_an_op_may_be_named_once():
    text = json.dumps(GOOD).replace('"a": "/device:CPU:0"', '"a": "/device:CPU:0", "a": "/device:CPU:1"')
    with refused("here has 'a' twice"):
        PlanFile.parse(text, "here")


PROBLEM = problem_of([100, 200, 300], [(0, 1), (0, 2)])
DEVICES = [[0, 1, 1], [1, 1, 0]]


def test_arrays_are_kept_as_read_only_copies():
    given = np.array(DEVICES)
    decisions = Decisions(given, priority_of_op=[[2, 1, 0], [0, 0, 0]])
    given[0, 0] = 9
    assert len(decisions) == 2
    assert decisions.device_of_unit.tolist() == DEVICES and decisions.device_of_unit.dtype == np.int32
    for array in (decisions.device_of_unit, decisions.priority_of_op, decisions.row(0).priority_of_op):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 5


@pytest.mark.parametrize(
    "value",
    [DEVICES, np.array(DEVICES, np.int64), list(map(np.array, DEVICES)), tf.constant(DEVICES, tf.int64)],
)
def test_what_is_given_for_plans_becomes_decisions(value):
    decisions = decisions_of(value, PROBLEM)
    assert isinstance(decisions.device_of_unit, np.ndarray)
    assert decisions.device_of_unit.tolist() == DEVICES
    assert decisions_of(decisions, PROBLEM) is decisions


def test_tensors_stay_and_one_row_is_copied_out():
    placements, order = tf.constant(DEVICES, tf.int32), tf.constant([[0, 0, 0], [3, 2, 1]], tf.int32)
    decisions = decisions_of(placements, PROBLEM)
    assert decisions.device_of_unit is placements and len(decisions) == 2
    row = Decisions(placements, order).row(1)
    assert len(row) == 1 and isinstance(row.device_of_unit, np.ndarray)
    assert row.device_of_unit.tolist() == [[1, 1, 0]] and row.priority_of_op.tolist() == [[3, 2, 1]]


def test_inside_a_graph_the_number_of_plans_may_be_unknown():
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int32)])
    def devices_again(placements):
        return decisions_of(placements, PROBLEM).device_of_unit

    assert devices_again(DEVICES).numpy().tolist() == DEVICES
    for spec, message in (
        (tf.TensorSpec([None, 3], tf.int64), "device_of_unit is a tensor of int64; cast it to int32"),
        (tf.TensorSpec([None, 4], tf.int32), r"device_of_unit has shape \(None, 4\), expected \[B, 3\]"),
        (tf.TensorSpec(None, tf.int32), "device_of_unit has shape <unknown>"),
    ):
        function = tf.function(lambda x: decisions_of(x, PROBLEM).device_of_unit, autograph=False)
        with refused(message):
            function.get_concrete_function(spec)


def test_what_is_0_for_every_op_is_not_decided():
    decisions = Decisions(DEVICES, [[0, 0, 0], [0, 0, 1]], [[-1, -1, -1], [-1, 0, 0]])
    undecided, decided = decisions.row(0), decisions.row(1)
    assert undecided.priority_of_op is None and undecided.cluster_of_op is None
    assert isinstance(undecided.plain, np.ndarray) and undecided.plain.tolist() == [[0, 1, 1]]
    assert decided.priority_of_op.tolist() == [[0, 0, 1]] and decided.cluster_of_op.tolist() == [[-1, 0, 0]]
    assert decided.plain is decided


def test_a_plan_of_devices_has_the_digest_that_it_always_had():
    # Journals on disk hold it: the devices of ops as little-endian int32, ops in the order of the problem.
    bytes_of_ops = bytes([0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0])
    wanted = hashlib.sha256(bytes_of_ops).hexdigest()[:32]
    for decisions in (
        Decisions(DEVICES),
        Decisions(tf.constant(DEVICES, tf.int32)),
        Decisions(DEVICES, priority_of_op=[[0, 0, 0], [1, 2, 3]], cluster_of_op=np.full((2, 3), -1)),
    ):
        assert decisions.digest(0, PROBLEM) == wanted


def test_digests_differ_where_anything_that_is_decided_does():
    one = np.array([[0, 1, 1]])
    different = [
        Decisions(one),
        Decisions([[0, 1, 0]]),
        *(Decisions(one, priority_of_op=[order]) for order in ([1, 2, 3], [1, 3, 2], [0, 0, 1])),
        *(Decisions(one, cluster_of_op=[clusters]) for clusters in ([1, 2, 3], [0, 0, 1], [0, 0, 0])),
        Decisions(one, priority_of_op=[[1, 2, 3]], cluster_of_op=[[1, 2, 3]]),
    ]
    digests = [decisions.digest(0, PROBLEM) for decisions in different]
    assert len(set(digests)) == len(different)
    joined = Decisions.joined(different)
    assert [joined.digest(i, PROBLEM) for i in range(len(joined))] == digests


def test_joined_fills_in_what_some_do_not_decide():
    joined = Decisions.joined([Decisions(DEVICES), Decisions([[0, 0, 0]], priority_of_op=[[3, 2, 1]])])
    assert joined.device_of_unit.tolist() == [*DEVICES, [0, 0, 0]]
    assert joined.priority_of_op.tolist() == [[0, 0, 0], [0, 0, 0], [3, 2, 1]]
    assert joined.cluster_of_op is None
    assert len(Decisions.joined([Decisions(np.zeros((0, 3)))])) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device_of_unit": [0, 1, 1]}, r"device_of_unit has shape \(3,\)"),
        ({"priority_of_op": [[1, 2, 3]]}, r"priority_of_op \(1, 3\) are not of the same plans"),
        (
            {"priority_of_op": [[1, 2, 3]] * 2, "cluster_of_op": [[1, 2]] * 2},
            r"cluster_of_op \(2, 2\) are not of the same plans",
        ),
        ({"priority_of_op": [[0.5, 1, 2]] * 2}, "priority_of_op: expected whole numbers"),
        ({"cluster_of_op": [[-2, 1, 2]] * 2}, "cluster_of_op has the entry -2"),
    ],
)
def test_what_cannot_be_decided_is_told(arguments, message):
    with refused(message):
        Decisions(**{"device_of_unit": DEVICES, **arguments})


def test_priorities_are_of_the_problems_ops():
    with refused(r"priority_of_op has shape \(2, 4\), expected \[B, 3\]"):
        decisions_of(Decisions(DEVICES, np.ones((2, 4), int)), PROBLEM)
