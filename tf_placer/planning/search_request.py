"""What is asked for: a program, devices, a method and a budget, of a command or of a function's first call."""

from __future__ import annotations

import abc
import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from tf_placer.base.files import Cache
from tf_placer.cluster.cluster import Cluster
from tf_placer.fleet.address import FleetAddress
from tf_placer.graph.item import Item
from tf_placer.problem.pins import Pin
from tf_placer.problem.placement import PlanFile
from tf_placer.search.methods import FASTEST, NO_ORDER, OP, WHOLE, Budget, Objective

# Method -> setting -> value.
MethodSettings = Mapping[str, Mapping[str, Any]]
LEAST_S = 1e-3  # of a search of whose time nothing is left: it makes a round in any case
CONTROL_SHARE = 0.1  # of the time of all searches, for random search


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program(abc.ABC):
    """Source of a program."""

    parts: int = 1  # of the batch (``tf_placer.split``), before any search; 1 for the whole
    batch_statistics: str = "whole"  # of the ``"whole"`` batch, or of each ``"part"``
    graph: str | None = None  # file of a graph that was profiled elsewhere; there is no program behind it
    as_it_is: Item | None = None  # the program before its batch was put in parts; None races with itself

    @property
    def is_anew(self) -> bool:
        """True if its graph is traced anew, which takes long."""
        return False

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name in reports, under which durations are kept."""

    @abc.abstractmethod
    def item(self) -> Item:
        """Reads or builds it, and splits its batch."""


@dataclasses.dataclass(frozen=True)
class Request:
    """Program to place, devices, and all settings of the run."""

    source: Program
    cluster: Cluster  # a live one is also measured on
    budget: Budget  # most seconds and evaluations
    seed: int = 0  # of the search
    costs: str | None = None  # a word of ``build_problem``
    pins: tuple[Pin, ...] = ()  # ops that must be on some device
    plan: PlanFile | None = None  # a plan to apply instead of searching one
    # What the plan does not say is searched, and what it says of ops that are not there ignored; else it is refused.
    complete_plan: bool = False
    # Ops stay on the devices that the program asks for; False places them anew, None says nothing of them.
    respect_devices: bool | None = None
    # Op name -> device, of ops that have their place already; the program need not have them all.
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: MethodSettings = dataclasses.field(default_factory=dict)  # others have their defaults
    write: str = FASTEST  # whose plan: the ``"fastest"``, whoever found it, or that of the ``"method"``
    by: str = OP  # what the plan is made of: each ``"op"`` where it is best, or every ``"layer"`` whole
    objective: Objective = dataclasses.field(default_factory=Objective)
    # Seconds of the budget are of the ``"whole"`` command, or of each ``"search"``; evaluations are of each.
    budget_of: str = WHOLE
    recomputes: bool = False  # where nothing fits, ops are done again in the backward pass
    parks: bool = False  # or what the backward pass reads waits on the host
    tries_parts: bool = False  # the batch is also split over the devices, and the faster form is written
    robust: bool = False  # the plan that is best in the mean over draws of what is not known
    order: str = NO_ORDER  # of execution, as ``search`` takes it
    fuse: bool = False  # clusters of the plan's ops are searched, too
    fleet: FleetAddress | None = None  # where plans are measured besides this machine
    folder: pathlib.Path | None = None  # of the results, and of the fleet's journals
    profiles: Cache = dataclasses.field(default_factory=Cache)  # where measured costs are kept
    method: str = ""  # that searches; "" where methods are compared, or nothing is searched
    compared: tuple[str, ...] = ()  # methods that get the same budget each
    is_call: bool = False  # of a function: no step is traced, and plans of least memory do not race

    @property
    def is_profiled(self) -> bool:
        """True if costs are measured, as far as is known before the program is read."""
        return self.cluster.is_live and self.costs in (None, "profiled")

    @property
    def is_made_to_fit(self) -> bool:
        """True where a step too large for its devices is to be changed."""
        return self.recomputes or self.parks

    @property
    def is_free(self) -> bool:
        """True where no op has its place already."""
        return not (self.pins or self.held or self.plan or self.respect_devices)

    @property
    def whole_s(self) -> float:
        """Seconds of everything together."""
        return self.budget.seconds if self.budget_of == WHOLE else math.inf

    @property
    def where(self) -> str:
        """Key of durations that depend on the cluster."""
        return f"{self.source.name} on {self.cluster.name}"

    def budget_in(self, seconds: float) -> Budget:
        """Requested budget, cut to so many seconds, if there are any."""
        return Budget(min(max(seconds, LEAST_S), self.budget.seconds), self.budget.evaluations)

    def control_s(self, seconds: float) -> float:
        """Seconds for random search, whose share is of everything, also where others leave more."""
        return min(seconds, CONTROL_SHARE * self.whole_s)
