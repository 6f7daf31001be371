"""The Hierarchical planner (Mirhoseini et al. 2018)."""

from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.learner import HdpLearner
from tf_placer.agents.hdp.learner import Proposal
from tf_placer.agents.hdp.learner import UpdateStats
from tf_placer.agents.hdp.policy import Actions
from tf_placer.agents.hdp.policy import HdpPolicy
from tf_placer.agents.hdp.policy import Noise
from tf_placer.agents.hdp.policy import Scores
from tf_placer.agents.hdp.start import HdpStart

__all__ = [
    "Actions",
    "HdpConfig",
    "HdpLearner",
    "HdpPolicy",
    "HdpStart",
    "Noise",
    "Proposal",
    "Scores",
    "UpdateStats",
]
