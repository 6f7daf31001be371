"""Keys stand for devices; elites live on and have children."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.arguments import InputError
from tf_placer.planners.population import Brkga, BrkgaConfig, devices_of_keys, keys_of_devices
from tf_placer.problem.problem import Problem


def chain(allowed: np.ndarray | None = None) -> Problem:
    """Eight units, a group each."""
    more = {} if allowed is None else {"allowed": allowed}
    return problem_of([10] * 8, [(i, i + 1) for i in range(7)], 100, **more)


def test_a_key_is_a_share_of_the_devices_that_are_allowed() -> None:
    allowed = np.ones((8, 2), bool)
    allowed[3, 0] = False
    planner = Brkga(chain(allowed), BrkgaConfig(population=10), None, seed=0)
    rows = planner.propose()
    keys = planner._offered
    # Below a half the first of two devices; unit 3 has only the second one.
    expected = (keys >= 0.5).astype(int)
    expected[:, 3] = 1
    np.testing.assert_array_equal(rows, expected)


def test_the_first_generation_has_each_single_device() -> None:
    assert Brkga(chain(), BrkgaConfig(), None, seed=0).propose()[:2].tolist() == [[0] * 8, [1] * 8]


def test_elites_live_on_and_are_not_tried_again() -> None:
    config = BrkgaConfig(population=10, elites=0.2, mutants=0.3)
    planner = Brkga(chain(), config, None, seed=0)
    first = planner.propose()
    planner.learn(first, np.arange(10.0))
    keys = planner.state()["keys"]
    second = planner.propose()
    assert len(second) == 8  # ten without two elites
    planner.learn(second, np.full(8, 5.0))
    np.testing.assert_array_equal(planner.state()["keys"][:2], keys[:2])
    assert planner.state()["times"].tolist() == [0.0, 1.0] + [5.0] * 8


def test_children_have_the_keys_of_their_parents() -> None:
    config = BrkgaConfig(population=10, elites=0.2, mutants=0.0, bias=1.0, mutation=0.0)
    planner = Brkga(chain(), config, None, seed=0)
    rows = planner.propose()
    planner.learn(rows, np.arange(10.0))
    # All keys from an elite: all on device 0, or all on device 1.
    children = planner.propose()
    assert len(children) == 8 and {tuple(row) for row in children.tolist()} == {(0,) * 8, (1,) * 8}


def test_elites_that_are_alike_go_on_with_finer_groups() -> None:
    planner = Brkga(chain(), BrkgaConfig(population=4, elites=0.25, parts=2, levels=2), None, seed=0)
    rows = planner.propose()
    planner.learn(rows, np.array([2.0, 1.0, 3.0, 4.0]))  # one elite is like itself
    assert planner.state()["level"] == 1
    assert planner.propose()[0].tolist() == rows[1].tolist()  # the best one is where the next level begins


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


@pytest.mark.parametrize(
    "name, value",
    [
        ("population", 3),
        ("elites", 0.6),
        ("mutants", 0.5),
        ("bias", 0.4),
        ("mutation", 2),
        ("parts", 0),
        ("levels", 0),
    ],
)
def test_settings_out_of_their_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} is {value}"):
        BrkgaConfig(**{name: value})
