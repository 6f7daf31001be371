"""What the page of a report shows, as data: whoever has a plan to tell of fills it."""

from __future__ import annotations

import dataclasses

from tf_placer.report_page.step_view import StepView


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The step time of one candidate.

    Attributes:
      name: what tables call it.
      simulated_s: in the simulator; None where nothing fits.
      measured_s: on the runtime; None where it was not measured.
      spread_s: lower and upper quartile of what was measured; None where that is not known.
      evaluations: placements tried; None where nothing was.
      peak_bytes: most memory in use on any one device; None where that is not known.
      is_single: the best single device, which the others are held against.
      is_written: the plan that the page is about.
      note: what else there is to say; "" for nothing.
      about: what the name stands for; "" where it says that itself.
    """

    name: str
    simulated_s: float | None
    measured_s: float | None = None
    spread_s: tuple[float, float] | None = None
    evaluations: int | None = None
    peak_bytes: int | None = None
    is_single: bool = False
    is_written: bool = False
    note: str = ""
    about: str = ""


@dataclasses.dataclass(frozen=True)
class Bound:
    """What no placement can beat in the simulator.

    Attributes:
      name: of the bound.
      bound_s: the least step time.
      is_tightest: it is the largest of all.
      about: what it is.
    """

    name: str
    bound_s: float
    is_tightest: bool = False
    about: str = ""


@dataclasses.dataclass(frozen=True)
class Curve:
    """How a search came to its plan.

    Attributes:
      name: of the method.
      elapsed_s, best_s: [P] the seconds at which something better was found, and its step time; the last point is the
        end of the search.
      is_written: the plan that the page is about comes from it.
    """

    name: str
    elapsed_s: tuple[float, ...]
    best_s: tuple[float, ...]
    is_written: bool = False


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
      step_times: the candidates, in the order of the table.
      bounds: what none of them can beat.
      plan: the step as the plan has it; None where there is no plan.
      curves: of the searches.
      apply: how to use the plan.
    """

    name: str
    title: str
    headline: str
    notes: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    step_times: tuple[StepTime, ...]
    bounds: tuple[Bound, ...]
    plan: StepView | None
    curves: tuple[Curve, ...]
    apply: tuple[HowTo, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Page:
    """A page; several programs are shown one at a time."""

    title: str
    sections: tuple[Section, ...]
