"""A search under orders of execution: rules that give ops priorities race, and the fastest one goes on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tf_placer.base.method_spec import MethodSpec
from tf_placer.planners.order import priorities, rules_for
from tf_placer.search.checkpoint import Checkpoint
from tf_placer.search.known import AUTO_ORDER, NO_ORDER
from tf_placer.search.round import Context, Round, evaluated, rounds

_CHEAP = 8  # plans that every rule is first tried on
_RACE = 0.5  # share of the budget after which one goes on alone
_LATE = 0.95  # and after which the best plan is tried under every rule once more


def ordered_rounds(spec: MethodSpec, config: Any, context: Context, order: str) -> Iterator[Round]:
    """The rounds of a method whose plans also decide an order of execution.

    An order that is made for a finished plan is worth little, because the plan was fitted to the order that it was
    searched with. So the method searches under the priorities of a rule from the beginning. Any method does: it decides
    devices, and every plan of it is evaluated with the priorities (``Context.priority_of_op``).

    With ``AUTO_ORDER`` the rules and the runtime's own order race: equal shares of the budget each, after which the
    slower half leaves, until one is left (successive halving: Jamieson and Talwalkar 2016). It has the rest. What a
    rule is worth shows only in plans that were searched under it: that of a pipeline is the slowest of all on the cheap
    plans that a search begins with. Near the end the best plan is tried under every rule: those that look at a
    placement then look at that one.

    Args:
      spec, config: the method.
      context: of the search; nothing is resumed.
      order: a rule, or ``AUTO_ORDER``.
    """
    rules = (NO_ORDER, *rules_for(context.problem)) if order == AUTO_ORDER else (order,)
    arms = [_Arm(rule, context) for rule in rules]
    if len(arms) > 1:
        for arm in arms:
            yield arm.noted(evaluated(arm.context, context.plans[:_CHEAP]))
        heats = math.ceil(math.log2(len(arms)))
        for heat in range(heats):
            yield from _raced(arms, spec, config, context, _RACE * (heat + 1) / heats)
            arms = sorted(arms, key=lambda arm: arm.best_s)[: math.ceil(len(arms) / 2)]
    yield from _alone(arms[0], spec, config, context, rules)


def _raced(
    arms: Sequence[_Arm], spec: MethodSpec, config: Any, context: Context, until: float
) -> Iterator[Round]:
    """Turns of each, in equal shares of the budget, until that share of it is used."""
    while context.used() < until and any(arm.goes_on for arm in arms):
        arm = min((arm for arm in arms if arm.goes_on), key=lambda arm: arm.spent)
        before = context.used()
        batch = arm.next_round(spec, config)
        if batch is not None:
            yield batch
        arm.spent += context.used() - before


def _alone(
    arm: _Arm, spec: MethodSpec, config: Any, context: Context, rules: Sequence[str]
) -> Iterator[Round]:
    """The rounds of one, and late in the budget, or when it makes no more, its best plan under every rule."""
    is_late = False
    while arm.goes_on or not is_late:
        if arm.best is not None and not is_late and (context.used() >= _LATE or not arm.goes_on):
            is_late = True
            for rule in rules:
                other = _Arm(rule, context, arm.best)
                yield other.noted(evaluated(other.context, arm.best[np.newaxis]))
        batch = arm.next_round(spec, config)
        if batch is not None:
            yield batch
        elif arm.best is None:
            return


class _Arm:
    """One order: the rounds of the method under it, and the best of them."""

    def __init__(self, rule: str, context: Context, devices: np.ndarray | None = None) -> None:
        devices = context.start if devices is None else devices
        ranks = None if rule == NO_ORDER else priorities(rule, context.problem, devices, context.seed)
        self.rule = rule
        # A method of its own, which keeps nothing.
        self.context = dataclasses.replace(
            context, priority_of_op=ranks, checkpoint=Checkpoint(None, {}, 0.0)
        )
        self.best: np.ndarray | None = None
        self.best_s = np.inf
        self.spent = 0.0
        self.goes_on = True
        self._rounds: Iterator[Round] | None = None

    def next_round(self, spec: MethodSpec, config: Any) -> Round | None:
        """The next round; None when there are no more."""
        self._rounds = self._rounds or rounds(spec, config, self.context)
        batch = next(self._rounds, None)
        self.goes_on = batch is not None
        return None if batch is None else self.noted(batch)

    def noted(self, batch: Round) -> Round:
        """The round with its rule; its best plan is kept if it is the best of this order."""
        times_s = np.where(batch.valid, batch.runtime_s, np.inf)
        if times_s.min(initial=np.inf) < self.best_s:
            self.best_s = float(times_s.min())
            self.best = np.array(batch.decisions.device_of_unit[int(times_s.argmin())], np.int32)
        return dataclasses.replace(batch, order=self.rule)
