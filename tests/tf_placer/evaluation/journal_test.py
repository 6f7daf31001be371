"""The journal: what was appended is there after any kill, and nothing else is taken for it."""

import json
import logging

import pytest

from tf_placer.base.arguments import InputError
from tf_placer.evaluation.journal import Journal, Record

IDENTITY = {"evaluator": "runtime", "graph": "abc", "config": {"steps": 3}}
RECORDS = (
    Record("aa", "OK", 0.1 + 0.2, 0.01, ""),
    Record("bb", "CRASHED", None, None, 'worker 1 was killed by "9" ü'),
    Record("cc", "OK", 0.25, None, ""),
)


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
            with pytest.raises(InputError, match=f"measured.jsonl, line {number}: damaged; delete") as error:
                read(path)
            assert "\n" not in str(error.value)
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
