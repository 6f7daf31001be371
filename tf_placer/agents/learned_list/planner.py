"""A list scheduler whose rule was learned on other programs, and is searched for on this one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_placer.agents.learned_list.config import LearnedListConfig
from tf_placer.agents.learned_list.placer import ListPlacer
from tf_placer.agents.learned_list.policy import RulePrior, learned_list_kind
from tf_placer.agents.learned_list.rules import Rules
from tf_placer.agents.learned_list.student import LearnedListStudent
from tf_placer.agents.weights import restore_weights, weights_path
from tf_placer.method_spec import Kind, MethodSpec, Role
from tf_placer.problem.problem import Problem


class LearnedList:
    """Searches the rules of a list scheduler, from a prior that was learned on other programs.

    Groups of units are placed one after the other, each where a sum of features of group and device is largest: what
    the device has to do and when, what it holds, what would cross. The sum's coefficients depend on the group and the
    problem. They are what is searched, by the cross-entropy method, and not the plan: a hundred numbers say any plan
    that is made by some rule, so that a few hundred placements are enough to find the rule of this program. The prior
    is near where such searches ended on the programs of a course (``LearnedListStudent``), so the first placement is by
    what was learned alone, and the first batches are what a policy's samples are elsewhere.

    A learned rule over the state of a list schedule: as DOPPLER (2025) and learned dispatching rules of job shops have
    it; searched in the space of a policy's parameters: as in evolution strategies (Salimans et al. 2017). It is an
    ``Improving`` planner and no ``Learner``: what is drawn are rules, not decisions.

        planner = LearnedList(problem, LearnedListConfig(), None, seed)
        rows = planner.propose()
        planner.learn(rows, runtime_s)
    """

    def __init__(
        self,
        problem: Problem,
        config: LearnedListConfig,
        start: np.ndarray | None,
        seed: int,
        prior: RulePrior | None = None,
    ) -> None:
        """Describes the problem and reads the prior.

        Args:
          problem: what to place.
          config: settings.
          start: not looked at.
          seed: fixes everything random.
          prior: begins with this one, and does not change it; None for that of ``config.weights``.

        Raises:
          InputError: ``config.weights`` is no file of weights for such rules.
        """
        del start
        if prior is None:
            prior = RulePrior()
            if config.weights:
                restore_weights(weights_path(config.weights, __file__), learned_list_kind(), prior)
        self._placer = ListPlacer(problem, config)
        self._rules = Rules(prior.mean.numpy(), config.spread * prior.spread, config)
        self._seed, self._updates = seed, 0

    def propose(self) -> np.ndarray:
        """[B, U] int32 legal placements; at first the one by the mean of the prior, then by draws."""
        return self._placer(self._drawn())

    def learn(self, device_of_unit: np.ndarray, runtime_s: np.ndarray) -> None:
        """Moves towards the rules of the fastest placements."""
        del device_of_unit
        self._rules.learn(self._drawn(), np.asarray(runtime_s, np.float64))
        self._updates += 1

    def _drawn(self) -> np.ndarray:
        """[B, P] rules of this batch, the same until it is learned from."""
        return self._rules.draw(np.random.default_rng([self._seed, 0x115, self._updates]))

    def state(self) -> dict[str, Any]:
        """The distribution."""
        return {"mean": self._rules.mean, "spread": self._rules.spread, "updates": self._updates}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what ``state`` gave."""
        self._rules.mean = np.array(state["mean"], np.float64)
        self._rules.spread = np.array(state["spread"], np.float64)
        self._updates = int(state["updates"])


SPEC = MethodSpec(
    name="learned_list",
    kind=Kind.IMPROVING,
    summary="A list scheduler; its rule was learned on other programs, and is searched for on this one.",
    build=LearnedList,
    config=LearnedListConfig,
    ignores=("single units of a group", "the simulator's order", "peaks of memory"),
    roles=frozenset({Role.MEMBER, Role.OPENING}),
    versions={"rules": 1},
    student=LearnedListStudent,
)
