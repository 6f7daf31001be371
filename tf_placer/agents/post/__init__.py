"""Post: cross-entropy minimization with proximal policy optimization (Gao, Chen & Li 2018)."""

from tf_placer.agents.post.config import PostConfig
from tf_placer.agents.post.learner import PostLearner
from tf_placer.agents.post.policy import PostPolicy

__all__ = [
    "PostConfig",
    "PostLearner",
    "PostPolicy",
]
