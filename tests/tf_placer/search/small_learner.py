"""Methods that learn, small: HDP, and what it needs of a search without tracing.

The second can be killed and begun again many times.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tf_placer.agents.hdp_policy import HdpConfig
from tf_placer.search import methods
from tf_placer.search.round import Context, Round, evaluated

PLACEMENTS = 8
SMALL_HDP = dataclasses.replace(
    methods.find("hdp"),
    default=HdpConfig(num_groups=8, placer_hidden=8, landmarks=4, placements=16, incumbent=False),
)


class _Learner(tf.Module):
    """How likely each unit is to be on device 1, and how often it has learned."""

    def __init__(self, num_units: int) -> None:
        super().__init__()
        self.likely = tf.Variable(tf.fill([num_units], tf.constant(0.5, tf.float64)))
        self.updates = tf.Variable(0)


def small_learner(context: Context, rate: float = 0.2) -> Iterator[Round]:
    """Moves towards the best of each round; as for HDP, what it does next follows from its variables and the seed."""
    learner = _Learner(context.problem.num_units)
    context.checkpoint.track(learner, {"rate": rate})
    while True:
        draw = np.random.default_rng([context.seed, int(learner.updates)])
        rows = (draw.random((PLACEMENTS, context.problem.num_units)) < learner.likely.numpy()).astype(
            np.int32
        )
        batch = evaluated(context, rows)
        best = rows[np.argmin(np.where(batch.valid, batch.runtime_s, np.inf))]
        learner.likely.assign_add(rate * (best - learner.likely))
        learner.updates.assign_add(1)
        yield batch
