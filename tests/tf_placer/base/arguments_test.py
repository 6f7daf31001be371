"""Arguments are taken as they are meant, or refused in one line that names them and the remedy."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_whole_numbers_of_python_and_numpy(value: Any) -> None:
    taken = arguments.whole_number("seed", value, 0, 9)
    assert taken == 3
    assert type(taken) is int


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int64(2)])
def test_numbers_of_python_and_numpy(value: Any) -> None:
    taken = arguments.number("budget_s", value, above=0)
    assert taken == 2.0
    assert type(taken) is float


def test_texts_and_paths_of_numpy_and_the_operating_system() -> None:
    assert arguments.text("name", np.str_("a")) == "a"
    assert arguments.one_of("kind", np.str_("a"), ("a", "b")) == "a"
    assert arguments.path("out", pathlib.Path("a")) == pathlib.Path("a")
    assert arguments.path("out", "a/b") == pathlib.Path("a/b")
    assert arguments.truth("again", np.True_) is True


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: arguments.whole_number("n", 1.5, 0, 9), "n is 1.5; give a whole number from 0 to 9"),
        (lambda: arguments.whole_number("n", True, 0), "n is True; give a whole number of at least 0"),
        (lambda: arguments.whole_number("n", "3"), "n is '3'; give a whole number"),
        (lambda: arguments.whole_number("n", np.array([3])), "n is array([3]); give a whole number"),
        (lambda: arguments.whole_number("n", 10, most=9), "n is 10; give a whole number of at most 9"),
        (lambda: arguments.whole_number("n", 10**9000, 0, 9), "n is a huge number; give a whole"),
        (lambda: arguments.number("s", "5", above=0), "s is '5'; give a number above 0"),
        (lambda: arguments.number("s", float("nan"), above=0), "s is nan; give a number above 0"),
        (lambda: arguments.number("s", 0, above=0), "s is 0; give a number above 0"),
        (lambda: arguments.number("s", False, above=-1), "s is False; give a number above -1"),
        (lambda: arguments.number("s", float("inf"), finite=True), "s is inf; give a finite number"),
        (lambda: arguments.number("s", 10**400, finite=True), "give a finite number"),
        (lambda: arguments.number("s", 2, above=0, most=1), "give a number above 0 and of at most 1"),
        (lambda: arguments.truth("again", 1), "again is 1; give True or False"),
        (lambda: arguments.text("name", ""), "name is ''; give a text"),
        (lambda: arguments.text("name", b"a"), "name is b'a'; give a text"),
        (lambda: arguments.one_of("kind", ["a"], ("a", "b")), "kind is ['a']; give one of a, b"),
        (lambda: arguments.path("out", ""), "out is ''; give a path"),
        (lambda: arguments.path("out", b"a"), "out is b'a'; give a path"),
        (lambda: arguments.path("out", "a\0b"), "give a path"),
        (lambda: arguments.instance_of("fn", 3, str, "give a str"), "fn is 3, not a str; give a str"),
        (lambda: arguments.items_of("names", "ab", str, "give a list"), "names is 'ab'; give a list"),
        (
            lambda: arguments.items_of("names", ["a", 1], str, "give texts"),
            "names[1] is 1, not a str; give texts",
        ),
        (lambda: arguments.texts_by_text("pins", ["a"], "give a dict"), "pins is ['a']; give a dict"),
        (lambda: arguments.texts_by_text("pins", {"a": 1}, "give texts"), "pins has 'a': 1; give texts"),
        (
            lambda: arguments.has_parts("e", 3, ("evaluate",), "give one"),
            "e is 3, which has no evaluate; give one",
        ),
        (lambda: arguments.has_parts("e", str, ("upper",), "give one"), "which has no upper; give one"),
        (lambda: arguments.function("fn", 3, "give a function"), "fn is 3; give a function"),
        (lambda: arguments.text("name", ["a\nb" * 99]), "give a text"),
    ],
)
def test_what_is_refused(check: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as error:
        check()
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


def test_the_nearest_names() -> None:
    assert arguments.nearest("hpd", ["hdp", "random"]) == "did you mean 'hdp'?"
    assert arguments.nearest("zzz", ["b", "a"]) == "known: a, b"
    assert arguments.nearest("zzz", []) == "there is none"


def test_the_nearest_of_many_names() -> None:
    ops = [f"model/block_{i}/conv/Conv2D" for i in range(50)] + ["model/head/logits/MatMul"]
    # Part of a name, in either case; the last part of a path with a letter wrong; nothing like it.
    assert arguments.nearest("LOGITS", ops) == "did you mean 'model/head/logits/MatMul'?"
    assert arguments.nearest("MatMull", ops) == "did you mean 'model/head/logits/MatMul'?"
    assert arguments.nearest("Conv2d", ops).startswith("did you mean 'model/block_0/conv/Conv2D'")
    found = arguments.nearest("zzz", ops)
    assert found.startswith("there are 51, the nearest are 'model/") and found.count("'model/") == 3
