"""Description of a study as a TOML file: problems, candidates, budget and seeds, and the numbers that a paper prints.

``experiments/tables/*.toml`` are tables of papers; ``experiments/studies/*.toml`` follow searches over evaluations.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from colocation.units import attach_constants, default_groups, form_units, single_consumer
from experiments.studies.formats import read_toml
from tf_placer import workloads
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, Text, fit
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
FILES = {path.stem: path for folder in (STUDIES, TABLES) for path in folder.glob("*.toml")}
"""Name of a study -> its file."""
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

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    workload: Text  # what is placed
    cluster: Text  # preset of the machine
    quick: str = ""  # the workload that stands for it in a quick study; "" leaves the row out there
    parts: Annotated[int, Ge(1)] = 1  # of the batch, in the variant ``in_parts``; 1 leaves it whole
    # Column of the paper -> seconds, infinite where it ran out of memory.
    published: dict[str, Annotated[float, Gt(0)]] = dataclasses.field(default_factory=dict)
    # Name of a candidate -> setting -> value, beside its own.
    settings: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name on the page and in its notes."""
        return f"{self.workload} on {self.cluster}"


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One line of a page: a method with its settings."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: Text  # on the page
    method: Text  # of the table of methods
    asks: str = ""  # the question that it answers, the heading that it stands under
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # those that are not as shipped
    of_units: tuple[str, ...] = ()  # settings that are as many as the problem has units
    # Of the problem, a name of ``VARIANTS``. With the batch in parts a search begins at data parallel, or at the best
    # placement of the whole batch that candidates before it found, where that is faster.
    variant: str = "as_shipped"
    only: tuple[str, ...] = ()  # names of the rows where it is run; all where it is empty
    once: bool | None = None  # the first seed stands for all; None: where the method draws nothing
    order: str = NO_ORDER  # of execution, as ``search`` takes it
    fused: bool = False  # the clusters of each rule are tried on the best plan, which counts as evaluations

    def config(self, row: Row, num_units: int) -> dict[str, Any]:
        """Its settings for the problem of a row."""
        return {**self.settings, **row.settings.get(self.name, {}), **dict.fromkeys(self.of_units, num_units)}

    def seeds_of(self, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """Those that it is run with."""
        draws_nothing = methods.find(self.method).kind == Kind.CONSTRUCTIVE
        return seeds[:1] if (draws_nothing if self.once is None else self.once) else seeds


@dataclasses.dataclass(frozen=True)
class Study:
    """A page to compute."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: Text  # of the file, without its ending
    title: Text
    evaluations: Annotated[int, Ge(1)]  # placements that each search tries
    cap_s: Annotated[int | float, Gt(0)]  # seconds after which it ends all the same
    seeds: tuple[Annotated[int, Ge(0)], ...]  # of the searches
    rows: tuple[Row, ...]  # the problems, in order
    candidates: tuple[Candidate, ...]  # what is compared, in order
    source: str = ""  # of published numbers; with it the page is a table, without it of curves
    # name of a candidate, or ``ONE_ACCELERATOR`` -> column of the paper that it is compared with
    published_as: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: dict[str, str] = dataclasses.field(default_factory=dict)  # name of a row -> why its order differs
    about: str = ""  # a sentence or two below the title; a table need not have it
    window: Annotated[int, Ge(0)] = 0  # samples that are an agent's first and last ones; of curves
    # The candidate that all are compared with, on a page of curves seed by seed; "" is none.
    against: str = ""
    begins: str = ""  # the method at whose plan searches of a table begin; "" is whatever they begin at
    towards: str = ""  # the candidate whose mean best the others are timed to, of curves; "" is none
    quick_evaluations: Annotated[int, Ge(0)] = 0  # of a quick study; 0 is a tenth
    quick_seeds: Annotated[int, Ge(1)] = 1  # how many of the seeds a quick study has
    # method -> setting -> value, with which it is quick; a candidate's own come before these
    quick_settings: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

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

    def check(self) -> None:
        """Raises InputError where something is missing, there twice, or a name that is unknown."""
        arguments.whole_number("window", self.window, least=0 if self.is_table else 1)
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
        """The same problems and budget with the first seeds and some candidates; 0 and none are all.

        Raises:
          InputError: a name is no candidate's.
        """
        known = [one.name for one in self.candidates]
        _check_known("candidate", known, names)
        kept = [name for name in known if name in names or not names]

        def of_kept(by_name: dict[str, Any], *also: str) -> dict[str, Any]:
            return {name: value for name, value in by_name.items() if name in (*kept, *also)}

        return dataclasses.replace(
            self,
            seeds=self.seeds[: num_seeds or None],
            rows=tuple(dataclasses.replace(row, settings=of_kept(row.settings)) for row in self.rows),
            candidates=tuple(one for one in self.candidates if one.name in kept),
            against=self.against if self.against in kept else "",
            published_as=of_kept(self.published_as, ONE_ACCELERATOR),
        )

    def quick(self) -> Study:
        """Fewer evaluations and seeds, and for each row what stands for it; rows without that are left out."""
        of_quick = [row for row in self.rows if row.quick]
        rows = {row.name: dataclasses.replace(row, workload=row.quick, published={}) for row in of_quick}
        candidates = []
        for one in self.candidates:
            if not one.only or rows.keys() & set(one.only):
                settings = {**self.quick_settings.get(one.method, {}), **one.settings}
                only = tuple(rows[name].name for name in one.only if name in rows)
                candidates.append(dataclasses.replace(one, settings=settings, only=only))
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

    def made(table: dict[str, Any]) -> Study:
        study = _study(path.stem, table)
        study.check()
        return study

    return read_toml(path, made)


def _study(name: str, table: dict[str, Any]) -> Study:
    """Candidates are methods by their names, then every agent where wanted, then candidates one by one."""

    def taken(key: str, kind: Any, default: object) -> Any:
        return fit(kind, table.pop(key, default), key, "document")

    names, once = taken("methods", list[str], []), taken("once", list[str], [])
    variants = taken("variants", dict[str, str], {})
    settings = taken("settings", dict[str, dict[str, Any]], {})
    rows = taken("row", list[dict[str, Any]], [])
    for row in rows:
        if isinstance(published := row.get("published"), dict):
            published |= {column: math.inf for column, value in published.items() if value == _OOM}
    _check_known("method", names, (*once, *variants))
    candidates = [{"name": one, "method": variants.get(one, one), "once": one in once} for one in names]
    if taken("every_agent", bool, False):
        learned = [one for one in methods.names() if methods.find(one).kind == Kind.LEARNED]
        roles = (Role.CONTROL, Role.PLAIN, Role.BESIDE)
        others = [spec.name for role in roles for spec in methods.having(role)]
        candidates += [{"name": one, "method": one} for one in dict.fromkeys([*learned, *others])]
    candidates += taken("candidate", list[dict[str, Any]], [])
    made_here = {"name": name, "rows": rows, "candidates": candidates}
    _check_known("key", (), made_here.keys() & table)
    study: Study = fit(Study, {**table, **made_here}, "", "document")
    # Settings are of a name of the first, and of the method of the others.
    keys = [one.name if i < len(names) else one.method for i, one in enumerate(study.candidates)]
    _check_known("method", keys, settings)
    set_candidates = [
        dataclasses.replace(one, settings={**settings.get(key, {}), **one.settings})
        for one, key in zip(study.candidates, keys, strict=True)
    ]
    return dataclasses.replace(study, candidates=tuple(set_candidates))


def _check_known(what: str, known: Iterable[str], given: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            raise InputError(f"it has no {what} {name!r}; {arguments.nearest(name, known)}")
