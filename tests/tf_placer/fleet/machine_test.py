"""Machines of a fleet time plans as the runtime evaluator does, and wrong addresses are told in one line."""

import io
import json
import os
import signal
import socket

import numpy as np
import pytest
import rich.console

from tf_placer import workloads
from tf_placer.__main__ import run
from tf_placer.base.arguments import InputError
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import Status
from tf_placer.fleet import address as module
from tf_placer.fleet.address import FleetAddress, why_no_ray
from tf_placer.fleet.connection import open_fleet
from tf_placer.fleet.machine import Machine, Program, Trial, machine_class, software
from tf_placer.problem.placement import Decisions
from tf_placer.runtime.timing import RuntimeConfig

CONFIG = RuntimeConfig(warmup_steps=1, steps=3, keep=3)


@pytest.fixture(scope="module")
def cluster():
    return Cluster.local(cores=1)


@pytest.fixture(scope="module")
def program(cluster):
    """Read from the files in it, as on another machine."""
    item = workloads.build("dense_small")
    problem = build_problem(item, cluster, costs="analytic")
    return Program.packed(item, problem, Decisions([problem.everything_on(0)]), CONFIG)


def trial_of(program, device=0, name="a trial"):
    _, problem = program.unpacked()
    return Trial(name, Decisions([np.full(problem.num_units, device, np.int32)]), program.digest)


def test_it_says_who_it_is_in_plain_data(cluster):
    hello = Machine(1).hello()
    assert json.loads(json.dumps(hello)) == hello
    assert hello["software"] == software() and hello["machines"] == machine_class(cluster)
    assert hello["pid"] == os.getpid() and hello["host"] and not hello["error"]
    lacking = Machine(10_000).hello()
    assert "may use" in lacking["error"] and not lacking["machines"]


def test_a_program_arrives_as_it_was_sent(program):
    item, problem = program.unpacked()
    assert problem.fingerprint == item.fingerprint == workloads.build("dense_small").fingerprint


def test_plans_are_timed_and_failures_are_answers(program, monkeypatch):
    monkeypatch.setattr("tf_placer.fleet.machine.REFERENCE_EVERY", 2)
    machine = Machine(1)
    asked = []
    evaluate = RuntimeEvaluator.evaluate
    monkeypatch.setattr(
        RuntimeEvaluator, "evaluate", lambda self, plan: asked.append(plan) or evaluate(self, plan)
    )
    reply = machine.measure(trial_of(program), program)
    timed = reply.measurement
    assert (reply.trial, timed.status.tolist(), reply.error) == ("a trial", [Status.OK], "")
    assert timed.runtime_s[0] > 0 and timed.spread_s[0] >= 0 and reply.reference_s > 0
    assert len(asked) == 3, "the reference twice, the first time for new processes"
    illegal = machine.measure(trial_of(program, device=7), program)
    refused = illegal.measurement
    assert refused.status.tolist() == [Status.ILLEGAL] and refused.messages[0]
    assert illegal.reference_s == reply.reference_s and len(asked) == 4
    [loaded] = machine._loaded.values()
    try:
        for pid in loaded.evaluator.worker_pids:
            os.kill(pid, signal.SIGKILL)
        again = machine.measure(trial_of(program), program)
        assert again.measurement.status[0] == Status.OK and not again.error, (
            "fresh processes took the place of those killed"
        )
        assert len(asked) >= 6 and again.reference_s != reply.reference_s, "the reference was due"
    finally:
        loaded.evaluator.close()


def test_processes_are_replaced_after_some_plans(program, monkeypatch):
    monkeypatch.setattr("tf_placer.fleet.machine.RECYCLE_AFTER", 2)
    machine = Machine(1)
    machine.measure(trial_of(program), program)
    [loaded] = machine._loaded.values()
    try:
        before = loaded.evaluator.worker_pids
        assert before
        machine.measure(trial_of(program), program)
        assert loaded.evaluator.worker_pids == ()
        machine.measure(trial_of(program), program)
        assert loaded.evaluator.worker_pids and loaded.evaluator.worker_pids != before
    finally:
        loaded.evaluator.close()


