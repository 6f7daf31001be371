"""Compiles and runs the C++ tests of the algorithm alone, with the compiler's checks of its memory."""

import pathlib
import subprocess

from tf_placer.ops import build


def test_algorithm_without_tensorflow(tmp_path):
    source = pathlib.Path(build.__file__).parent / "cc"
    binary = tmp_path / "simulator_cc_test"
    subprocess.run(
        ["g++", "-std=c++17", "-O0", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare",
         "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{source}",
         pathlib.Path(__file__).with_suffix(".cc"), source / "simulator.cc", source / "simulation_plan.cc",
         "-o", binary],
        check=True,
    )  # fmt: skip
    done = subprocess.run([binary], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
