"""The package's build asks for TensorFlow only where the environment that is installed into has none that fits."""

import pathlib
import sys

import pytest

from tools import wheel_backend


def test_where_tensorflow_is_installed_it_is_not_asked_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As pip hides what is installed: a path of its own, which empties Python's.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.path[:] = sys.path[:4]")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert wheel_backend.missing_tensorflow() == []
    assert "PYTHONPATH" not in wheel_backend.environment_with_tensorflow()


@pytest.mark.parametrize("version", ["", "2.20.0", "2.210.0"])
def test_where_there_is_none_that_fits_it_is_of_the_build(
    version: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf '{version}'\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PYTHONPATH", "of-the-build")
    assert wheel_backend.missing_tensorflow() == ["tensorflow==2.21.*"]
    assert wheel_backend.environment_with_tensorflow()["PYTHONPATH"] == "of-the-build"
