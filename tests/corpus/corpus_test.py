"""Programs of every kind that TensorFlow users write run decorated as they run undecorated, or as they are."""

import functools
import pathlib
import re
import warnings
from collections.abc import Callable

import pytest
import tensorflow as tf

import tf_placer
from tests.corpus.program import Make, Program, programs
from tests.corpus.results_page import PAGE, TABLE, as_csv, as_it_is
from tests.corpus.running import Outcome, outcome_of
from tests.logical_devices import REPOSITORY

CORPUS = programs()
EVERY = 12  # so many programs, one is in the quick suite
in_own_process = pytest.mark.own_process(exact="soft", timeout_s=1800)


def cases() -> list[object]:
    """All programs, in their order; those that are only in the slow suite are marked."""
    marks = [() if i % EVERY == 0 else pytest.mark.slow for i in range(len(CORPUS))]
    return [
        pytest.param(one, id=one.name, marks=mark) for one, mark in zip(CORPUS.values(), marks, strict=True)
    ]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Program], Outcome]:
    """What came of a program, undecorated and placed; each runs once."""
    return functools.cache(
        lambda program: outcome_of(program, tmp_path_factory.mktemp(f"{program.topic}.{program.name}"))
    )


def test_it_is_large_enough():
    assert len(CORPUS) >= 252


@in_own_process
@pytest.mark.medium
@pytest.mark.parametrize("program", cases())
def test_it_runs_as_undecorated(outcome, program):
    found = outcome(program)
    assert not found.difference
    if program.why:
        assert any(re.search(program.why, text) for text in found.warnings), found.warnings
    else:
        assert not found.warnings
        assert found.devices


@in_own_process
@pytest.mark.slow
def test_most_are_placed_on_several_devices(outcome):
    placed = {name: outcome(program) for name, program in CORPUS.items() if not program.why}
    on_one = [name for name, found in placed.items() if max(found.devices) < 2]
    assert len(on_one) <= 0.1 * len(placed), on_one


def test_the_results_page_says_which():
    page = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    table = (REPOSITORY / TABLE).read_text(encoding="utf-8")
    assert as_it_is(CORPUS.values()) in page, "run python -m tests.corpus.results_page"
    assert as_csv(CORPUS.values()) == table, "run python -m tests.corpus.results_page"


def outcome_under(decorate: Callable, folder: pathlib.Path) -> Outcome:
    """Of a sum, which is not in the corpus."""

    def a_sum(make: Make) -> tf.Tensor:
        return make.traced(lambda x: tf.reduce_sum(x))(tf.constant([1.0, 2.0]))

    return outcome_of(Program("test", "a_sum", "", a_sum), folder, lambda function, *_: decorate(function))


def test_a_bit_that_differs_is_seen(tmp_path):
    assert not outcome_under(lambda function: function, tmp_path / "same").difference
    wrong = outcome_under(lambda function: lambda x: tf.math.nextafter(function(x), 9.0), tmp_path / "wrong")
    assert wrong.difference


def test_a_warning_is_seen(tmp_path):
    def warning(function: Callable) -> Callable:
        warnings.warn("too hard", tf_placer.RunsAsItIs, stacklevel=1)
        return function

    assert outcome_under(warning, tmp_path).warnings == {"too hard"}
