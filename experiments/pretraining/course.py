"""The problems of a course: programs of many families, each on machines that are drawn."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from experiments.studies.formats import read_toml
from tf_placer import workloads
from tf_placer.base.arguments import FINITE, InputError, fit, nearest
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import preset_path

COURSE = pathlib.Path(__file__).parent / "course.toml"


@dataclasses.dataclass(frozen=True)
class Machine:
    """A described cluster whose links are faster than they are, or slower, and some of whose GPUs may be others."""

    cluster: str  # name of the preset
    link_scale: float  # bytes a second are multiplied by it, and latencies divided
    # preset whose GPU is in each place, up to as many places as the cluster has; () for the cluster's own
    gpus: tuple[str, ...] = ()

    def build(self) -> Cluster:
        """The cluster."""
        cluster = Cluster.preset(self.cluster)
        return scaled(with_gpus(cluster, self.gpus) if self.gpus else cluster, self.link_scale)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, and the machines that it is placed on."""

    # what is left out together, when a policy is held against programs that it has not seen
    family: str
    workload: str  # name
    settings: Mapping[str, Any]  # of the workload, in place of its own
    machines: tuple[Machine, ...]  # the clusters

    @property
    def name(self) -> str:
        """Workload and settings, for a log."""
        return " ".join([self.workload, *(f"{key}={value}" for key, value in self.settings.items())])


def read_course(seed: int, path: pathlib.Path = COURSE) -> tuple[Program, ...]:
    """The programs of a file, in its order, each on machines that ``seed`` draws.

    The file has ``clusters``, ``link_scale`` = [least, most], ``machines`` = how many are drawn for a program, and in
    each table of ``families`` a workload -> list of settings.

    Raises:
      InputError: the file is missing or damaged, or names what there is not; the message begins with the file.
    """
    return read_toml(path, lambda content: _programs(content, seed))


def without(programs: tuple[Program, ...], families: list[str]) -> tuple[Program, ...]:
    """The programs of the other families.

    Raises:
      InputError: a family that the course has not, or no program is left.
    """
    known = sorted({program.family for program in programs})
    for family in families:
        if family not in known:
            raise InputError(f"the course has no family {family!r}; {nearest(family, known)}")
    left = tuple(program for program in programs if program.family not in families)
    if not left:
        raise InputError(f"all of {', '.join(known)} are left out; leave some in")
    return left


def scaled(cluster: Cluster, link_scale: float) -> Cluster:
    """The same devices with links that are that many times as fast."""
    links = tuple(
        dataclasses.replace(
            link, bytes_per_s=link.bytes_per_s * link_scale, latency_ns=round(link.latency_ns / link_scale)
        )
        for link in cluster.links
    )
    return dataclasses.replace(cluster, name=f"{cluster.name}, links x {link_scale:.2g}", links=links)


def with_gpus(cluster: Cluster, presets: tuple[str, ...]) -> Cluster:
    """The host and the first places of a cluster, with a GPU of a preset in each, on the same links."""
    kept = [*range(len(presets)), cluster.num_devices - 1]  # GPUs are first in a preset, and the host is last
    gpus = [
        dataclasses.replace(Cluster.preset(preset).devices[0], name=cluster.devices[place].name)
        for place, preset in enumerate(presets)
    ]
    links = tuple(
        dataclasses.replace(link, source=kept.index(link.source), target=kept.index(link.target))
        for link in cluster.links
        if link.source in kept and link.target in kept
    )
    name = f"{cluster.name} with GPUs of {', '.join(presets)}"
    return Cluster(name, (*gpus, cluster.devices[-1]), links)


_Scale = Annotated[float, Gt(0), FINITE]


@dataclasses.dataclass(frozen=True)
class _File:
    """Content of the file."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    machines: Annotated[int, Ge(1)]
    clusters: list[str]
    link_scale: tuple[_Scale, _Scale]
    families: dict[str, dict[str, list[dict[str, Any]]]]

    def draw(self, generator: np.random.Generator) -> tuple[Machine, ...]:
        """Machines for one program, of different clusters as far as there are."""
        least, most = map(math.log, self.link_scale)
        order = generator.permutation(len(self.clusters))
        return tuple(
            Machine(
                self.clusters[order[number % len(order)]],
                round(math.exp(generator.uniform(least, most)), 3),
            )
            for number in range(self.machines)
        )


def _programs(content: dict[str, Any], seed: int) -> tuple[Program, ...]:
    file: _File = fit(_File, content, "", "document")
    for name in file.clusters:
        preset_path(name)
    if file.link_scale[0] > file.link_scale[1] or not file.clusters:
        raise InputError("give link_scale = [least, most] and at least one of clusters")
    programs = []
    for family, of_family in file.families.items():
        for workload, settings in of_family.items():
            workloads.check_name(workload)
            for number, own in enumerate(settings):
                # Programs that are added later change nothing for the others.
                generator = np.random.default_rng([seed, number, *workload.encode()])
                programs.append(Program(family, workload, own, file.draw(generator)))
    return tuple(programs)
