"""GO: devices for all nodes of a graph at once, by a policy that serves any graph (Zhou et al. 2020)."""

from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.go.inputs import GoInputs
from tf_placer.agents.go.inputs import go_inputs
from tf_placer.agents.go.learner import GoLearner
from tf_placer.agents.go.policy import NOWHERE
from tf_placer.agents.go.policy import Chain
from tf_placer.agents.go.policy import GoPolicy
from tf_placer.agents.go.policy import Scores
from tf_placer.agents.go.zero_shot import GoZeroShotConfig
from tf_placer.agents.go.zero_shot import go_zero_shot

__all__ = [
    "NOWHERE",
    "Chain",
    "GoConfig",
    "GoInputs",
    "GoLearner",
    "GoPolicy",
    "GoZeroShotConfig",
    "Scores",
    "go_inputs",
    "go_zero_shot",
]
