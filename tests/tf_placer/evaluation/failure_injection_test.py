"""Workers that die, hang or take more than their device has: a status, fresh workers, no orphan; peak memory."""

import dataclasses
import os
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.cluster.cluster import Cluster, local_devices
from tf_placer.evaluation.attempts import time_program
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import UNKNOWN_BYTES, Status
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.rewrite.rewrite import place_graph
from tf_placer.runtime import graph_program as session
from tf_placer.runtime.graph_program import build_program
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.workers.local_workers import LocalWorkers, WorkerMemory

CONFIG = RuntimeConfig(warmup_steps=1, steps=3, keep=1, deadline_s=15.0)
MOMENTS = ("memory is settled", "values are sent", "warm-up", "a timed step", "the last timed step")
FAULTS = {
    signal.SIGKILL: Status.CRASHED,
    signal.SIGSEGV: Status.CRASHED,
    signal.SIGSTOP: Status.TIMEOUT,  # a hang
}
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
MB = 1 << 20
OWN_MB = 40  # what the runtime itself may grow by, see WorkerMemory
CHUNK_MB = 128  # what oneDNN's allocator may add to a tensor
QUICK = RuntimeConfig(warmup_steps=1, steps=2, keep=1, deadline_s=60.0)


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


def cluster_of(*memory_mb: int) -> Cluster:
    devices, links = local_devices(len(memory_mb))
    described = zip(devices, memory_mb, strict=True)
    return Cluster(
        "local",
        tuple(dataclasses.replace(device, memory_bytes=mb * MB) for device, mb in described),
        links,
        kind="local",
    )


