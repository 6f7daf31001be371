"""A table of a paper as a TOML file: workloads on clusters, methods, budget, seeds, and the numbers that it prints."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.papers.toml_file import check_keys, keys_of, list_of, read_toml, table_of
from tf_placer import arguments, workloads
from tf_placer.cluster.preset import preset_path
from tf_placer.errors import InputError
from tf_placer.search import methods
from tf_placer.search.settings import configured

TABLES = pathlib.Path(__file__).parent.parent / "tables"
OOM = "OOM"
# Stands among the methods of a description: everything on the best device that is no CPU.
ONE_ACCELERATOR = "one_accelerator"
_QUICK_SHARE = 10  # of the budget


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a paper's table.

    Attributes:
      workload: what is placed.
      cluster: preset of the paper's machine.
      quick: the workload that stands for it in a quick table; "" leaves the row out there.
      published: column of the paper -> seconds, infinite where it ran out of memory.
      settings: method -> setting -> value, beside those of the table.
    """

    workload: str
    cluster: str
    quick: str = ""
    published: Mapping[str, float] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """In the table and in its notes."""
        return f"{self.workload} on {self.cluster}"


@dataclasses.dataclass(frozen=True)
class Description:
    """A table to compute.

    Attributes:
      name: of the file, without its ending.
      title: what the table is.
      source: where the published numbers are from.
      methods: columns, in order.
      variants: column -> method, of a column that is a method with ``settings`` of its own.
      evaluations: most placements that a method tries for one plan.
      cap_s: seconds after which it ends all the same.
      seeds: of the searches; what does not depend on it is searched with the first alone.
      rows: lines, in order.
      once: columns that are searched with the first seed alone, because it changes nothing, or they take too long.
      published_as: our column, or ``ONE_ACCELERATOR`` -> column of the paper that it is compared with.
      settings: method -> setting -> value.
      notes: name of a row -> why its order is not the paper's.

    Raises:
      InputError: no row, method or seed, or a name that is unknown or stands there twice.
    """

    name: str
    title: str
    source: str
    methods: tuple[str, ...]
    evaluations: int
    cap_s: float
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    once: tuple[str, ...] = ()
    variants: Mapping[str, str] = dataclasses.field(default_factory=dict)
    published_as: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        arguments.whole_number("evaluations", self.evaluations, least=1)
        arguments.number("cap_s", self.cap_s, above=0)
        for seed in self.seeds:
            arguments.whole_number("seeds", seed, least=0)
        rows = [row.name for row in self.rows]
        for what, names in (("row", rows), ("method", self.methods), ("seed", self.seeds)):
            if not names:
                raise InputError(f"it has no {what}; give at least one")
            if len(set(names)) < len(names):
                raise InputError(f"it has the same {what} twice; give each once")
        for what, known, given in (
            ("row", rows, self.notes),
            ("method", self.methods, self.once),
            ("method", self.methods, self.settings),
            *(("method", self.methods, row.settings) for row in self.rows),
            ("method", self.methods, self.variants),
            ("method", (*self.methods, ONE_ACCELERATOR), self.published_as),
            ("column of the paper", self.columns, self.published_as.values()),
        ):
            for name in given:
                if name not in known:
                    raise InputError(f"it has no {what} {name!r}; {arguments.nearest(name, known)}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the paper, in the order in which its rows name them."""
        return tuple(dict.fromkeys(column for row in self.rows for column in row.published))

    def seeds_of(self, method: str) -> tuple[int, ...]:
        """The seeds that a method is run with."""
        return self.seeds[:1] if method in self.once else self.seeds

    def method_of(self, column: str) -> str:
        """The method that a column is of."""
        return self.variants.get(column, column)

    def settings_of(self, row: Row, column: str) -> dict[str, Any]:
        """What a column's method is set to in a row; the others are as shipped."""
        return {**self.settings.get(column, {}), **row.settings.get(column, {})}

    def check_names(self) -> None:
        """Raises InputError where a workload, also one of ``quick``, a cluster, a method or a setting is unknown."""
        for row in self.rows:
            for column in self.methods:
                configured(methods.find(self.method_of(column)), self.settings_of(row, column))
            workloads.check_name(row.workload)
            if row.quick:
                workloads.check_name(row.quick)
            preset_path(row.cluster)

    def quick(self) -> Description:
        """A tenth of the budget, the first seed, and for each row what stands for it; rows without that are left out.

        Raises:
          InputError: no row is left.
        """
        rows = tuple(dataclasses.replace(row, workload=row.quick) for row in self.rows if row.quick)
        return dataclasses.replace(
            self,
            title=f"{self.title}, quick: small workloads, for which the paper has no numbers",
            evaluations=max(1, self.evaluations // _QUICK_SHARE),
            cap_s=self.cap_s / _QUICK_SHARE,
            seeds=self.seeds[:1],
            rows=tuple(dataclasses.replace(row, published={}) for row in rows),
            published_as={},
            notes={},
        )


def read_description(path: pathlib.Path) -> Description:
    """Reads a table's file, all of whose names are known.

    Raises:
      InputError: as ``parse_description``, or a name is unknown; the message begins with the file.
    """
    description = parse_description(path)
    try:
        description.check_names()
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return description


def parse_description(path: pathlib.Path) -> Description:
    """Reads a table's file; whether there are such workloads, clusters and methods is not looked at.

    Raises:
      InputError: it is missing, no TOML, or no description; the message begins with the file.
    """
    return read_toml(path, lambda table: _description(path.stem, table))


def _description(name: str, table: Mapping[str, Any]) -> Description:
    check_keys("the table", table, Description, {"row"} | keys_of(Description) - {"name", "rows"})
    rows = table.get("row", [])
    if not isinstance(rows, list):
        raise InputError("row is no list of tables; begin each with [[row]]")
    for key in ("title", "source"):
        arguments.text(key, table[key], "give a sentence")
    more: dict[str, Any] = {
        key: tuple(list_of(key, table.get(key, []))) for key in ("methods", "seeds", "once")
    }
    more |= {
        key: table_of(key, table.get(key, {})) for key in ("published_as", "settings", "notes", "variants")
    }
    return Description(
        name=name,
        title=table["title"],
        source=table["source"],
        evaluations=table["evaluations"],
        cap_s=table["cap_s"],
        rows=tuple(map(_row, rows)),
        **more,
    )


def _row(table: object) -> Row:
    row = table_of("row", table)
    check_keys("a row", row, Row, keys_of(Row))
    published = {
        column: _seconds(column, value)
        for column, value in table_of("published", row.get("published", {})).items()
    }
    settings = {
        name: table_of(f"settings.{name}", of)
        for name, of in table_of("settings", row.get("settings", {})).items()
    }
    for key in keys_of(Row) & row.keys() - {"published", "settings"}:
        arguments.text(key, row[key], "give a name")
    return Row(**{**row, "published": published, "settings": settings})


def _seconds(column: str, value: object) -> float:
    return math.inf if value == OOM else arguments.number(f"published {column!r}", value, above=0)
