"""The user's cache is counted and cleared, and nothing beside it."""

import io
import os

import pytest
import rich.console

from tf_placer.base.arguments import InputError
from tf_placer.base.store import cache_contents, clear_cache


@pytest.fixture
def cache(tmp_path, monkeypatch):
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


def test_what_is_kept_is_counted(cache):
    found = {kept.kind: kept for kept in cache_contents()}
    assert (found["plans"].files, found["plans"].num_bytes) == (2, 30)
    assert (found["plans"].oldest_s, found["plans"].newest_s) == (1000, 2000)
    assert (found["lessons"].files, found["lessons"].num_bytes) == (1, 5)
    assert (found["libraries"].files, found["libraries"].num_bytes) == (1, 7)
    assert found["new"].files == 1  # a kind that this code does not know
    assert (found["workloads"].files, found["workloads"].oldest_s) == (0, None)


def test_kinds_are_removed_and_the_rest_is_left(cache):
    data, said = cleared("plans", "libraries", "plans")
    assert data["freed_bytes"] == 37 and "removed 3 files" in said and "37 B are free again" in said
    assert sorted(path.name for path in cache.iterdir()) == ["lessons", "new"]
    assert cleared("plans")[0]["freed_bytes"] == 0


def test_all_is_removed(cache):
    assert cleared("all")[0]["freed_bytes"] == 43
    assert list(cache.iterdir()) == []


def test_no_cache_is_an_empty_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    assert sum(kept.files for kept in cache_contents()) == 0
    assert cleared("all")[0]["freed_bytes"] == 0
    assert not (tmp_path / "nowhere").exists()


def test_links_are_removed_and_not_followed(cache, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(1000 * b"x")
    (cache / "profiles").symlink_to(outside)
    (cache / "plans" / "folder").symlink_to(outside)
    (cache / "plans" / "file").symlink_to(outside / "precious")
    found = {kept.kind: kept for kept in cache_contents()}
    assert found["plans"].files == 4 and found["plans"].num_bytes < 1000
    assert found["profiles"].num_bytes < 1000
    cleared("all")
    assert (outside / "precious").stat().st_size == 1000
    assert list(cache.iterdir()) == []


def test_a_cache_that_is_a_link_is_left_alone(cache, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tf_placer").symlink_to(cache)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    with pytest.raises(InputError, match=r"is a link to .*give XDG_CACHE_HOME"):
        cleared("all")
    assert (cache / "plans" / "a.json").exists()


@pytest.mark.parametrize("kind", ["plan", "..", "", "plans/a.json"])
def test_what_is_no_kind_is_refused_before_anything_is_removed(kind, cache):
    with pytest.raises(InputError, match=r"nothing of that kind is kept; (did you mean|known)"):
        cleared("plans", kind)
    assert (cache / "plans" / "a.json").exists()
