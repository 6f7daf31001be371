"""The same problem with bytes counted in another unit is the same problem to every method."""

import dataclasses

import numpy as np
import pytest

from tests.tf_placer.planners.full_devices import full_problem
from tests.tf_placer.search.small_learner import SMALL_HDP
from tf_placer.problem.problem import Problem
from tf_placer.search.search import search

pytestmark = pytest.mark.medium


def times(problem: Problem, factor: int) -> Problem:
    """All bytes, of tensors, variables, memories and a second on a link, times ``factor``."""
    cluster = problem.cluster
    scaled = dataclasses.replace(
        cluster,
        devices=tuple(
            dataclasses.replace(one, memory_bytes=one.memory_bytes * factor) for one in cluster.devices
        ),
        links=tuple(dataclasses.replace(one, bytes_per_s=one.bytes_per_s * factor) for one in cluster.links),
    )
    return dataclasses.replace(
        problem,
        cluster=scaled,
        tensor_bytes=problem.tensor_bytes * factor,
        resident_bytes=problem.resident_bytes * factor,
        output_shapes=tuple(((one[0][0] * factor,),) for one in problem.output_shapes),
    )


@pytest.mark.parametrize(
    "method",
    [
        "random",
        "local_search",
        "list_schedule",
        "topological_fill",
        pytest.param(SMALL_HDP, id="hdp", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("fill", [0.2, 0.7])
def test_every_placement_tried_is_the_same(method, fill):
    problem = full_problem(3, fill, seed=1, more_bytes=50_000)
    # Edges of up to 200 bytes and links on which 66.7 are noticed.
    links = tuple(dataclasses.replace(link, latency_ns=50_000) for link in problem.cluster.links)
    problem = dataclasses.replace(problem, cluster=dataclasses.replace(problem.cluster, links=links))
    one, other = (search(p, method, budget_evaluations=200, seed=2) for p in (problem, times(problem, 1000)))
    assert [repr(e.mean_s) for e in one.history] == [repr(e.mean_s) for e in other.history]
    np.testing.assert_array_equal(one.placement.device_of_unit, other.placement.device_of_unit)
