"""REGAL: a genetic algorithm whose random keys are drawn as a graph network says (Paliwal et al. 2020)."""

from tf_placer.agents.regal.config import RegalConfig
from tf_placer.agents.regal.inputs import RegalInputs
from tf_placer.agents.regal.inputs import regal_inputs
from tf_placer.agents.regal.learner import RegalLearner
from tf_placer.agents.regal.policy import RegalPolicy

__all__ = [
    "RegalConfig",
    "RegalInputs",
    "RegalLearner",
    "RegalPolicy",
    "regal_inputs",
]
