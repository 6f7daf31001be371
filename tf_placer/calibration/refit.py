"""Brings the simulator nearer to the runtime from placements that were measured."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.optimize

from tf_placer.cluster.device import Link
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.problem import Problem

_MAX_EVALUATIONS = 200
# A factor of e costs as much as an error of 20 % in one placement: few measurements move the factors little.
_PRIOR_WEIGHT = 0.04


@dataclasses.dataclass(frozen=True)
class Correction:
    """Factors on what was profiled.

    Attributes:
      compute: of every op's time. Above 1 where the threads of a worker disturb each other.
      latency: of a link's latency.
      fixed: of the constant part of sending and receiving. Below 1 where messages come in bursts: a thread that is
        awake already costs nothing to wake. What the ends then spend less the tensor spends on its way, because
        one by itself takes as long as it was measured to take.
      per_byte: of the part that grows with the tensor.
    """

    compute: float = 1.0
    latency: float = 1.0
    fixed: float = 1.0
    per_byte: float = 1.0

    def apply(self, problem: Problem) -> Problem:
        """The problem with corrected times."""
        cluster = problem.cluster
        return dataclasses.replace(
            problem,
            compute_ns=np.rint(self.compute * problem.compute_ns).astype(np.int64),
            cluster=dataclasses.replace(cluster, links=tuple(map(self.apply_to_link, cluster.links))),
        )

    def apply_to_link(self, link: Link) -> Link:
        """The link with corrected times; its bandwidth stays."""
        spared_ns = max(1 - self.fixed, 0.0) * (link.send_ns + link.receive_ns)
        return dataclasses.replace(
            link,
            latency_ns=round(self.latency * link.latency_ns + spared_ns),
            send_ns=round(self.fixed * link.send_ns),
            receive_ns=round(self.fixed * link.receive_ns),
            send_ps_per_byte=round(self.per_byte * link.send_ps_per_byte),
            receive_ps_per_byte=round(self.per_byte * link.receive_ps_per_byte),
        )


def refit(
    problem: Problem,
    device_of_unit: np.ndarray,
    measured_s: np.ndarray,
) -> Correction:
    """The factors under which simulated times are nearest to measured ones.

    Least squares of the logarithm of their ratio, each factor held near 1 by a prior (Nelder & Mead 1965).

    Args:
      problem: as profiled.
      device_of_unit: [B, U] placements that ran.
      measured_s: [B].
    """

    def correction(log_factors: np.ndarray) -> Correction:
        return Correction(*map(float, np.exp(log_factors)))

    def loss(log_factors: np.ndarray) -> float:
        corrected = correction(log_factors).apply(problem)
        simulated_s = SimulatedEvaluator(corrected).evaluate(device_of_unit).runtime_s
        errors = np.log(simulated_s / measured_s)
        return float(np.square(errors).sum() + _PRIOR_WEIGHT * np.square(log_factors).sum())

    start = np.zeros(len(dataclasses.fields(Correction)))
    simplex = np.concatenate([[start], start + 0.2 * np.eye(len(start))])
    options = {"maxfev": _MAX_EVALUATIONS, "initial_simplex": simplex}
    best = scipy.optimize.minimize(loss, start, method="Nelder-Mead", options=options)
    return correction(best.x)
