"""What `auto_place` will do at a first call and about how long that takes."""

from __future__ import annotations

import rich.console

from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.calibration.profile import awaited_s
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.planning.live import MEASURE, LiveConfig, searching
from tf_placer.planning.live_phases import Size, config_within, live_budget, live_phases, searchers
from tf_placer.problem.problem import Problem
from tf_placer.runtime.race import TURN_S
from tf_placer.search.budget import WHOLE, Budget
from tf_placer.search.compiling import compile_within, compiling
from tf_placer.search.objective import MEMORY
from tf_placer.waiting.durations import Durations
from tf_placer.waiting.wait import Wait
from tf_placer.waiting.work import Phase, Work

PROFILE, UNPLACED = "profiling ops and links", "racing the function as it is"
_LOAD_S, _START_S = 1.0, 6.0  # on two idle cores


class FirstCall:
    """The wait of a first call; what is done is told once, when it is clear that no kept plan saves it."""

    def __init__(
        self, item: Item, cluster: Cluster, config: AutoPlaceConfig, console: rich.console.Console | None
    ) -> None:
        """Begins.

        Args:
          item: the program.
          cluster: the devices.
          config: what was asked for.
          console: is told; None tells nobody.
        """
        self._config = config
        self._name = f"{item.name} {item.fingerprint[:8]} on {cluster.name}"
        self._seeks_memory = config.objective == MEMORY
        self._is_live = cluster.is_live and item.runs_standalone
        self._profiling_s = awaited_s(item, cluster) if self._is_live else 0.0
        size = Size(self._name, len(cluster.devices), item.index.num_ops)
        self.wait = Wait(self._work(size), console or rich.console.Console(quiet=True))
        self._is_told = False
        if self._profiling_s:
            self._tell(size)

    def built(self, problem: Problem) -> None:
        """The problem is there, and no plan was kept for it."""
        size = Size.of(problem, self._name)
        self.wait.replan(self._work(size))
        self._tell(size)
        self.compile()

    def compile(self) -> None:
        """The ops, where they are not there yet and what needs them was told: no kept plan saves it."""
        if self._is_told:
            compile_within(self.wait)

    def share(self, problem: Problem) -> tuple[Budget, LiveConfig]:
        """What the searches have of the budget, now that all before them is done."""
        return self._share(Size.of(problem, self._name))

    def _tell(self, size: Size) -> None:
        self._share(size)
        if not self._is_told:
            self.wait.announce()
        self._is_told = True

    def _share(self, size: Size) -> tuple[Budget, LiveConfig]:
        config, budget, method = self._live_config(size), Budget(self._config.budget_s), self._config.method
        if self._config.budget_of != WHOLE:
            names = [phase.name for phase in self.wait.work.phases if phase.name.startswith(searching(""))]
            self.wait.expect(dict.fromkeys(names, budget.seconds))
            return budget, config
        if self._is_live and not self._seeks_memory:
            return live_budget(self.wait, budget, method, config)
        seconds = self.wait.for_searching(budget.seconds, [searching(method)])
        self.wait.expect({searching(method): seconds})
        return Budget(seconds), config

    def _live_config(self, size: Size) -> LiveConfig:
        if self._config.budget_of != WHOLE or not searchers(self._config.method):
            return LiveConfig()
        return config_within(size, self._config.method, self._config.budget_s)

    def _work(self, size: Size) -> Work:
        method = self._config.method
        durations = Durations()
        first = (*compiling(durations), Phase(PROFILE, self._profiling_s))
        if not self._is_live or self._seeks_memory:
            measured = (Phase(MEASURE, _START_S),) if self._is_live else ()
            return Work((*first, Phase(searching(method), 0.0), *measured))
        config = self._live_config(size)
        key = f"racing {config.rounds} {size.name} as it is"
        race_s = _LOAD_S + 2 * config.rounds * max(TURN_S, size.step_s)
        note = "Profiles are kept: later calls need none of that time." if self._profiling_s else ""
        phases = (
            *first,
            *live_phases(size, method, config, durations),
            Phase(UNPLACED, durations.known(key, race_s), key),
        )
        return Work(phases, note)
