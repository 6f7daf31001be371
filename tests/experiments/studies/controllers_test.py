"""Controllers around a parameter server: clocks by hand, one is plain search, and a training goes on bit by bit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from experiments.studies.controllers import Controllers, Durations, Training, train
from experiments.studies.controllers_page import by_controllers
from tests.tf_placer.problem.small_problems import (
    branches_problem,
    problem_of,
    small_cluster,
    without_overheads,
)
from tf_placer.agents.learner import PolicyLearner, Proposal, WarmStart
from tf_placer.agents.losses import MovingAverageBaseline, reinforce_loss
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.search.search import search

PROBLEM = branches_problem(3, 4)
# Of one op that takes 1,000 ns wherever it is.
ONE_OP = problem_of([1000], [], cluster=without_overheads(small_cluster()))
BY_HAND = Durations(sample_ns=100, prepare_ns=1000, steps=2, gradient_ns=10, apply_ns=5)
PLACEMENTS = 4


@dataclasses.dataclass(frozen=True)
class OneNumberConfig:
    """No settings but what every learner has."""

    failing_reward: float = -10.0


class OneNumber(PolicyLearner):
    """A number for all units to be on device 1, and a baseline."""

    def __init__(self, problem, config, warm_start, seed):
        policy = snt.Module()
        policy.logit = tf.Variable(0.0)
        super().__init__("one_number", policy, config, warm_start, [seed, 1], units=problem.num_units)
        self._trains(([policy.logit], 0.1))
        self.baseline = MovingAverageBaseline(0.5, normalize=False)

    def _draw(self, seed):
        draw = tf.random.stateless_uniform([PLACEMENTS, self._of_problem.units], seed)
        actions = tf.cast(draw < tf.sigmoid(self.policy.logit), tf.int32)
        return Proposal(actions, actions)

    def _update_gradients(self, actions, reward, runtime_s, valid):
        everyone = tf.ones_like(reward)
        advantage = self.baseline.advantage(reward, everyone)

        def loss():
            sign = 1.0 - 2.0 * tf.cast(actions, tf.float32)
            log_prob = -tf.reduce_sum(tf.nn.softplus(sign * self.policy.logit), axis=1)
            return reinforce_loss(log_prob, advantage, everyone)

        return self._gradients_of(loss)


ONE_NUMBER = MethodSpec("one_number", Kind.LEARNED, "A number.", OneNumber, config=OneNumberConfig)


def learner_of(controllers: int, **more) -> tuple[OneNumber, Controllers]:
    start = PROBLEM.everything_on(0)[np.newaxis]
    learner = OneNumber(PROBLEM, OneNumberConfig(), WarmStart(start, 1.0, None), 0)
    return learner, Controllers(learner, Training(controllers, durations=BY_HAND, **more))


def weights(learner: PolicyLearner) -> list[list[float]]:
    return [variable.numpy().tolist() for variable in learner.served]


def trained(controllers, evaluations, checkpoint=None, method=ONE_NUMBER, problem=PROBLEM, seed=1, **more):
    training = Training(controllers, durations=BY_HAND, **{"workers": 2, **more.pop("training", {})})
    return train(problem, method, training, checkpoint, budget_evaluations=evaluations, seed=seed, **more)


def comparable(found):
    """All that does not depend on this machine's clock."""
    history = [(e.evaluations, e.best_s, repr(e.mean_s), e.failed) for e in found.result.history]
    devices = found.result.placement.device_of_unit.tolist()
    return history, devices, found.late.tolist(), found.seconds.tolist(), found.best_s.tolist(), found.refused


def test_placements_go_to_workers_in_turn():
    runtime_s, valid = np.array([1e-6, 2e-6, 3e-6, np.nan, 5e-6]), np.array([1, 1, 1, 0, 1], bool)
    # Of two workers one has the first, third and fifth: 3 * 1000 + 2 * (1000 + 3000 + 5000).
    assert BY_HAND.measured_ns(runtime_s, valid, 2) == 3000 + 18000
    # What does not run is known when it was made ready.
    assert BY_HAND.measured_ns(runtime_s[3:4], valid[3:4], 2) == 1000
    assert BY_HAND.measured_ns(runtime_s, valid, 5) == BY_HAND.measured_ns(runtime_s, valid, 9) == 11000


def test_clocks_of_two_controllers_by_hand():
    found = trained(2, 5 * PLACEMENTS, problem=ONE_OP)
    # Both begin at 0; two workers measure two placements each: 2 * (1000 + 2 * 1000) after 100, and 10 for a gradient.
    # The first is served until 6115 and the second until 6120; they fetch then, and are due at 12225 and 12230.
    assert np.rint(found.seconds * 1e9).tolist() == [6100, 6100, 12215, 12220, 18330]
    assert found.late.tolist() == [0, 1, 1, 1]
    assert (found.waiting, found.refused, found.mean_late, found.most_late) == (1, 0, 0.75, 1)
    assert found.best_s.tolist() == [1e-6] * 5


def test_a_gradient_that_is_too_late_is_refused_and_counted():
    found = trained(3, 8 * PLACEMENTS, problem=ONE_OP, training={"most_late": 0})
    # The first of three is applied, so the two others are late; they fetch what it left, as it does.
    assert found.late.tolist() == [0, 1, 1, 0, 1, 1]
    assert found.refused == 4
    assert trained(3, 8 * PLACEMENTS, problem=ONE_OP).refused == 0


