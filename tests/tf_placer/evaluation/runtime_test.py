"""Placements timed on real worker processes, of TensorFlow 1 too, and what happens when those die."""

import contextlib
import os
import pathlib
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.tf1_programs import program
from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation import runtime
from tf_placer.evaluation.attempts import time_program
from tf_placer.evaluation.runtime import RaceFailed, RuntimeEvaluator, UnplacedFailed
from tf_placer.evaluation.simulated import Status
from tf_placer.graph.item import Item
from tf_placer.planners.plain import RandomBlocks
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.rewrite import place_graph
from tf_placer.runtime.graph_program import build_program
from tf_placer.runtime.timing import RuntimeConfig, reported_s

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
QUICK = RuntimeConfig(warmup_steps=1, steps=3, keep=2, deadline_s=60.0)
# The papers' sizes do not run on two workers of one machine; each has a small twin that does.
RUN_HERE = [name for name in workloads.names() if "_small" in name or name in ("resnet50", "two_towers")]


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster.local(2)


def two_chains(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Two chains of matrix products that do not need each other."""
    left, right = x, x
    for i in range(3):
        left = tf.matmul(left, x, name=f"left_{i}")
        right = tf.matmul(right, x + 1.0, name=f"right_{i}")
    return tf.reduce_sum(left), tf.reduce_sum(right)


def endless(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda y: tf.reduce_all(y > -1.0), lambda y: tf.abs(y), [x])[0]


def _item(function) -> Item:
    x = tf.constant(np.random.default_rng(0).random((64, 64), np.float32) / 64)
    return Item.from_function(tf.function(function), x, name=function.__name__)


def _on_worker_0(problem: Problem, batch: int = 1) -> np.ndarray:
    return np.zeros((batch, problem.num_units), np.int64)


def _alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


@pytest.fixture(scope="module")
def one_worker() -> Cluster:
    """Where one worker will do, and does not survive the test."""
    return Cluster.local(1)


@pytest.fixture(scope="module")
def chains(cluster, warm_workers):
    """Two chains as an item, its problem and an evaluator."""
    item = _item(two_chains)
    problem = analytic_problem(item, cluster)
    return item, problem, warm_workers.evaluator(item, problem, QUICK)


@contextlib.contextmanager
def evaluator_of(function, cluster, config=QUICK):
    """An evaluator with workers of its own, and everything on the first of them."""
    item = _item(function)
    problem = analytic_problem(item, cluster)
    with RuntimeEvaluator(item, problem, config) as evaluator:
        yield evaluator, _on_worker_0(problem)


def _split(item: Item) -> list[int]:
    return [int("right" in name) for name in item.index.names]


def test_times_of_a_batch_are_positive(chains):
    item, problem, evaluator = chains
    placements = _on_worker_0(problem, batch=2)
    placements[1, problem.unit_of_op] = _split(item)
    measurement = evaluator.evaluate(placements)
    assert measurement.status.tolist() == [Status.OK, Status.OK], measurement.messages
    assert (measurement.runtime_s > 0).all()
    assert measurement.peak_bytes.shape == (2, 2)
    # A few matrices of 16 KB, and what the runtime itself takes.
    assert (measurement.peak_bytes >= 0).all() and measurement.peak_bytes.max() < 40 << 20
    assert evaluator.evaluate(_on_worker_0(problem, batch=0)).batch == 0


def test_a_program_of_strings_is_timed(cluster, warm_workers):
    suffix = tf.Variable("1.5")
    joined = tf.function(lambda x: tf.strings.to_number(tf.strings.join([x, suffix])))
    item = Item.from_function(joined, tf.constant("2"), name="strings")
    problem = analytic_problem(item, cluster)
    measurement = warm_workers.evaluator(item, problem, QUICK).evaluate(_on_worker_0(problem) + 1)
    assert measurement.status.tolist() == [Status.OK], measurement.messages


@pytest.mark.medium
def test_a_worker_that_died_idle_costs_no_placement_its_result(cluster):
    with evaluator_of(two_chains, cluster) as (evaluator, placement):
        evaluator.evaluate(placement)
        before = evaluator.worker_pids
        os.kill(before[1], signal.SIGKILL)
        while evaluator._workers.death() is None:
            time.sleep(0.01)
        assert "killed by signal 9" in evaluator._workers.death()
        assert evaluator.evaluate(placement).status.tolist() == [Status.OK]
        assert not any(map(_alive, before))
        after = evaluator.worker_pids
        assert len(after) == 2 and not set(before) & set(after)
    assert evaluator.worker_pids == () and not any(map(_alive, after)), "none outlives its evaluator"


def test_the_reported_time_is_the_median_of_the_last_steps():
    assert RuntimeConfig() == RuntimeConfig(warmup_steps=2, steps=10, keep=5)  # as HDP's paper
    slow_start = [9.0] * 5 + [1.0, 2.0, 3.0, 40.0, 50.0]
    assert reported_s(slow_start, RuntimeConfig()) == (3.0, 40.0 - 2.0)
    assert reported_s([7.0, 5.0, 1.0, 2.0], RuntimeConfig(steps=4, keep=3))[0] == 2.0
    assert reported_s([9.0, 5.0, 7.0], RuntimeConfig(keep=2)) == (7.0, 2.0), "of all, where a limit ends it"


@pytest.mark.medium
def test_variables_of_one_placement_are_gone_before_the_next(cluster, warm_workers):
    big = tf.Variable(tf.zeros([8 << 20]), name="big")  # 32 MiB
    item = Item.from_function(tf.function(lambda x: tf.reduce_sum(big) + x), tf.constant(1.0), name="read")
    problem = analytic_problem(item, cluster)
    evaluator = warm_workers.evaluator(item, problem, QUICK)
    resident_bytes = []
    for batch in (4, 8):
        measurement = evaluator.evaluate(_on_worker_0(problem, batch))
        assert measurement.status.tolist() == [Status.OK] * batch, measurement.messages
        pages = pathlib.Path(f"/proc/{evaluator.worker_pids[0]}/statm").read_text().split()[1]
        resident_bytes.append(int(pages) * os.sysconf("SC_PAGE_SIZE"))
    grown_bytes = resident_bytes[1] - resident_bytes[0]
    assert grown_bytes < 3 * 32 << 20, "eight more placements, not eight more variables"


@pytest.mark.medium
def test_a_race_times_placements_in_turn_and_an_audit_finds_every_op_in_place(chains):
    item, problem, evaluator = chains
    placements = _on_worker_0(problem, batch=2)
    placements[1, problem.unit_of_op] = _split(item)
    samples = evaluator.race(placements, rounds=4)
    assert [len(times) for times in samples] == [4, 4]
    assert min(map(min, samples)) > 0
    for row in placements:
        found = evaluator.audit(row)
        found.check()
        assert found.in_place > item.index.num_ops
    assert found.added["_Recv"] >= 1


@pytest.mark.medium
def test_a_placement_races_the_program_as_it_is_in_a_process_of_its_own(chains):
    _, problem, evaluator = chains
    evaluator.evaluate(_on_worker_0(problem))
    placed_s, unplaced_s = evaluator.race_unplaced(_on_worker_0(problem), rounds=4, confidence=1.0)
    assert len(placed_s) == len(unplaced_s) == 4
    assert min(placed_s + unplaced_s) > 0
    assert len(evaluator.worker_pids) == 2, "the workers of the placement stay warm"


@pytest.mark.medium
def test_a_placement_computes_the_same_bits_with_grappler_and_onednn_off(chains):
    _, problem, evaluator = chains
    row = _on_worker_0(problem)[0]
    row[problem.unit_of_op] = _split(chains[0])
    found = evaluator.compare_values(row)
    assert not found.is_wrong and not found.exact.value and not found.repeated.value
    assert found.as_run.relative < 1e-5, "TensorFlow's own rewriting moves the last bits at most"
    assert found.summary().startswith(
        "the same bits with Grappler and oneDNN off; as this process has them, "
    )


@pytest.mark.medium
def test_a_placement_that_computes_something_else_is_told(chains, monkeypatch):
    _, problem, evaluator = chains
    written = runtime.rewrite

    def wrong(*args):
        graph_def = written(*args)
        for node in graph_def.node:
            node.op = {"AddV2": "Sub"}.get(node.op, node.op)
        return graph_def

    monkeypatch.setattr(runtime, "rewrite", wrong)
    found = evaluator.compare_values(_on_worker_0(problem)[0])
    assert found.is_wrong and found.summary().startswith("DIFFERENT VALUES with Grappler and oneDNN off: ")


def test_a_step_of_random_numbers_cannot_be_compared(cluster):
    unseeded = {"shape": [64], "dtype": tf.float32, "seed": 0, "seed2": 0}  # also where a seed is set
    random = lambda x: x + tf.raw_ops.RandomStandardNormal(**unseeded)  # noqa: E731
    with evaluator_of(random, cluster) as (evaluator, placement):
        found = evaluator.compare_values(placement[0])
    assert not found.is_wrong and found.summary().startswith("no two steps are alike (output ")


def test_a_program_that_does_not_run_as_it_is_is_told_from_a_placement_that_does_not(cluster):
    def refused(x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_sum(x) < 0.0, ["never negative"])]):
            return tf.identity(x)

    told = pytest.raises(UnplacedFailed, match="never negative")
    with evaluator_of(refused, cluster) as (evaluator, placement), told:
        evaluator.race_unplaced(placement)


@pytest.mark.slow
def test_a_placement_whose_worker_dies_beside_the_program_as_it_is_has_failed(cluster):
    with evaluator_of(two_chains, cluster) as (evaluator, placement):
        evaluator.evaluate(placement)
        in_the_race_s = 15.0  # after the other process has started
        killer = threading.Timer(in_the_race_s, os.kill, (evaluator.worker_pids[1], signal.SIGKILL))
        killer.start()
        with pytest.raises(RaceFailed, match=r"CRASHED: worker 1 .* was killed by signal 9"):
            evaluator.race_unplaced(placement, rounds=10_000, confidence=1.0)
        killer.join()


SHORT = RuntimeConfig(warmup_steps=0, steps=1, keep=1, deadline_s=2.0)


@pytest.mark.medium
def test_a_step_without_end_is_a_timeout_and_its_race_says_so(one_worker):
    with evaluator_of(endless, one_worker, SHORT) as (evaluator, placement):
        measurement = evaluator.evaluate(placement)
        assert evaluator.worker_pids == ()
        with pytest.raises(RaceFailed, match="TIMEOUT: not done after 2 s"):
            evaluator.race(placement)
    assert measurement.status.tolist() == [Status.TIMEOUT], measurement.messages


@pytest.mark.slow
def test_a_worker_killed_during_a_step_ends_it(cluster):
    with evaluator_of(endless, cluster) as (evaluator, placement):
        workers = evaluator._workers
        workers.start()
        timer = threading.Timer(2.0, os.kill, (workers.pids[0], signal.SIGKILL))
        timer.start()
        started = time.monotonic()
        measurement = evaluator.evaluate(placement)
        timer.join()
    assert measurement.status.tolist() == [Status.CRASHED], measurement.messages
    assert time.monotonic() - started < QUICK.deadline_s / 2


@pytest.fixture
def heeds_ctrl_c():
    """A shell that runs the tests in the background has told them to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.medium
@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_the_step_too(one_worker):
    # Or it would go on beside whatever is timed next.
    with evaluator_of(endless, one_worker) as (evaluator, placement):
        evaluator._workers.start()
        pids = evaluator.worker_pids
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            evaluator.evaluate(placement)
        timer.join()
        assert evaluator.worker_pids == () and not any(map(_alive, pids))


@pytest.mark.medium
def test_identities_differ_where_times_would(chains, cluster):
    item, problem, evaluator = chains
    same = RuntimeEvaluator(item, analytic_problem(item, cluster), QUICK)
    assert same.identity == evaluator.identity
    others = [
        RuntimeEvaluator(item, problem, RuntimeConfig()),
        RuntimeEvaluator(item, analytic_problem(item, Cluster.local(1)), QUICK),
        RuntimeEvaluator(_item(endless), analytic_problem(_item(endless), cluster), QUICK),
    ]
    assert all(other.identity != same.identity for other in others)


@pytest.mark.medium
def test_what_tensorflow_refuses_is_illegal(chains):
    item, problem, evaluator = chains
    elsewhere = "/job:worker/replica:0/task:7/device:CPU:0"
    placed = place_graph(item.graph_def, dict.fromkeys(item.index.names, elsewhere))
    outcome = time_program(evaluator._workers, build_program(item, placed), QUICK)
    assert outcome.status == Status.ILLEGAL
    assert "task:7" in outcome.message
    assert evaluator.evaluate(_on_worker_0(problem) + 2).status.tolist() == [Status.ILLEGAL]


@pytest.mark.parametrize("name", ["two_loops", "arrays", "guarded_update", "nested_training"])
def test_a_program_runs_where_it_is_put(name, warm_workers):
    found = program(name)
    item = Item.from_meta_graph(found.meta_graph, found.fetches, batch_size=4)
    problem = analytic_problem(item, Cluster.local(2))
    apart = problem.legalized(np.arange(problem.num_units) % 2)
    assert len(set(apart.tolist())) == 2
    evaluator = warm_workers.evaluator(item, problem, QUICK)
    measured = evaluator.evaluate(np.stack([problem.everything_on(0), apart]))
    assert measured.status.tolist() == [Status.OK, Status.OK]
    assert (measured.runtime_s > 0).all()
    audit = evaluator.audit(apart)
    assert not audit.unexplained
    assert audit.in_place > item.index.num_ops / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN_HERE)
def test_every_op_is_where_it_was_put_or_says_why(name):
    item = workloads.build(name)
    problem = analytic_problem(item, Cluster.local(cores=2))
    scattered = max(RandomBlocks(problem, seed=0).draw(64), key=lambda row: min(row.mean(), 1 - row.mean()))
    with RuntimeEvaluator(item, problem) as evaluator:
        found = evaluator.audit(scattered)
    found.check()
    assert found.in_place > item.index.num_ops / 2
    assert found.added["_Send"] > 0
