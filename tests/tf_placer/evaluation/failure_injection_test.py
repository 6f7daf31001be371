"""Workers that die or hang at every step of the protocol: a status, fresh workers, no orphan."""

import os
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.attempts import time_program
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import Status
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.rewrite.rewrite import place_graph
from tf_placer.runtime import graph_program as session
from tf_placer.runtime.graph_program import build_program
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.workers.local_workers import WorkerMemory

CONFIG = RuntimeConfig(warmup_steps=1, steps=3, keep=1, deadline_s=15.0)
MOMENTS = ("memory is settled", "values are sent", "warm-up", "a timed step", "the last timed step")
FAULTS = {
    signal.SIGKILL: Status.CRASHED,
    signal.SIGSEGV: Status.CRASHED,
    signal.SIGSTOP: Status.TIMEOUT,  # a hang
}


@pytest.fixture(scope="module")
def evaluator():
    weight = tf.Variable(tf.ones([64, 64]), name="weight")

    @tf.function
    def step(x):
        weight.assign_add(0.001 * x)
        return tf.reduce_sum(tf.matmul(weight, x))

    item = Item.from_function(step, tf.ones([64, 64]), name="step")
    with RuntimeEvaluator(item, analytic_problem(item, Cluster.local(2)), CONFIG) as evaluator:
        yield evaluator
        pids = evaluator.worker_pids
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.fixture
def placement(evaluator):
    row = np.zeros((1, evaluator.problem.num_units), int)
    row[0, -1] = 1
    return row


def strike(monkeypatch, moment, action):
    """Calls ``action`` once, at a moment of the next evaluation."""
    struck = []

    def once():
        if not struck:
            struck.append(True)
            action()

    if moment in ("memory is settled", "memory is told"):
        method = {"memory is settled": "settle", "memory is told": "peak_bytes"}[moment]
        original_method = getattr(WorkerMemory, method)
        monkeypatch.setattr(WorkerMemory, method, lambda self: (once(), original_method(self))[1])
        return
    if moment == "values are sent":
        original = session.batches
        monkeypatch.setattr(session, "batches", lambda assignments: (once(), original(assignments))[1])
        return
    number = {"warm-up": 0, "a timed step": 1, "the last timed step": CONFIG.steps}[moment]
    original_step, calls = session.LoadedProgram.step, []

    def step(self):
        if len(calls) == number:
            once()
        calls.append(True)
        original_step(self)

    monkeypatch.setattr(session.LoadedProgram, "step", step)


def check_fault(evaluator, placement, monkeypatch, moment, fault, task):
    """Gives the seconds until the fault was told."""
    assert evaluator.evaluate(placement).status.tolist() == [Status.OK]
    before = evaluator.worker_pids
    strike(monkeypatch, moment, lambda: os.kill(before[task], fault))
    started = time.monotonic()
    measured = evaluator.evaluate(placement)
    took_s = time.monotonic() - started
    assert measured.status.tolist() == [FAULTS[fault]], measured.messages
    assert measured.messages[0] and "\n" not in measured.messages[0]
    assert not any(os.path.exists(f"/proc/{pid}") for pid in before), "an orphan"
    monkeypatch.undo()
    assert evaluator.evaluate(placement).status.tolist() == [Status.OK]
    assert not set(before) & set(evaluator.worker_pids)
    return took_s


@pytest.mark.medium
def test_a_worker_that_is_killed_in_a_timed_step(evaluator, placement, monkeypatch):
    check_fault(evaluator, placement, monkeypatch, "a timed step", signal.SIGKILL, task=1)


@pytest.mark.slow
@pytest.mark.parametrize("task", [0, 1])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("moment", MOMENTS)
def test_every_fault_at_every_moment(evaluator, placement, monkeypatch, moment, fault, task):
    assert check_fault(evaluator, placement, monkeypatch, moment, fault, task) < 3 * CONFIG.deadline_s


@pytest.mark.slow
@pytest.mark.parametrize("task", [0, 1])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_after_the_last_step(evaluator, placement, monkeypatch, fault, task):
    evaluator.evaluate(placement)
    before = evaluator.worker_pids
    strike(monkeypatch, "memory is told", lambda: os.kill(before[task], fault))
    started = time.monotonic()
    measured = evaluator.evaluate(placement)
    assert time.monotonic() - started < 3 * CONFIG.deadline_s
    # All steps are timed by then: whether the death is still noticed is a matter of moments.
    assert measured.status[0] in (Status.OK, FAULTS[fault]), measured.messages
    monkeypatch.undo()
    if measured.status[0] == Status.OK:  # then the next evaluation may be the first that meets the fault
        assert evaluator.evaluate(placement).status[0] in (Status.OK, FAULTS[fault])
    assert evaluator.evaluate(placement).status.tolist() == [Status.OK]
    if FAULTS[fault] != Status.TIMEOUT or measured.status[0] != Status.OK:
        assert not set(before) & set(evaluator.worker_pids)
    assert not [pid for pid in set(before) - set(evaluator.worker_pids) if os.path.exists(f"/proc/{pid}")]


def test_an_op_that_raises_at_any_step_is_a_status_and_the_workers_live_on(warm_workers):
    count = tf.Variable(0)

    @tf.function
    def step(last):
        with tf.control_dependencies([tf.debugging.Assert(count < last, [count])]):
            return count.assign_add(1)

    cluster = warm_workers.cluster
    workers = warm_workers.lend(cluster)
    workers.start()
    pids = workers.pids
    for last in range(CONFIG.warmup_steps + CONFIG.steps + 1):
        item = Item.from_function(step, tf.constant(last), name="raising")
        placed = place_graph(item.graph_def, dict.fromkeys(item.index.names, cluster.devices[last % 2].name))
        attempt = time_program(workers, build_program(item, placed), CONFIG)
        if last == CONFIG.warmup_steps + CONFIG.steps:
            assert attempt.status == Status.OK, attempt.message
        else:
            assert attempt.status == Status.ILLEGAL
            assert "assertion failed" in attempt.message
    assert workers.pids == pids and workers.death() is None


def test_an_op_that_raises_ends_no_other_placement(warm_workers):
    @tf.function
    def step(x):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_sum(x) < 0.0, [x])]):
            return tf.identity(x)

    item = Item.from_function(step, tf.ones([2]), name="raising")
    problem = analytic_problem(item, warm_workers.cluster)
    evaluator = warm_workers.evaluator(item, problem, CONFIG)
    measured = evaluator.evaluate(np.zeros((2, problem.num_units), int))
    assert evaluator.worker_pids
    assert measured.status.tolist() == [Status.ILLEGAL] * 2
    assert "assertion failed" in measured.messages[0]


@pytest.mark.slow
def test_two_hundred_placements_do_not_grow_memory(evaluator, placement):
    def resident_bytes():
        sizes = []
        for pid in ("self", *evaluator.worker_pids):
            with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
                sizes.append(int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        return np.array(sizes)

    evaluator.evaluate(np.repeat(placement, 20, axis=0))
    before = resident_bytes()
    pids = evaluator.worker_pids
    assert set(evaluator.evaluate(np.repeat(placement, 200, axis=0)).status.tolist()) == {Status.OK}
    assert evaluator.worker_pids == pids
    # A leak of a placed function is 0.4 MiB each: 80 MiB.
    assert (resident_bytes() - before).max() < 20 << 20, (resident_bytes() - before) / 2**20
