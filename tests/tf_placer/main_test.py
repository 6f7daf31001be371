"""The command line: what it writes, and one line for every kind of bad input."""

import dataclasses
import json
import os
import pathlib
import shutil
import socket
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import rich.console
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from tests.own_process import python
from tests.tf_placer.command_line.commands import command, devices_in, printed_by, written
from tests.tf_placer.rewrite.saved_models import several_signatures
from tests.tf_placer.workers.servers import TWO_SERVERS
from tf_placer import workloads
from tf_placer.base.files import reserved
from tf_placer.base.quantities import milliseconds
from tf_placer.calibration import build_problem as calibration
from tf_placer.calibration.build_problem import build_problem
from tf_placer.calibration.refit import Correction
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.inspection import explain
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement, PlanFile
from tf_placer.rewrite.saved_model import plan_file
from tf_placer.search import methods
from tf_placer.search.methods import Budget
from tf_placer.search.round import Context, Round, evaluated
from tf_placer.search.search import search
from tf_placer.workers import fork_server as loopback
from tf_placer.workloads import registry
from tf_placer.workloads.spec import WorkloadSpec

Refused = Callable[..., None]
_KEYS = {
    "workload", "cluster", "method", "seed", "ops", "units", "runtime_s", "measured_s", "lower_bound_s",
    "single_device_s", "baselines", "peak_bytes", "status", "evaluations", "search_s",
}  # fmt: skip

_A_PLAN = json.dumps({"schema_version": 1, "fingerprint": 64 * "0", "devices": {"x": "/device:CPU:0"}})


def place_arguments(folder: pathlib.Path, **changed: str | None) -> list[str]:
    """A good `place` command, with some flags changed, or left out where None."""
    values: dict[str, str | None] = {
        "workload": "dense_small", "cluster": "k40x2", "method": "random", "budget_evaluations": "32",
        "out": str(folder), **changed,
    }  # fmt: skip
    return ["place", *(f"--{name}={value}" for name, value in values.items() if value is not None)]


def test_place_writes_summary_placement_and_graph(tmp_path):
    out = tmp_path / "deep" / "out"
    text = printed_by(*place_arguments(out, seed="3", write="method"))
    for row in ("single device", "topological_fill", "random", "bound: critical path", "bound: total work"):
        assert row in text
    assert f"wrote {out / 'summary.json'}" in text
    assert sorted(path.name for path in out.iterdir()) == [
        "placed_graph.pb", "placement.json", "report.html", "summary.json", "timeline.json",
    ]  # fmt: skip

    summary = written(out)
    events = written(out, "timeline")["traceEvents"]
    [step] = [event for event in events if event["ph"] == "X" and event["cat"] == "step"]
    assert (step["ts"], step["dur"]) == (0, pytest.approx(1e6 * summary["runtime_s"]))
    assert summary.keys() >= _KEYS
    problem = analytic_problem(workloads.build("dense_small"), Cluster.preset("k40x2"))
    wanted = ["dense_small", "k40x2", "random", 3, 32, problem.num_ops, problem.num_units]
    assert [
        summary[k] for k in ("workload", "cluster", "method", "seed", "evaluations", "ops", "units")
    ] == wanted
    assert summary["measured_s"] is None  # a described machine cannot be asked
    assert summary["lower_bound_s"] <= summary["runtime_s"]
    assert summary["baselines"]["single"] == pytest.approx(summary["single_device_s"], rel=1e-6)
    assert set(summary["peak_bytes"]) == {device.name for device in problem.cluster.devices}

    placement = Placement.load(out / "placement.json", problem)
    graph_def = tf.compat.v1.GraphDef.FromString((out / "placed_graph.pb").read_bytes())
    assert {node.name: node.device for node in graph_def.node} == placement.device_names


