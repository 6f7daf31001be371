"""What `place` and `compare` leave in ``--out``: all of it or nothing."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from tf_placer.command_line.reporting import comparison
from tf_placer.command_line.reporting.page_of_report import page_of_report
from tf_placer.command_line.reporting.report import Report
from tf_placer.command_line.reporting.summary import summary
from tf_placer.errors import InputError
from tf_placer.files import replacing
from tf_placer.folders import reserved
from tf_placer.presentation.chrome_trace import chrome_trace
from tf_placer.report_page.html import page_html
from tf_placer.rewrite.rewrite import apply_placement

# What a run writes, in the order in which it appears.
SAVED_MODEL, META_GRAPH, PAGE = "saved_model", "placed_meta_graph.pb", "report.html"
META_GRAPH_TEXT = "placed_meta_graph.pbtxt"  # where the program is a text
RESULTS = (
    SAVED_MODEL,
    META_GRAPH,
    META_GRAPH_TEXT,
    "placement.json",
    "placed_graph.pb",
    comparison.TABLE,
    comparison.PICTURE,
    "timeline.json",
    PAGE,
    "summary.json",
)


def write_report(
    report: Report,
    out: pathlib.Path,
    made_for: Mapping[str, Any] | None = None,
    also: Callable[[pathlib.Path], None] | None = None,
) -> tuple[pathlib.Path, ...]:
    """Writes placement.json, placed_graph.pb, timeline.json, report.html and summary.json into ``out``.

    They appear together, in place of those of an earlier run, or nothing changes. Who is killed in the instant
    between leaves no summary.json: where it lies, the rest is complete and of the same run.

    Args:
      report: what was found.
      out: the folder.
      made_for: the flags that the plan remembers.
      also: writes more of ``RESULTS`` into the folder that it is given.

    Returns:
      The paths of all that is there.

    Raises:
      InputError: what ``also`` raises.
    """
    placed = None if report.item is None else apply_placement(report.item, report.placement)
    with replacing(out, RESULTS) as unfinished:
        if also is not None:
            also(unfinished)
        report.placement.save(unfinished / "placement.json", made_for, by_layer=report.by_layer is not None)
        if placed is not None:
            (unfinished / "placed_graph.pb").write_bytes(placed.SerializeToString(deterministic=True))
        ran = report.placement is report.result.placement  # what was traced is what is written
        timeline = chrome_trace(report.placement, report.chosen.traced if ran else None)
        (unfinished / "timeline.json").write_text(timeline, encoding="utf8")
        files = [name for name in RESULTS if (unfinished / name).exists()]
        page = page_html(page_of_report(report, out, files, made_for or {}))
        (unfinished / PAGE).write_text(page, encoding="utf8")
        text = json.dumps(summary(report), indent=1, allow_nan=False) + "\n"
        (unfinished / "summary.json").write_text(text, encoding="utf8")
    return tuple(out / name for name in RESULTS if (out / name).exists())


def write_comparison(report: Report, folder: pathlib.Path) -> None:
    """Writes what ``compare`` has beyond ``write_report``: it is ``also`` there."""
    comparison.write_comparison(report.candidates, report.tightest.lower_bound_s, folder)


def reserved_out(
    out: pathlib.Path, saved_model: str | None = None
) -> contextlib.AbstractContextManager[None]:
    """Where results of this run, and of no other at the same time, can be written to ``out``: see ``reserved``.

    Args:
      out: where they go.
      saved_model: folder of the SavedModel that they are made of, which they must not replace.

    Raises:
      InputError: they would replace it.
    """
    if saved_model:
        model, results = pathlib.Path(saved_model).resolve(), out.resolve()
        if results.is_relative_to(model) or model.is_relative_to(results / "saved_model"):
            raise InputError(
                f"--out={out} would be written into --saved_model={saved_model}; give another folder"
            )
    return reserved(out, f"--out={out}")
