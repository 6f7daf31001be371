"""The op that can start first, where it can."""

from __future__ import annotations

import numpy as np

from tf_placer.grouper.memory_repair import fitting
from tf_placer.method_spec import Kind, MethodSpec, NoSettings, Role
from tf_placer.planners.earliest_start import EarliestStart
from tf_placer.planners.schedule import Schedule, scheduled
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import alike_devices


def m_etf(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """m-ETF of Baechi (Jeon et al. 2020): earliest task first (Hwang et al. 1989) among devices that have room.

    Of all ready ops and devices the pair is taken that can start first (``EarliestStart``). Baechi's devices are
    alike, so the fastest and those at most twice as slow are chosen from; another one runs what has no kernel, or no
    room, on those. Transfers wait for their channel, as Baechi's do for their device.

    Departures: the first op of a unit decides for its unit where Baechi fuses before, a variable goes with its first
    reader, an op that costs nothing goes where its inputs are first, and where rooms are too small at the end units
    are moved (``MemoryRepair``).

    It sees one op ahead: neither how long an op takes where it would start, nor what waits for it. Of memory it knows
    what stays; peaks are an estimate.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit; K is 0 to 2 (``scheduled``).
    """

    def run(schedule: Schedule) -> None:
        EarliestStart(problem, schedule).run()

    return fitting(problem, scheduled(problem, alike_devices(problem), run))


SPEC = MethodSpec(
    name="m_etf",
    kind=Kind.CONSTRUCTIVE,
    summary="m-ETF: the op that can start first, where it can (Baechi: Jeon et al. 2020).",
    build=m_etf,
    ignores=(
        "how long an op takes there",
        "what waits for an op",
        "later ops of a unit",
        "what cores do for messages",
        "peaks of memory",
    ),
    roles=frozenset({Role.MEMBER}),
    goes_on=False,
)
