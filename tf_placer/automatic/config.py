"""Settings of auto_place."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Literal, TypedDict

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, fit
from tf_placer.base.files import check_writable
from tf_placer.cluster.cluster import (
    Cluster,
    choose_cluster,
    given_cluster,
    limited,
    limits_by_device,
    local_cores,
)
from tf_placer.planning.request import DEFAULT, SLOW_DOWN, check_together, kind_of
from tf_placer.problem.analytic_problem import Pin
from tf_placer.problem.placement import PlanFile
from tf_placer.search import methods

VARIABLES = ("move", "stay")
_LIMIT = "memory_limit"
# Settings that commands have, too; ``Options`` has their limits.
_OPTIONS = (
    *("method", "budget_s", "budget_of", "seed", "objective", "slow_down", "parts", "batch_statistics"),
    *("recompute", "offload", "batch_size", "respect_devices", "fuse", "refresh"),
)
_GIVE_PINS = 'give {"encoder/.*": "/device:CPU:0"}, ops -> device'


class Settings(TypedDict, total=False):
    """The fields of ``AutoPlaceConfig`` as keywords, for type checkers and editors."""

    cluster: Cluster | str
    method: str
    budget_s: float
    budget_of: Literal["whole", "search"]
    seed: int
    cache_dir: str | os.PathLike[str] | None
    plan: str | os.PathLike[str] | None
    variables: Literal["move", "stay"]
    pins: Mapping[str, str]
    respect_devices: bool
    keep_unplaced: bool
    memory_limit: Mapping[str, int | str]
    objective: Literal["time", "memory"]
    slow_down: float
    parts: int | str  # "auto" tries several
    batch_statistics: Literal["whole", "part"]
    recompute: str  # "none" or "auto"
    offload: str  # likewise
    fuse: bool
    batch_size: int
    refresh: bool
    strict: bool


@dataclasses.dataclass(frozen=True)
class AutoPlaceConfig:
    """Settings for placing a function at its first call.

    Attributes:
      cluster: the devices; or ``"local"``, ``"local:2"`` (so many CPU workers), or the path of a cluster file.
      method: a name of ``tf_placer.methods()``, by default the portfolio of them.
      budget_s: seconds of the whole wait at the first call. On the first call profiling and compiling alone can take
        longer; the search still gets a fifth of it, or a second. Later calls reuse the profile.
      budget_of: ``"whole"``, or ``"search"``: ``budget_s`` is the method's search alone.
      seed: of the search.
      cache_dir: where plans are kept, so that the next process needs no search; ``~/.cache/tf_placer/plans`` without.
      plan: the placement.json of ``place``, or of ``Placement.save``, to run by without a search, of one
        program and batch; others run unplaced, with a warning.
      variables: ``"move"``: the plan says where variables live, and they are moved there. ``"stay"``: they stay where
        they are, and the plan puts the ops that use them there.
      pins: regular expression that matches whole op names -> the device that these ops must be on, whole or in part:
        ``{"encoder/.*": "/device:CPU:0"}``. One that matched in an earlier signature need not match in a later one.
      respect_devices: ops stay on the device that the function asks for (``tf.device``). Where the cluster lacks it,
        a warning says so, and the op is placed freely; pins come first. Where a variable was created does not count.
      keep_unplaced: the function stays as it is where the plan is not clearly faster; False runs the plan anyway.
      memory_limit: device, by its name in whole or in part, -> the memory that the plan may take there, in bytes or
        text: ``{"GPU:0": "10GB"}``.
      objective: ``"time"``, or ``"memory"``: the plan of least memory within the slow-down (``search``). It is found
        in the simulator, measured once where the devices are there, and used in any case.
      slow_down: share of the fastest plan's step time that a plan of least memory may take longer.
      parts: of the batch, each placed by itself (``split``): a number, or ``"auto"``: one for each device is tried,
        too. Plans in parts run calls of its own batch; others run unplaced, with a warning.
      batch_statistics: of a batch in parts, of the ``"whole"`` or of each ``"part"``, as under ``tf.distribute``: other
        numbers.
      recompute: ``"auto"``: where the step fits on no device, and by no plain plan on all, ops are done again in the
        backward pass, so that their outputs need not live until then; it computes the same bits.
      offload: ``"auto"``: likewise outputs wait on the host for the backward pass.
      fuse: XLA compiles clusters of the plan's ops, where they are measured to be clearly faster. With one CPU
        (``cluster="local:1"``) nothing is placed: the function stays in this process, and clusters alone are searched.
      batch_size: stands for every dimension that is unknown where a function is traced without values, inside another
        function. A plan in parts is of that batch then, and each call looks at its sizes when it runs.
      refresh: takes nothing that was kept: profiles, searches and measures anew.
      strict: what cannot be placed is an error; otherwise it runs unplaced, with a warning.

    Raises:
      InputError: one of the values is not possible.
    """

    cluster: Cluster | str = "local"
    method: str = DEFAULT
    budget_s: float = 60.0
    budget_of: str = "whole"
    seed: int = 0
    cache_dir: str | os.PathLike[str] | None = None
    plan: str | os.PathLike[str] | None = None
    variables: str = "move"
    pins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    respect_devices: bool = True
    keep_unplaced: bool = True
    memory_limit: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    objective: str = "time"
    slow_down: float = SLOW_DOWN
    parts: int | str = 1
    batch_statistics: str = "whole"
    recompute: str = "none"
    offload: str = "none"
    fuse: bool = False
    batch_size: int = 32
    refresh: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        for name in _OPTIONS:
            object.__setattr__(self, name, fit(kind_of(name), getattr(self, name), name))
        arguments.one_of("variables", self.variables, VARIABLES)
        arguments.truth("keep_unplaced", self.keep_unplaced)
        arguments.truth("strict", self.strict)
        object.__setattr__(self, "pins", arguments.texts_by_text("pins", self.pins, _GIVE_PINS))
        object.__setattr__(self, "memory_limit", limits_by_device(_LIMIT, self.memory_limit))
        check_together({"fuse": self.fuse, "objective": self.objective}.get)
        if self.cache_dir is not None:
            folder = arguments.path("cache_dir", self.cache_dir, "a folder")
            check_writable(pathlib.Path(folder), f"cache_dir={folder}")
        if self.method not in methods.names():
            raise InputError(f"method is {self.method!r}; {arguments.nearest(self.method, methods.names())}")
        if self.plan is not None:
            path = arguments.path("plan", self.plan, "a placement.json").absolute()
            object.__setattr__(self, "plan", path)
            with arguments.named("plan"):
                PlanFile.read(path)
        with arguments.named("pins"):
            for ops, device in self.pins.items():
                Pin(ops, device)
        # The cluster is checked without probing this machine, which waits for the first call.
        said = f"cluster={self.cluster!r}"
        if not isinstance(self.cluster, str):
            given_cluster("cluster", self.cluster)
        elif self.cluster.partition(":")[0] == "local":
            local_cores(self.cluster, said)
            return
        chosen = self.chosen_cluster()
        if self.plan is None and chosen.kind == "described":
            raise InputError(
                f"cluster {chosen.name!r} is only described, so nothing can run on it; auto_place on Cluster.local(), "
                "Cluster.logical() or a cluster file with addresses"
            )

    @property
    def tries_parts(self) -> bool:
        """True if the batch is also put in a part for each device."""
        return isinstance(self.parts, str)

    def chosen_cluster(self) -> Cluster:
        """The devices, found by ``choose_cluster`` where a word stands for them."""
        cluster = self.cluster
        if isinstance(cluster, str):
            cluster = choose_cluster(cluster, f"cluster={cluster!r}")
        cluster = limited(_LIMIT, cluster, self.memory_limit)
        is_one_cpu = cluster.kind == "local" and [device.type for device in cluster.devices] == ["CPU"]
        return Cluster.logical(1) if self.fuse and is_one_cpu else cluster
