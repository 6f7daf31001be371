"""Experiments as modules, without their flags, whose names others have, too."""

import functools
import importlib
import types

from absl import flags


@functools.cache
def loaded(name: str) -> tuple[types.ModuleType, flags.FlagValues]:
    """An experiment and the flags that it adds, which are then gone: the next one may call its own alike."""
    own = flags.FlagValues()
    module = importlib.import_module(f"experiments.{name}")
    for flag in flags.FLAGS.flags_by_module_dict().get(module.__name__, []):
        own[flag.name] = flag
    for flag in own:
        delattr(flags.FLAGS, flag)
    return module, own
