"""The weight follows how far updates move."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_placer.agents.losses import KlPenalty


@pytest.mark.parametrize(
    "divergence, weight",
    [(0.031, 6.0), (0.029, 3.0), (0.014, 3.0), (0.013, 1.5)],  # 1.5 * 0.02 = 0.03, 0.02 / 1.5 = 0.0133
)
def test_the_weight_doubles_or_halves_outside_of_the_target(divergence: float, weight: float) -> None:
    penalty = KlPenalty(3.0, target=0.02)
    penalty.adapt(tf.constant(divergence))
    assert float(penalty.weight) == weight


def test_without_a_target_the_weight_stays() -> None:
    penalty = KlPenalty(3.0, target=0.0)
    penalty.adapt(tf.constant(100.0))
    assert float(penalty.weight) == 3
