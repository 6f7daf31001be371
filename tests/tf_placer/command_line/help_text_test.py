"""Help begins with an example, then says what is needed, and has every flag once, in a group."""

import shlex

import pytest

from tf_placer.__main__ import COMMANDS
from tf_placer.command_line.check_flags import help_text, parse
from tf_placer.planning.request import GROUPS, options_of


def help_of(name: str) -> list[str]:
    return help_text(name).splitlines()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_comes_first_and_is_one(name: str) -> None:
    lines = help_of(name)
    assert lines[:4] == [f"tf-placer {name}: {COMMANDS[name].help}", "", "example:", lines[3]]
    words = shlex.split(lines[3])
    assert words[:2] == ["tf-placer", name]
    parse(name, words[1:])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_told_once_in_a_group(name: str) -> None:
    lines = help_of(name)
    for option in options_of(name):
        flag = option.name
        told = [
            line for line in lines if line.startswith((f"  --{flag}= ", f"  --{flag}  ", f"  --{flag}=\n"))
        ]
        told += [line for line in lines if line in (f"  --{flag}=", f"  FILE.py:NAME, --{flag}=")]
        needed = flag in COMMANDS[name].required and not option.metadata["default_of"][name]
        assert len(told) == 1, (flag, told)
        assert (f"  --{flag}" in lines) == needed
    headings = [line for line in lines if line.removesuffix(":") in GROUPS.values()]
    assert len(set(headings)) == len(headings)
    assert max(map(len, lines)) <= 110


def test_what_is_needed_is_told() -> None:
    lines = help_of("place")
    start = lines.index("needed:")
    assert lines[start + 1 : start + 4] == [
        "  one of --workload, FILE.py:NAME, --saved_model, --meta_graph or --graph",
        "  --cluster",
        "  --out",
    ]
    assert "needed:" not in help_of("clusters")


def test_defaults_and_choices_are_told() -> None:
    text = " ".join(" ".join(help_of("place")).split())
    assert "One of op, layer. Without: op." in text
    assert "Fixes everything random. Without: 0." in text
    assert "Without: False" not in text
