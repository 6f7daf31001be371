"""Settings of the learned list scheduler."""

from __future__ import annotations

import dataclasses

from tf_placer import arguments

_MOST = 2**20


@dataclasses.dataclass(frozen=True)
class LearnedListConfig:
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

    num_groups: int = 320
    passes: int = 3
    rules: int = 16
    elites: int = 3
    spread: float = 1.0
    step: float = 0.4
    spread_step: float = 0.05
    least_spread: float = 0.02
    weights: str = "shipped"

    def __post_init__(self) -> None:
        for field, least in (("num_groups", 1), ("passes", 1), ("rules", 2), ("elites", 1)):
            arguments.whole_number(field, getattr(self, field), least=least, most=_MOST)
        arguments.number("spread", self.spread, above=0.0, finite=True)
        arguments.number("step", self.step, above=0.0, most=1.0)
        arguments.number("spread_step", self.spread_step, least=0.0, most=1.0)
        arguments.number("least_spread", self.least_spread, least=0.0, finite=True)
        arguments.instance_of("weights", self.weights, str, "give the path of a file that `train` wrote")
