"""Compiled code: what is reused, where it is kept, XLA's too, and what a machine without a compiler is told."""

import ctypes
import dataclasses
import os
import stat
import sys
import types

import pytest

from tests.refused import refused
from tf_placer.base import native
from tf_placer.base.native import Library, compiled, compiled_all, tensorflow


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Of a function that gives 1, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # As in a process of its own: what one test has loaded, another must not damage.
    own = tmp_path / "own"
    own.mkdir()
    folder_of_this_process = types.SimpleNamespace(name=str(own))
    monkeypatch.setattr(native, "_folder_of_this_process", lambda: folder_of_this_process)
    sources = tmp_path / "cc"
    sources.mkdir()
    (sources / "one.cc").write_text('extern "C" int one() { return 1; }\n')
    folder = tmp_path / "installed"
    folder.mkdir()
    return Library("_one", "the number one", sources, folder, ("-shared", "-fPIC"), "ONE_LIBRARY")


def cannot_be_written(folder):
    """Also by root, whom no permission stops: a file stands where the folder should be."""
    folder.rmdir()
    folder.touch()


def compiler(tmp_path, monkeypatch, script):
    path = tmp_path / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("CXX", str(path))


def test_it_is_compiled_once(library, monkeypatch):
    path = compiled(library)
    assert path.parent == library.folder and ctypes.CDLL(str(path)).one() == 1
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiled(library) == path
    assert os.listdir(library.folder) == [path.name]


def test_another_source_and_other_flags_are_another_file(library):
    names = {library.file_name}
    changed = Library("_one", "", library.sources, library.folder, ("-O1",), "ONE_LIBRARY")
    names.add(changed.file_name)
    changed = Library("_one", "", library.sources, library.folder, ("-O1",), "ONE_LIBRARY", ("2.0",))
    names.add(changed.file_name)
    (library.sources / "one.cc").write_text('extern "C" int one() { return 2; }\n')
    names.add(Library("_one", "", library.sources, library.folder, ("-O1",), "ONE_LIBRARY").file_name)
    assert len(names) == 4


def test_a_read_only_install_keeps_it_in_the_users_cache(library, tmp_path, caplog):
    cannot_be_written(library.folder)
    assert compiled(library).parent == tmp_path / "cache" / "tf_placer"
    assert caplog.messages == []


def test_where_it_can_be_kept_nowhere_it_is_compiled_for_this_process(library, tmp_path, monkeypatch, caplog):
    cannot_be_written(library.folder)
    (tmp_path / "cache").touch()
    path = compiled(library)
    assert ctypes.CDLL(str(path)).one() == 1
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiled(library) == path
    (message,) = caplog.messages
    assert message.startswith("the number one can be kept nowhere (") and "set XDG_CACHE_HOME" in message


@pytest.mark.parametrize("damage", [b"", b"no library", None])
def test_a_damaged_file_is_compiled_again(library, caplog, damage):
    path = compiled(library)
    path.write_bytes(path.read_bytes()[:-100] if damage is None else damage)
    assert ctypes.CDLL(str(compiled(library))).one() == 1
    assert caplog.messages == [f"{path} is damaged: compiling it again"]


