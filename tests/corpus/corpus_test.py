"""Programs of every kind that TensorFlow users write run decorated as they run undecorated, or as they are."""

from __future__ import annotations

import pathlib
import re
import warnings
from collections.abc import Callable

import pytest
import tensorflow as tf

import tf_placer
from tests.corpus.corpus_process import outcome_of, programs
from tests.corpus.program import PLACED, Make, Program
from tests.corpus.results_page import PAGE, table
from tests.logical_devices import REPOSITORY, outcomes_of

CORPUS = programs()

EVERY = 16  # so many programs, one is in the quick suite


def cases() -> list[object]:
    """All programs, in their order; those that are only in the slow suite are marked."""
    marks = [() if i % EVERY == 0 else pytest.mark.slow for i in range(len(CORPUS))]
    return [
        pytest.param(one, id=one.name, marks=mark) for one, mark in zip(CORPUS.values(), marks, strict=True)
    ]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What came of each program that is asked for, undecorated and placed, in a process with logical devices."""
    folder = tmp_path_factory.mktemp("corpus") / "runs"
    here = [item for item in request.session.items if item.path == request.path]
    asked = [item.callspec.params["program"] for item in here if hasattr(item, "callspec")]
    names = [f"{one.topic}.{one.name}" for one in asked if isinstance(one, Program)]
    is_all = any(item.name == test_most_are_placed_on_several_devices.__name__ for item in here)
    return outcomes_of("tests.corpus.corpus_process", str(folder), *([] if is_all else names), timeout_s=1800)


def test_it_is_large_enough() -> None:
    assert len(CORPUS) >= 150


@pytest.mark.medium
@pytest.mark.parametrize("program", cases())
def test_it_runs_as_undecorated(outcomes: dict[str, dict], program: Program) -> None:
    outcome = outcomes[f"{program.topic}.{program.name}"]
    assert "error" not in outcome, outcome
    assert outcome["same"], outcome["difference"]
    if program.outcome == PLACED:
        assert outcome["told"] == []
        assert outcome["placements"] > 0
    else:
        assert any(re.search(program.why, text) for text in outcome["told"]), outcome["told"]


@pytest.mark.slow
def test_most_are_placed_on_several_devices(outcomes: dict[str, dict]) -> None:
    split = [
        name
        for name, program in CORPUS.items()
        if program.outcome == PLACED and outcomes[name]["devices"] > 1
    ]
    placed = [name for name, program in CORPUS.items() if program.outcome == PLACED]
    assert len(split) >= 0.9 * len(placed), sorted(set(placed) - set(split))


def test_the_results_page_says_which() -> None:
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    assert table(CORPUS.values()) in text, "run python -m tests.corpus.results_page"


def a_sum(make: Make) -> tf.Tensor:
    """For the tests below, not in the corpus."""
    return make(tf.function(lambda x: tf.reduce_sum(x)))(tf.constant([1.0, 2.0]))


def outcome_under(decorate: Callable, folder: pathlib.Path) -> dict:
    return outcome_of(
        Program("test", "a_sum", "", a_sum, PLACED, ""), folder, lambda function, *_: decorate(function)
    )


def test_a_bit_that_differs_is_seen(tmp_path: pathlib.Path) -> None:
    assert outcome_under(lambda function: function, tmp_path / "same")["same"]
    wrong = outcome_under(lambda function: lambda x: tf.math.nextafter(function(x), 9.0), tmp_path / "wrong")
    assert not wrong["same"] and wrong["difference"]


def test_a_warning_is_seen(tmp_path: pathlib.Path) -> None:
    def warning(function: Callable) -> Callable:
        warnings.warn("too hard", tf_placer.RunsAsItIs, stacklevel=1)
        return function

    assert outcome_under(warning, tmp_path)["told"] == ["too hard"]
