"""What a program of the corpus is: something a TensorFlow user writes, run undecorated and placed.

A program is a function of a ``Make``: it calls it on each function that a user would decorate, runs what it gets, and
returns all that can be observed. Undecorated, that is a ``tf.function``; placed, it is ``auto_place``'s.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

PLACED, AS_IT_IS = "placed", "as it is"


@dataclasses.dataclass
class Make:
    """Makes of a function what runs.

    Attributes:
      folder: an empty one, for what the program saves.
      decorate: of a ``tf.function`` or what one can be made of.
      is_placed: whether that is ``auto_place``'s.
      made: all that it gave, in order.
    """

    folder: pathlib.Path
    decorate: Callable[[Any], Any]
    is_placed: bool = False
    made: list[Any] = dataclasses.field(default_factory=list)

    def __call__(self, function: Any, **options: Any) -> Any:
        """``options`` are those of ``tf.function``."""
        if options:
            function = tf.function(function, **options)
        self.made.append(self.decorate(function))
        return self.made[-1]

    def of_plain(self, function: Any) -> Any:
        """Of a function that is traced as part of others, as Keras' steps are: undecorated it stays what it is."""
        return self(function) if self.is_placed else function


@dataclasses.dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
      topic: what it is about: the module that it is in.
      name: of its function.
      shows: its docstring's first line.
      run: returns what can be observed.
      outcome: ``PLACED``: every function is; ``AS_IT_IS``: some run unplaced, with a warning.
      why: a pattern that the warning matches; empty where all are placed.
    """

    topic: str
    name: str
    shows: str
    run: Callable[[Make], Any]
    outcome: str
    why: str


PROGRAMS: dict[str, Program] = {}


def program(run: Callable[[Make], Any]) -> Callable[[Make], Any]:
    """Adds a program all of whose functions can be placed."""
    return _add(run, PLACED, "")


def runs_as_it_is(why: str) -> Callable[[Callable[[Make], Any]], Callable[[Make], Any]]:
    """Adds a program of which something cannot be placed; ``why`` is a pattern that the warning matches."""
    return lambda run: _add(run, AS_IT_IS, why)


def _add(run: Callable[[Make], Any], outcome: str, why: str) -> Callable[[Make], Any]:
    topic = run.__module__.rpartition(".")[2]
    name = f"{topic}.{run.__name__}"
    assert name not in PROGRAMS, f"{name} is there twice"
    PROGRAMS[name] = Program(topic, run.__name__, str(run.__doc__).splitlines()[0], run, outcome, why)
    return run
