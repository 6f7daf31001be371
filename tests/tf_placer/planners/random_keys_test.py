"""Keys have children, and stand for devices."""

from __future__ import annotations

import numpy as np

from tf_placer.planners.random_keys import children, devices_of_keys, joined, keys_of_devices

KEYS = np.array([[0.1, 0.1], [0.2, 0.2], [0.7, 0.7], [0.8, 0.8]])


def test_a_child_has_its_keys_of_an_elite_and_another() -> None:
    generator = np.random.default_rng(0)
    born = children(KEYS, elites=2, count=4000, bias=0.7, mutation=0.0, generator=generator)
    of_elite = born < 0.5
    assert set(np.unique(born)) == {0.1, 0.2, 0.7, 0.8}
    # 8000 keys, each of the elite with probability 0.7: a deviation is sqrt(0.21 / 8000) = 0.005.
    assert abs(of_elite.mean() - 0.7) < 5 * 0.0052
    assert of_elite.all(axis=1).any() and (~of_elite).all(axis=1).any()


def test_all_keys_may_be_drawn_anew() -> None:
    born = children(KEYS, 2, 50, bias=0.7, mutation=1.0, generator=np.random.default_rng(0))
    assert len(np.unique(born)) == 100 and born.min() >= 0 and born.max() < 1


def test_the_keys_of_a_group_stay_together() -> None:
    keys = np.repeat(KEYS[:, :, np.newaxis], 3, axis=2)
    born = children(keys, 2, 200, bias=0.7, mutation=0.0, generator=np.random.default_rng(0))
    assert born.shape == (200, 2, 3) and (born == born[:, :, :1]).all()
    assert (born[:, 0] != born[:, 1]).any()


def test_the_fastest_of_elites_and_offered_live_on() -> None:
    keys, times = joined(KEYS[:1], np.array([2.0]), KEYS[1:], np.array([3.0, 1.0, 2.0]), population=3)
    np.testing.assert_array_equal(times, [1, 2, 2])
    np.testing.assert_array_equal(keys, KEYS[[2, 0, 3]])  # of equal ones the elite first


def test_a_key_is_a_share_of_what_is_allowed() -> None:
    allowed = np.array([[True, True, True], [False, True, True], [False, False, True]])
    keys = np.array([[0.0, 0.49, 0.0], [0.34, 0.5, 0.9], [0.99, 0.99, 0.5]])
    devices = devices_of_keys(keys, allowed)
    np.testing.assert_array_equal(devices, [[0, 1, 2], [1, 2, 2], [2, 2, 2]])
    for row in devices:
        np.testing.assert_array_equal(
            devices_of_keys(keys_of_devices(row, allowed)[np.newaxis], allowed)[0], row
        )
    # Group 1 may not be on device 0: its first one is device 1, the lower half of its keys.
    np.testing.assert_allclose(keys_of_devices(np.array([0, 0, 0]), allowed), [1 / 6, 1 / 4, 1 / 2])
