"""What a check of fingerprints calls a difference."""

import dataclasses

import numpy as np

from tools.fingerprints import BY_THE_CLOCK, compact, differences, digest, digests_of_fields, rows_of_table

RECORDED = {"searches": {"hdp on a": {"step_s": 1.0}, "go on a": {"step_s": 2.0}}}


def test_what_was_not_asked_for_does_not_differ() -> None:
    now = {"searches": {"hdp on a": {"step_s": 1.0}}}
    assert differences(RECORDED, now, "hdp") == []


def test_another_time_a_lost_name_and_a_new_name_differ() -> None:
    now = {"searches": {"hdp on a": {"step_s": 1.5}, "mars on a": {"step_s": 3.0}}}
    lines = differences(RECORDED, now, "")
    assert [line.partition(": was")[0] for line in lines] == [
        "searches: hdp on a: step_s",
        "searches: go on a",
        "searches: mars on a",
    ]


def test_a_part_that_was_never_recorded_differs() -> None:
    assert len(differences(RECORDED, {"tables": {"hdp_2018": {"a": "b"}}}, "")) == 1


def test_what_needs_a_program_that_is_missing_is_not_compared() -> None:
    recorded = {"searches": {"scotch on a": {"step_s": 1.0}}}
    now = {"searches": {"scotch on a": {"refused": "scotch_gmap is not installed, which maps graphs"}}}
    assert differences(recorded, now, "") == []
    assert len(differences(recorded, {"searches": {"scotch on a": {"refused": "it does not fit"}}}, "")) == 1


def test_rows_that_a_clock_ended_differ_from_nothing() -> None:
    head = "workload,cluster,method,mean_s,of_best_known,capped\n"
    early = rows_of_table(head + "w,c,go,1.5,1.0,False\nw,c,hdp,2.0,1.3,True\n")
    assert early == {"w c go": "1.5", "w c hdp": BY_THE_CLOCK}
    late = rows_of_table(head + "w,c,go,1.5,1.1,False\nw,c,hdp,1.4,1.0,False\n")
    assert differences({"tables": {"t": early}}, {"tables": {"t": late}}, "") == []
    assert differences({"tables": {"t": late}}, {"tables": {"t": early}}, "") == []
    for changed in (late | {"w c go": "1.6"}, {"w c go": "1.5"}, late | {"w c new": "1"}):
        assert len(differences({"tables": {"t": late}}, {"tables": {"t": changed}}, "")) == 1


def test_a_line_names_the_value_that_differs() -> None:
    recorded = {"pages": {"place hdp": {"title": "a", "sections": [1, 2]}}}
    now = {"pages": {"place hdp": {"title": "a", "sections": [1, 3], "more": None}}}
    assert differences(recorded, now, "") == [
        "pages: place hdp: sections: was [1, 2], is [1, 3]",
        'pages: place hdp: more: was "absent", is null',
    ]


def test_type_shape_and_content_of_an_array_are_in_its_digest() -> None:
    array = np.arange(4, dtype=np.int32)
    others = (array.astype(np.int64), array.reshape(2, 2), array[::-1])
    assert len({digest(value) for value in (array, array.copy(), *others)}) == 4
    assert digest(array[::2]) == digest(array[::2].copy())


def test_a_digest_for_each_field_but_the_cluster() -> None:
    @dataclasses.dataclass
    class Work:
        flops: np.ndarray

    @dataclasses.dataclass
    class Whole:
        work: Work
        cluster: str = "p100x2"

    flops = np.ones(3)
    assert digests_of_fields(Whole(Work(flops))) == {"work": {"flops": digest(flops)}}


def test_data_of_a_page_is_without_clocks_and_its_long_lists_are_digests() -> None:
    curve = {"elapsed_s": [0.1], "best_s": list(range(1000))}
    assert compact({"curves": [curve], "search_s": 1.0, "names": ["a", "b"]}) == {
        "curves": [{"best_s": digest(list(range(1000)))}],
        "names": ["a", "b"],
    }
