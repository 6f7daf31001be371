"""Optimizers by name, with settings that train the workloads for a few steps."""

from __future__ import annotations

import keras

from tf_placer.arguments import nearest
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
        raise InputError(f"no optimizer is called {name!r}; {nearest(name, optimizers)}")
    return optimizers[name]()
