"""Settings that a preset decides, such as a paper's, unless they are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_placer import arguments
from tf_placer.errors import InputError

OF_PRESET: Any = None
"""The default of a field whose value its preset decides."""


def fill_in(config: Any, presets: Mapping[str, Mapping[str, object]]) -> None:
    """Gives each field that is ``OF_PRESET`` the value of ``config.preset``; for ``__post_init__``.

    A field that is given wins: it is what it is in every preset.

    Args:
      config: frozen dataclass, changed; its field ``preset`` names one.
      presets: name -> field -> value, the same fields in all.

    Raises:
      InputError: no preset has this name.
    """
    name = arguments.text("preset", config.preset, "give the name of one")
    if name not in presets:
        raise InputError(f"preset is {name!r}; {arguments.nearest(name, sorted(presets))}")
    for field, value in presets[name].items():
        if getattr(config, field) is OF_PRESET:
            object.__setattr__(config, field, value)
