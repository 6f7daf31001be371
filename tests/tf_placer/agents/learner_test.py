"""What holds of every learner, step by step, of its losses and best plans, and of weights in a file."""

import dataclasses
import functools

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from tests.tf_placer.agents.small_learners import (
    OTHER,
    PROBLEM,
    SMALL,
    copy_weights,
    moved,
    off_device,
    small_learner,
    update,
    weighted_devices,
    weights,
)
from tf_placer.agents.features import PolicyKind, restore_weights, weights_bytes, weights_header
from tf_placer.agents.learner import Best, adam, descend, summed_gradients
from tf_placer.agents.tables import PostConfig
from tf_placer.base.arguments import InputError
from tf_placer.base.files import array_file_bytes

INF = float("inf")


def test_moments_that_are_there_from_the_start_leave_no_trace():
    ready, fresh = tf.Variable([1.0, -2.0]), tf.Variable([1.0, -2.0])
    with_moments, without = adam(0.1, (ready,)), snt.optimizers.Adam(0.1)
    assert len(with_moments.m) == 1 and ready.numpy().tolist() == [1.0, -2.0]
    for optimizer, variable in ((with_moments, ready), (without, fresh)):
        for gradient in (tf.constant([0.5, -1.0]), tf.constant([0.1, 3.0])):
            optimizer.apply([gradient], [variable])
    np.testing.assert_array_equal(ready, fresh)


def test_each_optimizer_clips_by_a_norm_of_its_own():
    # loss = 3 a + 4 b + 0.1 c: the gradient of the first two has norm 5, that of the third 0.1.
    one, other = [tf.Variable(0.0), tf.Variable(0.0)], [tf.Variable(0.0)]
    steps = [(one, snt.optimizers.SGD(1.0)), (other, snt.optimizers.SGD(1.0))]
    value = descend(lambda: 7.0 + 3.0 * one[0] + 4.0 * one[1] + 0.1 * other[0], steps, clip=1.0)
    assert float(value) == 7.0, "of before the step"
    assert [float(variable) for variable in (*one, *other)] == pytest.approx([-0.6, -0.8, -0.1])


@pytest.mark.parametrize("part", [1, 2, 6])
def test_gradients_of_parts_add_up(part):
    weight, unused = tf.Variable(2.0), tf.Variable([1.0])
    rows = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    found = summed_gradients(
        lambda first: tf.reduce_sum(tf.square(weight * rows[first : first + part])), [weight, unused], 6, part
    )
    assert float(found[0]) == 2 * 2.0 * 91  # d/dw w^2 sum r^2, sum of squares 91
    assert found[1].numpy().tolist() == [0.0]


def take(best, rows, times):
    best.take([tf.constant(rows, tf.int32)], tf.constant(times, tf.float32))
    return best.decisions[0].numpy().tolist(), best.runtime_s.numpy().tolist()


def test_the_fastest_of_all_updates_are_kept():
    best = Best(np.array([1, 1], np.int32), count=2)
    assert best.known.numpy().tolist() == [0, 0]
    assert take(best, [[0, 0], [0, 1]], [3.0, INF]) == ([[0, 0], [1, 1]], [3.0, INF])
    assert best.known.numpy().tolist() == [1, 0]
    assert take(best, [[2, 0], [2, 1], [2, 2]], [4.0, 2.0, 1.0]) == ([[2, 2], [2, 1]], [1.0, 2.0])
    assert take(best, [[0, 0]], [9.0]) == ([[2, 2], [2, 1]], [1.0, 2.0])
    assert best.fastest[0].numpy().tolist() == [2, 2]


def test_the_same_plan_again_takes_no_place():
    best = Best(np.array([1], np.int32), count=3)
    take(best, [[0], [0], [2]], [1.0, 1.0, 5.0])
    rows, times = take(best, [[0], [2]], [1.0, 5.0])
    assert rows[:2] == [[0], [2]] and times == [1.0, 5.0, INF]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_any_number_may_be_kept_and_where_nothing_runs_nothing_is_known(count):
    best = Best(np.array([1], np.int32), count=count)
    assert take(best, [[0], [0]], [INF, INF]) == ([[1]] * count, [INF] * count)
    assert take(best, [[0], [2]], [2.0, 1.0])[1] == [1.0, 2.0][:count]


