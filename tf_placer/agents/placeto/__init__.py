"""Placeto: a device for one group after the other (Addanki et al. 2019)."""

from tf_placer.agents.placeto.config import PlacetoConfig
from tf_placer.agents.placeto.inputs import GroupGraph
from tf_placer.agents.placeto.inputs import PlacetoInputs
from tf_placer.agents.placeto.inputs import group_graph
from tf_placer.agents.placeto.inputs import placeto_inputs
from tf_placer.agents.placeto.learner import PlacetoLearner
from tf_placer.agents.placeto.policy import Actions
from tf_placer.agents.placeto.policy import PlacetoPolicy
from tf_placer.agents.placeto.policy import Scores

__all__ = [
    "Actions",
    "GroupGraph",
    "PlacetoConfig",
    "PlacetoInputs",
    "PlacetoLearner",
    "PlacetoPolicy",
    "Scores",
    "group_graph",
    "placeto_inputs",
]
