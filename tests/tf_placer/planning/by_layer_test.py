"""``--by=layer``, and what is explained of a layer, from the command line."""

import dataclasses
import io
import json
import pathlib

import numpy as np
import pytest
import rich.console

from tests.tf_placer.problem.small_problems import branches_problem
from tests.tf_placer.search.other_machine import OtherMachine, live
from tf_placer import workloads
from tf_placer.__main__ import run
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planning.forms import Form
from tf_placer.planning.outcome import Outcome, Timed, in_layers
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.layers import layer_of_unit, layers_of
from tf_placer.problem.placement import NO_CLUSTER, Placement
from tf_placer.problem.problem import Problem
from tf_placer.report.files import summary
from tf_placer.report.sentences import verdict
from tf_placer.search.search import search

SOURCE = ("--workload=two_towers", "--cluster=k40x2")
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def command(*argv: str) -> tuple[int, str]:
    console = rich.console.Console(file=io.StringIO(), width=200)
    return run(argv, console), console.file.getvalue()


@pytest.fixture(scope="module")
def problem() -> Problem:
    return analytic_problem(workloads.build("two_towers"), Cluster.preset("k40x2"))


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, str]:
    out = tmp_path_factory.mktemp("by_layer")
    argv = ("place", *SOURCE, "--method=random", "--budget_evaluations=64", "--write=method", "--by=layer")
    status, text = command(*argv, f"--out={out}")
    assert status == 0, text
    return out, text


@pytest.mark.medium
def test_place_writes_whole_layers_and_says_what_they_cost(placed, problem: Problem) -> None:
    out, text = placed
    told = json.loads((out / "summary.json").read_text())
    plan = json.loads((out / "placement.json").read_text())
    assert len(plan["layers"]) <= 30 and "functional" in plan["layers"]
    placement = Placement.load(out / "placement.json", problem)
    simulated = SimulatedEvaluator(problem).evaluate(placement.decisions)
    assert simulated.runtime_s[0] == pytest.approx(told["by_layer_s"])
    layers = layers_of(problem)
    home = layer_of_unit(problem, layers)
    assert told["layers"] == len(set(home.tolist()))
    free = problem.allowed.all(axis=1)
    devices = {
        layer: set(placement.device_of_unit[free & (home == layer)].tolist()) for layer in set(home.tolist())
    }
    assert all(len(on) <= 1 for on in devices.values())
    slower = told["by_layer_s"] / told["by_op_s"] - 1
    assert told["runtime_s"] == told["by_layer_s"]
    words = "more" if slower > 0 else "less"
    assert f"With whole layers ({told['layers']} of them) the step takes" in text
    assert f"{abs(100 * slower):.1f}% {words} than with a place for every op" in text
    assert "│ functional/dense_16 " in text


@pytest.mark.medium
def test_an_edited_line_is_applied_and_explained(placed, tmp_path: pathlib.Path, problem: Problem) -> None:
    plan = json.loads((placed[0] / "placement.json").read_text())
    plan["layers"]["functional/dense_16"] = CPU
    file = tmp_path / "edited.json"
    file.write_text(json.dumps(plan))
    out = tmp_path / "out"
    status, text = command("place", *SOURCE, f"--plan={file}", f"--out={out}", "--by=layer")
    assert status == 0, text
    assert "The plan given is written by layer" in " ".join(text.split())
    again = Placement.load(out / "placement.json", problem)
    assert again.device_of_unit.tolist() == Placement.load(file, problem).device_of_unit.tolist()
    assert json.loads((out / "summary.json").read_text())["by_layer_s"] is None
    layers = layers_of(problem)
    moved = layer_of_unit(problem, layers) == layers.names.index("functional/dense_16")
    assert (again.device_of_unit[moved] == 2).all()
    status, text = command("explain", f"--plan={file}", "--layer=functional/dense_16")
    assert status == 0, text
    assert f"ops are on {CPU}" in text and "as planned" in text
    assert "It sends" in text and "It receives" in text
    assert text.count("device:GPU") >= 2


@pytest.mark.medium
def test_a_layer_around_others_is_explained_with_them(placed) -> None:
    status, text = command("explain", f"--plan={placed[0] / 'placement.json'}", "--layer=functional")
    assert status == 0, text
    assert "Layers inside it: " in text and " more." in text


@pytest.mark.medium
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--layer=functional/dense_99"], "has no such layer; did you mean"),
        (["--layer=functional", "--op=x"], "--op and --layer are given; give one of them"),
        ([], "needs --op or --layer"),
    ],
)
def test_what_cannot_be_explained_is_one_line(
    placed, capsys: pytest.CaptureFixture[str], argv, message
) -> None:
    status, _ = command("explain", f"--plan={placed[0] / 'placement.json'}", *argv)
    error = capsys.readouterr().err
    assert status == 2 and message in error and len(error.splitlines()) == 1


@pytest.mark.medium
def test_a_line_of_an_unknown_layer_is_one_line(
    placed, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], problem: Problem
) -> None:
    plan = json.loads((placed[0] / "placement.json").read_text())
    plan["layers"]["functional/dense_99"] = CPU
    file = tmp_path / "edited.json"
    file.write_text(json.dumps(plan))
    status, _ = command("place", *SOURCE, f"--plan={file}", f"--out={tmp_path / 'out'}")
    error = capsys.readouterr().err
    assert status == 2 and "'functional/dense_99'" in error and len(error.splitlines()) == 1
    status, text = command(
        "place", *SOURCE, f"--plan={file}", "--complete_plan", "--method=single", f"--out={tmp_path / 'out'}"
    )
    assert status == 0, text
    assert f"says where {problem.num_ops} of {problem.num_ops} ops go" in text


def test_compare_writes_layers_too(tmp_path: pathlib.Path) -> None:
    argv = ("compare", *SOURCE, "--methods=single,list_schedule", "--by=layer", f"--out={tmp_path}")
    status, text = command(*argv)
    assert status == 0, text
    assert "With whole layers" in text
    assert json.loads((tmp_path / "placement.json").read_text())["schema_version"] == 3


@pytest.mark.medium
def test_whole_layers_have_no_order_and_no_clusters_and_that_is_said(problem: Problem) -> None:
    chosen = Timed.of_search("random", search(problem, "random", budget_evaluations=4))
    clusters = np.full(problem.num_ops, NO_CLUSTER)
    clusters[0] = 0
    plan = Placement(problem, chosen.placement.device_of_unit, np.arange(problem.num_ops), clusters)
    outcome = Outcome(Form(problem), dataclasses.replace(chosen, placement=plan))
    report = in_layers(outcome, seed=0)
    text = "Whole layers are another plan, without the order and the clusters of that of single"
    assert text in verdict(report)
    assert (
        report.by_layer.whole.op_level_s == SimulatedEvaluator(problem).evaluate(plan.decisions).runtime_s[0]
    )


@pytest.mark.medium
def test_on_live_devices_what_layers_cost_is_said_to_be_simulated() -> None:
    problem = branches_problem(4, 6)
    names = [f"layer_{op % 4}/op_{op}" for op in range(problem.num_ops)]
    problem = dataclasses.replace(problem, op_names=tuple(names))
    report = in_layers(live(problem, OtherMachine(problem)), seed=0)
    assert report.by_layer is not None and report.by_layer.whole is not None
    assert "\nIn the simulator, with whole layers (4 of them)" in verdict(report)
    assert summary(report)["by_layer_s"] == report.by_layer.whole.runtime_s
    assert report.placement.problem is report.search.placement.problem
    on = report.placement.device_of_op
    assert all(len(np.unique(on[layer::4])) == 1 for layer in range(4))
