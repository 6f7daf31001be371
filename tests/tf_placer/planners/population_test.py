"""Random keys stand for devices and elites have children; a table of probabilities moves to the elites."""

import numpy as np
import pytest

from tests.tf_placer.planners.chains import tell
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.planners.population import Brkga, BrkgaConfig, Cem, CemConfig, devices_of_keys, keys_of_devices
from tf_placer.problem.problem import Problem


def chain(allowed: np.ndarray | None = None) -> Problem:
    """Eight units, a group each."""
    more = {} if allowed is None else {"allowed": allowed}
    return problem_of([10] * 8, [(i, i + 1) for i in range(7)], 100, **more)


@pytest.mark.parametrize(
    "planner", [Brkga(chain(), BrkgaConfig(), None, 0), Cem(chain(), CemConfig(), None, 0)]
)
def test_each_single_device_is_tried_first(planner: Brkga | Cem) -> None:
    assert planner.ask(np.inf)[:2].tolist() == [[0] * 8, [1] * 8]


def test_a_key_is_a_share_of_the_devices_that_are_allowed() -> None:
    allowed = np.ones((8, 2), bool)
    allowed[3, 0] = False
    planner = Brkga(chain(allowed), BrkgaConfig(population=10), None, seed=0)
    rows = planner.ask(np.inf)
    # Below a half the first of two devices; unit 3 has only the second one.
    expected = (planner._offered >= 0.5).astype(int)
    expected[:, 3] = 1
    np.testing.assert_array_equal(rows, expected)


def test_elites_live_on_and_are_not_tried_again() -> None:
    planner = Brkga(chain(), BrkgaConfig(population=10, elites=0.2, mutants=0.3), None, seed=0)
    tell(planner, planner.ask(np.inf), np.arange(10.0))
    keys = planner.state()["keys"]
    second = planner.ask(np.inf)
    assert len(second) == 8  # ten without two elites
    tell(planner, second, np.full(8, 5.0))
    np.testing.assert_array_equal(planner.state()["keys"][:2], keys[:2])
    assert planner.state()["times"].tolist() == [0.0, 1.0] + [5.0] * 8


def test_children_have_the_keys_of_their_parents() -> None:
    config = BrkgaConfig(population=10, elites=0.2, mutants=0.0, bias=1.0, mutation=0.0)
    planner = Brkga(chain(), config, None, seed=0)
    tell(planner, planner.ask(np.inf), np.arange(10.0))
    # All keys from an elite: all on device 0, or all on device 1.
    children = planner.ask(np.inf)
    assert len(children) == 8 and {tuple(row) for row in children.tolist()} == {(0,) * 8, (1,) * 8}


def test_elites_that_are_alike_go_on_with_finer_groups() -> None:
    planner = Brkga(chain(), BrkgaConfig(population=4, elites=0.25, parts=2, levels=2), None, seed=0)
    rows = planner.ask(np.inf)
    tell(planner, rows, [2.0, 1.0, 3.0, 4.0])  # one elite is like itself
    assert planner.state()["level"] == 1
    assert planner.ask(np.inf)[0].tolist() == rows[1].tolist()  # the best one is where the next level begins


def test_keys_in_the_middle_of_a_share_stand_for_its_device() -> None:
    allowed = np.array([[True, True, True], [False, True, True], [False, False, True]])
    keys = np.array([[0.0, 0.49, 0.0], [0.34, 0.5, 0.9], [0.99, 0.99, 0.5]])
    devices = devices_of_keys(keys, allowed)
    np.testing.assert_array_equal(devices, [[0, 1, 2], [1, 2, 2], [2, 2, 2]])
    middle = np.stack([keys_of_devices(row, allowed) for row in devices])
    np.testing.assert_array_equal(devices_of_keys(middle, allowed), devices)
    # Group 1 may not be on device 0: its first one is device 1, the lower half of its keys.
    np.testing.assert_allclose(keys_of_devices(np.array([0, 0, 0]), allowed), [1 / 6, 1 / 4, 1 / 2])


def test_the_table_moves_to_the_frequencies_of_the_elites() -> None:
    planner = Cem(chain(), CemConfig(samples=10, elites=0.2, smoothing=0.5), None, seed=0)
    rows = planner.ask(np.inf)
    tell(planner, rows, np.arange(10.0)[::-1])
    # Of ten the last two are the elites; (1 - 0.5) * 0.5 + 0.5 * their share.
    np.testing.assert_allclose(planner.state()["probability"][:, 1], 0.25 + 0.5 * rows[-2:].mean(axis=0))
    assert planner.state()["best"].tolist() == rows[-1].tolist()


def test_what_does_not_run_is_no_elite() -> None:
    planner = Cem(chain(), CemConfig(samples=10, elites=0.5, smoothing=0.9), None, seed=0)
    rows = planner.ask(np.inf)
    tell(planner, rows, np.where(np.arange(10) == 3, 1.0, np.inf))
    # The only elite, and 0.1 of what the table was.
    np.testing.assert_allclose(planner.state()["probability"][:, 1], 0.05 + 0.9 * rows[3])
    before = Cem(chain(), CemConfig(samples=10), None, seed=0)
    tell(before, before.ask(np.inf), np.full(10, np.inf))
    assert (before.state()["probability"] == 0.5).all()


def test_a_table_that_has_converged_goes_on_with_finer_groups() -> None:
    planner = Cem(chain(), CemConfig(samples=2, elites=0.5, smoothing=1.0, parts=2, levels=2), None, seed=0)
    tell(planner, planner.ask(np.inf), [2.0, 1.0])  # one elite: the table says it and nothing else
    state = planner.state()
    # Uniform, and 0.7 of the way to the best plan: 0.3 * 0.5 + 0.7.
    assert state["level"] == 1 and state["probability"].shape == (4, 2)
    np.testing.assert_allclose(state["probability"][:, 1], 0.85)
