"""The journal of measurements: there after any kill, nothing else is taken for it, and each placement measured once."""

import hashlib
import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from tests.refused import refused
from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.base.arguments import InputError
from tf_placer.evaluation.journal import Journal, JournaledEvaluator, Record
from tf_placer.evaluation.simulated import Measurement, SimulatedEvaluator, Status
from tf_placer.problem.placement import Decisions, decisions_of

IDENTITY = {"evaluator": "runtime", "graph": "abc", "config": {"steps": 3}}
RECORDS = (
    Record("aa", "OK", 0.1 + 0.2, 0.01, ""),
    Record("bb", "CRASHED", None, None, 'worker 1 was killed by "9" ü'),
    Record("cc", "OK", 0.25, None, ""),
)
# A device holds 100 bytes: not both units of 60.
PROBLEM = problem_of([100, 300], [], cluster=small_cluster(memory_bytes=100), resident_bytes=60)
APART, TOGETHER, NOWHERE = [0, 1], [0, 0], [0, 7]


@pytest.fixture
def path(tmp_path):
    """A journal of the three records."""
    path = tmp_path / "deep" / "measured.jsonl"
    with Journal(path, IDENTITY) as journal:
        for record in RECORDS:
            journal.append(record)
    return path


def read(path, identity=IDENTITY):
    with Journal(path, identity) as journal:
        return list(journal.records.values())


def test_what_was_appended_is_read_back_and_can_be_gone_on_with(path):
    assert read(path) == list(RECORDS)
    more = Record("dd", "OK", 1.0, 0.5, "")
    with Journal(path, IDENTITY) as journal:
        journal.append(more)
    assert read(path) == [*RECORDS, more]


def test_a_record_is_in_the_file_as_one_line_of_json_when_append_returns(path):
    with Journal(path, IDENTITY) as journal:
        journal.append(Record("dd", "TIMEOUT", None, None, "late"))
        header, *lines = map(json.loads, path.read_text().splitlines())
    assert header.items() >= IDENTITY.items()
    assert [line["placement"] for line in lines] == ["aa", "bb", "cc", "dd"]
    assert lines[3].items() >= {"status": "TIMEOUT", "runtime_s": None, "message": "late"}.items()


def test_a_kill_at_any_byte_of_a_write_costs_at_most_that_record(path, caplog):
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for length in range(last, len(whole) + 1):
        path.write_bytes(whole[:length])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            # From the closing brace on, the record is whole.
            kept = list(RECORDS) if length >= len(whole) - 1 else list(RECORDS[:-1])
            assert read(path) == kept, length
            assert ("cutting off" in caplog.text) == (last < length < len(whole) - 1)
        # Whatever was cut, the file is sound again and takes records.
        with Journal(path, IDENTITY) as journal:
            journal.append(Record("dd", "OK", 2.0, None, ""))
        assert [record.placement for record in read(path)] == [*(record.placement for record in kept), "dd"]


def test_any_other_damage_is_told_with_file_line_and_remedy(path):
    whole = path.read_bytes()
    starts = [0] + [i + 1 for i, byte in enumerate(whole[:-1]) if byte == ord("\n")]
    for number in (1, 2, 3, 4):
        place = starts[number - 1] + 15
        for other in (whole[:place] + b"~" + whole[place + 1 :], whole[:place] + whole[place + 1 :]):
            path.write_bytes(other)
            with refused(f"measured.jsonl, line {number}: damaged; delete"):
                read(path)
            assert path.read_bytes() == other, "a file that is refused is left alone"


