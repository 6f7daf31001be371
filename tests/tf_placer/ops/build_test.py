"""Compiling the ops, and the C++ tests of the algorithms without TensorFlow."""

import dataclasses
import pathlib

import pytest
import tensorflow as tf

from tests.tf_placer.ops.compiled import run_compiled
from tf_placer.base.arguments import InputError
from tf_placer.ops import build


def test_library_is_reused():
    first = build.build_library()
    before = first.stat().st_mtime_ns
    assert build.build_library() == first and first.stat().st_mtime_ns == before


def test_what_is_built_is_seen_and_named(monkeypatch, tmp_path):
    assert build.is_built()
    assert build.library_name() == build.build_library().name
    other = dataclasses.replace(build.ops_library(), flags=("-O1",), folder=tmp_path)
    monkeypatch.setattr(build, "ops_library", lambda: other)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TF_PLACER_OPS_LIBRARY", raising=False)
    assert not build.is_built()
    assert build.library_name() == other.file_name
    monkeypatch.setenv("TF_PLACER_OPS_LIBRARY", __file__)
    assert build.is_built() and build.library_name() == "build_test.py"
    monkeypatch.setenv("TF_PLACER_OPS_LIBRARY", str(tmp_path / "gone.so"))
    with pytest.raises(InputError, match=r"gone.so, which is no file"):
        build.is_built()


def test_fingerprint_follows_the_flags_and_tensorflow():
    library = build.ops_library()
    other_flags = dataclasses.replace(library, flags=("-O1",))
    other_tensorflow = dataclasses.replace(library, depends_on=("0.0",))
    assert len({library.fingerprint, other_flags.fingerprint, other_tensorflow.fingerprint}) == 3
    assert library.depends_on == (tf.__version__,)
    # Where TensorFlow lies on this machine changes nothing.
    assert dataclasses.replace(library, places=()).fingerprint == library.fingerprint


# In one file, because the sources are compiled once a process.
TESTS = sorted(pathlib.Path(__file__).parent.glob("*_cc_test.cc"))


@pytest.mark.slow  # compiling takes most of a minute; the op itself is tested beside this
@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.stem)
def test_without_tensorflow(test, tmp_path):
    run_compiled(test, tmp_path)


def test_there_are_such_tests():
    assert len(TESTS) >= 4
