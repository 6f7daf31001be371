"""C++ tests of the algorithms, which know nothing of TensorFlow."""

import pathlib
import subprocess

from tf_placer.ops import build


def run_compiled(test: pathlib.Path, folder: pathlib.Path) -> None:
    """Compiles a test with all sources that do without TensorFlow, checked for memory and arithmetic, and runs it."""
    source = pathlib.Path(build.__file__).parent / "cc"
    algorithm = [path for path in source.glob("*.cc") if not _needs_tensorflow(path)]
    binary = folder / test.stem
    subprocess.run(
        ["g++", "-std=c++17", "-O0", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare", "-pthread",
         "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{source}", test, *algorithm, "-o", binary],
        check=True,
    )  # fmt: skip
    done = subprocess.run([binary], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _needs_tensorflow(path: pathlib.Path) -> bool:
    return "tensorflow/" in path.read_text(encoding="utf-8") or path.stem == "simulator_tensors"
