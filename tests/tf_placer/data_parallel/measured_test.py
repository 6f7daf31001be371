"""Replicas on two workers: they run, are timed in turn with a plan, and take about as long as is simulated."""

from __future__ import annotations

import os

import pytest
import tensorflow as tf

from tests.tf_placer.base.warm_workers import WarmWorkers
from tests.tf_placer.data_parallel.steps import BATCH, WIDTH, adam_lookup_step, dense_step, splittable
from tf_placer import workloads
from tf_placer.calibration.build_problem import build_problem
from tf_placer.data_parallel import data_parallel as module
from tf_placer.data_parallel.data_parallel import DataParallel, Splittable, data_parallel
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.workloads import registry

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")


@pytest.fixture
def workers(warm_workers: WarmWorkers, monkeypatch: pytest.MonkeyPatch) -> WarmWorkers:
    """The pair on which races are run."""
    monkeypatch.setattr(module, "RuntimeEvaluator", warm_workers.evaluator)
    return warm_workers


def raced(item: Item, problem: Problem, smaller: Splittable) -> DataParallel:
    """Beside a plan that has everything on the first worker."""
    return data_parallel(item, problem, smaller, Decisions([problem.everything_on(0)]))


@pytest.mark.parametrize("step", [dense_step, adam_lookup_step])
def test_replicas_run_in_turn_with_a_plan(workers: WarmWorkers, step) -> None:
    item = step()
    found = raced(item, analytic_problem(item, workers.cluster), splittable(step))
    assert found.why_not == "" and found.fits
    assert found.measured_s is not None and found.plan_measured_s is not None
    assert 0 < found.measured_s < 1 and 0 < found.plan_measured_s < 1  # of a few ops


@pytest.mark.parametrize(("split_s", "is_clear"), [(0.5, True), (2.0, True), (1.0, False)])
def test_turns_decide_whether_a_difference_is_clear(
    workers: WarmWorkers, monkeypatch: pytest.MonkeyPatch, split_s: float, is_clear: bool
) -> None:
    turns_s = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.1, 0.9]
    split_turns_s = [split_s * turn_s for turn_s in reversed(turns_s)]
    monkeypatch.setattr(RuntimeEvaluator, "race", lambda *_, **__: [turns_s, split_turns_s])
    item = dense_step()
    found = raced(item, analytic_problem(item, workers.cluster), splittable(dense_step))
    assert (found.plan_measured_s, found.measured_s) == pytest.approx((1.0, split_s))
    assert found.is_clear == is_clear


def test_a_step_that_fails_on_the_runtime_is_not_measured(workers: WarmWorkers) -> None:
    def fails(batch: int) -> Item:
        checked = tf.function(lambda x: tf.debugging.check_numerics(x / 0.0, "no number"))
        return Item.from_function(checked, tf.ones([batch, WIDTH]))

    item = fails(BATCH)
    found = raced(item, analytic_problem(item, workers.cluster), splittable(fails))
    assert found.measured_s is None and found.step_s is not None
    assert found.why_not.startswith("not measured: ") and "no number" in found.why_not


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("name", ["two_towers", "transformer_small"])
def test_simulated_and_measured_times_are_near_each_other(workers: WarmWorkers, name: str) -> None:
    """Beside a plan, as they are told: what else the machine does takes time of both."""
    item, batch = workloads.build(name), registry.batch_of(name)
    assert batch is not None
    problem = build_problem(item, workers.cluster)
    found = raced(item, problem, Splittable(batch, lambda part: registry.build(name, batch=part)))
    assert found.why_not == ""
    assert found.measured_s and found.plan_measured_s and found.step_s
    plan_s = float(SimulatedEvaluator(problem).evaluate(problem.everything_on(0)[None]).runtime_s[0])
    simulated, measured = found.step_s / plan_s, found.measured_s / found.plan_measured_s
    print(
        f"{name}: split batch {1e3 * found.step_s:.1f} ms simulated, {1e3 * found.measured_s:.1f} ms measured; of one "
        f"device {simulated:.2f} simulated, {measured:.2f} measured"
    )
    assert 0.5 < simulated / measured < 2
