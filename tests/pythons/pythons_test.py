"""What a user does first runs on every Python that the package is for, as far as it is installed with what it needs."""

import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

import pytest
from packaging.specifiers import SpecifierSet

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MINORS = [minor for minor in range(30) if SpecifierSet(PROJECT["requires-python"]).contains(f"3.{minor}.0")]
NEEDED = "import keras, ortools, pymetis, scipy, sonnet, tensorflow"


def interpreters(minor: int) -> list[str]:
    """Programs of a Python: this one, those named in TF_PLACER_PYTHONS, that of the PATH, and pyenv's."""
    name = f"python3.{minor}"
    named = os.environ.get("TF_PLACER_PYTHONS", "").split(os.pathsep)
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    paths = [sys.executable, *named, shutil.which(name), *map(str, pyenv.glob(f"3.{minor}*/bin/{name}"))]
    version = f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}))"
    return [
        path for path in paths if path and subprocess.run([path, "-c", version], check=False).returncode == 0
    ]


def test_the_package_is_for_the_pythons_of_tensorflow():
    assert MINORS == [11, 12, 13]


@pytest.mark.slow
@pytest.mark.parametrize("minor", MINORS)
def test_a_first_use(minor, tmp_path):
    able = [
        path
        for path in interpreters(minor)
        if subprocess.run([path, "-c", NEEDED], capture_output=True, check=False).returncode == 0
    ]
    if not able:
        pytest.skip(f"no Python 3.{minor} with what tf_placer needs; name one in TF_PLACER_PYTHONS")
    done = subprocess.run(
        [able[0], str(pathlib.Path(__file__).with_name("smoke_process.py")), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == f"done (3, {minor})", done.stdout + done.stderr
