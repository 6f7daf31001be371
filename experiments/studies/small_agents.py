"""Settings of agents for some hundred samples instead of a hundred thousand: small policies that take large steps."""

from __future__ import annotations

from tf_placer.agents.colocrl.learner import ColocRlConfig
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.placeto.inputs import PlacetoConfig

ON_RUNTIME = {
    "colocrl": ColocRlConfig(
        max_groups=8,
        hidden=32,
        start_probability=0.5,
        placements=8,
        learning_rate=1e-2,
        entropy_start=0.6,
        entropy_end=0.1,
        entropy_updates=20,
        valid_only_after=20,
    ),
    "hdp": HdpConfig(
        num_groups=8,
        grouper_hidden=32,
        placer_hidden=32,
        landmarks=8,
        groupings=1,
        placements=8,
        loss="reinforce",
        incumbent=False,
        row_rate=0.0,
        learning_rate=1e-2,
        grouper_learning_rate=1e-4,
        start_probability=0.5,
        entropy_start=0.6,
        entropy_end=0.1,
        entropy_updates=20,
        noise_updates=20,
        valid_only_after=20,
    ),
    # A reward for each step of an episode is a measurement for each step, so there is one at its end.
    "placeto": PlacetoConfig(
        parts=8,
        landmarks=8,
        reward="end",
        keep_probability=0.5,
        learning_rate=1e-2,
        learning_rate_updates=28,
        entropy_updates=28,
    ),
}


def by_controllers(placements: int, updates: int) -> dict[str, ColocRlConfig | HdpConfig]:
    """Settings for controllers: moving-average baselines and no elites, as in the papers, and small policies.

    Args:
      placements: K, of an update.
      updates: over half of which the policy explores less and less.
    """
    half = max(1, updates // 2)
    return {
        "colocrl": ColocRlConfig(
            max_groups=32,
            hidden=32,
            start_probability=0.5,
            placements=placements,
            learning_rate=5e-3,
            standardize=False,
            elite_share=0.0,
            entropy_start=0.6,
            entropy_end=0.1,
            entropy_updates=half,
            valid_only_after=20,
        ),
        "hdp": HdpConfig(
            num_groups=16,
            grouper_hidden=32,
            placer_hidden=32,
            landmarks=8,
            groupings=1,
            placements=placements,
            loss="reinforce",
            incumbent=False,
            row_rate=0.0,
            learning_rate=1e-2,
            grouper_learning_rate=1e-4,
            start_probability=0.5,
            standardize=False,
            entropy_start=0.6,
            entropy_end=0.1,
            entropy_updates=half,
            noise_updates=20,
            valid_only_after=20,
        ),
    }
