"""ColocRL (Mirhoseini et al. 2017): devices of groups that co-location rules make."""

from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.colocrl.inputs import ColocRlInputs
from tf_placer.agents.colocrl.inputs import colocated_groups
from tf_placer.agents.colocrl.inputs import colocrl_inputs
from tf_placer.agents.colocrl.learner import ColocRlLearner
from tf_placer.agents.colocrl.policy import ColocRlPolicy

__all__ = [
    "ColocRlConfig",
    "ColocRlInputs",
    "ColocRlLearner",
    "ColocRlPolicy",
    "colocated_groups",
    "colocrl_inputs",
]
