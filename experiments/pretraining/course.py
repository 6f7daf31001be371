"""The problems of a course: programs of many families, each on machines that are drawn."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.studies.toml_file import check_keys, keys_of, list_of, read_toml, table_of
from tf_placer import workloads
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, nearest
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import preset_path

COURSE = pathlib.Path(__file__).parent / "course.toml"


@dataclasses.dataclass(frozen=True)
class Machine:
    """A described cluster whose links are faster than they are, or slower."""

    cluster: str  # name of the preset
    link_scale: float  # bytes a second are multiplied by it, and latencies divided

    def build(self) -> Cluster:
        """The cluster."""
        return scaled(Cluster.preset(self.cluster), self.link_scale)


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


@dataclasses.dataclass(frozen=True)
class _File:
    """Content of the file, checked."""

    machines: int
    clusters: list[str]
    link_scale: list[float]
    families: dict[str, Any]

    def __post_init__(self) -> None:
        arguments.whole_number("machines", self.machines, least=1)
        for name in list_of("clusters", self.clusters):
            preset_path(name)
        if len(list_of("link_scale", self.link_scale)) != 2:
            raise InputError(f"link_scale is {self.link_scale}; give [least, most]")
        least, most = (arguments.number("link_scale", one, above=0, finite=True) for one in self.link_scale)
        if least > most or not self.clusters:
            raise InputError("give link_scale = [least, most] and at least one of clusters")

    def draw(self, generator: np.random.Generator) -> tuple[Machine, ...]:
        """Machines for one program, of different clusters as far as there are."""
        least, most = (math.log(one) for one in self.link_scale)
        order = generator.permutation(len(self.clusters))
        return tuple(
            Machine(
                self.clusters[order[number % len(order)]],
                round(math.exp(generator.uniform(least, most)), 3),
            )
            for number in range(self.machines)
        )


def _programs(content: dict[str, Any], seed: int) -> tuple[Program, ...]:
    check_keys("the course", content, _File, keys_of(_File))
    file, programs = _File(**content), []
    for family, of_family in table_of("families", file.families).items():
        for workload, settings in table_of(f"families.{family}", of_family).items():
            workloads.check_name(workload)
            for number, one in enumerate(list_of(f"families.{family}.{workload}", settings)):
                own = table_of(f"families.{family}.{workload}[{number}]", one)
                # Programs that are added later change nothing for the others.
                name = [seed, number, *workload.encode()]
                programs.append(Program(family, workload, own, file.draw(np.random.default_rng(name))))
    return tuple(programs)
