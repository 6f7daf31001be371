"""Settings of methods: an instance, a dict, or the row's default."""

from __future__ import annotations

import dataclasses

import pytest

from tf_placer.base.arguments import InputError
from tf_placer.base.method_spec import Kind, MethodSpec
from tf_placer.search.round import configured, recorded


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of a test."""

    count: int = 3
    rate: float = 0.5
    keep: bool = True
    word: str = "a"
    sizes: tuple[int, ...] = (1, 2)


SPEC = MethodSpec("a_test", Kind.CONSTRUCTIVE, "Does nothing.", lambda *given: given, Config)


def test_an_instance_is_taken_as_it_is_and_a_dict_changes_the_default() -> None:
    assert configured(SPEC) == Config()
    given = Config(count=4)
    assert configured(SPEC, given) is given
    assert configured(SPEC, {"rate": 1, "keep": False}) == Config(rate=1.0, keep=False)
    variant = dataclasses.replace(SPEC, default=Config(count=9, word="b"))
    assert configured(variant) == Config(count=9, word="b")
    assert configured(variant, {"word": "c"}) == Config(count=9, word="c")


def test_what_is_recorded_is_json() -> None:
    assert recorded(Config()) == {"count": 3, "rate": 0.5, "keep": True, "word": "a", "sizes": (1, 2)}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (3, "config is 3; give a Config, the settings of method 'a_test', or a dict"),
        (Config, "give a Config"),
        ({"cuont": 3}, "has no setting 'cuont'; did you mean 'count'"),
        ({3: 3}, "has no setting 3"),
        ({"count": 1.5}, "method 'a_test': count is 1.5; give a whole number"),
        ({"count": "3"}, "count is '3'"),
        ({"rate": "fast"}, "rate is 'fast'"),
        ({"keep": 1}, "keep is 1"),
        ({"word": 1}, "word is 1"),
    ],
)
def test_what_is_wrong_is_one_line(config: object, message: str) -> None:
    with pytest.raises(InputError) as error:
        configured(SPEC, config)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", 3, "name is 3"),
        ("kind", "constructive", "kind is 'constructive', not a Kind; give a Kind"),
        ("summary", "two\nlines", "give one line"),
        ("summary", "", "say in one line"),
        ("build", "hdp", "build is 'hdp'"),
        ("config", dict, "give a frozen dataclass of settings"),
        ("config", Config(), "give a frozen dataclass of settings"),
        ("default", {"count": 3}, "give a Config, or None"),
        ("ignores", "memory", "ignores"),
        ("roles", frozenset({"plain"}), "roles is 'plain'"),
    ],
)
def test_a_row_is_checked_when_it_is_made(field: str, value: object, message: str) -> None:
    with pytest.raises(InputError) as error:
        dataclasses.replace(SPEC, **{field: value})
    assert message in str(error.value)


def test_a_setting_without_a_default_is_refused() -> None:
    lacking = dataclasses.make_dataclass("Lacking", [("count", int)], frozen=True)
    with pytest.raises(InputError, match="setting 'count' of method 'a_test' has no default"):
        dataclasses.replace(SPEC, config=lacking)