def test_decisions_of_several_arrays_are_replaced_by_faster_ones_alone():
    best = Best(np.zeros(2, np.int32), np.zeros(1, np.int32))
    for row, runtime_s in ((3, 2.0), (1, 2.0), (1, INF)):
        best.take([tf.constant([[row, 1]]), tf.constant([[row]])], tf.constant([runtime_s]))
        assert [rows.numpy().tolist() for rows in best.fastest] == [[3, 1], [3]]
        assert best.runtime_s.numpy().tolist() == [2.0]


KIND = PolicyKind("ToyPolicy", {"features": 2, "network": 1}, {"width": 4, "norm": "layer"})


def policy(width=4, value=None):
    """A network whose two layers have weights of one name."""
    made = snt.nets.MLP([width, 3])
    made(tf.zeros([1, 2]))
    for variable in made.trainable_variables:
        if value is not None:
            variable.assign(tf.fill(variable.shape, value))
    return made


@pytest.fixture
def path(tmp_path):
    return tmp_path / "toy.npz"


def test_a_policy_gets_back_what_another_had(path):
    source, target = policy(), policy(value=7.0)
    path.write_bytes(weights_bytes(KIND, source, {"seed": 3}))
    assert restore_weights(path, KIND, target) == {"seed": 3}
    np.testing.assert_equal(weights(source), weights(target))
    assert path.read_bytes() == weights_bytes(KIND, target, {"seed": 3})


def test_who_made_the_policy_is_no_matter(path):
    class Maker(snt.Module):
        def __init__(self):
            super().__init__()
            self.made = policy(value=2.0)

    made = Maker().made
    assert [v.name for v in made.trainable_variables] != [v.name for v in policy().trainable_variables]
    path.write_bytes(weights_bytes(KIND, made, {}))
    restore_weights(path, KIND, policy())


def test_a_file_of_weights_is_told_from_others(path):
    path.write_bytes(weights_bytes(KIND, policy(), {}))
    assert weights_header(path)["policy"] == KIND.policy
    path.write_bytes(b"no weights")
    with pytest.raises(InputError, match="damaged, or no file of weights"):
        weights_header(path)


def bad():
    """One weight is no number."""
    made = policy(value=1.0)
    made.trainable_variables[-1].assign([[np.nan] * 3] * 4)
    return made


@pytest.mark.parametrize(
    ("source", "changes", "line"),
    [
        (policy, {"policy": "OtherPolicy"}, "has weights of a ToyPolicy; give some of a OtherPolicy"),
        (
            policy, {"versions": {"features": 3, "network": 1}},
            "was taught with version 2 of features, .* has 3; teach it",
        ),
        (
            policy, {"versions": {**KIND.versions, "devices": 1}},
            "with version None of devices, .* has 1; teach it anew",
        ),
        (policy, {"settings": {"width": 8, "norm": "layer"}}, "taught with width=4, this policy has 8; set width=4"),
        (policy, {"settings": {"width": 4, "norm": "batch"}}, "with norm=layer, .* has batch; set norm=layer"),
        (lambda: policy(width=5), {}, "other weights than a ToyPolicy"),  # whose header says 4
        (bad, {}, "no finite numbers"),
    ],
)  # fmt: skip
def test_weights_of_something_else_are_refused_before_anything_is_changed(path, source, changes, line):
    path.write_bytes(weights_bytes(KIND, source(), {}))
    untouched = policy(value=7.0)
    with pytest.raises(InputError, match=line) as refusal:
        restore_weights(path, dataclasses.replace(KIND, **changes), untouched)
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)
    assert all((variable.numpy() == 7).all() for variable in untouched.trainable_variables)


@pytest.mark.parametrize("header", [{}, {"policy": ["toy"]}, {"policy": "ToyPolicy", "versions": 3}])
def test_a_header_of_anything_is_one_line(path, header):
    path.write_bytes(array_file_bytes("weights of a tf_placer policy", 1, header, {}))
    with pytest.raises(InputError, match=r"toy\.npz"):
        restore_weights(path, KIND, policy())


# Changes of small settings, and placements of an update; 0: as many as differ.
LEARNERS = {
    "colocrl": ({"controllers": 2}, 6),
    "go": ({}, 6),
    "hdp": ({}, 16),
    "mars": ({"pretrain_iterations": 0}, 7),
    "placeto": ({}, 0),
    "post": ({"epochs": 1, "smoothing": 1.0}, 64),
    "tabular": ({}, 32),
}
EVERY = pytest.mark.parametrize("method", LEARNERS)


