"""Compiles and runs the C++ tests of the algorithms without TensorFlow, with the compiler's checks of memory."""

import pathlib

import pytest

from tests.tf_placer.ops.compiled import run_compiled

# In one file, because the sources are compiled once a process.
TESTS = sorted(pathlib.Path(__file__).parent.glob("*_cc_test.cc"))


@pytest.mark.slow  # compiling takes most of a minute; the op itself is tested beside this
@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.stem)
def test_without_tensorflow(test: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run_compiled(test, tmp_path)


def test_there_are_such_tests() -> None:
    assert len(TESTS) >= 4
