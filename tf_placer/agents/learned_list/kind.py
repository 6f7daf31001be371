"""Which priors of rules can take each other's weights."""

from __future__ import annotations

from tf_placer.agents.learned_list.inputs import INPUTS_VERSION
from tf_placer.agents.learned_list.policy import RulePrior
from tf_placer.agents.weights import PolicyKind

# Of what a rule computes: coefficients that were taught for another one cannot be used.
RULE_VERSION = 1


def learned_list_kind() -> PolicyKind:
    """The kind of a ``RulePrior``."""
    return PolicyKind(RulePrior.__name__, {"rule": RULE_VERSION, "inputs": INPUTS_VERSION}, {})
