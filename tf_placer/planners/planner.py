"""The protocol of a method at work, which is asked for plans and told their times; and the best plan so far."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from tf_placer.base import arguments
from tf_placer.problem.placement import Decisions


@dataclasses.dataclass(frozen=True, eq=False)
class Round:
    """B placements that a method tried together, or the best of more.

    Raises:
      InputError: the decisions are none, as many evaluations as there cannot be, or a negative time.
    """

    decisions: Decisions  # or devices alone, [B, U] int32; of tensors only the best row is ever copied out
    runtime_s: np.ndarray  # [B]; not meaningful where not ``valid``
    valid: np.ndarray  # [B] bool, the placement runs and fits
    evaluations: int | None = None  # placements tried to find these; None: these and no others
    found_by: str = ""  # the method inside a method
    proven_s: float = 0.0  # no placement that fits takes less; 0: nothing is proven
    order: str = ""  # the rule that made their priorities, if one did

    def __post_init__(self) -> None:
        decisions: Any = self.decisions
        if not isinstance(decisions, Decisions):
            object.__setattr__(self, "decisions", Decisions(decisions))
        if self.evaluations is not None:
            arguments.whole_number("evaluations", self.evaluations, least=0)
        arguments.instance_of("found_by", self.found_by, str, "give the name of a method")
        arguments.number("proven_s", self.proven_s, least=0)

    @property
    def times_s(self) -> np.ndarray:
        """[B] step times, infinite where a placement does not run."""
        return np.where(self.valid, self.runtime_s, np.inf)


@dataclasses.dataclass
class Best:
    """The fastest plan so far, and its origin."""

    plan: Decisions | None = None  # of one row
    runtime_s: float = math.inf
    found_by: str = ""
    order: str = ""

    def take(self, batch: Round, rows: int | None = None) -> None:
        """Keeps the fastest of a round's first ``rows`` plans if faster; of equal ones the earliest stays."""
        times_s = batch.times_s[:rows]
        if times_s.min(initial=math.inf) < self.runtime_s:
            row = int(times_s.argmin())
            self.plan, self.runtime_s = batch.decisions.row(row), float(times_s[row])
            self.found_by, self.order = batch.found_by, batch.order


class Resumable:
    """Base of a method whose state is attributes, named in ``_KEPT`` with the types that they are made with again.

    Of an array that is the type of the numbers.
    """

    _KEPT: ClassVar[Mapping[str, Any]] = {}

    def state(self) -> dict[str, Any]:
        """Arrays, numbers and JSON data by name, as ``Method`` has them."""
        state = {}
        for attribute, kind in self._KEPT.items():
            value = getattr(self, attribute)
            value = value.bit_generator.state if kind is np.random.Generator else value
            state[attribute.lstrip("_")] = copy.copy(value)
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` gave, also in another process."""
        for attribute, kind in self._KEPT.items():
            value = state[attribute.lstrip("_")]
            if kind is np.random.Generator:
                getattr(self, attribute).bit_generator.state = value
            else:
                setattr(
                    self, attribute, np.array(value, kind) if issubclass(kind, np.generic) else kind(value)
                )


class Method(Protocol):
    """A search method at work on one problem.

        while len(decisions := method.ask(most)):
            method.tell(decisions, evaluated(context, decisions))

    ``state`` is all that its next plans depend on. A method that can prove a lower bound has ``proven_s()``, too:
    seconds that every placement that fits takes in the simulator, 0 where nothing is proven.
    """

    def ask(self, most: float) -> Decisions | np.ndarray:
        """Plans to evaluate, or only their devices [B, U]; plans over ``most`` are not counted. No plan: the end."""

    def tell(self, decisions: Decisions, times: Round) -> None:
        """Takes in how the plans fared that ``ask`` returned last."""

    def state(self) -> dict[str, Any]:
        """Arrays, numbers and JSON data by name."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what ``state`` returned, also in another process."""