def test_a_changed_digit_and_a_placement_twice_are_damage_and_the_advice_helps(path):
    lines = path.read_text().splitlines(keepends=True)
    for number, wrong, left in (
        (4, [*lines[:3], lines[3].replace('"runtime_s": 0.25', '"runtime_s": 0.15')], RECORDS[:2]),
        (3, [*lines[:2], "rubbish\n", lines[3]], RECORDS[::2]),
        (5, [*lines, lines[2]], RECORDS),
    ):
        path.write_text("".join(wrong))
        with pytest.raises(InputError, match=f"line {number}: damaged; delete the line"):
            read(path)
        path.write_text("".join(wrong[: number - 1] + wrong[number:]))
        assert read(path) == list(left)
    with Journal(path, IDENTITY) as journal, pytest.raises(ValueError, match=r"in .* already"):
        journal.append(RECORDS[0])


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("evaluator", "simulated", "'runtime', not 'simulated'; give another file"),
        ("graph", "abd", "'abc', not 'abd'; give another file"),
        ("config", {"steps": 4}, r"\{'steps': 3\}, not \{'steps': 4\}; give another file"),
        ("more", 1, "None, not 1; give another file"),
        ("cluster", "x", "None, not 'x'; give another file.*kept_in=FILE"),
    ],
)
def test_another_evaluators_journal_is_refused(path, key, value, told):
    with pytest.raises(InputError, match=f"measured.jsonl was measured with {key} {told}"):
        read(path, {**IDENTITY, key: value})
    assert read(path) == list(RECORDS)


def test_one_process_at_a_time(path):
    with Journal(path, IDENTITY), pytest.raises(InputError, match="in use by another process"):
        Journal(path, IDENTITY)
    assert read(path) == list(RECORDS)


def test_files_that_are_no_journal_and_records_that_make_no_sense(tmp_path):
    for content in (b"", b"\n", b"no journal", b'{"schema_version": 1}\n'):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(InputError, match="line 1: damaged"):
            Journal(tmp_path / "file", IDENTITY)
    for status, runtime_s in (("OK", None), ("TIMEOUT", 0.1), ("FINE", 0.1)):
        with pytest.raises(ValueError, match=status):
            Record("aa", status, runtime_s, None, "")


@pytest.fixture
def fresh_path(tmp_path):
    return tmp_path / "measured.jsonl"


def test_answers_are_those_of_the_evaluator_inside(fresh_path):
    rows = np.array([APART, TOGETHER, NOWHERE, APART])
    simulated = SimulatedEvaluator(PROBLEM)
    expected = simulated.evaluate(rows)
    for _ in range(2):  # measured, then read back
        with JournaledEvaluator(simulated, fresh_path) as evaluator:
            found = evaluator.evaluate(rows)
        np.testing.assert_array_equal(found.runtime_s, expected.runtime_s)
        np.testing.assert_array_equal(
            found.status, [Status.OK, Status.OUT_OF_MEMORY, Status.ILLEGAL, Status.OK]
        )
        assert found.messages == expected.messages
        assert np.isnan(found.spread_s).all() and found.peak_bytes is None


def test_nothing_is_measured_twice(fresh_path):
    simulated = SimulatedEvaluator(PROBLEM)
    with JournaledEvaluator(simulated, fresh_path) as evaluator:
        evaluator.evaluate(np.array([APART, TOGETHER, APART]))
        assert (evaluator.kept, evaluator.measured, evaluator.reused) == (0, 2, 0)
    with JournaledEvaluator(simulated, fresh_path) as evaluator:
        assert evaluator.evaluate(np.array([TOGETHER, [1, 0], [1, 0]])).status.tolist() == [1, 0, 0]
        assert (evaluator.kept, evaluator.measured, evaluator.reused) == (2, 1, 1)
        assert evaluator.evaluate(np.zeros((0, 2), np.int32)).batch == 0


