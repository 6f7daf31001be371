"""A program with clusters computes in float64 what it does without, whatever is fused."""

import functools
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.operations import program_of_seed
from tests.equivalence.pairs import item_of, subject_of
from tests.oracles.split_equality import differences, run_lifted
from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import NO_CLUSTER, Placement
from tf_placer.rewrite import rewrite
from tf_placer.rewrite.rewrite import place_graph
from tf_placer.transform.fusion.clusters import PREFIX, RULES, convex_clusters, fused_graph
from tf_placer.transform.order import ordered_pairs

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def ordered(seed: int, clusters_of, item: Item) -> tf.compat.v1.GraphDef:
    """The graph with clusters, and a random order beside them."""
    problem = analytic_problem(item, Cluster.logical(1))
    devices = dict.fromkeys(item.index.names, DEVICE)
    order = np.random.default_rng(seed).permutation(problem.num_ops)
    plan = Placement(problem, np.zeros(problem.num_units), order, clusters_of(item, devices))
    # Each pair is written, also those that the simulated step does not need.
    with unittest.mock.patch.object(rewrite, "order_edges", ordered_pairs):
        return rewrite.rewrite(item, plan, devices)


def fused(clusters_of, item: Item) -> tf.compat.v1.GraphDef:
    devices = dict.fromkeys(item.index.names, DEVICE)
    clusters = clusters_of(item, devices)
    found = fused_graph(item, place_graph(item.graph_def, devices), clusters)
    assert len(found.origin_of) == len(set(clusters.tolist()) - {NO_CLUSTER})
    return found.graph_def


def at_random(seed: int, item: Item, devices: dict[str, str]) -> np.ndarray:
    labels = np.random.default_rng(seed).integers(1 + seed % 3, size=item.index.num_ops)
    return convex_clusters(item, labels.tolist(), devices, least=1)


def check_random_program(seed: int) -> int:
    """Compares one; returns how many clusters it had."""
    item = item_of(subject_of(program_of_seed(seed), gradients=False))
    if not item.index.num_ops or not item.runs_standalone:
        return 0
    clusters_of = functools.partial(at_random, seed)
    graph_defs = []

    def rewritten(lifted: Item) -> tf.compat.v1.GraphDef:
        graph_defs.append(fused(clusters_of, lifted))
        return graph_defs[-1]

    plain = run_lifted(item)
    assert differences(plain, run_lifted(item, rewritten=rewritten)) == [], seed
    with_order = functools.partial(ordered, seed, clusters_of)
    assert differences(plain, run_lifted(item, rewritten=with_order)) == [], seed
    return sum(node.name.startswith(PREFIX) for node in graph_defs[0].node)


@pytest.mark.medium
def test_random_programs_with_random_clusters_compute_the_same():
    assert sum(check_random_program(seed) for seed in range(4)) > 3


@pytest.mark.slow
def test_many_random_programs_with_random_clusters_compute_the_same():
    assert sum(check_random_program(seed) for seed in range(4, 60)) > 50


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm_lm_small", "two_towers", "transformer_small"])
def test_training_steps_compute_the_same_by_every_rule(name):
    item = workloads.build(name)
    expected = run_lifted(item)
    for rule in RULES.values():
        assert (
            differences(expected, run_lifted(item, rewritten=functools.partial(fused, rule.clusters))) == []
        )


def test_results_keep_their_names_and_effects_their_order():
    total = tf.Variable(0.0)

    @tf.function
    def f(x):
        mean, variance = tf.nn.moments(x, [0])
        total.assign_add(tf.reduce_sum(mean))
        low, high = tf.split(tf.tanh(x) * 2.0, 2)
        return high, variance, total.read_value(), low

    item = Item.from_function(f, tf.reshape(tf.range(8.0), [4, 2]))
    everything = RULES["everything"].clusters
    found = run_lifted(item, rewritten=functools.partial(fused, everything))
    assert differences(run_lifted(item), found) == []
    assert float(found.outputs[2]) == pytest.approx(7.0)
