"""Steps of Keras models, kept open for placing: not compiled as one program where nobody asked for that."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras


def open_keras_steps(say: Callable[[str], None]) -> None:
    """Has ``jit_compile="auto"`` of Keras mean no compilation: in a compiled step, one call, nothing can be placed.

    Args:
      say: is told of each model that this is about.
    """
    compile_as_it_is = keras.Model.compile
    signature = inspect.signature(compile_as_it_is)
    default = signature.parameters["jit_compile"].default  # Keras decides

    @functools.wraps(compile_as_it_is)
    def compile_open(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        result = compile_as_it_is(self, *args, **kwargs)
        asked = signature.bind(self, *args, **kwargs).arguments.get("jit_compile", default)
        if asked == default and self.jit_compile:
            self.jit_compile = False
            say(
                f"model {self.name}: jit_compile='auto' would compile its step as one program; it is left open"
            )
        return result

    keras.Model.compile = compile_open
