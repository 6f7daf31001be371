"""Description of a study as a TOML file: problems, candidates, budget and seeds, and the numbers that a paper prints.

``experiments/tables/*.toml`` are tables of papers; ``experiments/studies/*.toml`` follow searches over evaluations.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from colocation.units import attach_constants, default_groups, form_units, single_consumer
from experiments.studies.toml_file import check_keys, keys_of, list_of, read_toml, table_of
from tf_placer import workloads
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, Role
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import preset_path
from tf_placer.graph.item import Item
from tf_placer.grouper.groups import Groups
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.methods import NO_ORDER, ORDERS, configured

STUDIES = pathlib.Path(__file__).parent
TABLES = STUDIES.parent / "tables"
# Stands among the candidates of a table: everything on the best device that is no CPU.
ONE_ACCELERATOR = "one_accelerator"
# Stands there where a row has parts: each accelerator computes its part of the batch.
DATA_PARALLEL = "data_parallel"
IN_PARTS = "in_parts"
_OOM = "OOM"  # in the place of a published time
_QUICK_SHARE = 10  # of the budget


def as_shipped(item: Item, cluster: Cluster) -> Problem:
    """Units are what TensorFlow ties, and constants with their only reader."""
    return build_problem(item, cluster, costs="analytic")


def colocation_groups(item: Item, cluster: Cluster) -> Problem:
    """Units are ColocRL's groups too: gradients with their op, and ops with their only reader.

    The third rule of Mirhoseini et al. 2017, section 3.3, names scopes of a program by hand, so it is left out. What a
    placement takes is the same as in the problem as shipped.
    """
    problem = as_shipped(item, cluster)
    units = form_units(item.index, heuristics=(attach_constants, default_groups, single_consumer()))
    group_of_unit = np.zeros(problem.num_units, np.int64)
    # Each unit lies in one group whole: the rules only merge.
    group_of_unit[problem.unit_of_op] = units.unit_of_op
    return Groups.of(problem, group_of_unit).coarse_problem()


VARIANTS: dict[str, Callable[[Item, Cluster], Problem]] = {
    "as_shipped": as_shipped,
    "colocation_groups": colocation_groups,
    IN_PARTS: as_shipped,  # of the program whose batch is in the parts of the row
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One problem."""

    workload: str  # what is placed
    cluster: str  # preset of the machine
    quick: str = ""  # the workload that stands for it in a quick study; "" leaves the row out there
    parts: int = 1  # of the batch, in the variant ``in_parts``; 1 leaves it whole
    # column of the paper -> seconds, infinite where it ran out of memory
    published: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # name of a candidate -> setting -> value, beside its own
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name on the page and in its notes."""
        return f"{self.workload} on {self.cluster}"


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One line of a page: a method with its settings."""

    name: str  # on the page
    method: str  # of the table of methods
    asks: str = ""  # the question that it answers, the heading that it stands under
    # those that are not as shipped
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    of_units: tuple[str, ...] = ()  # settings that are as many as the problem has units
    # of the problem, a name of ``VARIANTS``. With the batch in parts a search begins at data
    # parallel, or at the best placement of the whole batch that candidates before it found, where
    # that is faster.
    variant: str = "as_shipped"
    only: tuple[str, ...] = ()  # names of the rows where it is run; all where it is empty
    # whether the first seed stands for all; None: where the method draws nothing
    once: bool | None = None
    order: str = NO_ORDER  # of execution, as ``search`` takes it
    # whether the clusters of each rule are tried on the best plan at the end, which counts as
    # evaluations
    fused: bool = False

    def config(self, row: Row, num_units: int) -> dict[str, Any]:
        """Its settings for the problem of a row."""
        return {**self.settings, **row.settings.get(self.name, {}), **dict.fromkeys(self.of_units, num_units)}

    def seeds_of(self, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """Those that it is run with."""
        draws_nothing = methods.find(self.method).kind == Kind.CONSTRUCTIVE
        return seeds[:1] if (draws_nothing if self.once is None else self.once) else seeds


@dataclasses.dataclass(frozen=True)
class Study:
    """A page to compute.

    Attributes:
      name: of the file, without its ending.
      title: of the page.
      evaluations: placements that each search tries.
      cap_s: seconds after which it ends all the same.
      seeds: of the searches.
      rows: the problems, in order.
      candidates: what is compared, in order.
      source: where published numbers are from; with it the page is a table, without it of curves.
      published_as: name of a candidate, or ``ONE_ACCELERATOR`` -> column of the paper that it is compared with.
      notes: name of a row -> why its order is not the paper's.
      about: a sentence or two below the title; a table need not have it.
      window: samples that are an agent's first and last ones; of curves, as are the next two.
      against: the candidate that all are compared with, on a page of curves seed by seed; "" is none.
      begins: the method at whose plan searches of a table begin; "" is whatever they begin at by themselves.
      towards: the candidate whose mean best the others are timed to; "" is none.
      quick_evaluations: of a quick study; 0 is a tenth.
      quick_seeds: how many of the seeds a quick study has.
      quick_settings: method -> setting -> value, with which it is quick; a candidate's own come before these.

    Raises:
      InputError: no row, candidate or seed, or a name that is unknown or stands there twice.
    """

    name: str
    title: str
    evaluations: int
    cap_s: float
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    candidates: tuple[Candidate, ...]
    source: str = ""
    published_as: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    about: str = ""
    window: int = 0
    against: str = ""
    begins: str = ""
    towards: str = ""
    quick_evaluations: int = 0
    quick_seeds: int = 1
    quick_settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        arguments.whole_number("evaluations", self.evaluations, least=1)
        arguments.whole_number("window", self.window, least=0 if self.is_table else 1)
        arguments.whole_number("quick_evaluations", self.quick_evaluations, least=0)
        arguments.whole_number("quick_seeds", self.quick_seeds, least=1)
        arguments.number("cap_s", self.cap_s, above=0)
        for seed in self.seeds:
            arguments.whole_number("seeds", seed, least=0)
        rows, names = [row.name for row in self.rows], [one.name for one in self.candidates]
        for what, given in (("row", rows), ("candidate", names), ("seed", self.seeds)):
            if not given:
                raise InputError(f"it has no {what}; give at least one")
            if len(set(given)) < len(given):
                raise InputError(f"it has the same {what} twice; give each once")
        _check_known("row", rows, self.notes)
        for row in self.rows:
            _check_known("candidate", names, row.settings)
        _check_known("candidate", names, (name for name in (self.against, self.towards) if name))
        _check_known("candidate", (*names, ONE_ACCELERATOR), self.published_as)
        _check_known("column of the paper", self.columns, self.published_as.values())

    @property
    def is_table(self) -> bool:
        """True if the page is a table next to published numbers, and not one of curves."""
        return bool(self.source)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the paper, in the order in which its rows name them."""
        return tuple(dict.fromkeys(column for row in self.rows for column in row.published))

    @property
    def has_parts(self) -> bool:
        """True if a row's batch is in parts."""
        return any(row.parts > 1 for row in self.rows)

    def candidates_of(self, row: Row) -> list[Candidate]:
        """Those that are run on a row."""
        return [one for one in self.candidates if not one.only or row.name in one.only]

    def check_names(self) -> None:
        """Raises InputError where a workload, a cluster, a method, a setting, a variant or a row is unknown."""
        for row in self.rows:
            for workload in filter(None, (row.workload, row.quick)):
                workloads.check_name(workload)
            preset_path(row.cluster)
        if self.begins:
            methods.find(self.begins)
        for method, settings in self.quick_settings.items():
            configured(methods.find(method), settings)
        for one in self.candidates:
            arguments.one_of(f"variant of candidate {one.name!r}", one.variant, VARIANTS)
            for row in self.rows:
                configured(methods.find(one.method), one.config(row, num_units=1))
            arguments.one_of(f"order of candidate {one.name!r}", one.order, ORDERS)
            for name in one.only:
                if name not in [row.name for row in self.rows]:
                    raise InputError(f"candidate {one.name!r} is run on {name!r}, which is no row; give one")
            whole = [row.name for row in self.rows if row.parts == 1 and one in self.candidates_of(row)]
            if one.variant == IN_PARTS and whole:
                raise InputError(
                    f"candidate {one.name!r} is in parts, and {whole[0]!r} has none; give the row 'parts' above 1, or "
                    "name others in 'only'"
                )

    def thinned(self, num_seeds: int = 0, names: Sequence[str] = ()) -> Study:
        """The same problems and budget with fewer searches.

        Args:
          num_seeds: how many of the seeds, from the first; 0 is all.
          names: of the candidates that stay, in any order; none is all.

        Raises:
          InputError: a name is no candidate's.
        """
        known = [one.name for one in self.candidates]
        _check_known("candidate", known, names)
        kept = [name for name in known if name in names or not names]
        rows = [
            dataclasses.replace(row, settings={name: of for name, of in row.settings.items() if name in kept})
            for row in self.rows
        ]
        return dataclasses.replace(
            self,
            seeds=self.seeds[: num_seeds or None],
            rows=tuple(rows),
            candidates=tuple(one for one in self.candidates if one.name in kept),
            against=self.against if self.against in kept else "",
            published_as={
                name: column for name, column in self.published_as.items() if name in (*kept, ONE_ACCELERATOR)
            },
        )

    def quick(self) -> Study:
        """Fewer evaluations and seeds, and for each row what stands for it; rows without that are left out.

        Raises:
          InputError: no row is left.
        """
        rows = {
            row.name: dataclasses.replace(row, workload=row.quick, published={})
            for row in self.rows
            if row.quick
        }
        candidates = [
            dataclasses.replace(
                one,
                settings={**self.quick_settings.get(one.method, {}), **one.settings},
                only=tuple(rows[name].name for name in one.only if name in rows),
            )
            for one in self.candidates
            if not one.only or rows.keys() & set(one.only)
        ]
        told = ", quick: small workloads, for which the paper has no numbers"
        return dataclasses.replace(
            self,
            title=self.title + (told if self.is_table else " Quick: small programs and few evaluations"),
            evaluations=self.quick_evaluations or max(1, self.evaluations // _QUICK_SHARE),
            cap_s=self.cap_s / _QUICK_SHARE,
            seeds=self.seeds[: self.quick_seeds],
            rows=tuple(rows.values()),
            candidates=tuple(candidates),
            published_as={},
            notes={},
        )


def read_study(path: pathlib.Path) -> Study:
    """Reads a study's file, all of whose names are known.

    Raises:
      InputError: it is missing, no TOML, no study, or a name is unknown; the message begins with the file.
    """
    study = read_toml(path, lambda table: _study(path.stem, table))
    try:
        study.check_names()
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return study


def _study(name: str, table: Mapping[str, Any]) -> Study:
    plain = keys_of(Study) - {"name", "rows", "candidates"}
    of_candidates = {"candidate", "methods", "once", "variants", "settings", "every_agent"}
    check_keys("the study", table, Study, plain | of_candidates | {"row"})
    for key in {"title", "source", "about", "against", "begins", "towards"} & table.keys():
        arguments.text(key, table[key], "give a sentence")
    for key in {"published_as", "notes", "quick_settings"} & table.keys():
        table_of(key, table[key])
    given: dict[str, Any] = {key: table[key] for key in plain & table.keys()}
    return Study(
        **{
            **given,
            "name": name,
            "seeds": tuple(list_of("seeds", table["seeds"])),
            "rows": tuple(map(_row, list_of("row", table.get("row", [])))),
            "candidates": _candidates(table),
        }
    )


def _candidates(table: Mapping[str, Any]) -> tuple[Candidate, ...]:
    """Methods by their names, then every agent where that is asked for, then candidates one by one.

    ``settings`` are of a name of the first, and of the method of the others.
    """
    names, once = list_of("methods", table.get("methods", [])), list_of("once", table.get("once", []))
    variants, settings = (table_of(key, table.get(key, {})) for key in ("variants", "settings"))
    for key in settings:
        table_of(f"settings.{key}", settings[key])
    _check_known("method", names, (*once, *variants))
    columns = [Candidate(name, variants.get(name, name), once=name in once) for name in names]
    others = [
        _part(Candidate, "a candidate", one) for one in list_of("candidate", table.get("candidate", []))
    ]
    if table.get("every_agent"):
        others = [*_every_agent(), *others]
    _check_known("method", [*names, *(one.method for one in others)], settings)
    return tuple(
        dataclasses.replace(one, settings={**settings.get(key, {}), **one.settings})
        for one, key in (*((one, one.name) for one in columns), *((one, one.method) for one in others))
    )


def _every_agent() -> list[Candidate]:
    """Every learned method of the table, and what is searched with beside them."""
    learned = [name for name in methods.names() if methods.find(name).kind == Kind.LEARNED]
    beside = [spec.name for role in (Role.CONTROL, Role.PLAIN, Role.BESIDE) for spec in methods.having(role)]
    return [Candidate(name, name) for name in dict.fromkeys([*learned, *beside])]


def _row(table: object) -> Row:
    row: Row = _part(Row, "a row", table)
    published = {column: _seconds(column, value) for column, value in row.published.items()}
    for name, of in row.settings.items():
        table_of(f"settings.{name}", of)
    return dataclasses.replace(row, published=published)


def _part(of: type, what: str, table: object) -> Any:
    """A row or a candidate."""
    part = table_of(what, table)
    check_keys(what, part, of, keys_of(of) - {"once"})
    taken = dict(part)
    for key, value in part.items():
        if key in ("of_units", "only"):
            taken[key] = tuple(list_of(key, value))
        elif key in ("settings", "published"):
            table_of(key, value)
        elif key == "parts":
            arguments.whole_number(key, value, least=1)
        elif key == "fused":
            arguments.truth(key, value)
        else:
            arguments.text(key, value, "give a name")
    return of(**taken)


def _seconds(column: str, value: object) -> float:
    return math.inf if value == _OOM else arguments.number(f"published {column!r}", value, above=0)


def _check_known(what: str, known: Iterable[str], given: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            raise InputError(f"it has no {what} {name!r}; {arguments.nearest(name, known)}")
