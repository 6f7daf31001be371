"""A placement by a policy that was taught on other graphs: no reward is asked for."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer.agents.go.inputs import go_inputs
from tf_placer.agents.go.nodes import nodes_of
from tf_placer.agents.go.policy import NOWHERE, GoPolicy
from tf_placer.problem.problem import Problem


def zero_shot(
    policy: GoPolicy, problem: Problem, plan: np.ndarray | None = None, passes: int | None = None
) -> np.ndarray:
    """The likeliest device of every node, refined; legal, but nobody asks whether it fits.

    Args:
      policy: with weights of any problems.
      problem: what to place, of any size.
      plan: [U] that the first pass sees; None where nothing is decided by then.
      passes: of refinement, where not as many as when the policy samples.

    Returns:
      [U] int32 devices.
    """
    nodes = nodes_of(problem, policy.config)
    begin = np.full(nodes.count, NOWHERE, np.int32)
    if plan is not None:
        begin = nodes.devices_of(problem, plan[np.newaxis])[0]
    inputs = go_inputs(problem, nodes)
    chain, _ = policy.greedy(inputs, tf.constant(begin), passes)
    row: np.ndarray = inputs.placements(chain.executed).numpy()[0]
    return row