@pytest.mark.medium
@pytest.mark.parametrize("write", [None, "method"])
def test_the_plan_written_is_the_fastest_unless_the_methods_own_is_asked_for(write, tmp_path, monkeypatch):
    def scattered(context: Context) -> Iterator[Round]:
        """Neighbors on different devices."""
        devices = np.arange(context.problem.num_units) % 2
        context.problem.check_legal(devices)
        yield evaluated(context, devices[np.newaxis])

    monkeypatch.setitem(methods._METHODS, "scattered", methods.own_rounds("scattered", scattered))
    # Where an order is decided, too, a search begins with the plain planners' plans under each order.
    text = printed_by(*place_arguments(tmp_path, method="scattered", write=write, order="none"))
    summary = written(tmp_path)
    plan = devices_in(tmp_path)
    assert summary["method"] == "scattered"
    everyone = {**summary["baselines"], summary["written"]: summary["runtime_s"]}
    if write == "method":
        assert summary["written"] == "scattered" and len(set(plan.values())) == 2
        assert summary["runtime_s"] > min(everyone.values())
        assert "The plan written (scattered)" in text
    else:
        assert summary["written"] == "single" and len(set(plan.values())) == 1
        assert summary["runtime_s"] == min(everyone.values())
        assert summary["recommended"] == summary["written"]
        assert "No gain: use one device" in text and "The method asked for, scattered, takes" in text
    placed = tf.compat.v1.GraphDef.FromString((tmp_path / "placed_graph.pb").read_bytes())
    assert {node.name: node.device for node in placed.node} == plan


@pytest.mark.medium
def test_compare_tells_of_every_planner_what_it_found(tmp_path):
    arguments = place_arguments(tmp_path, method=None)[1:]
    everyone = ("single", "topological_fill", "list_schedule", "random", "local_search")
    text = printed_by("compare", *arguments, f"--methods={','.join(everyone)}")
    summary = written(tmp_path)
    problem = analytic_problem(workloads.build("dense_small"), Cluster.preset("k40x2"))
    for name in everyone:
        row = name.replace("single", "single device")
        shown = next(line for line in text.splitlines() if line.startswith(f"│ {row} "))
        found = search(problem, name, budget_evaluations=32)
        assert milliseconds(found.runtime_s) in shown and f" {found.evaluations} " in shown
    times_s = {**summary["baselines"], summary["written"]: summary["runtime_s"]}
    assert times_s.keys() == set(everyone)
    assert summary["runtime_s"] == min(times_s.values())


def test_compare_gives_every_method_the_same_evaluations(tmp_path):
    printed_by("compare", *place_arguments(tmp_path, method=None)[1:], "--methods=single,random")
    summary = written(tmp_path)
    times = {**summary["baselines"], summary["method"]: summary["runtime_s"]}
    assert set(times) == {"single", "random"}
    assert summary["runtime_s"] == min(times.values())
    evaluations = {**summary["baselines_evaluations"], summary["method"]: summary["evaluations"]}
    # There are only as many single devices as devices.
    assert evaluations == {"random": 32, "single": 3}


