"""Registry of search methods and their roles; objectives, orders and budgets of searches.

All of it is known without TensorFlow, so that flags can be checked early: a method's module is loaded with its row.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import pathlib
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, check_registration, fit, limited, nearest
from tf_placer.base.method_spec import ROWS, Kind, MethodSpec, Role

DESCRIPTIONS = pathlib.Path(__file__).with_name("methods.json")

# Those that come with tf_placer, by the module where each has its row, a ``MethodSpec``.
_NAMES_IN = {
    "agents.colocrl": "colocrl",
    "agents.go.learner": "go go_zero_shot",
    "agents.hdp": "hdp",
    "agents.learned_list.learned_list": "learned_list",
    "agents.mars": "mars",
    "agents.placeto": "placeto",
    "agents.regal": "regal",
    "agents.tables": "post tabular",
    "planners.cp_sat": "cp_sat",
    "planners.list_schedule": "heft list_schedule peft",
    "planners.local_search": "local_search",
    "planners.m_sct": "m_etf m_sct m_topo",
    "planners.memetic": "memetic",
    "planners.plain": "cpu_only expert metis mincut random scotch single tf_default topological_fill",
    "planners.population": "brkga cem",
    "search.combinators": "auto",
}
MODULES = {name: f"tf_placer.{module}" for module, names in _NAMES_IN.items() for name in names.split()}
# Those with a role that one method has (``Role``); a test holds them equal to the rows.
REFERENCE, CONTROL, PLAIN, LEAD, DEFAULT = "single", "random", "local_search", "memetic", "auto"
COMPARED = (REFERENCE, CONTROL, DEFAULT)
BUILT_IN = tuple(sorted(MODULES))

_PLAIN = (bool, int, float, str)  # types of settings that are checked for every class
_METHODS: dict[str, MethodSpec] = {}  # rows that were loaded or added


def methods() -> tuple[str, ...]:
    """Names of all search methods, sorted, with added ones: values of ``search(method=...)``."""
    return tuple(sorted({*MODULES, *_METHODS}))


names = methods


def check_name(name: str) -> None:
    """Raises InputError unless a method has this name; the message gives the nearest ones."""
    if name not in methods():
        raise InputError(f"no method is called {name!r}; {nearest(name, methods())}")


def find(name: str) -> MethodSpec:
    """The row of the method called ``name``; raises InputError as ``check_name``."""
    check_name(name)
    if name not in _METHODS:
        importlib.import_module(MODULES[name])
        _METHODS[name] = ROWS[name]
    return _METHODS[name]


def having(role: Role) -> tuple[MethodSpec, ...]:
    """The rows that have a role: built-in ones by name, then added ones."""
    added = [name for name in _METHODS if name not in MODULES]
    return tuple(spec for spec in map(find, (*BUILT_IN, *added)) if role in spec.roles)


def add(spec: MethodSpec, replace: bool = False) -> None:
    """Makes a method known to ``search(method=name)`` and to ``--method=name`` in this process.

    With ``replace`` it may take the place of one that was added before, as in a notebook's cell that is run again.

    Raises:
      InputError: the name is none, comes with tf_placer or has been added before.
    """
    if not isinstance(spec, MethodSpec):
        raise InputError(f"spec is {spec!r}; give a MethodSpec")
    check_registration("method", spec.name, spec.build, BUILT_IN)
    if spec.name in _METHODS and not replace:
        raise InputError(f"method {spec.name!r} is registered already; give another name, or replace=True")
    _METHODS[spec.name] = spec


def register(
    name: str,
    method: Callable[[Any], Any],
    *,
    uses_start: bool = False,
    goes_on: bool = False,
    replace: bool = False,
) -> None:
    """Adds a method that has no settings; for other arguments see ``MethodSpec`` and ``add``.

    The method is a function of the search's ``Context`` that returns a ``Method``, or yields rounds that it has
    evaluated; the first line of its docstring describes it. Its name is of small letters, digits and ``_``.

    Raises:
      InputError: as ``add``, or the method cannot be called or has no docstring.
    """
    check_registration("method", name, method, BUILT_IN)
    if not method.__doc__:
        raise InputError(f"method {name!r} has no docstring; `methods` shows its first line")
    add(dataclasses.replace(own_rounds(name, method), uses_start=uses_start, goes_on=goes_on), replace)


def own_rounds(name: str, method: Callable[[Any], Any]) -> MethodSpec:
    """The row of a method that is given as a function of the search's ``Context``."""
    summary = str(method.__doc__ or name).strip().splitlines()[0]
    return MethodSpec(name, Kind.OWN_ROUNDS, summary, lambda context, config: method(context))


