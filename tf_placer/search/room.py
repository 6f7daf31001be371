"""Memory that a step needs of one device that does not hold it, its largest holders, and a machine that would do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tf_placer.base.quantities import size
from tf_placer.cluster.cluster import Cluster, preset_names, short_device_name
from tf_placer.evaluation.measurement import Status
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.plain import single_device_placements, topological_fill
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import held_bytes

_HOLDERS = 3


@dataclasses.dataclass(frozen=True)
class Room:
    """A step that no accelerator of a cluster holds by itself."""

    device: str  # the accelerator that lacks least, by name
    needed_bytes: int  # at the peak of a step with everything there that may be there
    has_bytes: int  # its memory
    # The units that take most of it: name of the first op -> bytes, with what of its outputs is alive at the fullest
    # moment.
    holders: Mapping[str, int]
    # The smallest described machine whose accelerators hold the step, by total memory and then their number; None where
    # none of them does.
    preset: str | None

    def __str__(self) -> str:
        held = ", ".join(f"{name!r} ({size(num_bytes)})" for name, num_bytes in self.holders.items())
        machine = (
            "no described machine holds the step on its accelerators"
            if self.preset is None
            else f"the smallest described machine whose accelerators hold the step is {self.preset}"
        )
        return (
            f"{short_device_name(self.device)} has {size(self.has_bytes)} and would need {size(self.needed_bytes)} "
            f"({self.needed_bytes} bytes), most of it for the units of {held}; {machine}"
        )


def room_needed(problem: Problem) -> Room | None:
    """Memory that the step needs of the accelerator that lacks least; None where one holds the step, simulated."""
    counted, capacity = problem.cluster.accelerators(), problem.cluster.capacity_bytes()
    rows = single_device_placements(_off_the_host(problem))[counted]
    measured = SimulatedEvaluator(problem).evaluate(rows)
    assert measured.peak_bytes is not None  # simulated
    if (measured.status == Status.OK).any():
        return None
    devices = np.flatnonzero(counted)
    needed = measured.peak_bytes[np.arange(len(devices)), devices]
    least = int((needed - capacity[devices]).argmin())
    held = problem.resident_bytes + held_bytes(problem)
    largest = np.argsort(-held, kind="stable")[:_HOLDERS]
    return Room(
        device=problem.cluster.devices[devices[least]].name,
        needed_bytes=int(needed[least]),
        has_bytes=int(capacity[devices[least]]),
        holders={problem.name_of_unit(int(unit)): int(held[unit]) for unit in largest if held[unit]},
        preset=_smallest_preset(problem),
    )


def _smallest_preset(problem: Problem) -> str | None:
    """Smallest preset where a cheap plan fits, with the op times of this cluster.

    A device that has none of its type here is like the first one.
    """
    first = {device.type: d for d, device in reversed(list(enumerate(problem.cluster.devices)))}
    sized = []
    for cluster in map(Cluster.preset, preset_names()):
        counted = cluster.accelerators()
        sized.append((int(cluster.capacity_bytes()[counted].sum()), int(counted.sum()), cluster))
    for _, _, cluster in sorted(sized, key=lambda entry: entry[:2]):
        like = [first.get(device.type, 0) for device in cluster.devices]
        allowed = problem.allowed[:, like]
        allowed[~allowed.any(axis=1)] = True  # what is pinned to another device here
        there = _off_the_host(
            dataclasses.replace(
                problem, cluster=cluster, compute_ns=problem.compute_ns[:, like], allowed=allowed
            )
        )
        rows = np.concatenate([single_device_placements(there), topological_fill(there)])
        if (SimulatedEvaluator(there).evaluate(rows).status == Status.OK).any():
            return cluster.name
    return None


def _off_the_host(problem: Problem) -> Problem:
    """The problem with every unit kept to accelerators that may run there."""
    counted = problem.cluster.accelerators()
    may = (problem.allowed & counted).any(axis=1)
    allowed = np.where(may[:, np.newaxis], problem.allowed & counted, problem.allowed)
    return dataclasses.replace(problem, allowed=allowed)
