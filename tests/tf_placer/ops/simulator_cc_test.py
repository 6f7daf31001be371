"""Compiles and runs the C++ tests of the algorithm alone, with the compiler's checks of its memory."""

import pathlib
import subprocess

from tf_placer.ops import build


def test_algorithm_without_tensorflow(tmp_path):
    source = pathlib.Path(build.__file__).parent / "cc"
    # The two others are the border to TensorFlow.
    algorithm = set(source.glob("*.cc")) - {source / "simulator_kernel.cc", source / "simulator_ops.cc"}
    binary = tmp_path / "simulator_cc_test"
    subprocess.run(
        ["g++", "-std=c++17", "-O0", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare",
         "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{source}",
         pathlib.Path(__file__).with_suffix(".cc"), *algorithm, "-o", binary],
        check=True,
    )  # fmt: skip
    done = subprocess.run([binary], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
