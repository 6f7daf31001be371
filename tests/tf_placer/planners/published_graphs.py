"""Graphs of papers, and how long a rule believes that they take."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import altered, problem_of, small_cluster
from tf_placer.base.method_spec import NoSettings
from tf_placer.planners.list_schedule import Schedule
from tf_placer.problem.problem import Problem

_EDGES = [
    (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (2, 8), (2, 9), (3, 7), (4, 8), (4, 9), (5, 9), (6, 8), (7, 10),
]  # fmt: skip
_EDGES += [(8, 10), (9, 10)]
_HEFT_NS = [
    (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10), (13, 16, 9), (7, 15, 11),
    (5, 11, 14),
]  # fmt: skip
_HEFT_NS += [(18, 12, 20), (21, 7, 16)]
_HEFT_EDGE_NS = [18, 12, 9, 11, 14, 19, 16, 23, 27, 23, 13, 15, 17, 11, 13]
_PEFT_NS = [(22, 21, 36), (22, 18, 18), (32, 27, 43), (7, 10, 4), (29, 27, 35), (26, 17, 24), (14, 25, 30)]
_PEFT_NS += [(29, 23, 36), (15, 21, 8), (13, 16, 33)]
_PEFT_EDGE_NS = [17, 31, 29, 13, 7, 3, 30, 16, 11, 7, 57, 5, 9, 42, 7]
TIMES = 3
"""All times are so many times the papers': means over three devices are whole numbers."""


def heft_graph() -> Problem:
    """Figure 2 and table 1 of Topcuoglu, Hariri & Wu 2002."""
    return _problem(_HEFT_NS, _HEFT_EDGE_NS)


def peft_graph() -> Problem:
    """The sample graph of Arabnejad & Barbosa 2014."""
    return _problem(_PEFT_NS, _PEFT_EDGE_NS)


def _problem(compute_ns: list[tuple[int, ...]], edge_ns: list[int]) -> Problem:

    return problem_of(
        TIMES * np.array(compute_ns),
        np.array(_EDGES) - 1,
        TIMES * np.array(edge_ns),
        cluster=altered(small_cluster(3), links={"latency_ns": 0}),
    )


FORK = ([10, 50, 40], [(0, 1), (0, 2)], [10, 90])
"""Times, edges and bytes: 0 feeds 1 (50 ns) over 10 + 10 ns and 2 (40 ns) over 10 + 90.

With a of the way to 1 and 1 - a of that to 2 the step takes max(10 + 20 a + 50, 10 + 100 (1 - a) + 40), and least at
60 + 20 a = 150 - 100 a, so a = 3/4 and 1 - a = 1/4: 2 is nearer than one half, the favorite of 0.
"""


def last_end(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, planner: Callable[..., np.ndarray]
) -> tuple[list[list[int]], float]:
    """Placements of a list scheduler, and when it believes that the step ends, in nanoseconds."""
    ends: list[float] = []
    commit = Schedule.commit

    def noted(schedule: Schedule, op: int) -> float:
        ends.append(commit(schedule, op))
        return ends[-1]

    monkeypatch.setattr(Schedule, "commit", noted)
    return planner(problem, NoSettings(), 0).tolist(), max(ends)
