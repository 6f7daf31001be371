"""Settings and priors that the tests of the learned list scheduler share."""

from tf_placer.agents.learned_list.learned_list import LearnedListConfig

CONFIG = LearnedListConfig(num_groups=8, passes=2, rules=8, elites=2, weights="")
