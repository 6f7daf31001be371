"""Whatever is wrong with an argument of a public call ends in one line that names it and says what to give.

``wrong_arguments/`` has values for every argument of every public call: who adds an argument adds some. Nothing takes
an object of no use, and None only what says so: these two are tried everywhere, unless anything may be given.
"""

from __future__ import annotations

import inspect
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

import tf_placer
from tests.conformance.public_calls import public_calls
from tests.conformance.wrong_arguments.of_clusters import of_clusters
from tests.conformance.wrong_arguments.of_evaluators import of_evaluators
from tests.conformance.wrong_arguments.of_functions import of_functions, of_saved_models
from tests.conformance.wrong_arguments.of_items import of_items
from tests.conformance.wrong_arguments.of_placements import of_decisions, of_placements
from tests.conformance.wrong_arguments.of_problems import of_problems
from tests.conformance.wrong_arguments.of_searches import of_searches
from tests.conformance.wrong_arguments.row import Row, Told
from tests.conformance.wrong_arguments.scene import Scene

CALLS = public_calls()
ROWS = (
    of_clusters,
    of_items,
    of_problems,
    of_decisions,
    of_placements,
    of_evaluators,
    of_searches,
    of_functions,
    of_saved_models,
)
_REMEDY = re.compile(r"; \w|expected|give |is needed|did you mean|must |can run on")


class Nothing:
    """Of no use to anybody."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    scene = Scene(tmp_path_factory.mktemp("wrong"))
    found: dict[str, Row] = {}
    for rows in ROWS:
        found |= rows(scene)
    return found


def test_every_public_argument_has_a_row(table: dict[str, Row]) -> None:
    listed = {(call, argument) for call, row in table.items() for argument in row.wrong}
    there = {(call, argument) for call, found in CALLS.items() for argument in found}
    assert sorted(there - listed) == [], "add wrong values for it to wrong_arguments/"
    assert sorted(listed - there) == [], "no such argument; take it out of wrong_arguments/"


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_good_call_works(table: dict[str, Row], name: str) -> None:
    if table[name].runs:
        _call(table[name], {})


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_wrong_argument_is_one_line(table: dict[str, Row], name: str) -> None:
    row, complaints = table[name], []
    for argument, annotation in CALLS[name].items():
        for given in _wrong_values(row, argument, annotation):
            value, word = (given.value, given.by) if isinstance(given, Told) else (given, argument)
            complaint = _complaint(row, argument, value, word)
            complaints += [f"{name}({argument}={str(value)[:60]}): {complaint}"] if complaint else []
    assert complaints == [], "\n".join(complaints)


def _wrong_values(row: Row, argument: str, annotation: str) -> Iterator[Any]:
    yield from row.wrong[argument]
    if argument == "example_args":
        return
    if annotation != "Any":
        yield Nothing()
        if "None" not in annotation:
            yield None


def _complaint(row: Row, argument: str, value: Any, word: str) -> str:
    """What is wrong with how a wrong value is refused, or ""."""
    try:
        _call(row, {argument: value})
    except tf_placer.InputError as error:
        text = str(error)
        if "\n" in text or "{{" in text or " at 0x" in text:
            return f"not for users: {text!r}"
        if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
            return f"does not say {word!r}: {text}"
        return "" if _REMEDY.search(text) else f"has no remedy: {text}"
    except Exception as error:  # noqa: BLE001 - that it is another exception is what is told
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return "taken"


def _call(row: Row, changed: dict[str, Any]) -> Any:
    given = row.good() | changed
    positional = given.pop("example_args", None)
    if positional is None:
        return row.call(**given)
    # What comes before ``*example_args`` can only be given by position with them.
    names = [
        name
        for name, one in inspect.signature(row.call).parameters.items()
        if one.kind == one.POSITIONAL_OR_KEYWORD
    ]
    return row.call(*(given.pop(name) for name in names), *positional, **given)


def test_nothing_was_started(table: dict[str, Row]) -> None:
    evaluator = table["RuntimeEvaluator.evaluate"].call.__self__  # type: ignore[attr-defined]
    assert evaluator.worker_pids == ()


def test_what_the_walk_reaches(tmp_path: pathlib.Path) -> None:
    assert {"search", "Problem.from_arrays", "Cluster", "auto_place", "Placement.load"} <= CALLS.keys()
    assert {"fn", "cluster", "budget_s"} <= CALLS["auto_place"].keys()
    assert "self" not in CALLS["SimulatedEvaluator.evaluate"] and "cls" not in CALLS["Cluster.preset"]
