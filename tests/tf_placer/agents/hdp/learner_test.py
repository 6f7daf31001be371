"""The learner of the Hierarchical planner: its losses by hand, and that it learns."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import (
    OTHER,
    PROBLEM,
    SMALL,
    in_turn,
    off_device,
    small_learner,
    update,
    warm_start_on,
    weighted_devices,
)
from tests.tf_placer.problem.small_problems import (
    branches_optimum_ns,
    branches_problem,
    problem_of,
    small_cluster,
)
from tf_placer.agents.hdp import Executed, HdpLearner
from tf_placer.agents.hdp_policy import Actions, HdpConfig
from tf_placer.base import masked
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.groups import unit_groups
from tf_placer.search.search import search

OURS = SMALL["hdp"]
# The paper's loss, small.
PLAIN = {
    "groups": "min_cut", "group_probability": 0.0, "groups_per_step": 2, "start_probability": 0.9,
    "placements": 6, "loss": "reinforce", "incumbent": False, "learning_rate": 2e-3,
}  # fmt: skip


def plain_learner(device=0, problem=PROBLEM, **changes):
    return small_learner("hdp", problem, device, **{**PLAIN, **changes})


def drawn(learner):
    """Actions without noise, and their scores."""
    noise = learner.policy.draw_noise(learner.inputs, tf.constant(0.0), tf.constant([1, 2]))
    return noise, *learner.policy.sample(learner.inputs, noise, tf.constant([3, 4]))


def loss_and_gradient(learner, actions, noise, reward, valid):
    """The learner's own loss of given actions, and its gradient in both networks' variables."""
    with tf.GradientTape() as tape:
        scores = learner.policy.score(learner.inputs, actions, noise)
        executed = tf.constant(reward), tf.constant(-reward), tf.constant(valid)
        loss, _ = learner._loss(scores, Executed(actions, (), ()), *executed)
    return float(loss), tape.gradient(loss, learner.policy.trainable_variables)


REWARD = np.array([-1.0, -2.0, -4.0, -3.0, -1.5, -2.5], np.float32)


def test_the_loss_is_the_papers_sum_over_exactly_the_executed_actions():
    learner = plain_learner()
    noise, actions, scores = drawn(learner)
    loss, gradient = loss_and_gradient(learner, actions, noise, REWARD, [True] * 6)
    advantage = REWARD - REWARD.mean()
    group_log_prob, device_log_prob = scores.group_log_prob[0], scores.device_log_prob.numpy()[0]
    by_hand = -np.mean(advantage * device_log_prob) - advantage.mean() * group_log_prob
    assert loss == pytest.approx(float(by_hand), rel=1e-4)
    with tf.GradientTape() as tape:
        forced = learner.policy.score(learner.inputs, actions, noise)
        objective = tf.reduce_mean(advantage * forced.device_log_prob[0])
        objective += advantage.mean() * forced.group_log_prob[0]
    expected = tape.gradient(objective, learner.policy.trainable_variables)
    for ours, theirs in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(ours), -tf.convert_to_tensor(theirs), 1e-3, 1e-6)


@pytest.mark.parametrize("after", [0, 1])
def test_after_a_while_what_does_not_run_teaches_nothing(monkeypatch, after):
    reward = np.array([-1.0, -10.0, -2.0, -10.0, -10.0, -3.0], np.float32)
    valid = reward > -10
    # At update 0 everything may teach, unless valid_only_after is 0.
    monkeypatch.setattr(HdpConfig, "valid_only_after", after)
    learner = plain_learner()
    noise, actions, scores = drawn(learner)
    loss, _ = loss_and_gradient(learner, actions, noise, reward, valid)
    teaches = valid if after == 0 else np.ones(6, bool)
    assert float(learner.baseline.average[0]) == pytest.approx(reward[teaches].mean())
    advantage = np.where(teaches, reward - reward[teaches].mean(), 0.0)
    by_hand = -np.mean(advantage * scores.device_log_prob.numpy()[0])
    by_hand -= advantage.mean() * float(scores.group_log_prob[0])
    assert loss == pytest.approx(by_hand, rel=1e-4)


def test_cross_entropy_is_of_the_best_of_the_policys_samples(monkeypatch):
    monkeypatch.setattr(HdpConfig, "elites", 1 / 3)
    learner = plain_learner(loss="cross_entropy", row_step=0.0)
    noise, actions, scores = drawn(learner)
    loss, _ = loss_and_gradient(learner, actions, noise, REWARD, [True] * 6)
    # The best 2 of 6. A grouping is worth the mean of its standardized advantages, which is 0.
    assert loss == pytest.approx(-scores.device_log_prob.numpy()[0, [0, 4]].mean(), rel=1e-4)


@pytest.mark.slow
def test_the_loss_after_regroupings_by_hand(monkeypatch):
    monkeypatch.setattr(HdpConfig, "noise_amplitude", 0.0)
    monkeypatch.setattr(HdpConfig, "elites", 2 / 8)
    learner = small_learner("hdp")
    for _ in range(OURS.regroup_after):
        update(learner)
    actions = learner.propose().actions
    noise = learner._noise(learner._now())[0]
    scores = learner.policy.score(learner._leaning_inputs(), actions.drawn, noise)
    # 8 of its own, and 8 changes of a best plan that took 5 s: the tenth and the last are faster.
    learner.best.runtime_s.assign([5.0])
    runtime_s = np.array([9, 6, 9, 7, 9, 9, 9, 9, 1, 4, 9, 9, 9, 9, 9, 3], np.float32)
    executed = tf.constant(-runtime_s), tf.constant(runtime_s), tf.fill([16], True)
    loss, _ = learner._loss(scores, actions, *executed)
    every = scores.device_log_prob.numpy().ravel()
    # The two best of its own and the best plan, which the ninth stands for, are the elites.
    of_devices = -np.mean(every[[1, 3, 8]])
    # The first and the fifth change put groups on other devices, so six are moves of units, which gain 1 s and 2 s.
    units = np.array([1, 2, 3, 5, 6, 7])
    gains = np.array([1.0, 0, 0, 0, 0, 2.0])
    advantage = (gains - gains.mean()) / gains.std()
    log_prob = learner.changes.log_prob(scores.network_logits, actions.moves).numpy()
    of_moves = -np.sum(advantage * log_prob[units]) / 8
    assert abs(of_moves) > 1e-3, "or nothing is tested"
    assert float(loss) == pytest.approx(of_devices + of_moves, rel=1e-4)


@pytest.mark.medium
def test_what_is_scored_is_what_was_drawn_and_the_entropy_is_the_policys():
    # With the noise of this very update, also after some.
    learner = plain_learner()
    for _ in range(2):
        update(learner)
    noise, seeds = learner._noise(learner._now())
    actions, scores = learner.policy.sample(learner.inputs, noise, seeds[0])
    proposal = learner.propose()
    for ours, theirs in zip(proposal.actions.drawn, actions, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    forced = learner.policy.score(learner.inputs, proposal.actions.drawn, noise)
    for name, again, sampled in zip(scores._fields, forced, scores, strict=True):
        np.testing.assert_allclose(again, sampled, rtol=1e-4, atol=1e-5, err_msg=name)
    assert float(learner.entropy()) == pytest.approx(float(tf.reduce_mean(scores.device_entropy)), rel=1e-4)


@pytest.mark.medium
def test_a_part_of_the_samples_changes_the_best_so_far():
    learner = small_learner("hdp")
    for number in range(5):
        best = [decision.numpy() for decision in learner.best.fastest]
        proposal = learner.propose()
        groups, devices = (tensor.numpy() for tensor in proposal.actions.drawn)
        assert devices.shape == (2, 8, 6) and learner.samples_per_update == 16
        whole = learner.policy.placements(learner.inputs, proposal.actions.drawn).numpy()
        # What is scored beside its own is the best plan, and what is executed are the changes of it.
        np.testing.assert_array_equal(groups[1], best[0])
        np.testing.assert_array_equal(devices[1], [best[1]] * 8)
        np.testing.assert_array_equal(proposal.placements[:8], whole[:8])
        executed = learner.policy.placements(learner.inputs, proposal.actions.changed)
        np.testing.assert_array_equal(proposal.placements[8:], executed)
        # Units move once it is time for that.
        assert (proposal.actions.moves.count.numpy() > 0).any() == (number >= OURS.regroup_after)
        runtime_s, valid = weighted_devices(proposal.placements)
        before_s = float(learner.best.runtime_s[0])
        learner.learn(proposal.actions, runtime_s, valid)
        assert float(learner.best.runtime_s[0]) == min([before_s, *runtime_s.numpy()[valid.numpy()]])
        # It is what was executed: its decisions give the placement of that time.
        group, device = learner.best.fastest
        decided = Actions(group[tf.newaxis], device[tf.newaxis, tf.newaxis])
        row = learner.policy.placements(learner.inputs, decided)
        assert float(weighted_devices(row)[0][0]) == float(learner.best.runtime_s[0])


@pytest.mark.slow
def test_one_set_of_weights_learns_on_two_problems_in_turn():
    changes = {"placements": 32, "learning_rate": 1e-2}
    learners = plain_learner(1, **changes), plain_learner(1, OTHER, **changes)
    rounds = in_turn(*learners, off_device(1), 40)
    means = [[float(tf.reduce_mean(off_device(1)(each.placements)[0])) for each in pair] for pair in rounds]
    # At the start about nine tenths of both are on device 1.
    assert min(means[0]) > 1.6 and np.mean(means[-5:], axis=0).max() < 1.1, means[::5]


def test_a_search_with_the_network_before_is_refused(tmp_path):
    # What version 1 left behind: its settings without any version, and a setting that is gone.
    config = dataclasses.replace(OURS, **PLAIN)
    search(PROBLEM, "hdp", config=config, budget_evaluations=1, checkpoint=tmp_path)
    document = json.loads((tmp_path / "search.json").read_text())
    document["settings"] = {**dataclasses.asdict(config), "type_vocabulary": 200}
    (tmp_path / "search.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"^.* holds a search with network None, not 6; give .*$"):
        search(PROBLEM, "hdp", config=config, budget_evaluations=9, checkpoint=tmp_path)


def test_a_policy_has_as_many_groups_as_the_problem_needs():
    allowed = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
    problem = problem_of([1] * 3, [], cluster=small_cluster(3), allowed=allowed)
    assert plain_learner(problem=problem, num_groups=2).policy.num_groups == 3


@pytest.mark.slow
def test_it_never_stops_sampling(monkeypatch):
    # The old open-source controller froze to its last placement after 500 steps.
    monkeypatch.setattr(HdpConfig, "noise_updates", 2)
    monkeypatch.setattr(HdpConfig, "valid_only_after", 2)
    learner = plain_learner(learning_rate=1e-9)
    late = [update(learner).placements.numpy() for _ in range(8)][-3:]
    assert len({placement.tobytes() for proposed in late for placement in proposed}) > 3


@pytest.mark.slow
def test_the_traced_calls_do_not_grow_with_the_number_of_groups():
    # The old one unrolled its decoder in Python.
    def nodes(learner):
        actions = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), learner.propose().actions)
        specs = tf.TensorSpec([6], tf.float32), tf.TensorSpec([6], tf.bool)
        both = [learner.propose.get_concrete_function(), learner.learn.get_concrete_function(actions, *specs)]
        return [len(function.graph.as_graph_def().node) for function in both]

    assert nodes(plain_learner()) == nodes(plain_learner(num_groups=12))


LEARNING = HdpConfig(num_groups=24, placer_hidden=32, groups_per_step=4, placements=16, regroup_after=30)


@pytest.mark.slow
def test_what_the_policy_draws_ends_below_the_best_of_random_search():
    # Its own draws alone: those that change the best plan would be good with a policy that learns nothing.
    problem = branches_problem(4, 10)
    simulator = SimulatedEvaluator(problem)
    learner = HdpLearner(problem, LEARNING, warm_start_on(0, problem), seed=17)
    means_s, first_best_s = [], np.inf
    for number in range(80):
        proposal = learner.propose()
        times = simulator.times(proposal.placements)
        drawn_s = times.runtime_s.numpy()[: LEARNING.placements]
        means_s.append(drawn_s.mean())
        if number < 2:
            first_best_s = min(first_best_s, drawn_s.min())
        learner.learn(proposal.actions, times.runtime_s, times.fits)
    last_s, evaluations = np.mean(means_s[-5:]), 80 * learner.samples_per_update
    random_s = search(problem, "random", seed=17, budget_evaluations=evaluations).runtime_s
    report = f"optimum {branches_optimum_ns(4, 10) / 1e9}, mean {means_s[0]} to {last_s}, best at first {first_best_s}"
    assert last_s < 0.8 * means_s[0] and last_s < first_best_s, report
    assert last_s < random_s, f"{report}, random search's best {random_s}"


@pytest.mark.slow
def test_moved_units_make_plans_that_the_first_groups_cannot_say():
    # Three groups of about 14 ops: two on one device and one on the other at best, where 20 and 20 are possible.
    problem = branches_problem(4, 10)
    simulator = SimulatedEvaluator(problem)
    config = dataclasses.replace(LEARNING, groups="min_cut", num_groups=3, regroup_after=10)
    learner = HdpLearner(problem, config, warm_start_on(0, problem), seed=17)
    groups = unit_groups(problem, 3, "min_cut")
    every = np.array(list(itertools.product(range(2), repeat=3)), np.int32)
    best_s = float(tf.reduce_min(simulator.times(groups.expand(every)).runtime_s))
    for _ in range(60):
        proposal = learner.propose()
        times = simulator.times(proposal.placements)
        learner.learn(proposal.actions, times.runtime_s, times.fits)
    assert float(learner.best.runtime_s[0]) < 0.9 * best_s
    # The likeliest groups have moved, too: they are those of the best plan.
    noise = learner.policy.draw_noise(learner.inputs, tf.constant(0.0), tf.constant([1, 2]))
    _, logits = learner.policy._group_logits(learner._leaning_inputs(), noise)
    likeliest = masked.largest(logits).numpy()
    assert (likeliest != groups.group_of_unit).sum() >= 2
    np.testing.assert_array_equal(likeliest, learner.best.fastest[0])
