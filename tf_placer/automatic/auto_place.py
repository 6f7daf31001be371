"""auto_place: one call that makes of a function one that finds and keeps its own placement."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from colocation.tensorflow_internals import Function
from tf_placer import arguments
from tf_placer.automatic.auto_placed import AutoPlaced
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.errors import InputError


def auto_place(fn: Callable | None = None, **settings: Any) -> Any:
    """Wraps a ``tf.function`` so that its first call finds a placement for it and later calls run that.

        @tf_placer.auto_place(cluster="local", budget_s=60)
        @tf.function
        def train_step(x, y): ...

    It is the same function otherwise. Where it cannot be placed it runs as it is, with one warning (``RunsAsItIs``)
    that says why; with ``strict=True`` that is an ``InputError``.

    Args:
      fn: a ``tf.function``, or what one can be made of: a Python function, a bound method, a Keras model. Without, a
        decorator is returned.
      **settings: fields of ``AutoPlaceConfig``.

    Raises:
      InputError: ``fn`` is not a function, or a setting is not possible.
    """
    known = {field.name for field in dataclasses.fields(AutoPlaceConfig)}
    for name in settings:
        if name not in known:
            raise InputError(f"auto_place has no setting {name!r}; {arguments.nearest(name, known)}")
    config = AutoPlaceConfig(**settings)
    if fn is None:
        return functools.partial(_wrap, config=config)
    return _wrap(fn, config)


def _wrap(fn: Any, config: AutoPlaceConfig) -> AutoPlaced:
    if isinstance(fn, AutoPlaced):
        raise InputError(f"fn is {fn.name!r}, which is auto-placed already; apply auto_place once")
    if isinstance(fn, Function):
        return AutoPlaced(fn, config)
    arguments.function("fn", fn, "give a tf.function, or what one can be made of")
    return AutoPlaced(tf.function(fn), config, is_python=True)
