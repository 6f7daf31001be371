"""Everything on the host's CPU."""

from __future__ import annotations

import numpy as np

from tf_placer.errors import InputError
from tf_placer.method_spec import Kind, MethodSpec, NoSettings
from tf_placer.problem.problem import Problem


def cpu_only(problem: Problem, config: NoSettings = NoSettings(), seed: int = 0) -> np.ndarray:
    """[1, U] int32: every unit on the first CPU; one without a kernel there on its first legal device.

    A column of the papers' tables (Mirhoseini et al. 2017 and 2018). It knows nothing of time, nor of memory: where the
    host is too small, that is what its row says.

    Raises:
      InputError: the cluster has no CPU.
    """
    host = problem.cluster.host
    if host is None:
        raise InputError(
            f"cluster {problem.cluster.name!r} has no CPU to put everything on; give a cluster with one, or another "
            "method"
        )
    return problem.everything_on(host)[np.newaxis]


SPEC = MethodSpec(
    name="cpu_only",
    kind=Kind.CONSTRUCTIVE,
    summary="Everything on the host's CPU (a column of Mirhoseini et al. 2017).",
    build=cpu_only,
    ignores=("everything",),
    goes_on=False,
)
