"""Compiles the C++ libraries into the wheel; what else a build needs is in pyproject.toml and wheel_backend.py."""

import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).parent
sys.path.insert(0, str(ROOT / "tools"))

from wheel_backend import environment_with_tensorflow  # noqa: E402 - beside setup.py, which is not on the path


class BuildWithLibraries(build_py):
    """Modules and data as ever, and the libraries for the TensorFlow that is installed."""

    def run(self):
        super().run()
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) is None:
            self.warn(f"{compiler} not found: the wheel carries no compiled library; install g++ or set CXX")
            return
        folders = [] if self.editable_mode else [str(pathlib.Path(self.build_lib).absolute())]
        command = [sys.executable, "-m", "tools.compile_libraries", *folders]
        subprocess.run(command, cwd=ROOT, env=environment_with_tensorflow(), check=True)


class DistributionWithLibraries(Distribution):
    """One whose wheel is of this Python and platform."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": BuildWithLibraries}, distclass=DistributionWithLibraries)
