"""Public names of a package or a module, written once in its stub (``.pyi``) and imported on first use.

``import tf_placer`` loads no TensorFlow: a command line reports a wrong flag before seconds are spent on it.
"""

from __future__ import annotations

import ast
import importlib
import pathlib
import sys
import types
from typing import Any


class _LazyFace(types.ModuleType):
    """A module whose public names become attributes on first use."""

    def __getattr__(self, name: str) -> Any:
        home = self.__dict__.get("_home_of", {}).get(name)
        if home is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        owner = importlib.import_module(home)
        # A module is no attribute of its package before it is imported.
        value = getattr(owner, name) if hasattr(owner, name) else importlib.import_module(f"{home}.{name}")
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Python binds a submodule in its package when it is imported. The public name wins: tf_placer.search is the
        # function, and the package of that name is found by import statements.
        if name in self.__dict__["_home_of"] and isinstance(value, types.ModuleType):
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        special = (name for name in super().__dir__() if name.startswith("__"))
        return sorted({*special, *self.__dict__["_home_of"]})


def make_lazy(name: str) -> None:
    """Gives a module, which is being imported, the names of its stub: ``from home import name as name``."""
    module = sys.modules[name]
    stub = ast.parse(pathlib.Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf8"))
    imports = (node for node in stub.body if isinstance(node, ast.ImportFrom))
    home_of = {alias.name: node.module for node in imports for alias in node.names}
    module.__dict__.update(_home_of=home_of, __all__=sorted(home_of))
    module.__class__ = _LazyFace
