"""What `measure` says of a plan that took turns with the single devices."""

import pytest

from tf_placer.base.quantities import ratio
from tf_placer.report.sentences import in_turn_sentence

_SLOWING = [1.0 + 0.05 * turn for turn in range(20)]  # what the machine does to a turn it does to all in it


def _times(factor: float) -> list[float]:
    return [factor * time for time in _SLOWING]


@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_the_plan_is_compared_with_the_best_single_device_turn_by_turn(factor):
    said = in_turn_sentence({0: _times(factor), 1: _times(1.5), 2: _times(1.0)})
    assert said == f"in turn, 20 turns each: the plan takes {ratio(factor)} of the best single device's time"


def test_what_is_within_the_noise_is_called_so():
    swaying = [time * (1.02 if turn % 2 else 0.98) for turn, time in enumerate(_SLOWING)]
    assert in_turn_sentence({0: swaying, 1: _times(1.0)}).endswith("within the noise")
