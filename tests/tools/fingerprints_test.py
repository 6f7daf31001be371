"""What a check of fingerprints calls a difference, and figures of a small tree of modules."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from tools.fingerprints import BY_THE_CLOCK, compact, differences, digest, digests_of_fields, rows_of_table
from tools.module_map import LIMITS, figures, limits, lowered, report, violations

RECORDED = {"searches": {"hdp on a": {"step_s": 1.0}, "go on a": {"step_s": 2.0}}}


def test_what_was_not_asked_for_does_not_differ():
    now = {"searches": {"hdp on a": {"step_s": 1.0}}}
    assert differences(RECORDED, now, "hdp") == []


def test_another_time_a_lost_name_and_a_new_name_differ():
    now = {"searches": {"hdp on a": {"step_s": 1.5}, "mars on a": {"step_s": 3.0}}}
    lines = differences(RECORDED, now, "")
    assert [line.partition(": was")[0] for line in lines] == [
        "searches: hdp on a: step_s",
        "searches: go on a",
        "searches: mars on a",
    ]


def test_a_part_that_was_never_recorded_differs():
    assert len(differences(RECORDED, {"tables": {"hdp_2018": {"a": "b"}}}, "")) == 1


def test_what_needs_a_program_that_is_missing_is_not_compared():
    recorded = {"searches": {"scotch on a": {"step_s": 1.0}}}
    now = {"searches": {"scotch on a": {"refused": "scotch_gmap is not installed, which maps graphs"}}}
    assert differences(recorded, now, "") == []
    assert len(differences(recorded, {"searches": {"scotch on a": {"refused": "it does not fit"}}}, "")) == 1


def test_rows_that_a_clock_ended_differ_from_nothing():
    head = "workload,cluster,method,mean_s,of_best_known,capped\n"
    early = rows_of_table(head + "w,c,go,1.5,1.0,False\nw,c,hdp,2.0,1.3,True\n")
    assert early == {"w c go": "1.5", "w c hdp": BY_THE_CLOCK}
    late = rows_of_table(head + "w,c,go,1.5,1.1,False\nw,c,hdp,1.4,1.0,False\n")
    assert differences({"tables": {"t": early}}, {"tables": {"t": late}}, "") == []
    assert differences({"tables": {"t": late}}, {"tables": {"t": early}}, "") == []
    for changed in (late | {"w c go": "1.6"}, {"w c go": "1.5"}, late | {"w c new": "1"}):
        assert len(differences({"tables": {"t": late}}, {"tables": {"t": changed}}, "")) == 1


def test_a_line_names_the_value_that_differs():
    recorded = {"pages": {"place hdp": {"title": "a", "sections": [1, 2]}}}
    now = {"pages": {"place hdp": {"title": "a", "sections": [1, 3], "more": None}}}
    assert differences(recorded, now, "") == [
        "pages: place hdp: sections: was [1, 2], is [1, 3]",
        'pages: place hdp: more: was "absent", is null',
    ]


def test_type_shape_and_content_of_an_array_are_in_its_digest():
    array = np.arange(4, dtype=np.int32)
    others = (array.astype(np.int64), array.reshape(2, 2), array[::-1])
    assert len({digest(value) for value in (array, array.copy(), *others)}) == 4
    assert digest(array[::2]) == digest(array[::2].copy())


def test_a_digest_for_each_field_but_the_cluster():
    @dataclasses.dataclass
    class Work:
        flops: np.ndarray

    @dataclasses.dataclass
    class Whole:
        work: Work
        cluster: str = "p100x2"

    flops = np.ones(3)
    assert digests_of_fields(Whole(Work(flops))) == {"work": {"flops": digest(flops)}}


def test_data_of_a_page_is_without_clocks_and_its_long_lists_are_digests():
    curve = {"elapsed_s": [0.1], "best_s": list(range(1000))}
    assert compact({"curves": [curve], "search_s": 1.0, "names": ["a", "b"]}) == {
        "curves": [{"best_s": digest(list(range(1000)))}],
        "names": ["a", "b"],
    }


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


def test_figures_are_as_counted_by_hand(tree):
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


def test_a_figure_over_its_limit_is_told_and_one_far_below_has_to_be_lowered():
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


def test_limits_are_lowered_and_never_raised():
    assert lowered({"lines": 7, "edges": 9, "new": 3}, {"lines": 8, "edges": 5}) == {
        "lines": 7,
        "edges": 5,
        "new": 3,
    }


def test_limits_are_read_from_their_file(tree):
    (tree / LIMITS).parent.mkdir()
    (tree / LIMITS).write_text(json.dumps({"package lines": 26}))
    assert limits(tree) == {"package lines": 26}
    assert f"{'package lines':32} {25:>12} {26:>12}" in report(tree).splitlines()
