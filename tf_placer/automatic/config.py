"""What auto_place is asked for."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping

from tf_placer.automatic.eager_devices import check_not_described
from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.folders import check_writable

VARIABLES = ("move", "stay")
_AUTO_METHOD = "local_search"  # wins most live searches: docs/results/live_search.md


@dataclasses.dataclass(frozen=True)
class AutoPlaceConfig:
    """How a function is placed at its first call.

    Attributes:
      cluster: the devices, or ``"local"`` for ``Cluster.local()``.
      method: a name of ``tf_placer.search.methods.names()``, or ``"auto"`` for the one that wins most often here.
      budget_s: seconds of the search.
      seed: of the search.
      cache_dir: where plans are kept, so that the next process needs no search; ``~/.cache/tf_placer/plans`` without.
      variables: ``"move"``: the plan says where variables live, and they are moved there. ``"stay"``: they stay where
        they are, and the plan puts the ops that use them there.
      pins: regular expression that matches whole op names -> the device that these ops must be on, whole or in part:
        ``{"encoder/.*": "/device:CPU:0"}``.
      respect_devices: ops for which the function itself asks for a device (``tf.device``) are on such a device. What
        cannot be, because the cluster lacks the device, say, is told in a warning and placed freely; pins come first.
        Where a variable was created is no such wish: that is what ``variables`` is about.
      keep_unplaced: the function stays as it is where the plan is not clearly faster than that; False runs the plan
        in any case.
      batch_size: stands for every dimension that is unknown where a function is traced without values, inside another
        function.
      strict: what cannot be placed is an error; without, it runs as it is, with one warning.

    Raises:
      InputError: one of the values is not possible.
    """

    cluster: Cluster | str = "local"
    method: str = "auto"
    budget_s: float = 60.0
    seed: int = 0
    cache_dir: str | os.PathLike[str] | None = None
    variables: str = "move"
    pins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    respect_devices: bool = True
    keep_unplaced: bool = True
    batch_size: int = 32
    strict: bool = False

    def __post_init__(self) -> None:
        if self.variables not in VARIABLES:
            raise InputError(f"variables is {self.variables!r}; give one of {', '.join(VARIABLES)}")
        if not self.budget_s > 0:
            raise InputError(f"budget_s is {self.budget_s}; give more than 0")
        if self.cache_dir is not None:
            check_writable(pathlib.Path(self.cache_dir), f"cache_dir={self.cache_dir}")
        if self.batch_size < 1:
            raise InputError(f"batch_size is {self.batch_size}; give 1 or more")
        if isinstance(self.cluster, str) and self.cluster != "local":
            raise InputError(f'cluster is {self.cluster!r}; give "local" or a tf_placer.Cluster')
        if isinstance(self.cluster, Cluster):
            check_not_described(self.cluster)

    @property
    def search_method(self) -> str:
        """A name of ``tf_placer.search.methods.names()``."""
        return _AUTO_METHOD if self.method == "auto" else self.method
