"""A machine of the fleet: it times plans as the runtime evaluator does, and failures are answers."""

import json
import os
import signal

import numpy as np
import pytest

from tf_placer import workloads
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.fleet.machine import Machine, MachineConfig, Program, Trial, machine_class, software
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
    machine = Machine(1, MachineConfig(reference_every=2, recycle_after=100))
    asked = []
    evaluate = RuntimeEvaluator.evaluate
    monkeypatch.setattr(
        RuntimeEvaluator, "evaluate", lambda self, plan: asked.append(plan) or evaluate(self, plan)
    )
    reply = machine.measure(trial_of(program), program)
    assert (reply.trial, reply.status, reply.error) == ("a trial", Status.OK, "")
    assert reply.runtime_s > 0 and reply.spread_s >= 0 and reply.reference_s > 0
    assert len(asked) == 3, "the reference twice, the first time for new processes"
    illegal = machine.measure(trial_of(program, device=7), program)
    assert illegal.status == Status.ILLEGAL and illegal.runtime_s is None and illegal.message
    assert illegal.reference_s == reply.reference_s and len(asked) == 4
    [loaded] = machine._loaded.values()
    try:
        for pid in loaded.evaluator.worker_pids:
            os.kill(pid, signal.SIGKILL)
        again = machine.measure(trial_of(program), program)
        assert again.status == Status.OK and not again.error, "fresh processes took the place of those killed"
        assert len(asked) >= 6 and again.reference_s != reply.reference_s, "the reference was due"
    finally:
        loaded.evaluator.close()


def test_processes_are_replaced_after_some_plans(program):
    machine = Machine(1, MachineConfig(recycle_after=2))
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
    assert reply.error.startswith("the reference plan does not run: ILLEGAL") and reply.runtime_s is None
