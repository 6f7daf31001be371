"""Compiles and runs the C++ tests of rules of list scheduling, with the compiler's checks of its memory."""

import pathlib

from tests.tf_placer.ops.compiled import run_compiled


def test_rules_without_tensorflow(tmp_path):
    run_compiled(pathlib.Path(__file__).with_suffix(".cc"), tmp_path)
