"""Optimizers by name, with settings that train the workloads for a few steps."""

from __future__ import annotations

import difflib

import keras

from tf_placer.errors import InputError


def optimizer_named(name: str) -> keras.optimizers.Optimizer:
    """Returns a new optimizer: ``sgd``, ``momentum``, ``rmsprop`` or ``adam``.

    Raises:
      InputError: no such optimizer.
    """
    optimizers = {
        "adam": lambda: keras.optimizers.Adam(learning_rate=0.001),
        "momentum": lambda: keras.optimizers.SGD(learning_rate=0.01, momentum=0.9),
        "rmsprop": lambda: keras.optimizers.RMSprop(learning_rate=0.001),
        "sgd": lambda: keras.optimizers.SGD(learning_rate=0.01),
    }
    if name not in optimizers:
        near = difflib.get_close_matches(name, optimizers, n=3) or sorted(optimizers)
        raise InputError(f"no optimizer is called {name!r}; did you mean {', '.join(near)}?")
    return optimizers[name]()
