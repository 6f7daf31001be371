"""What the page of a report shows, as data: whoever has a plan to tell of fills it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tf_placer.report_page.step_view import StepView

Row = Mapping[str, Any]
"""A row of a table or a chart, as JSON has it."""


@dataclasses.dataclass(frozen=True)
class HowTo:
    """One way to use the plan: a sentence, and what to type; "" for nothing."""

    text: str
    code: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Section:
    """One program on one cluster.

    Attributes:
      name: what a list of several calls it.
      title: the program and the cluster.
      headline: the verdict in one sentence.
      notes: paragraphs below it.
      figures: (word, value) of the numbers to remember.
      step_times: the candidates, in the order of the table: ``name``; ``simulated_s``, ``measured_s`` and its
        quartiles ``spread_s``, ``evaluations`` and ``peak_bytes`` (null where they are not known); ``is_single`` of the
        best single device; ``is_written`` of the plan that the page is about; ``note``, what else there is to say, and
        ``about``, what the name stands for ("" for nothing).
      bounds: what none of them can beat in the simulator: ``name``, ``bound_s``, ``is_tightest`` and ``about``.
      plan: the step as the plan has it; None where there is no plan.
      curves: of the searches: ``name``; ``elapsed_s`` and ``best_s``, the seconds at which something better was found
        and its step time, the last of them the end of the search; ``is_written`` where the plan comes from it.
      apply: how to use the plan.
    """

    name: str
    title: str
    headline: str
    notes: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    step_times: tuple[Row, ...]
    bounds: tuple[Row, ...]
    plan: StepView | None
    curves: tuple[Row, ...]
    apply: tuple[HowTo, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Page:
    """A page; several programs are shown one at a time."""

    title: str
    sections: tuple[Section, ...]
