"""Ctrl-C in `place` and `compare` from the first plan on: what was found is written, and nothing else is begun."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.tf_placer.command_line.commands import printed_by, written
from tf_placer.command_line import place as placing
from tf_placer.planning import find, forms
from tf_placer.search import recorder

SMALL = ["--workload=two_towers", "--cluster=p100x2", "--budget_evaluations=400"]
ROOT = pathlib.Path(__file__).parents[3]


def summary_of(tmp_path: pathlib.Path, command: str, *flags: str) -> dict:
    printed_by(command, *SMALL, f"--out={tmp_path / 'out'}", *flags)
    return written(tmp_path / "out")


def ctrl_c_when(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[str]:
    """Ctrl-C as a function is called for the first time; returns a list that grows with its calls."""
    function = getattr(owner, name)
    calls: list[str] = []

    def pressed(*args: object, **named: object) -> object:
        calls.append(name)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return function(*args, **named)

    monkeypatch.setattr(owner, name, pressed)
    return calls


@pytest.mark.parametrize("name", ["put_in_parts", "data_parallel_row", "where_it_pays", "starts"])
def test_ctrl_c_beside_the_plan_leaves_nothing_but_writing(name, tmp_path, monkeypatch):
    """While the batch is split and while the search in parts begins; once more as it is reported changes nothing."""
    owner = find if name in ("put_in_parts", "data_parallel_row") else forms.Form
    pressed = ctrl_c_when(monkeypatch, owner, name)
    told = ctrl_c_when(monkeypatch, placing, "print_report")
    summary = summary_of(tmp_path, "place", "--method=local_search")
    assert pressed == [name] and told == ["print_report"]
    assert summary["interrupted"] and summary["evaluations"] >= 400
    assert not {"split", "random"} & summary["baselines"].keys(), "nothing more was searched"


@pytest.mark.parametrize("name, flag", [("with_simulated_clusters", "--fuse"), ("in_layers", "--by=layer")])
def test_ctrl_c_in_what_follows_a_search_keeps_its_plan(name, flag, tmp_path, monkeypatch):
    pressed = ctrl_c_when(monkeypatch, find, name)
    summary = summary_of(tmp_path, "place", "--method=local_search", "--parts=1", flag)
    assert pressed and summary["evaluations"] >= 400 and summary["runtime_s"] is not None
    assert ("by_layer_s" in summary) == (name == "in_layers")


def test_ctrl_c_in_the_search_leaves_nothing_but_writing(tmp_path, monkeypatch):
    """Pressed once more before anything is written, it is ignored."""
    show = recorder.ConsoleProgress.show
    shown: list[recorder.HistoryEntry] = []

    def pressed_once(progress: recorder.ConsoleProgress, entry: recorder.HistoryEntry) -> None:
        if progress._title.startswith("local_search") and not shown:
            shown.append(entry)
            signal.raise_signal(signal.SIGINT)
        show(progress, entry)

    monkeypatch.setattr(recorder.ConsoleProgress, "show", pressed_once)
    split = ctrl_c_when(monkeypatch, find, "put_in_parts")
    pressed = ctrl_c_when(monkeypatch, placing, "print_report")
    summary = summary_of(tmp_path, "place", "--method=local_search", "--write=method")
    assert not split and pressed == ["print_report"] and summary["interrupted"]
    assert summary["evaluations"] < 400


def test_ctrl_c_before_a_method_finds_anything_keeps_what_others_found(tmp_path, monkeypatch):
    search, begun = find.search, []

    def pressed(problem: object, method: str, *args: object, **named: object) -> object:
        begun.append(method)
        if len(begun) == 2:
            signal.raise_signal(signal.SIGINT)
        return search(problem, method, *args, **named)

    monkeypatch.setattr(find, "search", pressed)
    summary = summary_of(tmp_path, "compare", "--methods=local_search,memetic,random")
    assert begun == ["local_search", "memetic"]
    assert summary["written"] == "local_search" and summary["interrupted"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first_s", "second_s"), [(0.0, 0.05), (3.0, 0.2), (12.0, 0.0), (12.0, 1.0)]
)  # while it traces, and while it learns
def test_the_best_of_a_search_is_written(first_s, second_s, tmp_path):
    command = [sys.executable, "-m", "tf_placer", "place", "--workload=dense_small", "--cluster=k40x2"]
    command += ["--method=hdp", "--budget_s=600", "--write=method", f"--out={tmp_path / 'out'}"]
    out, error = tmp_path / "stdout", tmp_path / "stderr"
    with open(out, "wb") as stdout, open(error, "wb") as stderr:
        process = subprocess.Popen(command, cwd=ROOT, stdout=stdout, stderr=stderr, env=dict(os.environ))
    try:
        for _ in range(1200):  # until its first round is over
            if "hdp on k40x2" in out.read_text() or process.poll() is not None:
                break
            time.sleep(0.1)
        time.sleep(first_s)
        process.send_signal(signal.SIGINT)
        time.sleep(second_s)
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=100)
    finally:
        process.kill()
    assert status == 0, error.read_text()
    assert "Traceback" not in error.read_text() and "Exception" not in error.read_text()
    assert "The search was interrupted; this is the best plan so far." in out.read_text()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["interrupted"] and summary["written"] == "hdp"
