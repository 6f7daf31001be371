"""Compiling the ops: what is reused, and what a machine without a compiler is told."""

import os
import stat

import pytest

from tf_placer.errors import InputError
from tf_placer.ops import build


def test_library_is_reused():
    first = build.build_library()
    before = first.stat().st_mtime_ns
    assert build.build_library() == first and first.stat().st_mtime_ns == before


def test_fingerprint_follows_the_source_and_the_flags(tmp_path, monkeypatch):
    (tmp_path / "a.cc").write_text("int a;")
    monkeypatch.setattr(build, "_SOURCE_DIR", tmp_path)
    first = build._fingerprint()
    assert build._fingerprint() == first
    (tmp_path / "a.cc").write_text("int b;")
    second = build._fingerprint()
    monkeypatch.setattr(build, "_FLAGS", ("-O1",))
    assert len({first, second, build._fingerprint()}) == 3


def test_missing_compiler_is_one_clear_line(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(InputError, match=r"^cannot compile .*: no-such-compiler not found; install g\+\+"):
        build.build_library(force=True)


def test_failed_compilation_leaves_nothing_behind(tmp_path, monkeypatch):
    compiler = tmp_path / "failing"
    compiler.write_text("#!/bin/sh\necho 'x.cc:1: error: no luck' >&2\nexit 1\n")
    compiler.chmod(compiler.stat().st_mode | stat.S_IEXEC)
    target = tmp_path / "cache"
    monkeypatch.delenv("TF_PLACER_OPS_LIBRARY", raising=False)  # Bazel sets it
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(build, "_folders", lambda: [target])
    with pytest.raises(InputError, match="error: no luck"):
        build.build_library()
    assert os.listdir(target) == []


def test_a_library_built_elsewhere_is_used(tmp_path, monkeypatch):
    library = tmp_path / "ops.so"
    monkeypatch.setenv("TF_PLACER_OPS_LIBRARY", str(library))
    with pytest.raises(InputError, match=r"TF_PLACER_OPS_LIBRARY is .*ops\.so, which is no file"):
        build.build_library()
    library.touch()
    assert build.build_library() == library
