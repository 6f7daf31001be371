"""What is compared and on which problems, as a TOML file: ``experiments/curves/*.toml``."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.curves.variants import VARIANTS
from experiments.papers.description import Row
from experiments.papers.toml_file import check_keys, keys_of, list_of, read_toml, table_of
from tf_placer import arguments, workloads
from tf_placer.cluster.preset import preset_path
from tf_placer.errors import InputError
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.settings import configured
from tf_placer.search.spec import Kind


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One line of a page: a method with its settings.

    Attributes:
      name: on the page.
      method: of the table of methods.
      asks: the question that it answers, the heading that it stands under.
      settings: those that are not as shipped.
      of_units: settings that are as many as the problem has units.
      variant: of the problem, a name of ``VARIANTS``.
      only: names of the rows where it is run; all where it is empty.
    """

    name: str
    method: str
    asks: str = ""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    of_units: tuple[str, ...] = ()
    variant: str = "as_shipped"
    only: tuple[str, ...] = ()

    def config(self, problem: Problem) -> dict[str, Any]:
        """Its settings for a problem."""
        return {**self.settings, **dict.fromkeys(self.of_units, problem.num_units)}

    def seeds_of(self, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """Those that it is run with: the first alone where nothing is drawn."""
        return seeds[:1] if methods.find(self.method).kind == Kind.CONSTRUCTIVE else seeds


@dataclasses.dataclass(frozen=True)
class Study:
    """A page to compute.

    Attributes:
      name: of the file, without its ending.
      title: of the page.
      about: a sentence or two below it.
      evaluations: placements that each search tries.
      cap_s: seconds after which it ends all the same.
      seeds: of the searches.
      window: samples that are an agent's first and last ones.
      rows: the problems.
      candidates: what is compared, in order.
      against: the candidate that all are compared with seed by seed; "" is none.
      towards: the candidate whose mean best is what it is told how soon the others get to; "" is none.
      settings: method -> setting -> value, of all its candidates; a candidate's own come before these.
      quick_evaluations, quick_seeds: how much of it a quick page is, on what stands for the rows.
      quick_settings: method -> setting -> value, with which it is quick; a candidate's own come before these.

    Raises:
      InputError: no row or seed, or something stands there twice.
    """

    name: str
    title: str
    about: str
    evaluations: int
    cap_s: float
    seeds: tuple[int, ...]
    window: int
    rows: tuple[Row, ...]
    candidates: tuple[Candidate, ...]
    quick_evaluations: int
    quick_seeds: int
    quick_settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    against: str = ""
    towards: str = ""

    def __post_init__(self) -> None:
        for name in ("evaluations", "window", "quick_evaluations", "quick_seeds"):
            arguments.whole_number(name, getattr(self, name), least=1)
        arguments.number("cap_s", self.cap_s, above=0)
        for seed in self.seeds:
            arguments.whole_number("seeds", seed, least=0)
        rows, names = [row.name for row in self.rows], [one.name for one in self.candidates]
        for what, given in (("row", rows), ("seed", self.seeds)):
            if not given:
                raise InputError(f"it has no {what}; give at least one")
        for what, given in (("row", rows), ("seed", self.seeds), ("candidate", names)):
            if len(set(given)) < len(given):
                raise InputError(f"it has the same {what} twice; give each once")
        for name in (self.against, self.towards):
            if name and name not in names:
                raise InputError(f"it has no candidate {name!r}; {arguments.nearest(name, names)}")

    def check_names(self) -> None:
        """Raises InputError where a workload, a cluster, a method, a setting, a variant or a row is unknown."""
        for row in self.rows:
            workloads.check_name(row.workload)
            if row.quick:
                workloads.check_name(row.quick)
            preset_path(row.cluster)
        for method, settings in (*self.settings.items(), *self.quick_settings.items()):
            configured(methods.find(method), settings)
        for one in self.candidates:
            arguments.one_of(f"variant of candidate {one.name!r}", one.variant, VARIANTS)
            configured(methods.find(one.method), {**one.settings, **dict.fromkeys(one.of_units, 1)})
            for name in one.only:
                if name not in [row.name for row in self.rows]:
                    raise InputError(f"candidate {one.name!r} is run on {name!r}, which is no row; give one")

    def quick(self) -> Study:
        """Fewer evaluations and seeds, and for each row what stands for it; rows without that are left out."""
        rows = {row.name: dataclasses.replace(row, workload=row.quick) for row in self.rows if row.quick}
        candidates = [
            dataclasses.replace(
                one,
                settings={**self.quick_settings.get(one.method, {}), **one.settings},
                only=tuple(rows[name].name for name in one.only if name in rows),
            )
            for one in self.candidates
            if not one.only or rows.keys() & set(one.only)
        ]
        return dataclasses.replace(
            self,
            title=f"{self.title} Quick: small programs and few evaluations",
            evaluations=self.quick_evaluations,
            seeds=self.seeds[: self.quick_seeds],
            rows=tuple(rows.values()),
            candidates=tuple(candidates),
        )


def read_study(path: pathlib.Path) -> Study:
    """Reads a study's file; that its names are known is for ``Study.check_names``.

    Raises:
      InputError: it is missing, no TOML, or no study; the message begins with the file.
    """
    return read_toml(path, lambda table: _study(path.stem, table))


def _study(name: str, table: Mapping[str, Any]) -> Study:
    check_keys(
        "the study", table, Study, {"row", "candidate"} | keys_of(Study) - {"name", "rows", "candidates"}
    )
    for key in {"title", "about", "against", "towards"} & table.keys():
        arguments.text(key, table[key], "give a sentence")
    rows = [_part(Row, "a row", row) for row in list_of("row", table.get("row", []))]
    settings = table_of("settings", table.get("settings", {}))
    candidates = [
        dataclasses.replace(one, settings={**settings.get(one.method, {}), **one.settings})
        for one in (
            _part(Candidate, "a candidate", of) for of in list_of("candidate", table.get("candidate", []))
        )
    ]
    more = {key: value for key, value in table.items() if key not in ("row", "candidate")}
    return Study(
        **{
            **more,
            "name": name,
            "seeds": tuple(list_of("seeds", table["seeds"])),
            "rows": tuple(rows),
            "candidates": tuple(candidates),
            "quick_settings": table_of("quick_settings", table.get("quick_settings", {})),
        }
    )


def _part(of: type, what: str, table: object) -> Any:
    """A row or a candidate."""
    part = table_of(what, table)
    check_keys(what, part, of, keys_of(of) - ({"published", "settings"} if of is Row else set()))
    taken = dict(part)
    for key, value in part.items():
        if key in ("of_units", "only"):
            taken[key] = tuple(list_of(key, value))
        elif key == "settings":
            table_of(key, value)
        else:
            arguments.text(key, value, "give a name")
    return of(**taken)
