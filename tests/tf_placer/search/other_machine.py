"""A runtime whose truth is known, and a live search on it."""

import math

import numpy as np
import rich.console

from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.evaluation.runtime import UnplacedFailed
from tf_placer.evaluation.simulated import Measurement, SimulatedEvaluator, Status
from tf_placer.planners.plain import single_device_placements
from tf_placer.planning.forecast import LiveConfig
from tf_placer.planning.forms import Form
from tf_placer.planning.live import Timing, search_live
from tf_placer.planning.log import Log
from tf_placer.problem.placement import decisions_of
from tf_placer.runtime.timing import Limit
from tf_placer.search.methods import Budget


class OtherMachine:
    """Stands in for the runtime: another problem's simulator, with noise.

    Some placements fail (``fails``), all take ``alone`` times as long outside a race. As it is, the program takes
    ``as_it_is`` of the best single device's step; None: it does not run.
    """

    def __init__(self, truth, fails=lambda row: False, race_error=None, alone=1.0, as_it_is=2.0):
        self._simulator = SimulatedEvaluator(truth)
        self._noise = np.random.default_rng(0)
        self._fails, self._race_error, self._alone = fails, race_error, alone
        self._as_it_is = as_it_is
        self.evaluated = 0
        self.limit = Limit()

    def _times(self, plans):
        return self._simulator.evaluate(plans).runtime_s * self._noise.lognormal(0, 0.01, len(plans))

    def evaluate(self, plans):
        self.evaluated += len(plans)
        rows = decisions_of(plans, self._simulator.problem).device_of_unit
        failed = np.array([self._fails(row) for row in rows])
        return Measurement(
            np.where(failed, np.nan, self._alone * self._times(plans)),
            None,
            np.where(failed, Status.OUT_OF_MEMORY, Status.OK).astype(np.int32),
            tuple("too large" if one else "" for one in failed),
        )

    def of_form(self, item, problem):
        """Another form of the program, whose truth is that problem's simulator."""
        other = OtherMachine(problem)
        other.limit = self.limit
        return other

    def program(self, plan, is_call=False):
        """A plan for ``race``, with the machine that times it."""
        return self, plan

    def race_unplaced(self, plans, rounds=20, confidence=0.99, beside=()):
        if self._as_it_is is None:
            raise UnplacedFailed("ILLEGAL: no device for it")
        problem = self._simulator.problem
        single_s = float(np.nanmin(self._simulator.evaluate(single_device_placements(problem)).runtime_s))
        noise = self._noise.lognormal(0, 0.01, rounds)
        return [*self.race(plans, rounds, confidence, beside), (self._as_it_is * single_s * noise).tolist()]

    def race(self, plans, rounds=20, confidence=0.99, beside=()):
        if self._race_error:
            raise self._race_error
        own = np.stack([self._times(plans) for _ in range(rounds)], axis=1).tolist()
        return [*own, *[[float(machine._times(plan)[0]) for _ in range(rounds)] for machine, plan in beside]]


def live(problem, machine, method="random", evaluations=600, budget_s=math.inf, make_parts=None, fleet=None):
    """The outcome of a live search on a machine that is not the one that the costs are of."""
    request = Request(Source("x"), problem.cluster, Budget(budget_s, evaluations), method=method)
    log = Log(rich.console.Console(quiet=True), budget_s)
    timing = Timing(Form(problem), machine, fleet)
    return search_live(request, timing, log, LiveConfig(rounds=15), make_parts=make_parts)
