"""Devices, an order and fusion by one policy: scored as drawn, conditioned on what was decided before, and learned."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.oracles.small_steps import assert_gradients
from tests.tf_placer.agents.go.small_go import OF_UNITS
from tests.tf_placer.agents.small_learners import SMALL, warm_start_on
from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.agents.go.learner import GoLearner
from tf_placer.agents.go.policy import Chain, GoConfig, GoPolicy, MultiTaskPolicy, go_inputs
from tf_placer.agents.tables import TabularConfig, TabularLearner
from tf_placer.base.arguments import InputError
from tf_placer.grouper.groups import TASKS, JointPlans, ordered_groups
from tf_placer.problem.placement import Placement
from tf_placer.transform.fusion import fused_plan

FUSIBLE = np.array([False, True, True, True, True, False])
PROBLEM = dataclasses.replace(branches_problem(2, 2), fusible_of_op=FUSIBLE)
CONFIG = dataclasses.replace(OF_UNITS, passes=1, levels=3, keep_probability=0.3, tasks=TASKS[-1])
INPUTS = go_inputs(ordered_groups(PROBLEM, None))
SEED = tf.constant([11, 12])


def begin_of(config, inputs=INPUTS):
    """Everything on device 0, neutral."""
    plans = JointPlans(ordered_groups(PROBLEM, None), tuple(config.tasks.split(",")), config.levels)
    return tf.constant(np.concatenate([np.zeros([1, inputs.legal.shape[0]], np.int32), plans.neutral]))


@pytest.fixture(scope="module")
def policy():
    return MultiTaskPolicy(CONFIG, seed=5)


@pytest.mark.medium
@pytest.mark.parametrize("tasks", [tasks for tasks in TASKS if tasks != "devices"])
@pytest.mark.parametrize("passes", [1, 2])
def test_what_is_drawn_is_scored_as_what_it_is(tasks, passes):
    config = dataclasses.replace(CONFIG, tasks=tasks, passes=passes)
    policy, begin = MultiTaskPolicy(config, seed=5), begin_of(config)
    chain, drawn = policy.sample(INPUTS, begin, 8, SEED)
    named = tasks.split(",")
    moves = "devices" in named
    assert policy.num_steps == passes * moves + len(named) - moves
    assert chain.steps.shape == (8, policy.num_steps, 6)
    scored = policy.score(INPUTS, chain)
    np.testing.assert_allclose(scored.log_prob, drawn.log_prob, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scored.entropy, drawn.entropy, rtol=1e-4, atol=1e-5)
    assert len(np.unique(chain.steps, axis=0)) > 1
    if not moves:
        assert (policy.state(chain)[:, 0] == 0).numpy().all()
    if "fusion" in named:
        level = policy.state(chain)[:, -1].numpy()
        can = INPUTS.fuses.numpy()
        assert (level[:, ~can] == 0).all() and (level[:, can] > 0).any()
        assert (scored.log_prob.numpy()[:, -1, ~can] == 0).all()


@pytest.mark.medium
@pytest.mark.parametrize("tasks", [tasks for tasks in TASKS if "," in tasks])
@pytest.mark.parametrize("passes", [1, 2])
def test_what_is_not_drawn_stays_for_certain(tasks, passes):
    config = dataclasses.replace(CONFIG, tasks=tasks, passes=passes)
    policy, begin = MultiTaskPolicy(config, seed=5), begin_of(config)
    every = [np.array(policy.task_of_step) == task for task in range(len(tasks.split(",")))]
    assert (np.sum(every, axis=0) == 1).all()  # each step is of one task
    stands = policy.unfolded(begin[tf.newaxis])[0]
    free = policy.score(INPUTS, policy.sample(INPUTS, begin, 8, SEED)[0])
    for turn in every:
        chain, drawn = policy.sample(INPUTS, begin, 8, SEED, drawn=tf.constant(turn))
        held = ~turn
        np.testing.assert_array_equal(chain.steps.numpy()[:, held], np.tile(stands.numpy()[held], (8, 1, 1)))
        assert (chain.steps.numpy() != stands.numpy()).any()
        scored = policy.score(INPUTS, chain, drawn=tf.constant(turn))
        np.testing.assert_allclose(scored.log_prob, drawn.log_prob, rtol=1e-4, atol=1e-5)
        assert (scored.log_prob.numpy()[:, held] == 0).all() and (scored.entropy.numpy()[:, held] == 0).all()
        assert (free.entropy.numpy()[:, turn] > 0).any()


@pytest.mark.medium
def test_tasks_take_turns_from_the_best_of_all_so_far():
    config = dataclasses.replace(SMALL["go"], tasks=TASKS[-1], levels=3, turn_updates=2, keep_probability=0.3)
    learner = learner_of(config)
    moved = []
    for update in range(8):
        before = learner.best.fastest[0].numpy()
        proposal = learner.propose()
        states = learner.policy.state(proposal.actions.chain).numpy()
        moved.append((states != before).any(axis=(0, 2)).tolist())
        learner.learn(proposal.actions, tf.constant([3.0, 2, 1, 2, 2, 2]) - 0.1 * update, tf.fill([6], True))
        np.testing.assert_array_equal(learner.best.fastest[0], states[2])
    devices, order, fusion = [True, False, False], [False, True, False], [False, False, True]
    assert moved == [devices, devices, order, order, fusion, fusion, devices, devices]


def test_all_that_can_be_decided_is_certain_together():
    some = dataclasses.replace(CONFIG, levels=2)
    policy, begin = MultiTaskPolicy(some, seed=5), begin_of(some)
    # Two nodes have 2 devices and 2 levels for each of two further tasks; all others stay where they are: a part of
    # the whole, by the chain rule.
    free = slice(begin.shape[1] - 4, begin.shape[1] - 2)
    states = np.tile(np.array([[0], [1], [0]]), (2**6, 1, begin.shape[1]))
    states[:, :, free] = np.reshape(list(itertools.product(range(2), repeat=2 * 3)), (2**6, 3, 2))
    scores = policy.score(INPUTS, Chain(begin, tf.constant(states, tf.int32)))
    probability = tf.exp(tf.reduce_sum(scores.log_prob[:, :, free], axis=[1, 2]))
    assert float(tf.reduce_sum(probability)) == pytest.approx(1, rel=1e-4)


def test_a_task_sees_what_was_decided_before_it_and_not_after_it(policy):
    begin = begin_of(CONFIG)
    chain, _ = policy.sample(INPUTS, begin, 1, SEED)
    steps = chain.steps.numpy()

    def moved(step):
        other = steps.copy()
        node = int(np.flatnonzero(INPUTS.fuses)[0])
        other[0, step, node] = (other[0, step, node] + 1) % 2
        found = policy.score(INPUTS, Chain(begin, tf.constant(other))).entropy
        return np.abs(found - policy.score(INPUTS, chain).entropy).max(axis=(0, 2)) > 1e-7

    assert moved(0).tolist() == [False, True, True]
    assert moved(1).tolist() == [False, False, True]
    assert moved(2).tolist() == [False, False, False]


@pytest.mark.medium
def test_gradients_are_those_of_numbers():
    # One segment: no gradient flows to the one before.
    policy = MultiTaskPolicy(dataclasses.replace(CONFIG, segment=100), seed=5)
    chain, _ = policy.sample(INPUTS, begin_of(CONFIG), 4, SEED)
    own = policy._own
    variables = [own._last[1].b, own._levels[0].embeddings, own._last[0].w]
    total = lambda: tf.reduce_sum(policy.score(INPUTS, chain).log_prob)  # noqa: E731
    assert_gradients(total, variables, step=5e-3, rel=0.05, abs=0.02)


def test_a_level_stays_as_often_as_it_is_asked_to():
    config = dataclasses.replace(CONFIG, keep_probability=0.9, exploration=0.0)
    policy = MultiTaskPolicy(config, seed=5)
    for one in policy.trainable_variables:
        one.assign(tf.zeros_like(one))
    begin = begin_of(config)
    stays = policy.score(INPUTS, Chain(begin, policy.unfolded(begin[tf.newaxis]))).log_prob
    # Of fusion only where there is something to decide.
    can = INPUTS.fuses.numpy()
    np.testing.assert_allclose(tf.exp(tf.reduce_sum(stays, axis=1))[0], np.where(can, 0.729, 0.81), rtol=1e-4)


def test_the_layers_are_those_of_the_placement(policy):
    shared = GoPolicy(CONFIG, seed=5).trainable_variables
    assert len(policy.placement.trainable_variables) == len(shared) > 0
    # Two rows for the tasks, three levels of each, and two last layers, of width 8.
    own = sum(int(np.prod(variable.shape)) for variable in policy._own.trainable_variables)
    assert own == 2 * 8 + 2 * 3 * 8 + 2 * (8 * 3 + 3)


def learner_of(config):
    return GoLearner(PROBLEM, config, warm_start_on(0, PROBLEM), seed=3)


def wanted(decisions):
    """[B] shares of what is wanted: device 1, ops later than neutral, and fused where they can be."""
    device = (decisions.device_of_unit == 1).mean(axis=1)
    later = (decisions.priority_of_op > 0).mean(axis=1)
    fused = (decisions.cluster_of_op >= 0).mean(axis=1) / FUSIBLE.mean()
    return np.stack([device, later, fused], axis=1)


def taught(learner, updates=40, count=16):
    """Mean shares of what is wanted in the first three batches and in the last three; all its plans are legal."""
    found = []
    for _ in range(updates):
        proposal = learner.propose()
        shares = wanted(proposal.placements)
        found.append(shares.mean(axis=0))
        learner.learn(proposal.actions, tf.constant(2 - shares.mean(axis=1)), tf.fill([count], True))
        for row in range(count):
            plan = Placement.from_decisions(PROBLEM, proposal.placements.row(row))
            assert plan.cluster_of_op is None or fused_plan(plan)
    return np.mean(found[:3], axis=0), np.mean(found[-3:], axis=0)


@pytest.mark.slow
def test_it_learns_all_of_them_beyond_what_it_drew_at_first_and_as_much_as_its_own_table():
    shared = {"tasks": TASKS[-1], "levels": 3, "num_groups": 6}
    config = dataclasses.replace(
        SMALL["go"], **shared, keep_probability=0.7, rollouts=16, learning_rate=2e-2, begin="plan"
    )
    first, last = taught(learner_of(config))
    assert (last > np.maximum(first + 0.1, 0.9)).all(), (first, last)
    table = TabularConfig(**shared, samples=16, start_probability=0.7, learning_rate=0.2)
    _, of_table = taught(TabularLearner(PROBLEM, table, warm_start_on(0, PROBLEM), seed=3))
    assert last.mean() > of_table.mean() - 0.05, (last, of_table)


@pytest.mark.slow
@pytest.mark.parametrize("tasks", ["fusion", TASKS[-1]])
def test_the_first_sample_is_what_is_begun_with_and_refinement_goes_on_from_the_best(tasks):
    learner = learner_of(dataclasses.replace(SMALL["go"], tasks=tasks, levels=3))
    first, again = learner.propose(), learner.propose()
    np.testing.assert_array_equal(first.placements.cluster_of_op, again.placements.cluster_of_op)
    plain = first.placements.row(0)
    assert plain.cluster_of_op is None and (plain.device_of_unit == 0).all()
    learner.learn(first.actions, tf.constant([3.0, 2, 1, 2, 2, 2]), tf.fill([6], True))
    np.testing.assert_array_equal(learner.best.fastest[0], learner.policy.state(first.actions.chain)[2])
    assert float(learner.best.runtime_s[0]) == 1 and 0 < float(learner.entropy()) < np.log(3)


def test_what_cannot_be_asked_is_told():
    for settings in ({"tasks": "fusion"}, {"tasks": TASKS[-1], "begin": "plan"}):
        with pytest.raises(InputError, match=r"^turn_updates is 3, .*else leave turn_updates at 0$"):
            GoConfig(turn_updates=3, **settings)
    with pytest.raises(InputError, match=r"^tasks is 'fusion,devices'; give one of devices, priorities"):
        GoConfig(tasks="fusion,devices")
