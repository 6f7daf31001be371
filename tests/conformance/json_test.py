"""Every command has ``--json``: one value of what it found on standard output, and nothing else there."""

import io
import json
import pathlib
from typing import Any

import pytest
import rich.console

import tf_placer
from tf_placer import workloads
from tf_placer.__main__ import COMMANDS, run

# Flags of a quick run of each command, and a key of its answer. FOLDER has a plan of dense_small on k40x2.
PROGRAM = ("--workload=dense_small",)
QUICK = ("--cluster=k40x2", "--budget_evaluations=4", "--out=FOLDER/out")
RUNS: dict[str, tuple[tuple[str, ...], str]] = {
    "place": ((*PROGRAM, *QUICK, "--method=single"), "files"),
    "compare": ((*PROGRAM, *QUICK, "--methods=single,random"), "files"),
    "measure": ((*PROGRAM, "--cluster=local:1", "--costs=analytic", "--placement=FOLDER/one.json"), "steps"),
    "explain": (("--plan=FOLDER/placement.json", "--op=x"), "moves"),
    "profile": ((*PROGRAM, "--cluster=local:1"), "devices"),
    "memory": ((*PROGRAM, "--cluster=k40x2"), "largest_on_all"),
    "train": (
        (
            "--method=learned_list", "--workloads=dense_small", "--clusters=k40x2", "--searches=1",
            "--evaluations=8", "--epochs=1", "--out=FOLDER/weights.npz",
        ),
        "epochs",
    ),
    "clusters": ((), "name"),
    "workloads": ((), "name"),
    "methods": ((), "summary"),
    "doctor": ((), "cache"),
    "completion": (("bash",), "script"),
}  # fmt: skip

WITH_JSON = [name for name in COMMANDS if name != "run"]  # whose standard output is a script's


def _refused(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def answer(*argv: str) -> tuple[int, Any]:
    """Exit status, and what standard output holds; None where it holds nothing."""
    console = rich.console.Console(file=io.StringIO(), width=80)
    status = run([*argv, "--json"], console)
    text = console.file.getvalue()
    return status, json.loads(text, parse_constant=_refused) if text else None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("json")
    item = workloads.build("dense_small")
    for name, cluster in (("placement.json", "k40x2"), ("one.json", "p100x1")):
        problem = tf_placer.build_problem(item, tf_placer.Cluster.preset(cluster))
        placement = tf_placer.Placement(problem, problem.everything_on(len(problem.cluster.devices) - 1))
        placement.save(folder / name, {"workload": "dense_small", "cluster": cluster})
    plan = folder / "one.json"
    plan.write_text(plan.read_text().replace("/job:localhost/", "/job:worker/"))
    return folder


def test_the_table_has_every_command():
    assert RUNS.keys() == set(WITH_JSON)


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=pytest.mark.slow if name == "profile" else ()) for name in WITH_JSON]
)
def test_every_command_answers_in_json(command, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    flags, key = RUNS[command]
    status, found = answer(command, *(flag.replace("FOLDER", str(folder)) for flag in flags))
    assert status == 0
    entries = found if isinstance(found, list) else [found]
    assert entries and all(key in entry for entry in entries)


@pytest.mark.parametrize("command", WITH_JSON)
def test_a_mistake_leaves_standard_output_empty(command, capfd):
    assert run([command, "--json", "--no_such_flag=1"]) == 2
    out, err = capfd.readouterr()
    assert out == "" and len(err.splitlines()) == 1


def test_the_answers_are_what_the_tables_say(folder):
    _, found = answer("workloads", "--names")
    assert found == list(workloads.names())
    _, found = answer("explain", f"--plan={folder / 'placement.json'}", "--op=x")
    assert found["op"] == "x" and found["op"] in found["unit"]
    assert [move["on"].rpartition("device:")[2] for move in found["moves"]] == ["GPU:0", "GPU:1", "CPU:0"]
    [planned] = [move for move in found["moves"] if move["is_planned"]]
    assert planned["on"] == found["device"] and planned["change_s"] == 0
    status, found = answer(
        "place", *PROGRAM, *(flag.replace("FOLDER", str(folder)) for flag in QUICK), "--method=random"
    )
    assert status == 0
    assert json.loads((folder / "out" / "summary.json").read_text()).items() <= found.items()
    assert all(pathlib.Path(file).exists() for file in found["files"])