def about(name: str) -> dict[str, Any]:
    """Description of a method as JSON data: summary, blind spots, and settings."""
    spec = find(name)
    return {
        "name": spec.name,
        "summary": spec.summary,
        "kind": spec.kind.value,
        "ignores": list(spec.ignores),
        "settings": dataclasses.asdict(configured(spec)),
    }


def descriptions() -> list[dict[str, Any]]:
    """``about`` of each method: of the built-in ones from a file that ships."""
    rows = list(json.loads(DESCRIPTIONS.read_text(encoding="utf8")))
    rows += [about(name) for name in _METHODS if name not in MODULES]
    return sorted(rows, key=lambda row: str(row["name"]))


def configured(spec: MethodSpec, config: object | None = None) -> Any:
    """The settings of a method, of an instance of ``spec.config`` or of name -> value where not as by default.

    Raises:
      InputError: neither of the two, a setting that the method lacks, or a value that is not possible.
    """
    default = spec.config() if spec.default is None else spec.default
    if config is None:
        return default
    if type(config) is spec.config:
        return config
    if not isinstance(config, Mapping):
        kind = f"a {spec.config.__name__}, the settings of method {spec.name!r}, or a dict of some of them"
        raise InputError(f"config is {arguments.shown(config)}; give {kind}")
    fields = [field.name for field in dataclasses.fields(spec.config)]
    for name in config:
        if name not in fields:
            hint = nearest(str(name), fields) if fields else "it has none: give none"
            raise InputError(f"config: method {spec.name!r} has no setting {arguments.shown(name)}; {hint}")
    hints = typing.get_type_hints(spec.config)
    try:
        # Other types than these, and which texts there are, are the class's own to check.
        values = {
            name: fit(limited(hints[name]), value, name) if hints[name] in _PLAIN else value
            for name, value in config.items()
        }
        if "preset" in values:  # says what the fields are that are not given (``base/method_spec.py``)
            default = spec.config(preset=values["preset"])
        return dataclasses.replace(default, **values)
    except InputError as error:
        raise InputError(f"config: method {spec.name!r}: {error}") from None


FASTEST, METHOD = WRITE = ("fastest", "method")
OP, LAYER = BY = ("op", "layer")
TIME, MEMORY = "time", "memory"
OBJECTIVES = (TIME, MEMORY)
SLOW_DOWN = 0.1


@dataclasses.dataclass(frozen=True)
class Objective:
    """Objective of a search.

    Raises:
      InputError: another word, or a negative share.
    """

    # "time": the fastest plan. "memory": the plan whose fullest accelerator takes the smallest share of its memory,
    # among those that are slower than the fastest by no more than ``slow_down``.
    name: str = TIME
    slow_down: float = SLOW_DOWN  # share of the fastest plan's step time; 0.1 is a tenth

    def __post_init__(self) -> None:
        arguments.one_of("objective", self.name, OBJECTIVES)
        slow_down = arguments.number("slow_down", self.slow_down, least=0, finite=True)
        object.__setattr__(self, "slow_down", slow_down)

    @property
    def is_memory(self) -> bool:
        return self.name == MEMORY


# Orders of execution: none but the runtime's own, the best of all rules, or a rule of ``tf_placer.planners.order``.

NO_ORDER, AUTO_ORDER = "none", "auto"
SEARCHED_ORDER = "searched"  # of a plan whose order no rule made
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


# Scope of a budget's seconds: all that a user waits for, or each search alone.
WHOLE, SEARCH = "whole", "search"
BUDGETS = (WHOLE, SEARCH)


@dataclasses.dataclass(frozen=True)
class Budget:
    """A search ends when either limit is reached.

    Raises:
      InputError: no limit at all, or one that is not a positive number.
    """

    seconds: float = math.inf  # wall-clock limit, infinite when only evaluations count
    evaluations: int | None = None  # most placements evaluated, None for no limit

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
