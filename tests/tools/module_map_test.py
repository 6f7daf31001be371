"""Figures of a small tree of modules, counted by hand, and what holds them down."""

import json
import pathlib

import pytest

from tools.module_map import LIMITS, figures, limits, lowered, report, violations


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    files = {
        "tf_placer/__init__.py": '"""Public face."""\nfrom tf_placer.a import b\n',
        "tf_placer/a/__init__.py": "",
        "tf_placer/a/b.py": '"""B."""\nimport os\nfrom tf_placer.a import c\nfrom .c import d\n\n# Why.\nfound = d()\n',
        "tf_placer/a/c.py": (
            'class C:\n    """Whatever."""\n    length = setting(1)\n\n'
            'def d():\n    """What it is."""\n    total = 2\n    return total\n\n# Another topic.\ne = 3\n'
        ),
        "tf_placer/planning/outcome.py": "class Outcome:\n    form: int\n    why: str\n",
        "tf_placer/search/search.py": "def search(problem, method='auto', *, seed=0):\n    return 1\n",
        "experiments/run.py": "print(1)\n",
        "tests/tf_placer/a/b_test.py": "import tf_placer\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_figures_are_as_counted_by_hand(tree: pathlib.Path) -> None:
    counted = figures(tree)
    # Lines 2, 0, 7, 11, 3 and 2; four modules are no faces; b imports c, twice, which is one edge.
    assert counted["package lines"] == 25
    assert counted["modules"] == 4
    assert counted["lines of the largest module"] == 11
    assert counted["import edges per 1,000 lines"] == 40
    assert counted["largest fan-out"] == 1
    # Of b one line, of c `class`, `length`, `def`, `total`, `return`, `e`; three and two of the others.
    assert counted["code lines"] == 1 + 6 + 3 + 2
    assert counted["functions"] == 2 and counted["functions per 1,000 lines"] == 80
    # c has a comment in column 0 behind its first definition; b has none.
    assert counted["files with topic headings"] == 1
    # found of found, length, total, e, form and why.
    assert counted["nameless locals, %"] == pytest.approx(100 / 6, abs=0.01)
    assert counted["pronouns in first lines, %"] == 50  # "What it is." of two
    assert counted["files on the place journey"] == 2 and counted["lines on the place journey"] == 5
    assert counted["fields of Outcome"] == 2
    assert counted["parameters of search"] == 3
    assert counted["settings of methods"] == 1
    assert counted["experiments lines"] == 1 and counted["tests lines"] == 1
    assert (
        report(tree).splitlines()[0] == "7 modules with experiments and tools, 2 lines in the median module"
    )


def test_a_figure_over_its_limit_is_told_and_one_far_below_has_to_be_lowered() -> None:
    limit_of = {"lines": 1000, "edges": 20, "gone": 1}
    now = {"lines": 1001, "edges": 19.9, "new": 3}
    assert sorted(violations(now, limit_of)) == [
        f"gone: no such figure; take it out of {LIMITS}",
        "lines: 1,001 is over the limit of 1,000, which is never raised",
        f"new: 3 has no limit in {LIMITS}",
    ]
    assert violations({"lines": 980}, {"lines": 1000}) == [
        "lines: 980 is well below 1,000: python -m tools.module_map --lower"
    ]


def test_limits_are_lowered_and_never_raised() -> None:
    assert lowered({"lines": 7, "edges": 9, "new": 3}, {"lines": 8, "edges": 5}) == {
        "lines": 7,
        "edges": 5,
        "new": 3,
    }


def test_limits_are_read_from_their_file(tree: pathlib.Path) -> None:
    (tree / LIMITS).parent.mkdir()
    (tree / LIMITS).write_text(json.dumps({"package lines": 26}))
    assert limits(tree) == {"package lines": 26}
    assert f"{'package lines':32} {25:>12} {26:>12}" in report(tree).splitlines()
