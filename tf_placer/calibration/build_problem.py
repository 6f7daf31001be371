"""Item and cluster to Problem, with estimated costs or with measured ones."""

from __future__ import annotations

from collections.abc import Callable

from tf_placer import arguments
from tf_placer.calibration.cache import Cache
from tf_placer.calibration.costs import COSTS
from tf_placer.calibration.profile import calibrated, profile
from tf_placer.cluster.cluster import Cluster, given_cluster
from tf_placer.eager import eagerly
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem


@eagerly()
def build_problem(
    item: Item,
    cluster: Cluster,
    costs: str | None = None,
    cache: Cache | None = None,
    check: Callable[[Problem], object] | None = None,
) -> Problem:
    """Describes placing ``item`` on ``cluster``.

    Args:
      item: the program.
      cluster: the devices.
      costs: ``"analytic"``: estimated from FLOPs and bytes. ``"profiled"``: measured on the cluster's devices, where
        it takes half a minute or so the first time and is kept on disk. Without, profiled on live devices if the
        program runs there (``Item.runs_standalone``).
      cache: where profiles are kept; ``calibration.cache.default_folder()`` without.
      check: is given the problem with estimated costs before anything is measured; what it raises ends the call. For
        what is to be done with the problem and could not be: a plan for another graph, say.

    Raises:
      InputError: an op has a kernel on no device; ``"profiled"`` for a cluster that is only described, or for a
        program that needs this process; or another word for ``costs``.
      WorkerError, WorkerDied, DeadlineExceeded: the program does not run on a single device.
    """
    arguments.instance_of("item", item, Item, "give what Item.from_function or Item.from_saved_model returns")
    given_cluster("cluster", cluster)
    if cache is not None:
        arguments.instance_of("cache", cache, Cache, "give a Cache, or None for the one in the home folder")
    if check is not None:
        arguments.function("check", check, "give a function of a Problem, or None")
    if costs is None:
        costs = "profiled" if cluster.is_live and item.runs_standalone else "analytic"
    arguments.one_of("costs", costs, COSTS)
    if costs == "profiled" and not cluster.is_live:
        raise InputError(
            f'cluster {cluster.name!r} is {cluster.kind}, so nothing can be profiled on it; give costs="analytic", or '
            "a live cluster"
        )
    if costs == "profiled" and not item.runs_standalone:
        raise InputError(
            f"{item.name!r} cannot run on workers, so it cannot be profiled: {item.why_not_standalone}; give "
            'costs="analytic"'
        )
    problem = analytic_problem(item, cluster)
    if check is not None:
        check(problem)
    return problem if costs == "analytic" else calibrated(problem, profile(item, problem, cache=cache))
