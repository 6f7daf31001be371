"""Settings by name: ours, or those of an agent's paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tf_placer.arguments import nearest, text
from tf_placer.errors import InputError

OURS = "ours"


def take_preset(config: Any, presets: Mapping[str, Mapping[str, Any]]) -> None:
    """Gives a frozen dataclass, while it is made, the values of its preset.

    A field that has another value than its default was set by someone, and keeps it. One that was set to its default
    cannot be told from one that was not set.

    Args:
      config: with a field ``preset``; ``"ours"`` are the defaults.
      presets: field -> value of each other preset.

    Raises:
      InputError: no such preset.
    """
    name = text("preset", config.preset, "give the name of a preset")
    if name == OURS:
        return
    if name not in presets:
        raise InputError(f"preset is {name!r}; {nearest(name, [OURS, *presets])}")
    for field in dataclasses.fields(config):
        if field.name in presets[name] and getattr(config, field.name) == field.default:
            object.__setattr__(config, field.name, presets[name][field.name])
