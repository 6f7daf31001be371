"""Build backend of the package: setuptools', which finds TensorFlow where it is installed instead of downloading it.

Compiling needs TensorFlow's headers. pip builds in an environment of its own, which begins empty: it is told to put
TensorFlow there only where the environment that is installed into has none, or another version.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - the hooks that are setuptools' own

TENSORFLOW = "2.21"
_ASK = "import importlib.metadata, importlib.util\nif importlib.util.find_spec('tensorflow'): "
_ASK += "print(importlib.metadata.version('tensorflow'))"


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What pip puts into the environment of the build."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *missing_tensorflow()]


get_requires_for_build_editable = get_requires_for_build_wheel


def missing_tensorflow() -> list[str]:
    """The requirement, where what lies outside of the build does not meet it."""
    return [] if _has_tensorflow(_outside()) else [f"tensorflow=={TENSORFLOW}.*"]


def environment_with_tensorflow() -> dict[str, str]:
    """Environment variables with which Python finds TensorFlow: that of the build, or what lies outside of it."""
    outside = _outside()
    return outside if _has_tensorflow(outside) else dict(os.environ)


def _outside() -> dict[str, str]:
    """Environment variables without those by which pip hides what is installed (PYTHONPATH)."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _has_tensorflow(environment: dict[str, str]) -> bool:
    asked = subprocess.run(
        [sys.executable, "-c", _ASK], env=environment, capture_output=True, text=True, check=False
    )
    return asked.stdout.startswith(f"{TENSORFLOW}.")