def test_a_missing_compiler_is_one_clear_line(library, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with refused(r"^cannot compile the number one: no-such-compiler not found; install g\+\+"):
        compiled(library)


def test_a_failed_compilation_leaves_nothing_behind(library, tmp_path, monkeypatch):
    compiler(tmp_path, monkeypatch, "echo 'x.cc:1: error: no luck' >&2; exit 1")
    with refused(r"could not compile the number one: .*error: no luck"):
        compiled(library)
    assert os.listdir(library.folder) == [] and not (tmp_path / "cache").exists()


def test_one_that_was_built_elsewhere_is_used(library, tmp_path, monkeypatch):
    elsewhere = tmp_path / "one.so"
    monkeypatch.setenv("ONE_LIBRARY", str(elsewhere))
    with refused(r"ONE_LIBRARY is .*one\.so, which is no file"):
        compiled(library)
    elsewhere.touch()
    assert compiled(library) == elsewhere


def test_without_a_home_there_is_a_folder_that_cannot_be_made(monkeypatch):
    from tf_placer.base.files import user_cache_folder

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where the user is unknown
    assert str(user_cache_folder()) == "/nonexistent/.cache/tf_placer"


def test_sources_are_compiled_side_by_side(library, tmp_path, monkeypatch):
    (library.sources / "two.cc").write_text('extern "C" int two() { return 2; }\n')
    (library.sources / "both.cc").write_text(
        'extern "C" int one(); extern "C" int two();\nextern "C" int three() { return one() + two(); }\n'
    )
    # Each compilation but the link waits until another has begun.
    script = f"""
case "$*" in *" -c "*)
  touch {tmp_path}/begun_$$
  for i in $(seq 200); do [ $(ls {tmp_path} | grep -c begun_) -ge 2 ] && break; sleep 0.05; done
  [ $(ls {tmp_path} | grep -c begun_) -ge 2 ] || exit 1;;
esac
exec g++ "$@\""""
    compiler(tmp_path, monkeypatch, script)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert ctypes.CDLL(str(compiled(library))).three() == 3


def test_several_libraries_come_in_their_order(library, tmp_path):
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "more.cc").write_text('extern "C" int more() { return 7; }\n')
    more = dataclasses.replace(library, name="_more", sources=folder)
    path = compiled(library)
    for libraries in ([more, library], [library, more]):
        paths = compiled_all(libraries)
        assert [found.name for found in paths] == [one.file_name for one in libraries] and path in paths
    assert ctypes.CDLL(str(paths[1])).more() == 7


@pytest.mark.parametrize(
    ("core_s", "is_announced", "said"),
    [(1, False, ""), (120, True, ""), (120, False, "compiling the number one, this once: about 60 s\n")],
)
def test_what_takes_long_is_announced(library, monkeypatch, capfd, core_s, is_announced, said):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    slow = dataclasses.replace(library, core_s=core_s)
    for _ in range(2):  # what is there is not announced again
        compiled(slow, is_announced)
    assert capfd.readouterr().err == said


def test_a_terminal_shows_a_bar(library, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    compiled(dataclasses.replace(library, core_s=1e4))
    shown = capsys.readouterr().err
    assert shown.startswith("\rcompiling the number one, this once: about ")
    assert shown.endswith("[" + 30 * "#" + "]\n")


def test_code_is_shaped_as_tensorflow_says():
    import tensorflow as tf

    version, shape, places = tensorflow()
    include, *flags = tf.sysconfig.get_compile_flags()
    assert version == tf.__version__
    assert set(shape) == {"-DNDEBUG", *(flag.replace("--std", "-std") for flag in flags)}
    assert places == (include.replace("-I", "-isystem", 1), *tf.sysconfig.get_link_flags())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.compilations_folder.cache_clear()
    yield tmp_path / "tf_placer" / "compilations"
    native.compilations_folder.cache_clear()


def test_a_process_keeps_them_in_a_folder_that_its_owner_alone_reads(cache):
    found = native.with_kept_compilations({"A": "1", native.XLA_FLAGS: "--tf_xla_clustering_debug"})
    assert found["A"] == "1"
    assert (
        found[native.XLA_FLAGS]
        == f"--tf_xla_clustering_debug {native.compilation_flags(native.compilations_folder())}"
    )
    assert native.compilations_folder().parent == cache
    assert stat.S_IMODE(native.compilations_folder().stat().st_mode) == 0o700


def test_the_users_own_folder_is_left_alone(cache):
    own = {native.XLA_FLAGS: f"{native.XLA_CACHE_FLAG}=mine"}
    assert native.with_kept_compilations(own) == own
    assert not cache.exists()


def test_where_nothing_can_be_kept_the_environment_is_as_it_was(tmp_path, monkeypatch, cache):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert native.with_kept_compilations({}) == {}


def test_a_name_with_blanks_cannot_be_said_in_flags(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    assert native.with_kept_compilations({}) == {}


def test_what_is_oldest_goes_first(cache, monkeypatch):
    monkeypatch.setattr(native, "COMPILATIONS_BYTES", 25)
    other = cache / "of_another_processor"
    other.mkdir(parents=True)
    for age, name in enumerate(["newest", "older", "oldest"]):
        (other / f"{name}.pb").write_bytes(b"0123456789")
        os.utime(other / f"{name}.pb", (1e9 - age, 1e9 - age))
    native.compilations_folder()
    assert sorted(path.name for path in other.iterdir()) == ["newest.pb", "older.pb"]
