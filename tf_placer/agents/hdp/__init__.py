"""The Hierarchical planner (Mirhoseini et al. 2018)."""

from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.inputs import HdpInputs
from tf_placer.agents.hdp.inputs import HdpStart
from tf_placer.agents.hdp.inputs import hdp_inputs
from tf_placer.agents.hdp.learner import HdpLearner
from tf_placer.agents.hdp.policy import Actions
from tf_placer.agents.hdp.policy import HdpPolicy
from tf_placer.agents.hdp.policy import Noise
from tf_placer.agents.hdp.policy import Scores

__all__ = [
    "Actions",
    "HdpConfig",
    "HdpInputs",
    "HdpLearner",
    "HdpPolicy",
    "HdpStart",
    "Noise",
    "Scores",
    "hdp_inputs",
]
