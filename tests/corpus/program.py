"""What a program of the corpus is: something a TensorFlow user writes, run undecorated and placed.

A program is a function of a ``Make`` alone, in one of the modules of ``TOPICS``: it calls it on each function that a
user would decorate, runs what it gets, and returns all that can be observed. Undecorated, that is a ``tf.function``;
placed, it is ``auto_place``'s.
"""

import dataclasses
import importlib
import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

TOPICS = (
    *("keras_layers", "keras_models", "composites", "strings_and_tables", "datasets"),
    *("control_flow", "randomness", "effects", "gradients", "surroundings", "python_objects", "order"),
    *("order_of_effects", "held_variables", "shared_state", "keras_recompiled", "methods", "traces"),
)


@dataclasses.dataclass
class Make:
    """Makes of a function what runs."""

    folder: pathlib.Path  # an empty one, for what the program saves
    decorate: Callable[[Any], Any]  # of a ``tf.function`` or what one can be made of.
    is_placed: bool = False  # whether that is ``auto_place``'s
    made: list[Any] = dataclasses.field(default_factory=list)  # all that it gave, in order

    def __call__(self, function: Any, **options: Any) -> Any:
        """``options`` are those of ``tf.function``."""
        if options:
            function = tf.function(function, **options)
        self.made.append(self.decorate(function))
        return self.made[-1]

    def traced(self, function: Any) -> Any:
        """Of a ``tf.function`` of a function, as most users decorate."""
        return self(tf.function(function))

    def of_plain(self, function: Any) -> Any:
        """Of a function that is traced as part of others, as Keras' steps are: undecorated it stays what it is."""
        return self(function) if self.is_placed else function


@dataclasses.dataclass(frozen=True)
class Program:
    """One program."""

    topic: str  # what it is about: the module that it is in
    name: str  # of its function
    shows: str  # its docstring's first line
    run: Callable[[Make], Any]  # returns what can be observed
    # a pattern that the warning matches of what runs as it is; empty where all functions are placed
    why: str = ""


def runs_as_it_is(why: str) -> Callable[[Callable[[Make], Any]], Callable[[Make], Any]]:
    """Marks a program of which something cannot be placed; ``why`` is a pattern that the warning matches."""

    def marked(run: Callable[[Make], Any]) -> Callable[[Make], Any]:
        run.why = why  # type: ignore[attr-defined]
        return run

    return marked


def programs() -> dict[str, Program]:
    """All of them, by topic and name."""
    corpus = {}
    for topic in TOPICS:
        module = importlib.import_module(f"tests.corpus.{topic}")
        for name, run in vars(module).items():
            is_own = inspect.isfunction(run) and run.__module__ == module.__name__ and name[0] != "_"
            if is_own and list(inspect.signature(run).parameters) == ["make"]:
                shows = str(run.__doc__).splitlines()[0]
                corpus[f"{topic}.{name}"] = Program(topic, name, shows, run, getattr(run, "why", ""))
    return corpus
