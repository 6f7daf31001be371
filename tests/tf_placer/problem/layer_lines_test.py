"""Tests plans of layers: what is written, edited and read is one placement."""

import dataclasses
import json

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.problem.layers import NO_LAYER, layer_of_unit, layers_of
from tf_placer.problem.placement import Placement, PlanFile
from tf_placer.problem.problem import Problem

NAMES = ["a/x/1", "a/x/2", "a/y/1", "b.c+[d]/1", "b.c+[d]/2", "alone"]
GPU = [f"/job:localhost/replica:0/task:0/device:GPU:{d}" for d in range(3)]


def a_problem(num_devices: int = 2, **more) -> Problem:
    chain = [(op, op + 1) for op in range(len(NAMES) - 2)]  # the last op feeds nothing and reads nothing
    return problem_of([1] * len(NAMES), chain, names=NAMES, cluster=small_cluster(num_devices), **more)


def written(problem: Problem, row) -> dict:
    return json.loads(Placement(problem, np.array(row, np.int32)).to_json(by_layer=True))


def read(problem: Problem, plan: dict) -> Placement:
    return Placement.from_json(json.dumps(plan), problem, "plan.json")


def test_whole_layers_are_a_line_each_and_what_is_around_them_stands_for_all() -> None:
    plan = written(a_problem(), [0, 0, 0, 1, 1, 0])
    assert plan["layers"] == {"a": GPU[0], "b.c+[d]": GPU[1], NO_LAYER: GPU[0]}
    assert plan["devices"] == {}
    assert plan["schema_version"] == 3
    assert written(a_problem(), [1, 1, 0, 1, 1, 0])["layers"]["a/x"] == GPU[1]


def test_a_layer_that_is_split_lists_the_ops_that_are_elsewhere() -> None:
    plan = written(a_problem(), [0, 0, 0, 0, 1, 0])
    assert plan["layers"] == {"a": GPU[0], "b.c+[d]": GPU[0], NO_LAYER: GPU[0]}
    assert plan["devices"] == {"b.c+[d]/2": GPU[1]}


def test_an_edited_line_moves_all_its_ops() -> None:
    problem = a_problem()
    plan = written(problem, [0, 0, 0, 1, 1, 0])
    plan["layers"]["a"] = GPU[1]
    assert read(problem, plan).device_of_unit.tolist() == [1, 1, 1, 1, 1, 0]
    plan["layers"]["a/x"] = GPU[0]
    assert read(problem, plan).device_of_unit.tolist() == [0, 0, 1, 1, 1, 0]
    plan["devices"] = {"a/x/2": GPU[1]}
    assert read(problem, plan).device_of_unit.tolist() == [0, 1, 1, 1, 1, 0]


def test_ops_that_share_a_device_go_with_the_layer_that_most_of_them_are_of() -> None:
    # a/x/1, a/x/2 and b/1 are one unit, and of the two in another the first one's layer has it.
    problem = a_problem(unit_of_op=np.array([0, 0, 1, 0, 1, 2]))
    layers = layers_of(problem)
    assert [layers.names[one] for one in layer_of_unit(problem, layers)] == ["a/x", "a/y", NO_LAYER]
    plan = written(problem, [1, 0, 0])
    plan["layers"] = {"a": GPU[0], "a/x": GPU[1], "b.c+[d]": GPU[0], NO_LAYER: GPU[0]}
    assert read(problem, plan).device_of_op.tolist() == [1, 1, 0, 1, 0, 0]
    plan["devices"] = {"b.c+[d]/1": GPU[0]}  # an op that is listed takes its unit with it
    assert read(problem, plan).device_of_op.tolist() == [0] * 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: plan["layers"].update({"a/z": GPU[0]}), r"plan.json has a line of layer 'a/z'.*; did you mean"),
        (lambda plan: plan["layers"].update({"a": "GPU:7"}), r"plan.json: layer 'a' is on 'GPU:7'.*; it has"),
        (lambda plan: plan["layers"].pop("a"), r"plan.json: no device for op 'a/x/1'"),
        (lambda plan: plan["devices"].update({"c": GPU[0]}), r"plan.json names op 'c', which the graph lacks"),
        (lambda plan: plan.update(fingerprint="00"), r"plan.json was made for another graph"),
        (lambda plan: plan.update(schema_version=1), r"does not fit the schema"),
    ],
)  # fmt: skip
def test_a_line_that_does_not_fit_is_told_by_its_name(change, message: str) -> None:
    problem = a_problem()
    plan = written(problem, [0, 0, 0, 1, 1, 0])
    change(plan)
    with pytest.raises(InputError, match=message) as error:
        read(problem, plan)
    assert "\n" not in str(error.value)


