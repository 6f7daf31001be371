"""A distribution of rules of list scheduling."""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.agents.learned_list.inputs import INPUTS_VERSION
from tf_placer.agents.weights import PolicyKind
from tf_placer.ops.list_policy import CONTEXT, FEATURES, NUM_COEFFICIENTS

# What a rule looks at before it was taught anything: where the op is fast, what crosses, and what is full.
_UNTAUGHT = {
    "slowness": -2.0,
    "load": -0.3,
    "rival": -0.5,
    "transfer": -1.0,
    "affinity": 1.0,
    "full": -3.0,
    "overfull": -0.5,
}
_SPREAD_OF_FEATURES, _SPREAD_OF_CONTEXT, _SPREAD_OF_ORDER = 0.4, 0.15, 0.05


class RulePrior(snt.Module):
    """Independent normal distributions of the P coefficients of a rule (``tf_placer.ops.list_policy``).

    Attributes:
      mean: [P] float64 variable, what is taught.
      spread: [P] float64 standard deviations.
    """

    def __init__(self) -> None:
        """A rule as one would write it down, and some spread around it."""
        super().__init__(name="rule_prior")
        mean = np.zeros((len(FEATURES), len(CONTEXT)))
        for feature, value in _UNTAUGHT.items():
            mean[FEATURES.index(feature), CONTEXT.index("one")] = value
        spread = np.full_like(mean, _SPREAD_OF_CONTEXT)
        spread[:, CONTEXT.index("one")] = _SPREAD_OF_FEATURES
        order = NUM_COEFFICIENTS - mean.size
        self.mean = tf.Variable(np.append(mean, np.zeros(order)), name="mean")
        self.spread = np.append(spread, np.full(order, _SPREAD_OF_ORDER))


# Of what a rule computes: coefficients that were taught for another one cannot be used.
RULE_VERSION = 1


def learned_list_kind() -> PolicyKind:
    """The kind of a ``RulePrior``."""
    return PolicyKind(RulePrior.__name__, {"rule": RULE_VERSION, "inputs": INPUTS_VERSION}, {})