def test_what_is_refused_changes_no_weight():
    learner, controllers = learner_of(2, most_late=0)
    applied = []
    for number in range(6):
        before = weights(learner)
        proposal = controllers.propose()
        runtime_s = tf.constant(np.linspace(1, 2 + number, PLACEMENTS))
        controllers.learn(proposal.actions, runtime_s, tf.ones([PLACEMENTS], tf.bool))
        applied.append(weights(learner) != before)
    # Nothing is due before both have begun; then every second one is late.
    assert applied == [False, True, False, True, False, True]
    assert controllers.late.numpy().tolist() == [0, 1, 0, 1, 0] and int(controllers.applied) == 3


def test_each_controller_has_a_baseline_of_its_own():
    _, controllers = learner_of(2)
    turns = []
    for _ in range(6):
        proposal = controllers.propose()
        turns.append(int(controllers._turn))
        # The first measures on machines four times as fast: its rewards are -1, the other's -2.
        runtime_s = tf.fill([PLACEMENTS], tf.constant((1.0, 4.0)[turns[-1]], tf.float64))
        controllers.learn(proposal.actions, runtime_s, tf.ones([PLACEMENTS], tf.bool))
    names = [variable.name for variable in controllers._own]
    [place] = [number for number, name in enumerate(names) if "average" in name]
    assert {0, 1} <= set(turns)
    averages = [float(own[place][0]) for own in controllers._kept]
    assert averages == [-1.0, -2.0]


def test_no_two_controllers_draw_the_same():
    _, controllers = learner_of(3)
    drawn = set()
    for _ in range(6):
        proposal = controllers.propose()
        drawn.add(proposal.placements.numpy().tobytes())
        controllers.learn(proposal.actions, tf.ones([PLACEMENTS], tf.float64), tf.ones([PLACEMENTS], tf.bool))
    assert len(drawn) == 6


@pytest.mark.medium
@pytest.mark.parametrize("method", ["colocrl", "hdp"])
def test_one_controller_is_plain_search_bit_by_bit(method):
    config, evaluations = by_controllers(4, 10)[method], 42
    plain = search(PROBLEM, method, budget_evaluations=evaluations, seed=7, config=config)
    one = trained(1, evaluations, method=method, seed=7, config=config)
    assert [(e.evaluations, e.best_s, e.mean_s) for e in one.result.history] == [
        (e.evaluations, e.best_s, e.mean_s) for e in plain.history
    ]
    assert one.result.placement.device_of_unit.tolist() == plain.placement.device_of_unit.tolist()
    assert set(one.late) == {0} and one.waiting == 0


def test_the_seed_fixes_everything():
    one, again, other = (comparable(trained(3, 60, seed=seed)) for seed in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize(
    "method", [ONE_NUMBER, pytest.param("hdp", marks=pytest.mark.slow)], ids=["one_number", "hdp"]
)
def test_it_goes_on_bit_by_bit_with_gradients_on_their_way(method, tmp_path):
    more = {} if method is ONE_NUMBER else {"config": by_controllers(PLACEMENTS, 20)[method]}
    begun = 0 if method is ONE_NUMBER else 1  # placements that it begins at
    whole = trained(3, begun + 80, method=method, **more)
    stopped = trained(3, begun + 24, tmp_path, method=method, **more)
    assert stopped.waiting == 2
    assert comparable(trained(3, begun + 80, tmp_path, method=method, **more)) == comparable(whole)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["colocrl", "hdp"])
@pytest.mark.parametrize("seed", [104, 105])  # nothing was tuned on them
def test_several_controllers_learn(method, seed):
    config = by_controllers(8, 150)[method]
    found = train(PROBLEM, method, Training(4), budget_evaluations=1200, seed=seed, config=config)
    means_s = [entry.mean_s for entry in found.result.history[1:]]
    assert np.mean(means_s[-15:]) < 0.85 * np.mean(means_s[:15])
    assert 2.5 < found.mean_late <= 3 and found.refused == 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: Training(controllers=0), "controllers is 0"),
        (lambda: Training(workers=0), "workers is 0"),
        (lambda: Training(most_late=-2), "most_late is -2"),
        (lambda: Training(durations=3), "durations is 3"),
        (lambda: Durations(steps=-1), "steps is -1"),
        (lambda: Durations(prepare_ns=0.5), "prepare_ns is 0.5"),
        (lambda: train(PROBLEM, ONE_NUMBER, 4), "training is 4"),
        (lambda: train(PROBLEM, 3, Training()), "method is 3"),
        (lambda: trained(1, 8, method="random"), "has no policy to train"),
        (
            lambda: trained(
                1, 8, method="hdp", config={"epochs": 2, "loss": "ppo", "row_rate": 0.0, "placements": 4}
            ),
            "more than one gradient",
        ),
    ],
)
def test_what_cannot_be_is_one_line(wrong, told):
    with pytest.raises(InputError, match=told) as refused:
        wrong()
    assert "\n" not in str(refused.value)


def test_a_folder_of_another_training_is_refused(tmp_path):
    trained(2, 16, tmp_path)
    with pytest.raises(InputError, match="holds a search with training controllers 2, not 3"):
        trained(3, 16, tmp_path)


def test_a_finished_training_has_nothing_to_say(tmp_path):
    trained(2, 16, tmp_path)
    with pytest.raises(InputError, match="finished; give a larger budget"):
        trained(2, 16, tmp_path)
