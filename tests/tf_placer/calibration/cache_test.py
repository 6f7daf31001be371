"""Measurements on disk: found by key, never believed when damaged."""

import json
import logging

import pytest

from tf_placer.calibration.cache import Cache

KEY = {"kind": "ops", "graph": "abc"}
VALUE = {"times": [1, 2.5], "note": "x"}


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "profiles")


def test_what_is_saved_is_found_by_its_key_alone(cache):
    assert cache.load(KEY) is None
    cache.save(KEY, VALUE)
    assert cache.load(KEY) == VALUE
    assert cache.load({**KEY, "graph": "abd"}) is None
    cache.save(KEY, {"other": 1})
    assert cache.load(KEY) == {"other": 1}


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
            assert cache.load(KEY) is None, bad
        assert str(path) in caplog.text and "measuring again" in caplog.text
        cache.save(KEY, VALUE)
        assert cache.load(KEY) == VALUE


def test_bytes_that_are_no_text_are_damage_too(cache, tmp_path, caplog):
    cache.save(KEY, VALUE)
    (path,) = (tmp_path / "profiles").iterdir()
    path.write_bytes(b"\xff\xfe\x00")
    assert cache.load(KEY) is None
    assert "measuring again" in caplog.text
