"""Problems that policies are taught on: programs of many families on machines that are drawn, and drawn programs.

Drawn programs are of families that no table has, by number and seed, with digests of them.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import math
import pathlib
import tomllib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from experiments.pretraining.random_networks import FAMILIES
from experiments.studies.formats import read_toml
from tf_placer import workloads
from tf_placer.base.arguments import FINITE, InputError, fit, nearest
from tf_placer.base.files import write_atomically
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import preset_path

FOLDER = pathlib.Path(__file__).parent
COURSE = FOLDER / "course.toml"
WORKLOADS, GENERATED = "workloads", "generated"
COUNT = 600  # programs, where no count is given
LEAST_OPS, MOST_OPS = 500, 20_000
CHOICES: Mapping[str, Any] = tomllib.loads((FOLDER / "generated.toml").read_text("utf8"))
_DEEPEST = 40
# Ops that are aimed at, as counts are estimates; times the parts, and more with slots, so that small networks are that
# large. The logarithms are spread evenly.
_LEAST_AIMED, _MOST_AIMED = 900, 12_000
_NEAR = 1.2  # an estimate of the ops is at most so many times what is aimed at, or that many times less
_MOST_WEIGHTS = 80e6  # tracing holds them, and up to two slots of an optimizer for each
_MOST_ACTIVATIONS = 5e9  # numbers: 20 GB, more than the smaller GPUs have
_UPDATE_OPS = {"sgd": 0, "momentum": 7, "rmsprop": 14, "adam": 35}  # for a variable, more than with SGD
# CPU seconds of an op on the machine of docs/results/taught_policy.md: once, in each problem and in each placement.
_TRACE_S, _PROBLEM_S, _PLACEMENT_S = 0.7e-3, 0.1e-3, 1e-7
_HEAD = ["number", "family", "settings", "machines", "ops", "fingerprint"]


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


@dataclasses.dataclass(frozen=True)
class Generated(Program):
    """A drawn program."""

    number: int  # in the course, from 0 on
    ops: int  # an estimate


def draw(number: int, seed: int) -> Generated:
    """A program and its machines; families take turns."""
    generator, family = np.random.default_rng([seed, number]), [*FAMILIES][number % len(FAMILIES)]
    optimizer, parts = (_one_of(generator, CHOICES[name]) for name in ("optimizer", "parts"))
    update_ops = _UPDATE_OPS[optimizer]
    aimed = _log_uniform(generator, _LEAST_AIMED * parts * (1 + update_ops / 25), _MOST_AIMED)
    for tries in itertools.count():
        settings = {name: _one_of(generator, values) for name, values in CHOICES["families"][family].items()}
        settings["depth"] = int(generator.integers(1, _DEEPEST + 1))
        size = FAMILIES[family][2](**settings)
        ops = size.ops * (1 if parts == 1 else parts * size.split) + size.variables * update_ops
        fits = size.weights <= _MOST_WEIGHTS and size.activations <= _MOST_ACTIVATIONS
        near = _NEAR * 1.0002**tries  # few layers have few numbers of ops
        if fits and aimed / near <= ops <= aimed * near:
            break
    settings |= {"optimizer": optimizer, "parts": parts, "seed": int(generator.integers(2**31))}
    machines = tuple(draw_machine(generator) for _ in range(CHOICES["machines"]))
    return Generated(family, family, settings, machines, number, round(ops))


def draw_machine(generator: np.random.Generator) -> Machine:
    """GPUs of one model or two, on the links of a machine with at least as many, faster or slower."""
    count, clusters = _one_of(generator, CHOICES["gpus"]), CHOICES["clusters"]
    cluster = _one_of(generator, next(clusters[places] for places in clusters if int(places) >= count))
    other = _one_of(generator, [name for names in clusters.values() for name in names])
    own = int(generator.integers(1, count)) if generator.random() < 0.5 else count
    scale = round(_log_uniform(generator, *CHOICES["link_scale"]), 3)
    return Machine(cluster, scale, (cluster,) * own + (other,) * (count - own))


def _one_of(generator: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(generator.integers(len(values)))]


def _log_uniform(generator: np.random.Generator, least: float, most: float) -> float:
    return math.exp(generator.uniform(math.log(least), math.log(most)))


def course_named(text: str, seed: int) -> tuple[Program, ...]:
    """``workloads``, the programs of ``course.toml``, ``generated``, with a count after a colon, or both by a comma.

    Raises:
      InputError: there is no such course.
    """
    if "," in text:
        return tuple(itertools.chain(*(course_named(part, seed) for part in text.split(","))))
    if text == WORKLOADS:
        return read_course(seed)
    name, colon, count = text.partition(":")
    if name != GENERATED or (colon and not (count.isdecimal() and 0 < int(count[:9]) < 10**6)):
        raise InputError(f"no course is called {text!r}; give workloads, generated or generated:100, say")
    return tuple(draw(number, seed) for number in range(int(count) if colon else COUNT))


def seconds(course: Sequence[Program], placements: int) -> float:
    """Estimate of CPU seconds in which the drawn programs are traced, and searched with so many placements."""
    return sum(
        program.ops * (_TRACE_S + len(program.machines) * (_PROBLEM_S + placements * _PLACEMENT_S))
        for program in course
        if isinstance(program, Generated)
    )


def check_digest(program: Generated, ops: int, fingerprint: str, file: pathlib.Path) -> None:
    """Writes the program's row into a CSV file, or finds that the file has the same.

    Raises:
      InputError: it has another, or is damaged.
    """
    drawn = json.dumps(program.settings), json.dumps([dataclasses.astuple(one) for one in program.machines])
    row = [str(program.number), program.family, *drawn, str(ops), fingerprint]
    text = file.read_text(encoding="utf8") if file.is_file() else ""
    rows = {cells[0]: cells for cells in csv.reader(io.StringIO(text)) if cells} or {_HEAD[0]: _HEAD}
    if rows.setdefault(row[0], row) != row or rows.get(_HEAD[0]) != _HEAD:
        raise InputError(
            f"{file}: program {row[0]} has fingerprint {fingerprint[:16]} and {ops} ops here, and another row there; "
            "another version of TensorFlow or of the course wrote it: delete it or use that version"
        )
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(rows.values())
    write_atomically(file, lines.getvalue())
