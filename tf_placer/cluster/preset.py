"""The described machines that come with the package."""

from __future__ import annotations

import pathlib

from tf_placer import arguments
from tf_placer.arguments import nearest
from tf_placer.errors import InputError

_PRESETS = pathlib.Path(__file__).parent / "presets"


def preset_names() -> tuple[str, ...]:
    """Names of all presets, sorted."""
    return tuple(sorted(path.stem for path in _PRESETS.glob("*.toml")))


def preset_path(name: str) -> pathlib.Path:
    """The cluster file of a preset.

    Raises:
      InputError: no preset has this name; the message gives the nearest ones.
    """
    arguments.text("name", name, f"give one of {', '.join(preset_names())}")
    if name not in preset_names():
        raise InputError(f"unknown cluster preset {name!r}; {nearest(name, preset_names())}")
    return _PRESETS / f"{name}.toml"
