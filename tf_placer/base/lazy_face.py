"""Public names of a package, imported when they are first asked for.

``import tf_placer`` loads no TensorFlow: a command line says that a flag is wrong before seconds are spent on it.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Mapping
from typing import Any


class _LazyFace(types.ModuleType):
    """A package whose public names are attributes only once they were asked for."""

    _home_of: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        home = self.__dict__["_home_of"].get(name)
        if home is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
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


def make_lazy(package: str, home_of: Mapping[str, str]) -> None:
    """Gives a package its public names.

    Args:
      package: its ``__name__``; it is being imported.
      home_of: public name -> module that defines it.
    """
    module = sys.modules[package]
    module.__dict__["_home_of"] = dict(home_of)
    module.__class__ = _LazyFace