def test_what_keeps_a_machine_from_measuring_is_an_error(program, monkeypatch):
    def fails(self, plan):
        found = real(self, [np.full(plan.shape[1], 7, np.int32)])
        assert found.status[0] == Status.ILLEGAL
        return found

    real = RuntimeEvaluator.evaluate
    monkeypatch.setattr(RuntimeEvaluator, "evaluate", fails)
    reply = Machine(1).measure(trial_of(program), program)
    assert reply.error.startswith("the reference plan does not run: ILLEGAL") and reply.measurement is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local:2", FleetAddress(actors=2)),
        ("10.0.0.1:6379", FleetAddress("10.0.0.1", 6379)),
        ("head-7.ray:1", FleetAddress("head-7.ray", 1)),
        ("[::1]:65535", FleetAddress("[::1]", 65535)),
    ],
)
def test_an_address_is_read_and_written(text, expected):
    assert FleetAddress.parse(text) == expected
    assert str(expected) == text
    assert expected.is_local == text.startswith("local")


@pytest.fixture
def ray_2_60(monkeypatch):
    monkeypatch.setattr(module, "ray_version", lambda: "2.60.0")


def error_of(capsys, *given):
    words = ["place", "--workload=dense_small", "--out=out/never", *given]
    assert run(words, rich.console.Console(file=io.StringIO())) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    return error


@pytest.mark.parametrize(
    ("version", "why"), [("", "Ray is not installed"), ("2.51.1", "Ray 2.51.1 knows no token")]
)
def test_without_ray_it_says_what_to_install(monkeypatch, capsys, version, why):
    monkeypatch.setattr(module, "ray_version", lambda: version)
    error = error_of(capsys, "--fleet=local:2")
    assert error.startswith(f"tf-placer: --fleet=local:2: {why}")
    assert error.endswith("pip install 'tf_placer[fleet]'\n")


def test_versions_are_numbers(monkeypatch):
    for version, is_good in (("2.52.0", True), ("2.9.3", False), ("3.0.0rc1", True), ("2.100", True)):
        monkeypatch.setattr(module, "ray_version", lambda version=version: version)
        assert (why_no_ray() == "") == is_good, version


def test_a_fleet_that_cannot_be_reached(ray_2_60, capsys):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        error = error_of(capsys, f"--fleet=127.0.0.1:{unused.getsockname()[1]}")
    assert "nothing answers there" in error and "ray start --head" in error


def test_a_described_cluster(ray_2_60, capsys):
    error = error_of(capsys, "--fleet=local:2", "--cluster=k40x2")
    assert "--fleet=local:2" in error and "--cluster=k40x2 describes others; leave --cluster out" in error


@pytest.mark.parametrize("other", ["--plan=FILE", "--objective=memory", "--op_library=FILE"])
def test_what_does_not_go_with_a_fleet(ray_2_60, capsys, tmp_path, monkeypatch, other):
    monkeypatch.chdir(tmp_path)
    if "--plan" in other:
        (tmp_path / "FILE").write_text("{}")
    given = ["--fleet=local:2", "--cluster=local:1", other]
    assert other.partition("=")[0] in error_of(capsys, *given)


def test_a_library_call_is_told_the_same(ray_2_60):
    with pytest.raises(InputError, match="cluster 'k40x2' is described; give --cluster=local"):
        open_fleet(FleetAddress(actors=1), Cluster.preset("k40x2"))


def test_a_cluster_that_runs_needs_a_token(ray_2_60, monkeypatch, tmp_path):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        InputError, match=r"there is no token for it; put that of the cluster into ~/.ray/auth_token"
    ):
        open_fleet(FleetAddress("127.0.0.1", 1), Cluster("c", Cluster.logical(1).devices, (), kind="local"))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
