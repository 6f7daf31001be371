"""What XLA compiled is kept in the cache of the user, unless the user says where, or nothing can be kept."""

import os
import stat

import pytest

from tf_placer.base import native
from tf_placer.base.native import XLA_FLAGS, compilation_flags, compilations_folder, with_kept_compilations


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compilations_folder.cache_clear()
    yield tmp_path / "tf_placer" / "compilations"
    compilations_folder.cache_clear()


def test_a_process_keeps_them_in_a_folder_that_its_owner_alone_reads(cache):
    found = with_kept_compilations({"A": "1", XLA_FLAGS: "--tf_xla_clustering_debug"})
    assert found["A"] == "1"
    assert found[XLA_FLAGS] == f"--tf_xla_clustering_debug {compilation_flags(compilations_folder())}"
    assert compilations_folder().parent == cache
    assert stat.S_IMODE(compilations_folder().stat().st_mode) == 0o700


def test_the_users_own_folder_is_left_alone(cache):
    own = {XLA_FLAGS: f"{native.XLA_CACHE_FLAG}=mine"}
    assert with_kept_compilations(own) == own
    assert not cache.exists()


def test_where_nothing_can_be_kept_the_environment_is_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert with_kept_compilations({}) == {}


def test_a_name_with_blanks_cannot_be_said_in_flags(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    assert with_kept_compilations({}) == {}


def test_what_is_oldest_goes_first(cache, monkeypatch):
    monkeypatch.setattr(native, "COMPILATIONS_BYTES", 25)
    other = cache / "of_another_processor"
    other.mkdir(parents=True)
    for age, name in enumerate(["newest", "older", "oldest"]):
        (other / f"{name}.pb").write_bytes(b"0123456789")
        os.utime(other / f"{name}.pb", (1e9 - age, 1e9 - age))
    compilations_folder()
    assert sorted(path.name for path in other.iterdir()) == ["newest.pb", "older.pb"]
