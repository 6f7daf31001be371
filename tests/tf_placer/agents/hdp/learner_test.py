"""The learner: one call an update, taught by what was executed, and it learns."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.problem.small_problems import branches_optimum_ns, branches_problem
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.learner import HdpLearner
from tf_placer.agents.hdp.start import HdpStart
from tf_placer.search import methods
from tf_placer.search.search import search

CONFIG = HdpConfig(
    num_groups=6,
    placer_hidden=8,
    grouper_hidden=8,
    landmarks=4,
    imitation_steps=20,
    groupings=2,
    placements=3,
)
PROBLEM = branches_problem(3, 4)


def learner_from(device, config, evaluate):
    """A learner whose Placer leans to one device."""
    return HdpLearner(PROBLEM, config, evaluate, 1.0, HdpStart.on_device(PROBLEM, config, device), seed=3)


def weighted_devices(placements):
    """A time that tells placements apart, and valid where unit 0 is on device 0."""
    weight = tf.range(1, PROBLEM.num_units + 1, dtype=tf.float32)
    return 1.0 + tf.linalg.matvec(tf.cast(placements, tf.float32), weight), placements[:, 0] == 0


def test_an_update_is_one_traced_call_about_exactly_what_was_executed():
    evaluations = []

    def evaluate(placements):
        evaluations.append(placements.shape)
        return weighted_devices(placements)

    learner = learner_from(0, CONFIG, evaluate)
    before = [v.numpy() for v in learner.policy.trainable_variables]
    stats = [learner.update() for _ in range(4)]
    assert learner.update.experimental_get_tracing_count() == 1
    # Python was run when tracing and never again.
    assert evaluations == [(6, PROBLEM.num_units)] == [(learner.samples_per_update, PROBLEM.num_units)]
    for one in stats:
        runtime_s, valid = weighted_devices(one.placements)
        np.testing.assert_array_equal(one.runtime_s, runtime_s)
        np.testing.assert_array_equal(one.valid, valid)
    assert any((a.placements != stats[0].placements).numpy().any() for a in stats[1:])
    after = [v.numpy() for v in learner.policy.trainable_variables]
    assert any((a != b).any() for a, b in zip(after, before, strict=True))
    assert int(learner.updates) == 4


def test_two_calls_do_what_one_does():
    one, two = (learner_from(0, CONFIG, weighted_devices) for _ in range(2))
    for _ in range(4):
        stats = one.update()
        proposal = two.propose()
        again = two.propose()
        np.testing.assert_array_equal(proposal.placements, stats.placements)
        np.testing.assert_array_equal(proposal.placements, again.placements)
        two.learn(proposal.actions, *weighted_devices(proposal.placements))
        for ours, theirs in zip(two.variables, one.variables, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-3, atol=1e-5, err_msg=ours.name)
    assert two.learn.experimental_get_tracing_count() == two.propose.experimental_get_tracing_count() == 1


def test_a_learner_is_its_variables(tmp_path):
    # What another one with other random weights goes on to do, once it has them.
    first = learner_from(0, CONFIG, weighted_devices)
    for _ in range(3):
        first.update()
    tf.train.Checkpoint(learner=first).write(str(tmp_path / "learner"))
    expected = [first.update() for _ in range(3)]
    second = learner_from(0, CONFIG, weighted_devices)
    for variable in second.variables:
        variable.assign(tf.zeros_like(variable))
    tf.train.Checkpoint(learner=second).read(str(tmp_path / "learner")).assert_consumed()
    for stats in expected:
        found = second.update()
        np.testing.assert_array_equal(found.placements, stats.placements)
        np.testing.assert_array_equal(found.device_entropy, stats.device_entropy)
    for ours, theirs in zip(second.variables, first.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=ours.name)


def test_failures_of_any_cause_get_the_failing_reward():
    def evaluate(placements):
        times, _ = weighted_devices(placements)
        return times * float("nan"), tf.zeros_like(times, tf.bool)

    learner = learner_from(0, dataclasses.replace(CONFIG, failing_reward=-7.0), evaluate)
    for _ in range(3):
        stats = learner.update()
    assert not stats.valid.numpy().any()
    assert float(learner.baseline.average) == pytest.approx(-7.0)
    for variable in learner.policy.trainable_variables:
        assert np.isfinite(variable.numpy()).all(), variable.name


def loss_and_gradient(learner, actions, noise, reward, valid):
    """The learner's own loss of given actions, and its gradient in both networks' variables."""
    variables = learner.policy.trainable_variables
    with tf.GradientTape() as tape:
        loss = learner._loss(learner.policy.score(actions, noise), tf.constant(reward), tf.constant(valid))
    return float(loss), tape.gradient(loss, variables)


def test_the_loss_is_the_papers_sum_over_exactly_the_executed_actions():
    config = dataclasses.replace(CONFIG, normalize_advantage=False, entropy_start=0.0, noise_amplitude=0.0)
    learner = learner_from(0, config, weighted_devices)
    noise = learner.policy.draw_noise(tf.constant(0.0), tf.constant([1, 2]))
    actions, scores = learner.policy.sample(noise, tf.constant([3, 4]))
    reward = np.array([-1.0, -2.0, -4.0, -3.0, -1.5, -2.5], np.float32)  # m = 2 groupings of k = 3
    loss, gradient = loss_and_gradient(learner, actions, noise, reward, [True] * 6)

    advantage = (reward - reward.mean()).reshape(2, 3)
    groups, devices = scores.group_log_prob.numpy(), scores.device_log_prob.numpy()
    by_hand = -np.mean(advantage * devices) - np.mean(advantage.mean(axis=1) * groups)
    assert loss == pytest.approx(by_hand, rel=1e-4)

    with tf.GradientTape() as tape:
        forced = learner.policy.score(actions, noise)
        objective = tf.reduce_mean(advantage * forced.device_log_prob) + tf.reduce_mean(
            advantage.mean(axis=1) * forced.group_log_prob
        )
    for ours, theirs in zip(
        gradient, tape.gradient(objective, learner.policy.trainable_variables), strict=True
    ):
        np.testing.assert_allclose(
            tf.convert_to_tensor(ours), -tf.convert_to_tensor(theirs), rtol=1e-3, atol=1e-6
        )


def test_after_a_while_what_does_not_run_teaches_nothing():
    reward = np.array([-1.0, -10.0, -2.0, -10.0, -10.0, -3.0], np.float32)
    valid = reward > -10
    losses = {}
    for after in (0, 1):  # at update 0 everything may teach, unless valid_only_after is 0
        config = dataclasses.replace(
            CONFIG, valid_only_after=after, normalize_advantage=False, entropy_start=0.0
        )
        learner = learner_from(0, config, weighted_devices)
        noise = learner.policy.draw_noise(tf.constant(0.0), tf.constant([1, 2]))
        actions, scores = learner.policy.sample(noise, tf.constant([3, 4]))
        losses[after], _ = loss_and_gradient(learner, actions, noise, reward, valid)
        taught = valid if after == 0 else np.ones(6, bool)
        assert float(learner.baseline.average) == pytest.approx(reward[taught].mean())
        advantage = np.where(taught, reward - reward[taught].mean(), 0.0).reshape(2, 3)
        by_hand = -np.mean(advantage * scores.device_log_prob.numpy()) - np.mean(
            advantage.mean(axis=1) * scores.group_log_prob.numpy()
        )
        assert losses[after] == pytest.approx(by_hand, rel=1e-4)
    assert losses[0] != pytest.approx(losses[1], rel=1e-2)


def test_it_never_stops_sampling():
    # The old open-source controller froze to its last placement after 500 steps.
    config = dataclasses.replace(
        CONFIG, noise_updates=2, entropy_updates=2, valid_only_after=2, learning_rate=1e-9
    )
    learner = learner_from(0, config, weighted_devices)
    late = [learner.update().placements.numpy() for _ in range(8)][-3:]
    assert len({placement.tobytes() for update in late for placement in update}) > 3


def test_the_traced_update_does_not_grow_with_the_number_of_groups():
    # The old one unrolled its decoder in Python.
    def nodes(groups):
        config = dataclasses.replace(CONFIG, num_groups=groups)
        learner = learner_from(0, config, weighted_devices)
        return len(learner.update.get_concrete_function().graph.as_graph_def().node)

    assert nodes(4) == nodes(12)


def test_it_learns_which_device_is_fast():
    # A bandit: every unit on device 1 costs time. The start prefers device 1.
    def evaluate(placements):
        times = 1.0 + tf.reduce_mean(tf.cast(placements, tf.float32), axis=1)
        return times, tf.ones_like(times, tf.bool)

    config = dataclasses.replace(
        CONFIG, placements=16, learning_rate=1e-2, entropy_start=0.05, entropy_end=0.05
    )
    learner = learner_from(1, config, evaluate)
    means = [float(tf.reduce_mean(learner.update().runtime_s)) for _ in range(60)]
    # At the start about nine tenths are on device 1.
    assert means[0] > 1.6 and np.mean(means[-10:]) < 1.1, means[::5]


LEARNING = HdpConfig(num_groups=16, placer_hidden=32, placements=32, entropy_updates=100, learning_rate=3e-3)


def learning_hdp(context):
    """The Hierarchical planner at a size for a graph of 42 units."""
    return methods.hdp(context, LEARNING)


def test_what_is_learned_is_better_than_what_was_sampled_at_first():
    problem, evaluations, seed = branches_problem(4, 10), 6400, 0
    # From one device: the list schedule, where it would begin by itself, is the optimum here.
    start = problem.everything_on(0)
    learned = search(problem, learning_hdp, budget_evaluations=evaluations, seed=seed, start=start)
    random = search(problem, "random", budget_evaluations=evaluations, seed=seed)
    optimum_s = branches_optimum_ns(4, 10) / 1e9
    first_hundred_s = next(e.best_s for e in reversed(learned.history) if e.evaluations <= 100)
    last_mean_s = np.mean([e.mean_s for e in learned.history[-5:]])
    report = (
        f"optimum {optimum_s}, learned {learned.runtime_s}, random {random.runtime_s}, single "
        f"{learned.single_device_s}, best of first hundred {first_hundred_s}, last mean {last_mean_s}, "
        f"seed {seed}"
    )
    assert learned.runtime_s < random.runtime_s, report
    assert last_mean_s < first_hundred_s, report
    assert optimum_s * (1 - 1e-9) <= learned.runtime_s <= 1.1 * optimum_s, report
