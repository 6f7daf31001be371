"""The learner: proposes, is taught by what was executed, and it learns; its weights are no problem's own."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.tf_placer.agents.small_learners import (
    OTHER,
    PROBLEM,
    check_a_proposal_stays,
    check_it_is_its_variables,
    off_device_1,
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
from tf_placer.agents.hdp_policy import Actions, HdpConfig, HdpPolicy
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.search.search import search

CONFIG = HdpConfig(
    groups="min_cut",
    num_groups=6,
    group_probability=0.0,
    placer_hidden=8,
    groups_per_step=2,
    grouper_sharpness=5.0,
    landmarks=4,
    start_probability=0.9,
    groupings=2,
    placements=3,
    loss="reinforce",
    incumbent=False,
    row_step=0.0,
    learning_rate=2e-3,
    standardize=False,
)
# With all that is ours.
OURS = HdpConfig(
    num_groups=6,
    placer_hidden=8,
    groups_per_step=4,
    landmarks=4,
    placements=8,
    regroup_after=2,
)


def learner_from(device, config=CONFIG, problem=PROBLEM, policy=None):
    """A learner whose Placer leans to one device."""
    return HdpLearner(problem, config, warm_start_on(device, problem), seed=3, policy=policy)


def update(learner, evaluate):
    """One update; what was proposed, its times and whether it is valid."""
    proposal = learner.propose()
    runtime_s, valid = evaluate(proposal.placements)
    learner.learn(proposal.actions, runtime_s, valid)
    return proposal, runtime_s, valid


@pytest.fixture(scope="module")
def learner():
    """One for all tests that do not mind how far it is."""
    return learner_from(0)


@pytest.mark.medium
def test_a_proposal_stays_until_it_is_learned_from(learner):
    assert learner.samples_per_update == 6
    check_a_proposal_stays(learner, 6)


@pytest.mark.medium
def test_each_call_is_traced_once(learner):
    for _ in range(3):
        update(learner, weighted_devices)
    assert learner.propose.experimental_get_tracing_count() == 1
    assert learner.learn.experimental_get_tracing_count() == 1


@pytest.mark.medium
def test_what_is_scored_is_what_was_drawn(learner):
    # With the noise of this very update, also after some.
    inputs = learner._of_problem.inputs
    noise, seeds = learner._noise(learner._now())
    actions, scores = learner.policy.sample(inputs, noise, seeds[0])
    proposal = learner.propose()
    for ours, theirs in zip(proposal.actions.drawn, actions, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for name, forced, sampled in zip(
        scores._fields, learner.policy.score(inputs, proposal.actions.drawn, noise), scores, strict=True
    ):
        np.testing.assert_allclose(forced, sampled, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_a_learner_is_its_variables(tmp_path):
    check_it_is_its_variables(lambda: learner_from(0, OURS), tmp_path)


@pytest.mark.slow
def test_failures_of_any_cause_get_the_failing_reward():
    def evaluate(placements):
        times, _ = weighted_devices(placements)
        return times * float("nan"), tf.zeros_like(times, tf.bool)

    learner = learner_from(0)
    for _ in range(3):
        update(learner, evaluate)
    assert float(learner.baseline.average[0]) == pytest.approx(-10.0)
    for variable in learner.policy.trainable_variables:
        assert np.isfinite(variable.numpy()).all(), variable.name


@pytest.mark.slow
def test_one_set_of_weights_learns_on_two_problems_in_turn():
    config = dataclasses.replace(CONFIG, placements=16, learning_rate=1e-2)
    first = learner_from(1, config)
    second = learner_from(1, config, OTHER, first.policy)
    assert second.policy is first.policy
    means = []
    for _ in range(40):
        pair = [update(learner, off_device_1) for learner in (first, second)]
        means.append([float(tf.reduce_mean(runtime_s)) for _, runtime_s, _ in pair])
        for problem, (proposal, _, _) in zip((PROBLEM, OTHER), pair, strict=True):
            problem.check_legal(proposal.placements[0].numpy())
    # At the start about nine tenths of both are on device 1.
    assert min(means[0]) > 1.6 and np.mean(means[-5:], axis=0).max() < 1.1, means[::5]


@pytest.mark.medium
def test_weights_of_one_problem_are_loaded_on_another(learner, tmp_path):
    update(learner, weighted_devices)
    tf.train.Checkpoint(policy=learner.policy).write(str(tmp_path / "policy"))
    policy = HdpPolicy(CONFIG, seed=9)
    tf.train.Checkpoint(policy=policy).read(str(tmp_path / "policy")).assert_consumed()
    second = learner_from(0, problem=OTHER, policy=policy)
    for ours, theirs in zip(second.policy.variables, learner.policy.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    for placement in second.propose().placements.numpy():
        OTHER.check_legal(placement)


def test_a_search_with_the_network_before_is_refused(tmp_path):
    # What version 1 left behind: its settings without any version, and a setting that is gone.
    search(PROBLEM, "hdp", config=CONFIG, budget_evaluations=1, checkpoint=tmp_path)
    document = json.loads((tmp_path / "search.json").read_text())
    document["settings"] = {**dataclasses.asdict(CONFIG), "type_vocabulary": 200}
    (tmp_path / "search.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"^.* holds a search with network None, not 5; give .*$"):
        search(PROBLEM, "hdp", config=CONFIG, budget_evaluations=9, checkpoint=tmp_path)


def test_a_policy_of_too_few_groups_is_refused():
    allowed = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
    problem = problem_of([1] * 3, [], cluster=small_cluster(3), allowed=allowed)
    policy = HdpPolicy(dataclasses.replace(CONFIG, num_groups=2), seed=0)
    with pytest.raises(InputError, match="policy has 2 groups and problem 'arrays' needs 3; give"):
        learner_from(0, problem=problem, policy=policy)
    # Without one, it gets as many groups as it needs.
    assert learner_from(0, dataclasses.replace(CONFIG, num_groups=2), problem).policy.num_groups == 3


def loss_and_gradient(learner, actions, noise, reward, valid):
    """The learner's own loss of given actions, and its gradient in both networks' variables."""
    variables = learner.policy.trainable_variables
    with tf.GradientTape() as tape:
        scores = learner.policy.score(learner._of_problem.inputs, actions, noise)
        executed = Executed(actions, ())
        lesson = learner._lesson(tf.constant(reward), tf.constant(-reward), tf.constant(valid), executed)
        loss = learner._loss(scores, lesson, executed)
    return float(loss), tape.gradient(loss, variables)


def test_the_loss_is_the_papers_sum_over_exactly_the_executed_actions():
    learner = learner_from(0)
    noise = learner.policy.draw_noise(learner._of_problem.inputs, tf.constant(0.0), tf.constant([1, 2]))
    actions, scores = learner.policy.sample(learner._of_problem.inputs, noise, tf.constant([3, 4]))
    reward = np.array([-1.0, -2.0, -4.0, -3.0, -1.5, -2.5], np.float32)  # m = 2 groupings of k = 3
    loss, gradient = loss_and_gradient(learner, actions, noise, reward, [True] * 6)

    advantage = (reward - reward.mean()).reshape(2, 3)
    groups, devices = scores.group_log_prob.numpy(), scores.device_log_prob.numpy()
    by_hand = -np.mean(advantage * devices) - np.mean(advantage.mean(axis=1) * groups)
    assert loss == pytest.approx(by_hand, rel=1e-4)

    with tf.GradientTape() as tape:
        forced = learner.policy.score(learner._of_problem.inputs, actions, noise)
        objective = tf.reduce_mean(advantage * forced.device_log_prob) + tf.reduce_mean(
            advantage.mean(axis=1) * forced.group_log_prob
        )
    for ours, theirs in zip(
        gradient, tape.gradient(objective, learner.policy.trainable_variables), strict=True
    ):
        np.testing.assert_allclose(
            tf.convert_to_tensor(ours), -tf.convert_to_tensor(theirs), rtol=1e-3, atol=1e-6
        )


def test_after_a_while_what_does_not_run_teaches_nothing(monkeypatch):
    reward = np.array([-1.0, -10.0, -2.0, -10.0, -10.0, -3.0], np.float32)
    valid = reward > -10
    losses = {}
    for after in (0, 1):  # at update 0 everything may teach, unless valid_only_after is 0
        monkeypatch.setattr(HdpConfig, "valid_only_after", after)
        learner = learner_from(0)
        noise = learner.policy.draw_noise(learner._of_problem.inputs, tf.constant(0.0), tf.constant([1, 2]))
        actions, scores = learner.policy.sample(learner._of_problem.inputs, noise, tf.constant([3, 4]))
        losses[after], _ = loss_and_gradient(learner, actions, noise, reward, valid)
        taught = valid if after == 0 else np.ones(6, bool)
        assert float(learner.baseline.average[0]) == pytest.approx(reward[taught].mean())
        advantage = np.where(taught, reward - reward[taught].mean(), 0.0).reshape(2, 3)
        by_hand = -np.mean(advantage * scores.device_log_prob.numpy()) - np.mean(
            advantage.mean(axis=1) * scores.group_log_prob.numpy()
        )
        assert losses[after] == pytest.approx(by_hand, rel=1e-4)
    assert losses[0] != pytest.approx(losses[1], rel=1e-2)


@pytest.mark.slow
def test_it_never_stops_sampling(monkeypatch):
    # The old open-source controller froze to its last placement after 500 steps.
    monkeypatch.setattr(HdpConfig, "noise_updates", 2)
    monkeypatch.setattr(HdpConfig, "valid_only_after", 2)
    learner = learner_from(0, dataclasses.replace(CONFIG, learning_rate=1e-9))
    late = [update(learner, weighted_devices)[0].placements.numpy() for _ in range(8)][-3:]
    assert len({placement.tobytes() for proposed in late for placement in proposed}) > 3


@pytest.mark.slow
def test_the_traced_calls_do_not_grow_with_the_number_of_groups(learner):
    # The old one unrolled its decoder in Python.
    def nodes(learner):
        actions = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), learner.propose().actions)
        specs = tf.TensorSpec([6], tf.float32), tf.TensorSpec([6], tf.bool)
        traced = [
            learner.propose.get_concrete_function(),
            learner.learn.get_concrete_function(actions, *specs),
        ]
        return [len(function.graph.as_graph_def().node) for function in traced]

    assert nodes(learner) == nodes(learner_from(0, dataclasses.replace(CONFIG, num_groups=12)))


LEARNING = HdpConfig(num_groups=24, placer_hidden=32, groups_per_step=4, placements=16, regroup_after=30)


@pytest.mark.slow
def test_what_the_policy_draws_ends_below_the_best_of_random_search():
    # Its own draws alone: those that change the incumbent would be good with a policy that learns nothing.
    problem = branches_problem(4, 10)
    simulator = SimulatedEvaluator(problem)
    learner = HdpLearner(problem, LEARNING, warm_start_on(0, problem), seed=17)
    own = learner._of_problem.changes.own
    assert own == LEARNING.placements
    means_s, first_best_s = [], np.inf
    for number in range(80):
        proposal = learner.propose()
        times = simulator.times(proposal.placements)
        drawn_s = times.runtime_s.numpy()[:own]
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
    every = np.array(list(itertools.product(range(2), repeat=3)), np.int32)
    best_s = float(tf.reduce_min(simulator.times(learner.start.groups.expand(every)).runtime_s))
    for _ in range(60):
        proposal = learner.propose()
        times = simulator.times(proposal.placements)
        learner.learn(proposal.actions, times.runtime_s, times.fits)
    assert float(learner.incumbent.runtime_s) < 0.9 * best_s
    # The likeliest groups have moved, too: they are those of the best plan.
    likeliest = learner.policy.greedy(learner._leaning_inputs()).group_of_unit[0].numpy()
    assert (likeliest != learner.start.groups.group_of_unit).sum() >= 2
    np.testing.assert_array_equal(likeliest, learner.incumbent.group_of_unit)


@pytest.mark.medium
def test_a_part_of_the_samples_changes_the_best_so_far():
    learner = learner_from(0, OURS)
    for number in range(5):
        best = [learner.incumbent.group_of_unit.numpy(), learner.incumbent.device_of_group.numpy()]
        proposal = learner.propose()
        groups, devices = (tensor.numpy() for tensor in proposal.actions.drawn)
        assert devices.shape == (2, 8, 6) and learner.samples_per_update == 16
        changes = learner._of_problem.changes.actions(proposal.actions.tries)
        whole = learner.policy.placements(learner._of_problem.inputs, proposal.actions.drawn).numpy()
        # What is scored beside its own is the best plan, and what is executed are the changes of it.
        np.testing.assert_array_equal(groups[1], best[0])
        np.testing.assert_array_equal(devices[1], [best[1]] * 8)
        np.testing.assert_array_equal(proposal.placements[:8], whole[:8])
        executed = learner.policy.placements(learner._of_problem.inputs, changes)
        np.testing.assert_array_equal(proposal.placements[8:], executed)
        # Units move once it is time for that.
        assert (proposal.actions.tries.moves.count.numpy() > 0).any() == (number >= OURS.regroup_after)
        runtime_s, valid = weighted_devices(proposal.placements)
        before_s = float(learner.incumbent.runtime_s)
        learner.learn(proposal.actions, runtime_s, valid)
        runs = runtime_s.numpy()[valid.numpy()]
        assert float(learner.incumbent.runtime_s) == min([before_s, *runs])
        # It is what was executed: its decisions give the placement of that time.
        group, device = learner.incumbent.group_of_unit, learner.incumbent.device_of_group
        row = learner.policy.placements(
            learner._of_problem.inputs, Actions(group[tf.newaxis], device[tf.newaxis, tf.newaxis])
        )
        assert float(weighted_devices(row)[0][0]) == float(learner.incumbent.runtime_s)


def test_each_loss_by_hand(monkeypatch):
    monkeypatch.setattr(HdpConfig, "noise_amplitude", 0.0)
    monkeypatch.setattr(HdpConfig, "elites", 1 / 3)
    shared = dataclasses.replace(CONFIG, standardize=True)
    learner = learner_from(0, shared)
    noise, seeds = learner._noise(learner._now())
    actions, scores = learner.policy.sample(learner._of_problem.inputs, noise, seeds[0])
    reward = -np.arange(1.0, 7.0, dtype=np.float32)  # m = 2 groupings of k = 3
    every, groups = scores.device_log_prob.numpy().ravel(), scores.group_log_prob.numpy()
    advantage = (reward - reward.mean()) / reward.std()
    expected = {
        "reinforce": -np.mean(advantage * every),
        # The best 2 of 6.
        "cross_entropy": -every[:2].mean(),
    }
    of_groups = np.mean(advantage.reshape(2, 3).mean(axis=1) * groups)
    for loss, of_devices in expected.items():
        learner._config = dataclasses.replace(shared, loss=loss)
        value, _ = loss_and_gradient(learner, actions, noise, reward, [True] * 6)
        assert value == pytest.approx(of_devices - of_groups, rel=1e-4, abs=1e-6), loss


@pytest.mark.slow
def test_the_loss_after_regroupings_by_hand(monkeypatch):
    monkeypatch.setattr(HdpConfig, "noise_amplitude", 0.0)
    monkeypatch.setattr(HdpConfig, "elites", 2 / 8)
    learner = learner_from(0, OURS)
    for _ in range(OURS.regroup_after):
        update(learner, weighted_devices)
    proposal = learner.propose()
    changes, drawn = learner._of_problem.changes, proposal.actions.drawn
    inputs, noise = learner._leaning_inputs(), learner._noise(learner._now())[0]
    scores = learner.policy.score(inputs, drawn, noise)
    # 8 of its own, and 8 changes of a best plan that took 5 s: the tenth and the last are faster.
    learner.incumbent.runtime_s.assign(5.0)
    runtime_s = np.array([9, 6, 9, 7, 9, 9, 9, 9, 1, 4, 9, 9, 9, 9, 9, 3], np.float32)
    lesson = learner._lesson(
        tf.constant(-runtime_s), tf.constant(runtime_s), tf.fill([16], True), proposal.actions
    )
    loss = learner._loss(scores, lesson, proposal.actions)
    every = scores.device_log_prob.numpy().ravel()
    # The two best of its own and the best plan, which the ninth stands for, are the elites.
    of_devices = -np.mean(every[[1, 3, 8]])
    # The first and the fifth change put groups on other devices, so six are moves of units, which gain 1 s and 2 s.
    units = np.array([1, 2, 3, 5, 6, 7])
    gains = np.array([1.0, 0, 0, 0, 0, 2.0])
    advantage = (gains - gains.mean()) / gains.std()
    log_prob = changes.log_prob(learner.policy.network_logits(inputs), proposal.actions.tries).numpy()
    of_moves = -np.sum(advantage * log_prob[units]) / 8
    assert abs(of_moves) > 1e-3, "or nothing is tested"
    assert float(loss) == pytest.approx(of_devices + of_moves, rel=1e-4)


@pytest.mark.medium
def test_the_entropy_is_the_policys_and_asking_changes_nothing(learner):
    before = learner.propose()
    noise, seeds = learner._noise(learner._now())
    _, scores = learner.policy.sample(learner._of_problem.inputs, noise, seeds[0])
    assert float(learner.entropy()) == pytest.approx(float(tf.reduce_mean(scores.device_entropy)), rel=1e-4)
    np.testing.assert_array_equal(learner.propose().placements, before.placements)
