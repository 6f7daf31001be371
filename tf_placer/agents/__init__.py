"""Learned policies and how they learn."""

from tf_placer.agents.initialization import draw_weights
from tf_placer.agents.losses import reinforce_loss
from tf_placer.agents.rewards import square_root_reward

__all__ = ["draw_weights", "reinforce_loss", "square_root_reward"]
