"""Settings of the learned list scheduler."""

from __future__ import annotations

import dataclasses

from tf_placer.agents.weights import WEIGHTS_REMEDY
from tf_placer.method_spec import Settings, setting

_MOST = 2**20


@dataclasses.dataclass(frozen=True)
class LearnedListConfig(Settings):
    """How rules of list scheduling are drawn, and how the search moves to those that fare well.

    Attributes:
      num_groups: most groups of units that are decided one by one.
      passes: how often each group is decided; after the first time with all others in their places.
      rules: B, drawn for each batch.
      elites: of a batch that the distribution moves to.
      spread: how many times as wide as the prior the search begins.
      step: share of the way that the mean goes to the elites.
      spread_step: share of the way that the spread goes to theirs.
      least_spread: standard deviation of a coefficient that is always left.
      weights: file that ``train`` wrote, whose prior it begins with, "shipped" for the one that comes with
        tf_placer, or "" for one that nobody taught.

    Raises:
      InputError: a field of the wrong type or out of range.
    """

    num_groups: int = setting(320, least=1, most=_MOST)
    passes: int = setting(3, least=1, most=_MOST)
    rules: int = setting(16, least=2, most=_MOST)
    elites: int = setting(3, least=1, most=_MOST)
    spread: float = setting(1.0, above=0)
    step: float = setting(0.4, above=0, most=1)
    spread_step: float = setting(0.05, least=0, most=1)
    least_spread: float = setting(0.02, least=0)
    weights: str = setting("shipped", remedy=WEIGHTS_REMEDY)