def temporary(mb: int) -> Item:
    """A program with one tensor of ``mb`` MB, gone before its step ends."""

    @tf.function
    def step(x):
        return tf.reduce_sum(tf.tanh(tf.fill([mb * MB // 4], x)))

    return Item.from_function(step, tf.constant(1.0), name=f"temporary_{mb}")


def endless(mb: int) -> Item:
    """A program that takes 50 times ``mb`` MB, one after the other, and never ends."""

    @tf.function
    def step(x):
        total, parts = x, []
        for _ in range(50):
            parts.append(tf.fill([mb * MB // 4], total))
            total = parts[-1][0]
        rest = tf.add_n(parts)[0]  # until here, all are there
        return tf.while_loop(lambda y: tf.reduce_all(y > -1.0), lambda y: tf.abs(y), [rest])[0]

    return Item.from_function(step, tf.constant(1.0), name="endless")


def variable(mb: int) -> Item:
    """A program with a variable of ``mb`` MB and little else."""
    kept = tf.Variable(tf.zeros([mb * MB // 4]))

    @tf.function
    def step(x):
        return tf.reduce_sum(kept[:8]) + x

    return Item.from_function(step, tf.constant(1.0), name=f"variable_{mb}")


def peaks_mb(workers: LocalWorkers, cluster: Cluster, item: Item, task: int) -> list[float]:
    """Peak of each worker with everything on one of them."""
    devices = [device.name for device in cluster.devices]
    placed = place_graph(item.graph_def, dict.fromkeys(item.index.names, devices[task]))
    attempt = time_program(workers, build_program(item, placed), QUICK)
    assert attempt.status == Status.OK, attempt.message
    return [attempt.peak_bytes[device] / MB for device in devices]


@pytest.mark.medium
@pytest.mark.parametrize(
    "onednn",
    [
        pytest.param("0", id="plain allocator", marks=pytest.mark.slow),
        pytest.param("1", id="oneDNN's allocator"),
    ],
)
def test_peaks_of_known_tensors_on_workers_that_stay(onednn, monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", onednn)
    cluster = cluster_of(2000, 2000)
    with LocalWorkers(cluster) as workers:
        # Fresh: resident memory tells within what the runtime takes for itself.
        first, idle = peaks_mb(workers, cluster, temporary(200), task=0)
        assert 200 <= first <= 200 + OWN_MB
        assert idle <= OWN_MB
        # After a larger one, which oneDNN's allocator keeps: its own count tells.
        for mb, task in [(1, 0), (90, 0), (200, 0), (90, 1), (1, 1)]:
            peaks = peaks_mb(workers, cluster, temporary(mb), task)
            assert mb <= peaks[task] <= mb + OWN_MB + (CHUNK_MB if mb > 1 else 0), (mb, peaks)
            assert peaks[1 - task] <= OWN_MB
        # A variable counts where it stays, and neither where its value came through nor what sending it took.
        passed, kept = peaks_mb(workers, cluster, variable(150), task=1)
        assert 150 <= kept <= 150 + OWN_MB + CHUNK_MB
        assert passed <= OWN_MB
        assert max(peaks_mb(workers, cluster, temporary(1), task=1)) <= OWN_MB, "the variable is gone"
        # Larger than all before it: what they left may count on top.
        grown = peaks_mb(workers, cluster, temporary(300), task=0)[0]
        assert 300 <= grown <= 300 + OWN_MB + (200 + CHUNK_MB if onednn == "1" else 0)


@pytest.fixture(scope="module")
def lopsided():
    """One worker with plenty of memory and one with little; 150 MB are taken for a moment."""
    item = temporary(150)
    problem = analytic_problem(item, cluster_of(2000, 80))
    with RuntimeEvaluator(item, problem, QUICK) as evaluator:
        yield problem, evaluator
        pids = evaluator.worker_pids
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def everything_on(problem, *tasks: int) -> np.ndarray:
    return np.repeat(np.array(tasks)[:, np.newaxis], problem.num_units, axis=1)


@pytest.mark.medium
def test_a_placement_that_takes_too_much_is_out_of_memory_and_the_next_is_measured(lopsided):
    problem, evaluator = lopsided
    assert evaluator.evaluate(everything_on(problem, 0)).status.tolist() == [Status.OK]
    before = evaluator.worker_pids
    measured = evaluator.evaluate(everything_on(problem, 0, 1, 0))
    assert not set(before) & set(evaluator.worker_pids)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in before), "an orphan"
    assert measured.status.tolist() == [Status.OK, Status.OUT_OF_MEMORY, Status.OK], measured.messages
    assert "task:1/device:CPU:0 has 83.9 MB, and the program took " in measured.messages[1]
    assert np.isnan(measured.runtime_s).tolist() == [False, True, False]
    assert measured.peak_bytes.shape == (3, 2)
    assert measured.peak_bytes[1, 1] > 80 * MB  # it may be ended before it has all 150
    assert measured.peak_bytes[[0, 2], 0].min() >= 150 * MB
    assert measured.peak_bytes[[0, 2], 1].max() <= OWN_MB * MB


def test_a_program_that_takes_more_and_more_is_ended_before_its_deadline():
    # Or the status would be TIMEOUT.
    item = endless(20)
    problem = analytic_problem(item, cluster_of(300))
    with RuntimeEvaluator(item, problem, QUICK) as evaluator:
        measured = evaluator.evaluate(everything_on(problem, 0))
        assert evaluator.worker_pids == ()
    assert measured.status.tolist() == [Status.OUT_OF_MEMORY], measured.messages
    assert measured.peak_bytes[0, 0] > 300 * MB


def test_values_that_cannot_fit_are_not_sent():
    item = variable(100)
    problem = analytic_problem(item, cluster_of(2000, 80))
    with RuntimeEvaluator(item, problem, QUICK) as evaluator:
        measured = evaluator.evaluate(everything_on(problem, 1))
        assert evaluator.worker_pids == (), "nothing was started for it"
        assert measured.status.tolist() == [Status.OUT_OF_MEMORY]
        assert "the variables and inputs there take 105 MB" in measured.messages[0]
        assert measured.peak_bytes is None
        both = evaluator.evaluate(everything_on(problem, 1, 0))
    assert both.status.tolist() == [Status.OUT_OF_MEMORY, Status.OK]
    assert both.peak_bytes[0].tolist() == [UNKNOWN_BYTES, UNKNOWN_BYTES]


def test_what_an_earlier_program_left_makes_no_placement_run_out_of_memory(monkeypatch):
    # oneDNN's allocator keeps the 150 MB of the first, and counts a chunk of 256 MB for the second's 130 MB at most.
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    cluster = cluster_of(200)
    with LocalWorkers(cluster) as workers:
        for mb in (150, 130, 150):
            assert 0.98 * mb <= max(peaks_mb(workers, cluster, temporary(mb), task=0)) <= 200
