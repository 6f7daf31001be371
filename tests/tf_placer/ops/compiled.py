"""C++ tests of the algorithms, which know nothing of TensorFlow."""

import functools
import pathlib
import subprocess
import tempfile

from tf_placer.ops import build

_SOURCES = pathlib.Path(build.__file__).parent / "cc"
_COMPILE = (
    "g++", "-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare", "-pthread",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{_SOURCES}",
)  # fmt: skip


def run_compiled(test: pathlib.Path, folder: pathlib.Path) -> None:
    """Compiles a test, and all sources that do without TensorFlow, checked for memory and arithmetic, and runs it."""
    binary = folder / test.stem
    objects = sorted(pathlib.Path(_compiled_sources().name).glob("*.o"))
    subprocess.run([*_COMPILE, test, *objects, "-o", binary], check=True)
    done = subprocess.run([binary], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@functools.cache
def _compiled_sources() -> tempfile.TemporaryDirectory[str]:
    """A folder of objects, made once for all tests of this process."""
    folder = tempfile.TemporaryDirectory(prefix="tf_placer_")
    algorithm = [path for path in _SOURCES.glob("*.cc") if path.stem != "tensorflow_ops"]
    subprocess.run([*_COMPILE, "-c", *algorithm], check=True, cwd=folder.name)
    return folder
