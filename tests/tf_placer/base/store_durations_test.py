"""How long work took before is found again, and a file that cannot be read is never in the way."""

from __future__ import annotations

import logging

import pytest

from tf_placer.base import store
from tf_placer.base.store import Durations


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_warned", set())
    return tmp_path / "kept" / "durations.json"


def test_the_last_time_counts(file):
    assert Durations(file).of("reading") is None
    assert Durations(file).known("reading", 7.0) == 7.0
    Durations(file).keep("reading", 30.0)
    Durations(file).keep("reading", 2.0)
    assert Durations(file).of("reading") == 2.0
    assert Durations(file).known("reading", 7.0) == 2.0


def test_only_work_that_ends_well_is_timed(file):
    with pytest.raises(KeyboardInterrupt), Durations(file).timing("searching"):
        raise KeyboardInterrupt
    assert Durations(file).of("searching") is None
    with Durations(file).timing("adding"):
        pass
    assert 0 <= Durations(file).of("adding") < 60


def test_what_was_done_long_ago_is_forgotten(file, monkeypatch):
    monkeypatch.setattr(store, "_MOST_DURATIONS", 2)
    for key in ("a", "b", "a", "c"):
        Durations(file).keep(key, 1.0)
    assert [Durations(file).of(key) for key in ("a", "b", "c")] == [1.0, None, 1.0]


@pytest.mark.parametrize("text", ["", "[1]", '{"a": "soon"}', '{"a": null}', "\x00"])
def test_a_damaged_file_is_told_once_and_written_anew(file, text, caplog):
    file.parent.mkdir()
    file.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert [Durations(file).of("a") for _ in range(2)] == [None, None]
    assert len(caplog.records) == 1
    Durations(file).keep("a", 1.0)
    assert Durations(file).of("a") == 1.0


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -1}', '{"a": Infinity}'])
def test_what_is_no_duration_is_not_known(file, text):
    file.parent.mkdir()
    file.write_text(text)
    assert Durations(file).of("a") is None


def test_where_nothing_can_be_kept_that_is_told(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(store, "_warned", set())
    (tmp_path / "taken").write_text("")
    kept = Durations(tmp_path / "taken" / "durations.json")
    with caplog.at_level(logging.WARNING):
        kept.keep("a", 1.0)
    assert "cannot be written" in caplog.text
    assert kept.of("a") is None


def test_they_are_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Durations().keep("a", 1.0)
    assert (tmp_path / "tf_placer" / "durations.json").is_file()


def test_one_run_on_a_busy_machine_makes_it_no_more_than_twice_as_long(file):
    for seconds, expected in ((4.0, 4.0), (90.0, 8.0), (90.0, 16.0), (3.0, 3.0)):
        Durations(file).keep("building", seconds)
        assert Durations(file).of("building") == expected
    Durations(file).keep("ending", 0.0)
    Durations(file).keep("ending", 60.0)
    assert Durations(file).of("ending") == 1.0
