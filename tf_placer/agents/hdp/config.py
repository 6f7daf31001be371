"""Settings of the Hierarchical planner."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class HdpConfig:
    """Mirhoseini et al. 2018, "A Hierarchical Model for Device Placement", section 3.

    Attributes:
      num_groups: G (paper: 256).
      grouper_hidden: width of the Grouper's hidden layer.
      type_embedding: width of the op-type embedding.
      type_vocabulary: most common op types that get a row of their own.
      grouper_sharpness: how firmly units start in the group of their prototype (paper: 0, uniform).
      placer_hidden: H (paper: 256).
      tanh_constant: C of the bounded logits.
      temperature: T of the bounded logits.
      groupings: m, groupings drawn per update.
      placements: k, placements drawn per grouping (paper: 4).
      learning_rate: Adam's (paper: 0.1).
      gradient_clip: global norm.
      baseline_decay: of the moving-average baseline.
      normalize_advantage: divide by a moving estimate of its spread (paper: no).
      noise_amplitude: of the uniform noise on both networks' logits at the start.
      noise_updates: updates until the noise is off.
      valid_only_after: updates after which only placements that run may teach.
      failing_reward: reward of a placement that does not run.
    """

    num_groups: int = 64
    grouper_hidden: int = 64
    type_embedding: int = 20
    type_vocabulary: int = 200
    grouper_sharpness: float = 8.0
    placer_hidden: int = 64
    tanh_constant: float = 5.0
    temperature: float = 10.0
    groupings: int = 1
    placements: int = 16
    learning_rate: float = 3e-3
    gradient_clip: float = 1.0
    baseline_decay: float = 0.9
    normalize_advantage: bool = True
    noise_amplitude: float = 0.1
    noise_updates: int = 500
    valid_only_after: int = 500
    failing_reward: float = -10.0
