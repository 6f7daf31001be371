"""Runs pytest on some files inside Bazel's runfiles; the main module of every test of tools/pytest.bzl."""

import os
import pathlib
import sys
import tempfile

import pytest

# Built by Bazel beside the sources; relative to the runfiles' workspace, the directory of the test.
_PREBUILT = {
    "TF_PLACER_OPS_LIBRARY": pathlib.Path("tf_placer/ops/cc/libtf_placer_ops.so"),
    "TF_PLACER_PLUG_IN_LIBRARY": pathlib.Path("tf_placer/rewrite/cc/libtf_placer_plug_in.so"),
    "TF_PLACER_LOOPBACK_LIBRARY": pathlib.Path("tf_placer/workers/cc/libtf_placer_loopback.so"),
}


def main(test_files: list[str]) -> int:
    """Returns pytest's exit status for the fast tests of some files; 0 where all of them are slow."""
    for variable, library in _PREBUILT.items():
        if library.exists():
            os.environ[variable] = str(library.absolute())
    # Bazel gives no home directory, and matplotlib wants one for its font cache.
    os.environ.setdefault("MPLCONFIGDIR", tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    options = [
        "-c",
        "pyproject.toml",
        "--rootdir=.",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not equivalence",
    ]
    status = pytest.main([*options, *test_files])
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and all(
        "pytest.mark.slow" in pathlib.Path(file).read_text() for file in test_files
    ):
        return 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
