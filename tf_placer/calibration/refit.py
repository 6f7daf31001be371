"""Brings the simulator nearer to the runtime from placements that were measured."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.optimize

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Link
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.problem import Problem

_MAX_STEPS = 30
_RELATIVE_STEP = 0.05  # of derivatives: a smaller one sees little but single ops that change places
_RANGE = (0.01, 100.0)
# A factor of e costs as much as an error of 20 % in one placement: few measurements move the factors little.
_PRIOR_WEIGHT = 0.2


@dataclasses.dataclass(frozen=True)
class Correction:
    """Factors on what was profiled.

    Attributes:
      compute: of every op's time. Above 1 where the threads of a worker disturb each other.
      alone: of the constant part of what a tensor by itself takes from end to end.
      ends: of what sending and receiving have in that, at most all of it. Below 1 where messages come in bursts: a
        thread that is awake already costs nothing to wake. The rest the tensor spends on its way.
      per_byte: of the ends' part that grows with the tensor.
      join: of what a step takes longer when a device takes part in it.
    """

    compute: float = 1.0
    alone: float = 1.0
    ends: float = 1.0
    per_byte: float = 1.0
    join: float = 1.0

    def apply(self, problem: Problem) -> Problem:
        """The problem with corrected times."""
        return dataclasses.replace(
            problem,
            compute_ns=np.rint(self.compute * problem.compute_ns).astype(np.int64),
            cluster=self.apply_to_cluster(problem.cluster),
        )

    def apply_to_cluster(self, cluster: Cluster) -> Cluster:
        """The cluster with corrected links and devices that join alike."""
        devices = tuple(
            dataclasses.replace(device, join_ns=round(self.join * device.join_ns))
            for device in cluster.devices
        )
        return dataclasses.replace(
            cluster, devices=devices, links=tuple(map(self.apply_to_link, cluster.links))
        )

    def apply_to_link(self, link: Link) -> Link:
        """The link with corrected times; its bandwidth stays."""
        alone_ns = link.send_ns + link.latency_ns + link.receive_ns
        most = alone_ns / max(link.send_ns + link.receive_ns, 1)
        send_ns, receive_ns = (
            round(self.alone * min(self.ends, most) * ns) for ns in (link.send_ns, link.receive_ns)
        )
        return dataclasses.replace(
            link,
            latency_ns=max(round(self.alone * alone_ns) - send_ns - receive_ns, 0),
            send_ns=send_ns,
            receive_ns=receive_ns,
            send_ps_per_byte=round(self.per_byte * link.send_ps_per_byte),
            receive_ps_per_byte=round(self.per_byte * link.receive_ps_per_byte),
        )


def refit(
    problem: Problem,
    device_of_unit: np.ndarray | Decisions,
    measured_s: np.ndarray,
) -> Correction:
    """The factors under which simulated times are nearest to measured ones.

    Least squares of the logarithm of their ratio, each factor held near 1 by a prior, in a trust region (Branch,
    Coleman & Li 1999).

    Args:
      problem: as profiled.
      device_of_unit: [B, U] placements that ran, or all that B plans decide.
      measured_s: [B].
    """

    def residuals(factors: np.ndarray) -> np.ndarray:
        corrected = Correction(*factors).apply(problem)
        simulated_s = SimulatedEvaluator(corrected).evaluate(device_of_unit).runtime_s
        return np.concatenate([np.log(simulated_s / measured_s), _PRIOR_WEIGHT * np.log(factors)])

    start = np.ones(len(dataclasses.fields(Correction)))
    best = scipy.optimize.least_squares(
        residuals, start, bounds=_RANGE, diff_step=_RELATIVE_STEP, max_nfev=_MAX_STEPS
    )
    return Correction(*map(float, best.x))
