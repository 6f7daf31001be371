"""What a check of fingerprints calls a difference."""

from tools.fingerprints import BY_THE_CLOCK, differences, rows_of_table

RECORDED = {"searches": {"hdp on a": {"step_s": 1.0}, "go on a": {"step_s": 2.0}}}


def test_what_was_not_asked_for_does_not_differ() -> None:
    now = {"searches": {"hdp on a": {"step_s": 1.0}}}
    assert differences(RECORDED, now, "hdp") == []


def test_another_time_a_lost_name_and_a_new_name_differ() -> None:
    now = {"searches": {"hdp on a": {"step_s": 1.5}, "mars on a": {"step_s": 3.0}}}
    lines = differences(RECORDED, now, "")
    assert [line.partition(": was")[0] for line in lines] == [
        "searches: hdp on a",
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
