"""Mars (Lan et al. 2021): an encoder of the graph that is pre-trained by contrast, and a placer of segments."""

from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.mars.inputs import MarsInputs
from tf_placer.agents.mars.inputs import mars_groups
from tf_placer.agents.mars.inputs import mars_inputs
from tf_placer.agents.mars.learner import MarsLearner
from tf_placer.agents.mars.policy import MarsPolicy
from tf_placer.agents.mars.pretraining import Pretraining
from tf_placer.agents.mars.unit_encoder import UnitEncoder

__all__ = [
    "MarsConfig",
    "MarsInputs",
    "MarsLearner",
    "MarsPolicy",
    "Pretraining",
    "UnitEncoder",
    "mars_groups",
    "mars_inputs",
]
