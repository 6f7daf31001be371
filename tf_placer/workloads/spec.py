"""A workload, and a row of their table: a family of models with the settings of one of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Workload:
    """One step of a model.

    Attributes:
      function: a ``tf.function`` that does one step and returns the loss.
      example_args: tensors to call it with, made from the seed.
      stages: what an expert would keep together, in the order of the network: a regular expression each, found in the
        names of the ops of that stage (``re.search``). The first that is found counts. Empty where nobody said.
    """

    function: Any
    example_args: tuple
    stages: tuple[str, ...] = ()


FORWARD, SMALL = "forward", "small"


@dataclasses.dataclass(frozen=True)
class WorkloadSpec:
    """One workload.

    Attributes:
      name: small letters, digits and ``_``.
      build: the family, ``(**settings) -> Workload``; all its arguments have defaults.
      summary: one line with the paper.
      settings: of this row, where they are not the family's own.
    """

    name: str
    build: Callable[..., Workload]
    summary: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def forward_of(spec: WorkloadSpec) -> WorkloadSpec:
    """The forward pass and the loss of a workload whose family takes ``training``."""
    settings = {**spec.settings, "training": False}
    return dataclasses.replace(
        spec, name=f"{spec.name}_{FORWARD}", summary=f"{spec.summary}, forward only", settings=settings
    )


def variants(spec: WorkloadSpec, small: Mapping[str, Any]) -> tuple[WorkloadSpec, ...]:
    """A workload, its forward pass alone, and the small twin of each, which runs on two CPU workers.

    Args:
      spec: of a family that takes ``training``.
      small: settings of the twin, in addition to the row's own.
    """
    twin = dataclasses.replace(
        spec,
        name=f"{spec.name}_{SMALL}",
        summary=f"{spec.summary}, small",
        settings={**spec.settings, **small},
    )
    return spec, forward_of(spec), twin, forward_of(twin)
