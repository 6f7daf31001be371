"""The user's cache: values found by key, durations, and what it holds; a damaged file is never in the way."""

import io
import json
import logging
import os

import pytest
import rich.console

from tf_placer.base import files
from tf_placer.base.arguments import InputError
from tf_placer.base.files import Cache, Durations, clear_cache, contents_of, kinds

KEY = {"kind": "ops", "graph": "abc"}
VALUE = {"times": [1, 2.5], "note": "x"}


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    """As in a process that begins."""
    monkeypatch.setattr(files, "_warned", set())


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "profiles")


def test_what_is_saved_is_found_by_its_key_alone(cache):
    assert cache.load(KEY, dict) is None
    cache.save(KEY, VALUE)
    assert cache.load(KEY, dict) == VALUE
    assert cache.load({**KEY, "graph": "abd"}, dict) is None
    cache.save(KEY, {"other": 1})
    assert cache.load(KEY, dict) == {"other": 1}


def test_anew_nothing_of_before_is_there_and_what_is_saved_is(cache, tmp_path):
    cache.save(KEY, VALUE)
    anew = Cache(tmp_path / "profiles", is_anew=True)
    assert anew.load(KEY, dict) is None
    anew.save(KEY, {"other": 1})
    assert anew.load(KEY, dict) == cache.load(KEY, dict) == {"other": 1}