def test_a_layer_cannot_be_where_one_of_its_ops_has_no_kernel() -> None:
    allowed = np.ones((6, 2), bool)
    allowed[1] = True, False
    problem = a_problem(allowed=allowed)
    plan = written(problem, [1, 0, 1, 1, 1, 1])
    assert plan["layers"]["a"] == GPU[1] and plan["devices"] == {"a/x/2": GPU[0]}
    assert read(problem, plan).device_of_unit.tolist() == [1, 0, 1, 1, 1, 1]
    plan["devices"] = {}
    with pytest.raises(
        InputError, match=r"layer 'a/x' is on '.*GPU:1', where its op 'a/x/2' cannot be; .*GPU:0"
    ):
        read(problem, plan)


def test_listed_ops_of_one_unit_on_two_devices_are_refused() -> None:
    problem = a_problem(unit_of_op=np.array([0, 0, 1, 2, 3, 4]))
    plan = written(problem, [0, 0, 0, 0, 0])
    plan["devices"] = {"a/x/1": GPU[0], "a/x/2": GPU[1]}
    with pytest.raises(InputError, match="must share its device"):
        read(problem, plan)


def test_a_part_of_a_plan_leaves_out_what_is_not_there() -> None:
    problem = a_problem()
    text = json.dumps(written(problem, [0, 0, 0, 1, 1, 0]) | {"layers": {"b.c+[d]": GPU[1], "z": GPU[0]}})
    plan = PlanFile.parse(text, "plan.json").op_by_op(problem, is_part=True)
    assert plan.device_of_op(problem) == {3: 1, 4: 1}


def test_no_scopes_are_one_line() -> None:
    problem = problem_of([1, 1], [(0, 1)], names=["x", "y"])
    assert written(problem, [1, 1])["layers"] == {NO_LAYER: GPU[1]}


def test_schedules_stay() -> None:
    problem = a_problem()
    placement = Placement(problem, np.zeros(6, np.int32), np.arange(6), np.zeros(6, np.int32))
    found = Placement.from_json(placement.to_json(by_layer=True), problem)
    assert found.decisions.digest(0, problem) == placement.decisions.digest(0, problem)


@pytest.mark.parametrize("seed", range(40))
def test_any_placement_is_read_as_it_was_written(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ops, devices = int(rng.integers(1, 40)), int(rng.integers(1, 4))
    names = ["/".join([*rng.choice(list("ab+"), rng.integers(0, 4)), f"op{op}"]) for op in range(ops)]
    units = np.unique(rng.integers(0, ops, ops), return_inverse=True)[1]
    allowed = np.ones((ops, devices), bool)
    allowed[rng.random(ops) < 0.2, 0] = devices == 1
    problem = problem_of(
        [1] * ops, [(a, a + 1) for a in range(ops - 1)], names=names, cluster=small_cluster(devices),
        unit_of_op=units, allowed=allowed,
    )  # fmt: skip
    types = rng.choice(["VarHandleOp", "MatMul", ""], ops)
    problem = dataclasses.replace(problem, op_types=tuple(types.tolist()))
    row = problem.legalized(rng.integers(0, devices, problem.num_units))
    if rng.random() < 0.5:  # most of it on one device, as plans are
        row = problem.legalized(np.where(rng.random(problem.num_units) < 0.9, 0, row))
    text = Placement(problem, row).to_json(by_layer=True)
    assert Placement.from_json(text, problem).device_of_unit.tolist() == row.tolist()
    assert len(json.loads(text)["devices"]) <= problem.num_units
