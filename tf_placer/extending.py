"""Names that a method or a workload of your own may use (docs/extending.md): they stay where modules move."""

from tf_placer import workloads
from tf_placer.agents.learner import PolicyLearner, Proposal, WarmStart, adam, descend
from tf_placer.agents.losses import (
    MovingAverageBaseline,
    cross_entropy_loss,
    ppo_loss,
    quantile_loss,
    reinforce_loss,
    square_root_reward,
)
from tf_placer.base import masked
from tf_placer.base.method_spec import Kind, MethodSpec, NoSettings, Role, Settings, setting
from tf_placer.grouper.groups import Groups, unit_groups
from tf_placer.search import methods
from tf_placer.search.round import Context, Method, Round, evaluated
from tf_placer.workloads.spec import Workload

__all__ = [
    "Context",
    "Groups",
    "Kind",
    "Method",
    "MethodSpec",
    "MovingAverageBaseline",
    "NoSettings",
    "PolicyLearner",
    "Proposal",
    "Role",
    "Round",
    "Settings",
    "WarmStart",
    "Workload",
    "adam",
    "cross_entropy_loss",
    "descend",
    "evaluated",
    "masked",
    "methods",
    "ppo_loss",
    "quantile_loss",
    "reinforce_loss",
    "setting",
    "square_root_reward",
    "unit_groups",
    "workloads",
]
