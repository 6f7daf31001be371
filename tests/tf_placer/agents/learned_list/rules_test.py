"""A distribution of rules: it moves to what fares well, and is found where the optimum is."""

import dataclasses

import numpy as np

from tests.tf_placer.agents.learned_list.small_lists import CONFIG
from tf_placer.agents.learned_list.learned_list import LearnedListConfig, Rules


def test_the_first_of_a_batch_is_the_mean():
    rules = Rules(np.array([1.0, -2.0]), np.array([0.5, 0.0]), CONFIG)
    drawn = rules.draw(np.random.default_rng(0))
    assert drawn.shape == (8, 2)
    np.testing.assert_array_equal(drawn[0], [1.0, -2.0])
    assert np.unique(drawn[:, 0]).size == 8 and np.unique(drawn[:, 1]).size == 1


def test_it_goes_a_part_of_the_way_to_the_elites(monkeypatch):
    for name, value in {"step": 0.5, "spread_step": 0.25, "least_spread": 0.0}.items():
        monkeypatch.setattr(LearnedListConfig, name, value)
    rules = Rules(np.zeros(1), np.ones(1), CONFIG)
    rules.learn(np.array([[1.0], [3.0], [100.0]]), np.array([2.0, 1.0, 3.0]))
    # Of 1 and 3: their mean is 2, their deviation 1.
    np.testing.assert_allclose((rules.mean, rules.spread), ([1.0], [1.0]))
    rules.learn(np.array([[2.0], [2.0]]), np.array([1.0, 1.0]))
    np.testing.assert_allclose((rules.mean, rules.spread), ([1.5], [0.75]))


def test_what_does_not_run_is_no_elite():
    rules = Rules(np.zeros(1), np.ones(1), CONFIG)
    rules.learn(np.array([[5.0], [7.0]]), np.array([np.inf, np.inf]))
    assert rules.mean == 0 and rules.spread == 1
    rules.learn(np.array([[5.0], [7.0]]), np.array([np.inf, 1.0]))
    np.testing.assert_allclose(rules.mean, [7 * CONFIG.step])


def test_some_spread_is_left_and_a_narrow_one_does_not_become_wider(monkeypatch):
    monkeypatch.setattr(LearnedListConfig, "spread_step", 1.0)
    monkeypatch.setattr(LearnedListConfig, "least_spread", 0.3)
    rules = Rules(np.zeros(2), np.array([1.0, 0.1]), CONFIG)
    rules.learn(np.zeros((4, 2)), np.ones(4))
    np.testing.assert_allclose(rules.spread, [0.3, 0.1])


def test_it_finds_the_least_of_a_bowl(monkeypatch):
    monkeypatch.setattr(LearnedListConfig, "spread_step", 0.15)
    goal, config = np.array([1.0, -2.0, 0.5]), dataclasses.replace(CONFIG, rules=32, elites=4)
    rules, generator = Rules(np.zeros(3), np.ones(3), config), np.random.default_rng(0)
    for _ in range(60):
        drawn = rules.draw(generator)
        rules.learn(drawn, ((drawn - goal) ** 2).sum(axis=1))
    np.testing.assert_allclose(rules.mean, goal, atol=0.1)
