"""What splitting the batch gives beside a plan: rows by the split program, or a sentence on why there are none."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tf_placer import workloads
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning import in_parts as planning_in_parts
from tf_placer.planning.in_parts import InParts, replicas_of, with_splitting
from tf_placer.planning.outcome import DATA_PARALLEL, Outcome, Timed
from tf_placer.problem.placement import Placement
from tf_placer.report.sentences import split_batch_sentences
from tf_placer.report.text import table
from tf_placer.search.search import search
from tf_placer.transform import WHOLE

CLUSTER = Cluster.preset("p100x2")


@pytest.fixture(scope="module")
def dense() -> Item:
    return workloads.build("dense_small")


def outcome_of(item: Item, cluster: Cluster = CLUSTER) -> Outcome:
    problem = build_problem(item, cluster)
    return Outcome(item, problem, Timed.of_search("random", search(problem, "random", budget_evaluations=4)))


def test_the_batch_is_split_over_gpus_or_else_over_cpus() -> None:
    assert replicas_of(Cluster.preset("p100x4").devices) == (0, 1, 2, 3)
    assert replicas_of(Cluster.logical(3).devices) == (0, 1, 2)


@pytest.mark.medium
def test_data_parallel_is_the_plan_of_the_split_program(dense: Item) -> None:
    found = with_splitting(outcome_of(dense), dense)
    assert [row.name for row in found.instead] == [DATA_PARALLEL]
    in_parts = InParts.estimated(dense, found.problem, WHOLE)
    (simulated_s,) = SimulatedEvaluator(in_parts.problem).evaluate(in_parts.data_parallel[None]).runtime_s
    assert [row.simulated_s for row in found.instead] == [simulated_s]
    assert found.written is found.recommended, "rows that are told are no candidates"


def test_a_plan_that_was_not_searched_in_this_process_has_them_too(dense: Item) -> None:
    outcome = outcome_of(dense)
    kept = dataclasses.replace(outcome, written=dataclasses.replace(outcome.written, search=None))
    found = with_splitting(kept, dense)
    assert [row.name for row in found.instead] == [DATA_PARALLEL]
    assert len(split_batch_sentences(found)) == 1


def test_why_not(dense: Item) -> None:
    alone = Item.from_function(tf.function(lambda: tf.sin(tf.range(4.0))))
    found = with_splitting(outcome_of(alone), alone)
    assert found.instead == () and found.why_not_split.startswith("The batch cannot be split: ")
    on_one = Cluster.logical(1)
    assert with_splitting(outcome_of(dense, on_one), dense).instead == ()
    assert with_splitting(outcome_of(dense), None).why_not_split == ""


def test_profiled_costs_are_carried_over(dense: Item) -> None:
    whole = build_problem(dense, dataclasses.replace(Cluster.logical(2), kind="local"), "analytic")
    assert whole.cluster.is_live
    slow = dataclasses.replace(whole, compute_ns=3 * whole.compute_ns)
    by_estimates, found = (InParts.estimated(dense, one, WHOLE).problem for one in (whole, slow))
    products = [i for i, op_type in enumerate(found.op_types) if op_type == "MatMul"]
    assert np.array_equal(found.compute_ns[products], 3 * by_estimates.compute_ns[products])


def test_a_form_that_keeps_ops_whole_knows_that_with_all_in_parts(
    dense: Item, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build_problem(dense, CLUSTER)
    split = InParts.estimated(dense, whole, WHOLE)
    kept = frozenset(split.program.split_ops[:2])
    monkeypatch.setattr(planning_in_parts, "faster_whole", lambda *_: kept)
    mixed = split.where_it_pays(dense, 1.0)
    assert mixed.all_in_parts is split and mixed.problem.num_ops != split.problem.num_ops
    own, of_all = (Placement(form.problem, form.data_parallel) for form in (mixed, split))
    assert mixed.form_of(own) is mixed and mixed.form_of(of_all) is split
    assert mixed.form_of(Placement(whole, whole.everything_on(0))) is None and split.form_of(own) is None
    monkeypatch.setattr(planning_in_parts, "faster_whole", lambda *_: frozenset(split.program.split_ops))
    assert split.where_it_pays(dense, 1.0) is split, "nothing would be left to split"


def test_each_row_has_the_bound_of_its_form(dense: Item) -> None:
    outcome = outcome_of(dense)
    found = with_splitting(outcome, dense)
    whole, split = found.forms[0], found.form_of(found.instead[0])
    assert split is not None and split.parts == 2 and split.lower_bound_s != whole.lower_bound_s
    assert found.lower_bound_s == whole.lower_bound_s == outcome.lower_bound_s
    assert [column.header for column in table(found).columns][3] == "bound"
    assert "bound" not in [column.header for column in table(outcome).columns]
    written = dataclasses.replace(found, written=found.instead[0], problem=split.problem, instead=())
    assert written.lower_bound_s == split.lower_bound_s
    assert "the batch in 2 parts: " in str(table(written).title)
