"""What a ``tf.distribute`` strategy decides itself, so that nothing is left to place."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_CHOOSE = "a strategy splits the batch and placing splits the step: use one of them"


def why_a_strategy_decides(args: Any = (), kwargs: Any = None) -> str:
    """Why a call is not placed where it is made, or with what it is given; empty where it can be.

    Args:
      args, kwargs: what the function is called with.
    """
    if tf.distribute.has_strategy():
        name = type(tf.distribute.get_strategy()).__name__
        where = "is in scope" if tf.distribute.in_cross_replica_context() else "runs it in a replica"
        return f"a tf.distribute strategy ({name}) {where}; {_CHOOSE}, and call it outside of the strategy for this one"
    if any(
        isinstance(value, tf.distribute.DistributedValues) for value in tf.nest.flatten((args, kwargs or {}))
    ):
        return (
            f"it is given values of several replicas; {_CHOOSE}, and call it with plain tensors for this one, or by "
            "strategy.run for the other"
        )
    return ""