@pytest.fixture
def refused(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Checks that a command ends with status 2 and one line that says all of some words; ``out`` is not made."""

    def check(argv: list[str], *expected: str) -> None:
        before = sorted(tmp_path.rglob("*"))
        status, _ = command(*argv)
        error = capsys.readouterr().err
        assert status == 2
        assert len(error.splitlines()) == 1, error
        for words in expected:
            assert words in error
        assert sorted(tmp_path.rglob("*")) == before

    return check


@pytest.mark.parametrize("name", ["place", "compare"])
def test_a_second_run_into_one_folder_is_refused_before_the_search(name, tmp_path, refused):
    out = tmp_path / "out"
    argv = place_arguments(out, method=None, budget_s="3600", budget_evaluations=None)
    with reserved(out, "the first run"):
        refused([name, *argv[1:]], f"--out={out}: another run is writing there")


def test_workers_that_cannot_be_kept_off_the_network_are_refused(tmp_path, monkeypatch, refused):
    library = dataclasses.replace(
        loopback.LOOPBACK_LIBRARY, name="_never_compiled", prebuilt="NEVER_PREBUILT"
    )
    monkeypatch.setattr(loopback, "LOOPBACK_LIBRARY", library)
    monkeypatch.setenv("CXX", "no-such-compiler")
    for name in ("place", "compare", "measure", "profile"):
        plan = tmp_path / "plan.json"
        plan.write_text(_A_PLAN)
        extra = {"measure": [f"--placement={plan}"], "profile": []}.get(name, [f"--out={tmp_path / 'out'}"])
        argv = [name, "--workload=dense_small", "--cluster=local:1", *extra]
        refused(argv, "no-such-compiler not found", "--open_workers")
        argv[1] = "--workload=no_such_workload"  # what is told next, or workers would start
        refused([*argv, "--open_workers"], "no_such_workload")
    assert loopback.OPEN_WORKERS not in os.environ, "a flag is of one command"


def unknown_shapes() -> workloads.Workload:
    return workloads.Workload(tf.function(lambda x: tf.boolean_mask(x, x > 0.0)), (tf.constant([1.0, -1.0]),))


def table() -> workloads.Workload:
    numbers = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
    return workloads.Workload(tf.function(lambda x: numbers.lookup(x)), (tf.constant(["a"]),))


def iterator() -> workloads.Workload:
    rows = iter(tf.data.Dataset.range(3))
    return workloads.Workload(tf.function(lambda x: x + next(rows)), (tf.constant(1, tf.int64),))


@pytest.mark.parametrize("family", [unknown_shapes, table, iterator])
def test_a_workload_that_depends_on_data_or_on_this_process(family, tmp_path, monkeypatch):
    monkeypatch.setitem(registry._TABLE, family.__name__, WorkloadSpec(family.__name__, family, "of a test"))
    printed_by(*place_arguments(tmp_path, workload=family.__name__))
    assert bool(written(tmp_path)["estimated_sizes"]) == (family is unknown_shapes)


def uninitialized() -> workloads.Workload:
    empty = resource_variable_ops.UninitializedVariable(shape=[2], dtype=tf.float32, name="empty")
    return workloads.Workload(tf.function(lambda x: x + empty), (tf.ones([2]),))


def test_a_workload_whose_values_cannot_be_restored(tmp_path, monkeypatch, refused):
    spec = WorkloadSpec("uninitialized", uninitialized, "of a test")
    monkeypatch.setitem(registry._TABLE, "uninitialized", spec)
    argv = place_arguments(tmp_path / "out", workload="uninitialized")
    refused(argv, "'empty' has no value", "initialize it")


def test_an_address_that_does_not_answer_is_told_before_the_search(tmp_path, refused):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    file = tmp_path / "two.toml"
    file.write_text(TWO_SERVERS.format(address, address))
    place = place_arguments(tmp_path / "out", cluster=str(file), budget_s="3600", budget_evaluations=None)
    plan = tmp_path / "placement.json"
    plan.write_text(_A_PLAN)
    for argv in (place, ["measure", "--workload=dense_small", f"--cluster={file}", f"--placement={plan}"]):
        refused(argv, f"no server answers at {address}", "correct the cluster file")


def test_nothing_is_profiled_for_what_cannot_be(tmp_path, monkeypatch, refused):
    monkeypatch.setattr(calibration, "profile", lambda *_, **__: pytest.fail("it was profiled"))
    small = ["--workload=dense_small", "--cluster=local:1"]
    item = workloads.build("dense_small")
    here = Cluster.local(1)
    plan, other, elsewhere = (tmp_path / name for name in ("plan.json", "other.json", "elsewhere.json"))
    problem = analytic_problem(item, here)
    Placement(problem, problem.everything_on(0)).save(plan)
    for path, graph, cluster in (
        (other, workloads.build("dense_small", layers=4), here),
        (elsewhere, item, Cluster.preset("p100x1")),
    ):
        problem = analytic_problem(graph, cluster)
        Placement(problem, problem.everything_on(0)).save(path)
    place = ["place", *small, f"--out={tmp_path / 'out'}"]
    explain = ["explain", *small, "--op=MatMul"]
    for file, words in ((other, "was made for another graph"), (elsewhere, "which cluster 'local' lacks")):
        refused(["measure", *small, f"--placement={file}"], file.name, words)
        refused([*place, f"--plan={file}"], file.name, words)
        refused([*explain, f"--plan={file}"], file.name, words)
    refused([*explain[:-1], f"--plan={plan}", "--op=nowhere"], "no such op")
    refused([*place, "--pin=nowhere/.*=/device:CPU:0"], "nowhere")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What placing dense_small on k40x2 wrote."""
    folder = tmp_path_factory.mktemp("plan") / "planned"
    printed_by(*place_arguments(folder))
    return folder


@pytest.fixture
def plan(planned: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A plan of dense_small on k40x2, spread at random; a copy of the test's own."""
    return shutil.copytree(planned, tmp_path / "planned") / "placement.json"


def edited(plan: pathlib.Path, **changes: object) -> pathlib.Path:
    plan.write_text(json.dumps(written(plan.parent, "placement") | changes))
    return plan


def test_a_plan_is_applied_as_it_is(plan, tmp_path):
    out = tmp_path / "applied"
    printed_by(*place_arguments(out, method="hdp"), f"--plan={plan}")
    assert written(out, "placement") == written(plan.parent, "placement")
    summary = written(out)
    assert summary["method"] == "plan" and summary["evaluations"] == 1
    assert summary["baselines"].keys() == {"single"}


def test_a_part_of_a_plan_is_completed_when_asked(plan, tmp_path):
    devices = devices_in(plan.parent)
    kept = {op: device for op, device in devices.items() if op.startswith("MatMul")}
    edited(plan, devices=kept | {"an op of yesterday": "/device:CPU:0"}, fingerprint="0" * 64)
    out = tmp_path / "completed"
    text = printed_by(*place_arguments(out), f"--plan={plan}", "--complete_plan")
    assert f"says where {len(kept)} of {len(devices)} ops go" in text
    assert "1 ops that it names are not in this graph" in text
    completed = devices_in(out)
    assert completed.keys() == devices.keys()
    assert {op: completed[op] for op in kept} == kept


@pytest.mark.parametrize(
    ("changes", "flags", "expected"),
    [
        ({"devices": {}}, [], "no device for op"),
        ({"fingerprint": "0" * 64}, [], "made for another graph"),
        ({"fingerprint": "1" * 64}, [], "--complete_plan"),
        ({"schema_version": 7}, ["--complete_plan"], "schema version 7"),
        ({"schema_version": 2, "clusters": {"strange": 1}}, [], "has op 'strange' in clusters, which the"),
        ({"schema_version": 2, "priorities": {}}, [], "no priority for op"),
        ({}, ["--pin=.*=GPU:0"], "--plan and --pin are given"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(changes, flags, expected, plan, tmp_path, refused):
    edited(plan, **changes)
    refused([*place_arguments(tmp_path / "out"), f"--plan={plan}", *flags], expected)


@pytest.mark.parametrize("what", ["clusters", "priorities"])
def test_a_plan_with_a_schedule_is_refused_rather_than_half_applied(what, plan, tmp_path, refused):
    edited(plan, schema_version=2, **{what: dict.fromkeys(devices_in(plan.parent), 1)})
    argv = [*place_arguments(tmp_path / "out"), f"--plan={plan}", "--complete_plan"]
    refused(argv, f"has {what}, which say nothing of ops that are searched")


def test_a_plans_order_is_applied_and_written_again(plan, tmp_path):
    ops = devices_in(plan.parent)
    priorities = {op: -number for number, op in enumerate(ops)}
    edited(plan, schema_version=2, priorities=priorities)
    out = tmp_path / "out"
    printed_by(*place_arguments(out), f"--plan={plan}")
    again = written(out, "placement")
    assert again["schema_version"] == 2 and again["priorities"] == priorities
    op = next(iter(ops))
    assert f"{op} (" in printed_by("explain", f"--plan={out / 'placement.json'}", f"--op={op}")


def test_an_op_is_explained_by_the_plan_alone(plan):
    devices = devices_in(plan.parent)
    op = next(name for name in devices if name.endswith("MatMul"))
    text = printed_by("explain", f"--plan={plan}", f"--op={op}")
    assert f"{op} (MatMul, gives" in text and f"is on {devices[op]}" in text
    assert "as planned" in text and "Its unit sends" in text
    assert all(f"device:{name}" in text for name in ("GPU:0", "GPU:1", "CPU:0"))


def test_the_unit_of_an_op_is_explained_by_its_rules(plan):
    item = workloads.build("dense_small")
    text = printed_by("explain", f"--plan={plan}", f"--op={item.variables[0].node}")
    assert "ops that must be together" in text and "(resource_edges)" in text


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--op=nowhere"], "has no such op; there are "),
        ([], "needs --op"),
        (["--op=x", "--cluster=k40x3"], "k40x2"),
        (["--op=x", "--workload=branches_small"], "made for another graph"),
    ],
)
def test_what_cannot_be_explained(argv, expected, plan, refused):
    refused(["explain", f"--plan={plan}", *argv], expected)


def test_a_plan_that_remembers_nonsense_is_told(plan, refused):
    edited(plan, made_for={"workload": "dense_small", "cluster": "k40x2", "batch_size": "many"})
    refused(["explain", f"--plan={plan}", "--op=x"], "batch_size")
    edited(plan, made_for={"workload": "dense_small"})
    refused(["explain", f"--plan={plan}", "--op=x"], "give --cluster")


@pytest.mark.parametrize("bare", [False, True], ids=["MetaGraphDef", "GraphDef"])
def test_a_meta_graph_comes_back_with_devices(bare, tmp_path):
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        tf.reduce_sum(tf.tanh(x) @ tf.ones([4, 2]), name="y")
        meta_graph = tf.compat.v1.train.export_meta_graph()
    source: tf.compat.v1.MetaGraphDef = meta_graph.graph_def if bare else meta_graph
    path, out = tmp_path / "graph.pb", tmp_path / "out"
    path.write_bytes(source.SerializeToString(deterministic=True))
    printed_by(*place_arguments(out, workload=None, meta_graph=str(path), fetches="y:0", batch_size="8"))
    placed = type(source).FromString((out / "placed_meta_graph.pb").read_bytes())
    nodes = (placed if bare else placed.graph_def).node
    assert all(node.device for node in nodes)
    for node in nodes:
        node.device = ""
    assert placed.SerializeToString(deterministic=True) == path.read_bytes()
    explained = printed_by("explain", f"--plan={out / 'placement.json'}", "--op=Tanh")
    assert "Tanh (Tanh, gives [8, 4])" in explained


@pytest.mark.medium
@pytest.mark.parametrize("wrong", ["a preset", "a plan"])  # told before TensorFlow is loaded, and after it
def test_as_a_process_one_line_and_nothing_of_tensorflows(wrong, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text("no plan")
    changed, told = {
        "a preset": ({"cluster": "p100x3"}, "p100x2"),
        "a plan": ({"plan": str(plan)}, "plan.json is not JSON"),
    }[wrong]
    arguments = place_arguments(tmp_path / "out", **changed)
    done = python("-m", "tf_placer", *arguments, TF_CPP_MIN_LOG_LEVEL="0")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert told in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_place_on_this_machine_measures_and_the_plan_can_be_measured_again(tmp_path):
    printed_by(*place_arguments(tmp_path, cluster="local"))
    summary = written(tmp_path)
    assert summary["status"] == "OK"
    assert summary["measured_s"] > 0
    assert summary["raced_s"] > 0 and summary["baselines_raced"]["as it is"] > 0
    events = written(tmp_path, "timeline")["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"simulated", "measured"}
    assert {event["pid"] for event in events if event["ph"] == "X"} == {1, 2}

    text = printed_by("measure", "--workload=dense_small", f"--placement={tmp_path / 'placement.json'}")
    assert text.count(" OK ") >= min(len(os.sched_getaffinity(0)), 2) + 1 or "GPU" in text
    assert "ops where they were put" in text
    assert "as it is, whole machine" in text and "in turn on the runtime" in text


@pytest.mark.slow
def test_a_profile_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = printed_by("profile", "--workload=branches_small", "--cluster=local:2")
    assert "costliest ops" in text
    assert "MatMul" in text
    assert "67108864" in text, "the largest tensor that was sent"
    assert "link: " in text
    assert "median absolute error" in text
    assert len(list((tmp_path / "tf_placer" / "profiles").glob("*.json"))) == 4


def test_several_signatures_of_a_saved_model_share_their_variables(tmp_path):
    model, out = several_signatures(tmp_path).path, tmp_path / "out"
    unknown = place_arguments(out, workload=None, saved_model=str(model), signature="power,train")
    assert command(*unknown)[0] == 2
    assert not out.exists()
    argv = place_arguments(out, workload=None, saved_model=str(model), signature="power,scaled")
    text = printed_by(*argv, "--method=random", "--cluster=p100x2")
    assert f"wrote {out / 'saved_model'}" in text
    plans = {}
    for name in ("power", "scaled"):
        plan = (out / name / "placement.json").read_text()
        inside = (out / "saved_model" / plan_file(name)).read_text()
        assert json.loads(inside)["devices"] == json.loads(plan)["devices"]
        plans[name] = json.loads(plan)["devices"]
    assert plans["power"]["weights"] == plans["scaled"]["weights"]


@pytest.mark.parametrize(("compute", "expected"), [(None, 1), (2.0, 2), (0.5, 0.5)])
def test_moves_are_explained_with_the_costs_that_the_plan_was_searched_with(compute, expected, tmp_path):
    """On live devices these are fitted to what was measured, and the plan remembers the factors."""
    problem = build_problem(workloads.build("dense_small"), Cluster.preset("k40x2"))
    placement = Placement(problem, problem.everything_on(0))
    correction = {} if compute is None else {"correction": [compute, 1.0, 1.0, 1.0, 1.0]}
    file = tmp_path / "placement.json"
    placement.save(file, {"workload": "dense_small", "cluster": "k40x2", **correction})
    costliest = problem.op_names[int(problem.compute_ns[:, 0].argmax())]
    request = Request(Source("dense_small"), problem.cluster, Budget(evaluations=1), 0)
    told = explain(request, PlanFile.read(file), costliest, None, rich.console.Console(quiet=True))
    searched = Correction(expected).apply(problem)
    step_s = SimulatedEvaluator(searched).evaluate(placement.decisions).runtime_s[0]
    (planned,) = (one for one in told["moves"] if one["is_planned"])
    assert planned["step_s"] == pytest.approx(step_s)
    assert told["compute_s"] == pytest.approx(1e-9 * searched.compute_ns[:, 0].max())


def test_damaged_factors_are_one_line(tmp_path, refused):
    problem = build_problem(workloads.build("dense_small"), Cluster.preset("k40x2"))
    file = tmp_path / "placement.json"
    for factors in ([1.0], [0.0] * 5, ["a"] * 5, "x"):
        flags = {"workload": "dense_small", "cluster": "k40x2", "correction": factors}
        Placement(problem, problem.everything_on(0)).save(file, flags)
        refused(["explain", f"--plan={file}", "--op=MatMul"], "made_for.correction", "5 factors above 0")
