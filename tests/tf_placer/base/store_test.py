"""Measurements on disk: found by key, never believed when damaged."""

import json
import logging

import pytest

from tf_placer.base.arguments import InputError
from tf_placer.base.store import Cache

KEY = {"kind": "ops", "graph": "abc"}
VALUE = {"times": [1, 2.5], "note": "x"}


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    """As in a process that begins."""
    monkeypatch.setattr("tf_placer.base.store._warned", set())


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
    good = path.read_text()
    for bad in damaged(good):
        path.write_text(bad)
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            assert cache.load(KEY, dict) is None, bad
        assert str(path) in caplog.text and "making it again" in caplog.text
        cache.save(KEY, VALUE)
        assert cache.load(KEY, dict) == VALUE


def test_bytes_that_are_no_text_are_damage_too(cache, tmp_path, caplog):
    cache.save(KEY, VALUE)
    (path,) = (tmp_path / "profiles").iterdir()
    path.write_bytes(b"\xff\xfe\x00")
    assert cache.load(KEY, dict) is None
    assert "making it again" in caplog.text


@pytest.mark.parametrize(
    "error", [KeyError("times"), TypeError("no such field"), InputError("another graph")]
)
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
