"""What a command is asked to place, and where."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.choices import BY, FASTEST, OP, WRITE, check_not_run_on, check_together
from tf_placer.command_line.method_settings import MethodSettings
from tf_placer.command_line.source import Source
from tf_placer.errors import InputError
from tf_placer.planning.road import Asked
from tf_placer.problem.pins import Pin
from tf_placer.problem.plan_file import PlanFile
from tf_placer.search.budget import BUDGETS, WHOLE, Budget
from tf_placer.search.objective import Objective


@dataclasses.dataclass(frozen=True)
class Request:
    """What to place where.

    Attributes:
      source: the program.
      cluster: the devices; a ``local`` one is also measured on.
      budget: most seconds and evaluations.
      budget_of: its seconds are of the ``"whole"``, from the start of the command to the results, or those of each
        ``"search"``, for comparisons; its evaluations are those of each search in any case.
      seed: of the search.
      costs: a word of ``build_problem``.
      pins: ops that must be on some device.
      plan: a plan to apply instead of searching one.
      complete_plan: what the plan does not say of this graph is searched, and what it says of ops that are not there
        is ignored; else such a plan is refused.
      respect_devices: ops that ask for a device in the program itself are on such a device; False places them anew.
        What is not kept is told; None leaves them alone and says nothing.
      held: op name -> device, of ops that have their place already; the program need not have them all.
      settings: method -> setting -> value, of those that take part; the others have their defaults.
      write: whose plan is written: the ``"fastest"``, whoever found it, or that of the ``"method"``.
      by: what the plan that is written is made of: each ``"op"`` where it is best, or every ``"layer"`` whole.
      objective: what is sought; the plan of least memory is the one written where that is asked for.

    Raises:
      InputError: a plan and pins are given, or ``write``, ``by`` or ``budget_of`` is another word.
    """

    source: Source
    cluster: Cluster
    budget: Budget
    seed: int
    costs: str | None = None
    pins: tuple[Pin, ...] = ()
    plan: PlanFile | None = None
    complete_plan: bool = False
    respect_devices: bool | None = None
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: MethodSettings = dataclasses.field(default_factory=dict)
    write: str = FASTEST
    by: str = OP
    objective: Objective = dataclasses.field(default_factory=Objective)
    budget_of: str = WHOLE

    def __post_init__(self) -> None:
        if self.write not in WRITE:
            raise InputError(f"--write={self.write}: give one of {', '.join(WRITE)}")
        if self.by not in BY:
            raise InputError(f"--by={self.by}: give one of {', '.join(BY)}")
        if self.budget_of not in BUDGETS:
            raise InputError(f"--budget_of={self.budget_of}: give one of {', '.join(BUDGETS)}")
        check_together(
            plan=self.plan,
            pins=self.pins,
            complete_plan=self.complete_plan,
            graph=self.source.graph,
            respect_devices=self.respect_devices,
            costs=self.costs,
        )
        check_not_run_on(self.source.graph, self.cluster.name, self.cluster.is_live)

    def asked(self, method: str = "") -> Asked:
        """What is searched for, by the method of that name."""
        return Asked(
            self.source.name,
            self.cluster,
            method,
            self.budget,
            self.budget_of,
            self.seed,
            self.objective,
            self.settings,
        )

    @property
    def is_profiled(self) -> bool:
        """Costs are measured, as far as can be told before the program is there."""
        return self.cluster.is_live and self.costs in (None, "profiled")

    @property
    def is_applied(self) -> bool:
        """A plan is given that says where all goes."""
        return self.plan is not None and not self.complete_plan
