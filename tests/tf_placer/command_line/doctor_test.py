"""The doctor says what to do of what does not work; commands work with eager execution off."""

import concurrent.futures
import io
import json
import pathlib

import pytest
import rich.console

from tests.own_process import python
from tf_placer.__main__ import run
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line import doctor


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tf_placer"


def examined():
    console = rich.console.Console(file=io.StringIO(), width=200)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return doctor.examine(console, pool.submit(Cluster.local)), console.file.getvalue()


def finding(data, about):
    [found] = [one for one in data["findings"] if one["about"] == about]
    return found


def test_everything_is_looked_at(cache):
    (cache / "plans").mkdir(parents=True)
    (cache / "plans" / "a.json").write_text("12345")
    (cache / "workloads").mkdir()
    (cache / "workloads" / "a.item").write_text("123")
    data, said = examined()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["measurable"] and all(device["memory_bytes"] > 0 for device in data["measurable"])
    assert 1 <= data["cores"]["usable"] <= data["cores"]["present"]
    assert 0 < data["memory"]["available_bytes"] <= data["memory"]["present_bytes"]
    assert "compiled and loaded" in finding(data, "simulator")["found"]
    assert "compiled and loaded" in finding(data, "library that keeps workers off the network")["found"]
    for one in data["findings"]:
        assert f"{one['about']}: {one['found']}" in said
        assert (f"PROBLEM with {one['about']}: " in said) == bool(one["problem"])
    assert "kept workloads: 3 B of at most 5.0 GiB (TF_PLACER_WORKLOAD_CACHE_GIB)" in said
    assert f"cache: {cache}" in said and "plans: 1 files, 5 B" in said


def test_what_does_not_work_is_a_problem_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("TF_PLACER_OPS_LIBRARY", "/nowhere")
    damaged = tmp_path / "damaged.so"
    damaged.write_text("no library")
    monkeypatch.setenv("TF_PLACER_LOOPBACK_LIBRARY", str(damaged))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setenv("TF_PLACER_WORKLOAD_CACHE_GIB", "-1")
    data, said = examined()
    problems = {one["about"]: one["problem"] for one in data["findings"] if one["problem"]}
    assert data["problems"] == len(problems) and "No problem" not in said
    assert "install g++ or set CXX" in problems["compiler"]
    assert "unset it to compile" in problems["simulator"]
    assert "cannot be preloaded" in problems["library that keeps workers off the network"]
    assert "apt-get install scotch" in problems["method scotch"]
    assert "set XDG_CACHE_HOME" in problems["cache"]
    assert "give gibibytes" in problems["kept workloads"]


def test_a_gpu_that_tensorflow_does_not_see_is_a_problem(monkeypatch):
    visible = [device for device in doctor.tf.config.list_physical_devices() if device.device_type == "GPU"]
    cards = [f"/dev/nvidia{card}" for card in range(len(visible) + 1)]
    monkeypatch.setattr(doctor.glob, "glob", lambda pattern: cards)
    _, devices = doctor._tensorflow()
    assert f"has {len(cards)} GPUs and TensorFlow sees {len(visible)}; install" in devices.problem


def test_limits_of_control_groups_are_heeded(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_GROUPS", tmp_path)
    assert doctor.cores_of_this_process()[0]["quota"] is None
    assert doctor.memory_of_this_process()[0]["limit_bytes"] is None
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("1073741824\n")
    assert doctor.cores_of_this_process()[0]["quota"] == 0.5
    assert doctor.memory_of_this_process()[0]["limit_bytes"] == 2**30
    (_, cores), (_, memory) = doctor.cores_of_this_process(), doctor.memory_of_this_process()
    assert "a quota of 0.5 cores" in cores.found and "taskset --cpu-list 0-0" in cores.problem
    assert memory.found.endswith("a limit of 1.0 GiB")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(str(2**63 - 4096))
    assert doctor.cores_of_this_process()[0]["quota"] is None
    assert doctor.memory_of_this_process()[0]["limit_bytes"] is None


def test_the_command_clears(cache):
    for name in ("plans", "profiles", "lessons"):
        (cache / name).mkdir(parents=True)
        (cache / name / "file").write_text("12345")
    assert run(["doctor", "--clear=plans,profiles"]) == 0
    assert [path.name for path in cache.iterdir()] == ["lessons"]
    assert run(["doctor", "--clear"]) == 0
    assert list(cache.iterdir()) == []


_SCRIPT = """
import tensorflow.compat.v1 as tf
tf.{off}()
step = lambda x: tf.reduce_sum(tf.tanh(x @ tf.ones([16, 16])) @ tf.ones([16, 4]))
step_args = lambda: (tf.ones([8, 16]),)
"""


def _output(folder: pathlib.Path, *words: str) -> str:
    done = python("-m", "tf_placer", *words, cwd=folder, XDG_CACHE_HOME=str(folder / "cache"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Exception ignored" not in done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("off", ["disable_v2_behavior", "disable_eager_execution"])
def test_place_and_explain(tmp_path, off):
    (tmp_path / "off.py").write_text(_SCRIPT.format(off=off))
    asked = ["off.py:step", "--cluster=k40x2"]
    few = ["--method=random", "--budget_evaluations=16"]
    _output(tmp_path, "place", *asked, *few, "--parts=auto", "--out=out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"placement.json", "placed_graph.pb", "timeline.json", "report.html", "summary.json"}
    assert "matmul" in _output(tmp_path, "explain", *asked, "--plan=out/placement.json", "--op=matmul")
