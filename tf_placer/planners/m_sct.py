"""The op that can start first, and each favorite child beside its parent."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np

from tf_placer.grouper.memory_repair import fitting
from tf_placer.method_spec import Kind, MethodSpec, Settings, setting
from tf_placer.planners.earliest_start import EarliestStart
from tf_placer.planners.favorite_children import favorite_children
from tf_placer.planners.schedule import Schedule, scheduled
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_order import alike_devices

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class MSctConfig(Settings):
    """How large the linear programs are.

    Attributes:
      window_edges: most edges between ops in one program; a larger graph is cut into windows of so many.
      limit_s: seconds for all programs together; a window that is not done by then has no favorites.

    Raises:
      InputError: a value out of its range.
    """

    window_edges: int = setting(20_000, least=1, most=2**20)
    limit_s: float = setting(60.0, least=0, finite=False)


def m_sct(problem: Problem, config: MSctConfig = MSctConfig(), seed: int = 0) -> np.ndarray:
    """m-SCT of Baechi (Jeon et al. 2020): ``m_etf`` where each op's favorite child goes with it.

    A linear program with as many devices as ops says which reader should be beside each op
    (``favorite_children``). A device that has run an op stays awake for its favorite, and takes something else only
    when the favorite could be anywhere (``EarliestStart``).

    Beside what ``m_etf`` departs in: larger graphs are cut into windows; and an awake device looks only at the op that
    it would take next, not for another one that is urgent.

    The program knows neither how many devices there are nor that units bind ops, and assumes that crossing takes no
    longer than computing (small communication times). Of memory it knows what stays; peaks are an estimate.

    Returns:
      [K, U] int32 distinct legal placements whose variables fit; K is 0 to 2 (``scheduled``).
    """
    favorite = favorite_children(problem, config.window_edges, config.limit_s)
    if favorite.left_out:
        _LOG.warning(
            "limit_s=%g ended before %d of the linear programs: ops there have no favorites, and another run may "
            "find other ones; give smaller window_edges, or more time",
            config.limit_s,
            favorite.left_out,
        )

    def run(schedule: Schedule) -> None:
        EarliestStart(problem, schedule, favorite.child, favorite.transfer_ns).run()

    return fitting(problem, scheduled(problem, alike_devices(problem), run))


SPEC = MethodSpec(
    name="m_sct",
    kind=Kind.CONSTRUCTIVE,
    summary="m-SCT: m-ETF with each op's favorite reader beside it, by a linear program (Jeon et al. 2020).",
    build=m_sct,
    config=MSctConfig,
    ignores=(
        "how many devices there are, in its program",
        "later ops of a unit",
        "what cores do for messages",
        "peaks of memory",
    ),
    goes_on=False,
)
