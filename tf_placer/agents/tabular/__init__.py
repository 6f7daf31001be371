"""Logits of each group without a network: what a learned agent is held against."""

from tf_placer.agents.tabular.config import TabularConfig
from tf_placer.agents.tabular.inputs import TabularInputs
from tf_placer.agents.tabular.inputs import tabular_inputs
from tf_placer.agents.tabular.learner import TabularLearner
from tf_placer.agents.tabular.policy import TabularPolicy

__all__ = ["TabularConfig", "TabularInputs", "TabularLearner", "TabularPolicy", "tabular_inputs"]
