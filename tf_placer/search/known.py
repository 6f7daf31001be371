"""Names of methods, objectives and budgets, known without TensorFlow so that flags can be checked early."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import sys
from typing import Any

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, nearest

_TABLE = "tf_placer.search.methods"
DESCRIPTIONS = pathlib.Path(__file__).with_name("methods.json")

# Those that come with tf_placer, beside the portfolio of them: the module where each has its row, a ``MethodSpec``.
MODULES = {
    "brkga": "tf_placer.planners.population",
    "cem": "tf_placer.planners.population",
    "colocrl": "tf_placer.agents.colocrl",
    "cp_sat": "tf_placer.planners.cp_sat",
    "cpu_only": "tf_placer.planners.plain",
    "expert": "tf_placer.planners.plain",
    "go": "tf_placer.agents.go.learner",
    "go_zero_shot": "tf_placer.agents.go.learner",
    "hdp": "tf_placer.agents.hdp",
    "heft": "tf_placer.planners.list_schedule",
    "learned_list": "tf_placer.agents.learned_list.learned_list",
    "list_schedule": "tf_placer.planners.list_schedule",
    "local_search": "tf_placer.planners.local_search",
    "m_etf": "tf_placer.planners.m_sct",
    "m_sct": "tf_placer.planners.m_sct",
    "m_topo": "tf_placer.planners.m_sct",
    "mars": "tf_placer.agents.mars",
    "memetic": "tf_placer.planners.memetic",
    "metis": "tf_placer.planners.partitioners",
    "mincut": "tf_placer.planners.partitioners",
    "peft": "tf_placer.planners.list_schedule",
    "placeto": "tf_placer.agents.placeto",
    "post": "tf_placer.agents.post",
    "random": "tf_placer.planners.plain",
    "regal": "tf_placer.agents.regal",
    "scotch": "tf_placer.planners.partitioners",
    "single": "tf_placer.planners.plain",
    "tabular": "tf_placer.agents.tabular",
    "tf_default": "tf_placer.planners.plain",
    "topological_fill": "tf_placer.planners.plain",
}
# Those with a role that one method has (``Role``); a test holds them equal to the rows.
REFERENCE, CONTROL, PLAIN, DEFAULT = "single", "random", "local_search", "auto"
COMPARED = (REFERENCE, CONTROL, DEFAULT)
BUILT_IN = tuple(sorted([*MODULES, DEFAULT]))


def methods() -> tuple[str, ...]:
    """Names of all search methods, sorted, those that were added included: what ``search`` takes as ``method``."""
    table = sys.modules.get(_TABLE)
    return BUILT_IN if table is None else tuple(table.names())


def descriptions() -> list[dict[str, Any]]:
    """``tf_placer.search.methods.about`` of each method: of the built-in ones as a file has it, which ships."""
    table = sys.modules.get(_TABLE)
    if table is not None:
        return [table.about(name) for name in table.names()]
    return list(json.loads(DESCRIPTIONS.read_text(encoding="utf8")))


def check_name(name: str) -> None:
    """Raises InputError unless a method has this name; the message gives the nearest ones."""
    if name not in methods():
        raise InputError(f"no method is called {name!r}; {nearest(name, methods())}")


# Objectives: the shortest step, or the least memory within a slow-down of that.

TIME, MEMORY = "time", "memory"
OBJECTIVES = (TIME, MEMORY)
SLOW_DOWN = 0.1


@dataclasses.dataclass(frozen=True)
class Objective:
    """Objective of a search.

    Attributes:
      name: ``"time"``: the fastest plan. ``"memory"``: the plan whose fullest accelerator takes the smallest share of
        its memory, among those that are slower than the fastest by no more than ``slow_down``.
      slow_down: share of the fastest plan's step time; 0.1 is a tenth.

    Raises:
      InputError: another word, or a negative share.
    """

    name: str = TIME
    slow_down: float = SLOW_DOWN

    def __post_init__(self) -> None:
        arguments.one_of("objective", self.name, OBJECTIVES)
        slow_down = arguments.number("slow_down", self.slow_down, least=0, finite=True)
        object.__setattr__(self, "slow_down", slow_down)

    @property
    def is_memory(self) -> bool:
        return self.name == MEMORY


# Orders of execution: none but the runtime's own, the best of all rules, or a rule of ``tf_placer.planners.order``.

NO_ORDER, AUTO_ORDER = "none", "auto"
ORDER_RULES = (
    "all_forward",
    "bottom_level",
    "critical_sends",
    "heft_rank",
    "one_forward_one_backward",
    "part_by_part",
    "placed_level",
    "shuffled",
)
ORDERS = (NO_ORDER, AUTO_ORDER, *ORDER_RULES)


# Budgets.

# Scope of a budget's seconds: all that a user waits for, or each search alone.
WHOLE, SEARCH = "whole", "search"
BUDGETS = (WHOLE, SEARCH)


@dataclasses.dataclass(frozen=True)
class Budget:
    """A search ends when either limit is reached.

    Attributes:
      seconds: wall-clock limit, infinite when only evaluations count.
      evaluations: most placements evaluated, None for no limit.

    Raises:
      InputError: no limit at all, or one that is not a positive number.
    """

    seconds: float = math.inf
    evaluations: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", arguments.number("budget_s", self.seconds, above=0))
        if self.evaluations is not None:
            count = arguments.whole_number("budget_evaluations", self.evaluations, least=1)
            object.__setattr__(self, "evaluations", count)
        if math.isinf(self.seconds) and self.evaluations is None:
            raise InputError("the search has no budget; give budget_s or budget_evaluations")

    def left(self, evaluations: int) -> float:
        """Evaluations left after ``evaluations``."""
        return math.inf if self.evaluations is None else self.evaluations - evaluations

    def used(self, evaluations: int, seconds: float) -> float:
        """The share that is used up after so many evaluations and seconds.

        Where evaluations are limited they alone count, so that what a search does with its shares is not a matter of
        the clock; the seconds then only end it.
        """
        return seconds / self.seconds if self.evaluations is None else evaluations / self.evaluations

    def capped(self, evaluations: int) -> Budget:
        """Budget of so many evaluations, in no more time: one that counts evaluations alone has no other limit."""
        return Budget(self.seconds, evaluations)

    def share(self, count: int) -> Budget:
        """The budget of each of ``count`` searches that share this one; at least one evaluation each."""
        evaluations = None if self.evaluations is None else max(1, self.evaluations // count)
        return Budget(self.seconds / count, evaluations)