def of_method(method):
    return small_learner(method, **LEARNERS[method][0])


def best_of(learner):
    """The best plans so far and their times, of a learner that keeps any."""
    best = getattr(learner, "best", None)
    return [] if best is None else [*best.decisions, best.runtime_s]


@pytest.fixture(scope="module")
def learner_of():
    """One of each method, for tests that do not mind how far it is."""
    return functools.cache(of_method)


def test_the_list_is_complete():
    assert LEARNERS.keys() == SMALL.keys()


@pytest.mark.medium
@EVERY
def test_a_proposal_stays_until_it_is_learned_from(method, learner_of):
    learner = learner_of(method)
    first, again = learner.propose(), learner.propose()
    count = LEARNERS[method][1] or len(np.unique(first.placements, axis=0))
    assert first.placements.shape == (count, PROBLEM.num_units)
    for ours, theirs in zip(tf.nest.flatten(again), tf.nest.flatten(first), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    before, updates = weights(learner.policy), int(learner.updates)
    update(learner)
    assert moved(learner.policy, before) and int(learner.updates) == updates + 1
    following = learner.propose().placements
    assert following.shape != first.placements.shape or (following != first.placements).numpy().any()


@pytest.mark.medium
@EVERY
def test_calls_are_traced_once(method, learner_of):
    learner = learner_of(method)
    for _ in range(3):
        update(learner)
    names = {
        "go": ("_refined", "learn"),
        "mars": ("propose", "_step"),
        "placeto": ("_episodes", "_step"),
        "post": ("_drawn", "_proximal_step"),
        "tabular": ("learn",),
    }.get(method, ("propose", "learn"))
    for name in names:
        assert getattr(learner, name).experimental_get_tracing_count() == 1, name


@pytest.mark.medium
@EVERY
def test_failures_of_any_cause_leave_numbers_behind(method, learner_of):
    learner = learner_of(method)

    def nothing_runs(placements):
        return tf.fill([len(placements)], np.nan), tf.zeros(len(placements), tf.bool)

    kept = [variable.numpy() for variable in best_of(learner)]
    for _ in range(2):
        update(learner, nothing_runs)
    for variable in learner.policy.trainable_variables:
        assert np.isfinite(variable.numpy()).all(), variable.name
    for variable, value in zip(best_of(learner), kept, strict=True):
        np.testing.assert_array_equal(variable, value, err_msg="what did not run is not the best")


@pytest.mark.medium
@pytest.mark.parametrize("method", ["go", "hdp", "mars"])
def test_how_sure_it_is_changes_nothing(method, learner_of):
    learner = learner_of(method)
    before = [variable.numpy() for variable in learner.variables]
    assert 0 < float(learner.entropy()) <= np.log(2) + 1e-6
    for variable, value in zip(learner.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["go", "hdp", "mars", "placeto"])
def test_weights_go_on_with_another_problem(method):
    first = of_method(method)
    update(first)
    second = small_learner(method, OTHER, **LEARNERS[method][0])
    copy_weights(first.policy, second.policy)
    before = weights(second.policy)
    for row in update(second, off_device(0)).placements.numpy():
        OTHER.check_legal(row)
    assert moved(second.policy, before)


@pytest.mark.slow
@EVERY
def test_a_learner_is_its_variables(method, tmp_path, monkeypatch):
    """Another learner does what the first one goes on to do, once it has its variables."""
    monkeypatch.setattr(PostConfig, "elites", 2 / 64)
    first, second = (small_learner(method, seed=5, **LEARNERS[method][0]) for _ in range(2))
    evaluate = off_device(0) if method == "post" else weighted_devices
    for _ in range(3):
        update(first, evaluate)
    tf.train.Checkpoint(learner=first).write(str(tmp_path / "learner"))
    expected = [update(first, evaluate) for _ in range(3)]
    for variable in second.variables:
        variable.assign(tf.zeros_like(variable))
    tf.train.Checkpoint(learner=second).read(str(tmp_path / "learner")).assert_consumed()
    for proposal in expected:
        np.testing.assert_array_equal(update(second, evaluate).placements, proposal.placements)
    for ours, theirs in zip(second.variables, first.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=ours.name)
    assert method != "post" or int(first.level) == 1, "it reaches the finer level"