def test_a_journal_of_before_schedules_is_gone_on_with(fresh_path):
    """The digest of devices is written out here: what is on disks has it."""
    simulated = SimulatedEvaluator(PROBLEM)
    digest = hashlib.sha256(bytes([0, 0, 0, 0, 1, 0, 0, 0])).hexdigest()[
        :32
    ]  # ops on devices 0 and 1, as int32
    with Journal(fresh_path, simulated.identity) as journal:
        journal.append(Record(digest, "OK", 12.5, None, ""))
    with JournaledEvaluator(simulated, fresh_path) as evaluator:
        for same in (
            np.array([APART]),
            tf.constant([APART]),
            Decisions([APART]),
            Decisions([APART], [[0, 0]]),
        ):
            assert evaluator.evaluate(same).runtime_s.tolist() == [12.5]
        assert (evaluator.measured, evaluator.reused) == (0, 4)


class Counting:
    """Counts what plans decide: a plan takes as many seconds as all of its priorities and clusters, plus 100."""

    problem, identity = PROBLEM, {"evaluator": "counting"}

    def evaluate(self, device_of_unit):
        plans = decisions_of(device_of_unit, PROBLEM)
        times_s = np.full(len(plans), 100.0)
        for decided in (plans.priority_of_op, plans.cluster_of_op):
            times_s += 0 if decided is None else decided.sum(axis=1)
        return Measurement(times_s, None, np.zeros(len(plans), np.int32), ("",) * len(plans))


@pytest.mark.parametrize(
    ("decided", "times_s"),
    [
        ({"priority_of_op": [[0, 0], [7, 5], [8, 5], [7, 5]]}, [100, 112, 113, 112]),
        ({"cluster_of_op": [[-1, -1], [2, -1], [2, 2], [2, -1]]}, [100, 101, 104, 101]),
    ],
)
def test_plans_that_differ_in_their_schedule_or_clusters_alone_are_two(fresh_path, decided, times_s):
    rows = Decisions([APART] * 4, **decided)
    for measured in (3, 0):  # measured, then read back
        with JournaledEvaluator(Counting(), fresh_path) as evaluator:
            assert evaluator.evaluate(rows).runtime_s.tolist() == times_s
            assert evaluator.measured == measured


def test_who_knows_devices_alone_is_given_devices(fresh_path):
    asked = []

    class DevicesAlone(Counting):
        def evaluate(self, device_of_unit):
            asked.append(device_of_unit.tolist())
            return super().evaluate(device_of_unit)

    with JournaledEvaluator(DevicesAlone(), fresh_path) as evaluator:
        evaluator.evaluate(Decisions([APART], priority_of_op=[[0, 0]]))
    assert asked == [[APART]]


def test_what_was_measured_before_a_failure_is_kept(fresh_path):
    class Failing(SimulatedEvaluator):
        def evaluate(self, device_of_unit):
            if device_of_unit.tolist() == [TOGETHER]:
                raise RuntimeError("the machine is gone")
            return super().evaluate(device_of_unit)

    with (
        JournaledEvaluator(Failing(PROBLEM), fresh_path) as evaluator,
        pytest.raises(RuntimeError, match="gone"),
    ):
        evaluator.evaluate(np.array([APART, TOGETHER, [1, 0]]))
    with JournaledEvaluator(SimulatedEvaluator(PROBLEM), fresh_path) as evaluator:
        evaluator.evaluate(np.array([APART, TOGETHER, [1, 0]]))
        assert (evaluator.measured, evaluator.reused) == (2, 1)


def test_a_journal_of_another_problem_is_refused(fresh_path):
    JournaledEvaluator(SimulatedEvaluator(PROBLEM), fresh_path).close()
    other = problem_of([100, 301], [], cluster=small_cluster(memory_bytes=100), resident_bytes=60)
    with pytest.raises(InputError, match="was measured with problem"):
        JournaledEvaluator(SimulatedEvaluator(other), fresh_path)


def test_wrong_shapes_are_named(fresh_path):
    with (
        JournaledEvaluator(SimulatedEvaluator(PROBLEM), fresh_path) as evaluator,
        pytest.raises(InputError, match=r"shape \(1, 3\), expected \[B, 2\]"),
    ):
        evaluator.evaluate(np.zeros((1, 3), np.int32))