def damaged(text):
    """Ways in which a file can go bad."""
    document = json.loads(text)
    yield text[: len(text) // 2]
    yield text.replace("2.5", "2.6")
    yield json.dumps({**document, "digest": "0" * 64})
    yield json.dumps([document])
    yield json.dumps({k: v for k, v in document.items() if k != "value"})
    yield ""


def test_a_damaged_file_is_told_and_measured_again(cache, tmp_path, caplog):
    cache.save(KEY, VALUE)
    (path,) = (tmp_path / "profiles").iterdir()
    for bad in (*damaged(path.read_text()), b"\xff\xfe\x00"):
        path.write_bytes(bad if isinstance(bad, bytes) else bad.encode())
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            files._warned.clear()
            assert cache.load(KEY, dict) is None, bad
        assert str(path) in caplog.text and "making it again" in caplog.text
        cache.save(KEY, VALUE)
        assert cache.load(KEY, dict) == VALUE


@pytest.mark.parametrize("error", [KeyError("times"), TypeError("no field"), InputError("another graph")])
def test_what_nothing_can_be_made_of_is_damage_too(cache, caplog, error):
    def read(kept):
        assert kept == VALUE
        raise error

    cache.save(KEY, VALUE)
    assert cache.load(KEY, read) is None
    (message,) = caplog.messages
    assert str(error) in message and "making it again" in message


@pytest.mark.parametrize("folder", ["file", "file/profiles", "/proc/profiles"])
def test_a_folder_that_cannot_be_written_to_is_one_warning(tmp_path, caplog, folder):
    (tmp_path / "file").touch()
    for name in ("a", "b"):
        key = {**KEY, "graph": name}
        cache = Cache(tmp_path / folder)
        assert cache.load(key, dict) is None
        cache.save(key, VALUE)
        assert cache.load(key, dict) is None
    (message,) = caplog.messages
    assert f"nothing can be kept in {tmp_path / folder}" in message and "set XDG_CACHE_HOME" in message


def test_a_file_that_cannot_be_read_is_one_warning(cache, tmp_path, caplog):
    cache.save(KEY, VALUE)
    (path,) = (tmp_path / "profiles").iterdir()
    path.unlink()
    path.mkdir()  # root reads whatever is a file
    assert cache.load(KEY, dict) is None and cache.load(KEY, dict) is None
    (message,) = caplog.messages
    assert f"{path} cannot be read" in message


@pytest.fixture
def file(tmp_path):
    return tmp_path / "kept" / "durations.json"


def test_the_last_time_counts(file):
    assert Durations(file).of("reading") is None
    assert Durations(file).of("reading", 7.0) == 7.0
    Durations(file).keep("reading", 30.0)
    Durations(file).keep("reading", 2.0)
    assert Durations(file).of("reading") == 2.0
    assert Durations(file).of("reading", 7.0) == 2.0


def test_only_work_that_ends_well_is_timed(file):
    with pytest.raises(KeyboardInterrupt), Durations(file).timing("searching"):
        raise KeyboardInterrupt
    assert Durations(file).of("searching") is None
    with Durations(file).timing("adding"):
        pass
    assert 0 <= Durations(file).of("adding") < 60


def test_what_was_done_long_ago_is_forgotten(file, monkeypatch):
    monkeypatch.setattr(files, "_MOST_DURATIONS", 2)
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


def test_where_nothing_can_be_kept_that_is_told(tmp_path, caplog):
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


@pytest.fixture
def user_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "tf_placer"
    for name, num_bytes in (
        ("plans/a.json", 10),
        ("plans/b.json", 20),
        ("lessons/deep/c", 5),
        ("x.so", 7),
        ("new/d", 1),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(num_bytes * b"x")
    os.utime(folder / "plans/a.json", (1000, 1000))
    os.utime(folder / "plans/b.json", (2000, 2000))
    return folder


def cleared(*kinds):
    console = rich.console.Console(file=io.StringIO(), width=200)
    return clear_cache(kinds, console), console.file.getvalue()


def test_what_is_kept_is_counted(user_cache):
    found = {kind: contents_of(kind) for kind in kinds()}
    assert (found["plans"].files, found["plans"].num_bytes) == (2, 30)
    assert (found["plans"].oldest_s, found["plans"].newest_s) == (1000, 2000)
    assert (found["lessons"].files, found["lessons"].num_bytes) == (1, 5)
    assert (found["libraries"].files, found["libraries"].num_bytes) == (1, 7)
    assert found["new"].files == 1  # a kind that this code does not know
    assert (found["workloads"].files, found["workloads"].oldest_s) == (0, None)


def test_kinds_are_removed_and_the_rest_is_left(user_cache):
    data, said = cleared("plans", "libraries", "plans")
    assert data["freed_bytes"] == 37 and "removed 3 files" in said and "37 B are free again" in said
    assert sorted(path.name for path in user_cache.iterdir()) == ["lessons", "new"]
    assert cleared("plans")[0]["freed_bytes"] == 0


def test_all_is_removed(user_cache):
    assert cleared("all")[0]["freed_bytes"] == 43
    assert list(user_cache.iterdir()) == []


def test_no_cache_is_an_empty_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    assert sum(contents_of(kind).files for kind in kinds()) == 0
    assert cleared("all")[0]["freed_bytes"] == 0
    assert not (tmp_path / "nowhere").exists()


def test_links_are_removed_and_not_followed(user_cache, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(1000 * b"x")
    (user_cache / "profiles").symlink_to(outside)
    (user_cache / "plans" / "folder").symlink_to(outside)
    (user_cache / "plans" / "file").symlink_to(outside / "precious")
    found = {kind: contents_of(kind) for kind in kinds()}
    assert found["plans"].files == 4 and found["plans"].num_bytes < 1000
    assert found["profiles"].num_bytes < 1000
    cleared("all")
    assert (outside / "precious").stat().st_size == 1000
    assert list(user_cache.iterdir()) == []


def test_a_cache_that_is_a_link_is_left_alone(user_cache, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tf_placer").symlink_to(user_cache)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    with pytest.raises(InputError, match=r"is a link to .*give XDG_CACHE_HOME"):
        cleared("all")
    assert (user_cache / "plans" / "a.json").exists()


@pytest.mark.parametrize("kind", ["plan", "..", "", "plans/a.json"])
def test_what_is_no_kind_is_refused_before_anything_is_removed(kind, user_cache):
    with pytest.raises(InputError, match=r"nothing of that kind is kept; (did you mean|known)"):
        cleared("plans", kind)
    assert (user_cache / "plans" / "a.json").exists()
