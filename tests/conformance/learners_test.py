"""What holds of every learned method and policy: what it draws gets better, by the rewards and by nothing else."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from experiments.studies.cells import Seen
from tests.conformance.descriptors import METHODS, POLICIES
from tests.tf_placer.agents.tiny_learner import TINY, TinyConfig
from tests.tf_placer.problem.small_problems import (
    branches_optimum_ns,
    branches_problem,
    problem_of,
    random_problem,
    small_cluster,
)
from tf_placer.agents.learner import WarmStart
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.search import methods
from tf_placer.search.methods import configured
from tf_placer.search.search import search

BRANCHES, LENGTH = 4, 4
PROBLEM = branches_problem(BRANCHES, LENGTH)
OPTIMUM_S = branches_optimum_ns(BRANCHES, LENGTH) / 1e9
SEED = 104  # nothing was tuned on it
WINDOW = 64
# Of the way from the mean of the first samples to the optimum.
LEAST_GAIN = 0.33


class Shuffled:
    """Times placements, each with the time of any that it saw lately: how good they are, not which."""

    def __init__(self, seed: int) -> None:
        self._simulator = SimulatedEvaluator(PROBLEM)
        self._generator = np.random.default_rng(seed)
        self._lately: list[float] = []

    def __call__(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        times = self._simulator.times(tf.constant(rows))
        assert times.fits.numpy().all(), "memory is no matter here"
        self._lately = [*self._lately, *times.runtime_s.numpy()][-256:]
        drawn = self._generator.choice(self._lately, len(rows))
        return drawn.astype(times.runtime_s.numpy().dtype), times.fits.numpy()


def gain(spec: MethodSpec, config: Any, evaluations: int, shuffled: bool) -> float:
    """How far the mean of its samples gets on the way to the optimum; both are of what was really drawn."""
    simulator = SimulatedEvaluator(PROBLEM)

    def simulate(rows: Any) -> tuple[np.ndarray, np.ndarray]:
        times = simulator.times(tf.constant(rows))
        return times.runtime_s.numpy(), times.fits.numpy()

    told = Shuffled(SEED) if shuffled else simulate
    start = PROBLEM.everything_on(0)[np.newaxis]
    warm_start = WarmStart(start, float(simulate(start)[0][0]), told)
    learner = spec.build(PROBLEM, configured(spec, config), warm_start, SEED)
    seen = Seen()
    while seen.samples < evaluations:
        proposal = learner.propose()
        seen.add(*simulate(proposal.placements))
        learner.learn(proposal.actions, *map(tf.constant, told(proposal.placements)))
    (_, first_s), (_, last_s) = seen.first(WINDOW), seen.last(WINDOW)
    return (first_s - last_s) / (first_s - OPTIMUM_S)


LEARNED = [method for method in METHODS if methods.find(method.name).kind == Kind.LEARNED]


@pytest.mark.slow
@pytest.mark.parametrize("method", LEARNED, ids=lambda method: method.name)
def test_what_it_draws_gets_better_by_its_rewards_alone(method):
    spec, evaluations = methods.find(method.name), 2 * method.evaluations
    learned = gain(spec, method.config, evaluations, shuffled=False)
    assert learned > LEAST_GAIN, f"the mean of its samples got {learned:.2f} of the way to the optimum"
    by_itself = gain(spec, method.config, evaluations, shuffled=True)
    assert by_itself < learned / 2, f"{by_itself:.2f} of the way with shuffled rewards, {learned:.2f} with"


def test_who_learns_is_told_from_who_does_not():
    # A learner of which all this is known, untraced.
    learned = gain(TINY, TinyConfig(), 1600, shuffled=False)
    assert learned > LEAST_GAIN
    assert gain(TINY, TinyConfig(), 1600, shuffled=True) < learned / 2
    # Luck finds better placements all the same, and is not taken for learning.
    assert abs(gain(TINY, TinyConfig(rate=0.0), 1600, shuffled=False)) < LEAST_GAIN / 2


def test_the_gain_is_of_what_was_drawn():
    """One that is told nothing true, and is right all the same, gains all there is."""

    class Knows:
        def __init__(self, problem: Any, config: Any, warm_start: WarmStart, seed: int) -> None:
            self._updates = 0

        def propose(self) -> Any:
            branch = (np.arange(PROBLEM.num_units) - 1) % BRANCHES
            best = np.where((branch < BRANCHES // 2) & (np.arange(PROBLEM.num_units) > 0), 1, 0)
            best[[0, -1]] = 0, 1
            row = best if self._updates else PROBLEM.everything_on(0)
            rows = np.tile(row, (WINDOW, 1)).astype(np.int32)
            return dataclasses.make_dataclass("Drawn", ["actions", "placements"])(rows, tf.constant(rows))

        def learn(self, *told: Any) -> None:
            self._updates += 1

    assert gain(dataclasses.replace(TINY, build=Knows), None, 2 * WINDOW, shuffled=True) == pytest.approx(1)


# How many are drawn for an update, whatever a config calls it.
COUNTS = {"placements", "samples", "episodes", "rollouts", "minibatches"}


@pytest.mark.slow
@pytest.mark.parametrize("method", LEARNED, ids=lambda method: method.name)
def test_it_learns_from_as_few_as_it_takes(method):
    """A dimension of 1 where there are many otherwise: TensorFlow has kernels that cannot bear it."""
    spec = methods.find(method.name)
    config = configured(spec, method.config)
    for field in COUNTS & {field.name for field in dataclasses.fields(config)}:
        least = {"post": 2, "tabular": 2}.get(method.name, 1)
        config = dataclasses.replace(config, **{field: least})
    for problem in (PROBLEM, branches_problem(1, 1)):
        assert (
            search(problem, spec, 600, budget_evaluations=8, config=config).runtime_s
            <= SimulatedEvaluator(problem).evaluate(problem.everything_on(0)[np.newaxis]).runtime_s
        )


EVERY = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.method)


def test_the_list_is_complete():
    learned = {spec.name for spec in map(methods.find, methods.BUILT_IN) if spec.kind == Kind.LEARNED}
    assert {policy.method for policy in POLICIES} == learned


@EVERY
@pytest.mark.parametrize("seed", range(3))
def test_what_is_drawn_is_legal_and_scored_as_what_it_is(policy, seed):
    problem = random_problem(np.random.default_rng(seed), 12, 3)  # with masks
    inputs = policy.read(problem)
    network = policy.make(inputs)
    actions, log_prob = policy.sample(network, inputs, tf.constant([seed, 2]))
    placements = np.array(policy.placements(network, inputs, actions))
    for row in placements:
        problem.check_legal(row)
    assert len(np.unique(placements, axis=0)) > 1
    assert np.isfinite(log_prob).all() and (np.array(log_prob) < 0).all()
    np.testing.assert_allclose(policy.score(network, inputs, actions), log_prob, rtol=1e-4, atol=1e-5)


@pytest.mark.medium
@EVERY
def test_draws_are_a_matter_of_the_seed(policy):
    inputs = policy.read(random_problem(np.random.default_rng(1), 12, 3))
    network = policy.make(inputs)
    first, same, other = (
        policy.placements(network, inputs, policy.sample(network, inputs, tf.constant([seed, 2]))[0])
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


@EVERY
def test_all_that_can_be_decided_is_certain_together(policy):
    inputs = policy.read(problem_of([1, 2, 3], [(0, 1), (1, 2)], 9))
    log_prob = policy.score(policy.make(inputs), inputs, policy.every(inputs))
    assert float(tf.reduce_sum(tf.exp(log_prob))) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("policy", [p for p in POLICIES if p.is_general], ids=lambda policy: policy.method)
def test_one_set_of_weights_serves_problems_of_any_size(policy):
    allowed = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]], bool)
    cluster, chain = small_cluster(3), [(0, 1), (1, 2), (2, 3)]
    problems = (
        branches_problem(3, 17),  # 53 units, which no width is
        problem_of([1] * 4, chain, 8, cluster=cluster, allowed=allowed),
        problem_of([7], []),
        problem_of([1] * 3, [(0, 1)], cluster=cluster, allowed=np.eye(3, dtype=bool)),  # nothing to decide
    )
    network = policy.make(policy.read(problems[0]))
    sizes = {int(n) for variable in network.variables for n in variable.shape}
    assert problems[0].num_units not in sizes, "weights have no size of a problem"
    before = [variable.numpy() for variable in network.variables]
    for problem in problems:
        inputs = policy.read(problem)
        actions, log_prob = policy.sample(network, inputs, tf.constant([11, 12]))
        for row in np.array(policy.placements(network, inputs, actions)):
            problem.check_legal(row)
        np.testing.assert_allclose(policy.score(network, inputs, actions), log_prob, rtol=1e-4, atol=1e-5)
    for variable, value in zip(network.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
