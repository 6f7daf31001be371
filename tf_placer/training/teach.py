"""Teaches a policy on many problems, epoch by epoch, and goes on where it was."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer import arguments
from tf_placer.agents.student import Student
from tf_placer.errors import InputError
from tf_placer.folders import reserved
from tf_placer.search.checkpoint import Checkpoint

_SAVED_EVERY_S = 30.0
_SHORTEST = 0.05  # of the last steps, as a share of the first


@dataclasses.dataclass(frozen=True)
class Epoch:
    """Once through all lessons.

    Attributes:
      number: from 1 on.
      loss: the mean of what the student says of each lesson before its step.
      held_out: the same over problems that are not taught, after the epoch; nan without such.
    """

    number: int
    loss: float
    held_out: float


def teach(
    student: Student,
    lessons: Sequence[Any],
    held_out: Sequence[Any],
    epochs: int,
    seed: int,
    checkpoint: pathlib.Path,
    show: Callable[[Epoch], None] = lambda epoch: None,
    until: int | None = None,
) -> list[Epoch]:
    """Shows a student each lesson once in an epoch, in another order each time, with steps that become shorter.

    The same call goes on where a killed one was, at the end of its last whole epoch that is kept.

    Args:
      student: is changed.
      lessons: what ``student.meets`` made of each problem, in an order that is the same in each call.
      held_out: as many as there are, never taught.
      epochs: in all, those of earlier calls included; steps become shorter over all of them, down to a twentieth.
      seed: of the order.
      checkpoint: folder of this one training, made if need be.
      show: is given each epoch when it ends.
      until: the epoch after which this call ends, for the caller to change the lessons and call again.

    Returns:
      All epochs, those of earlier calls included.

    Raises:
      InputError: no lesson, or a folder that holds another training, is damaged, in use or cannot be written to.
    """
    if not lessons:
        raise InputError("there is no lesson; give at least one")
    last = arguments.whole_number("epochs", epochs, least=1)
    if until is not None:
        last = arguments.whole_number("until", until, least=1, most=epochs)
    with reserved(checkpoint, f"checkpoint={checkpoint}"):
        identity = {"seed": seed, "lessons": len(lessons), "held_out": len(held_out)}
        kept = Checkpoint(checkpoint, identity, _SAVED_EVERY_S)
        kept.track(student, dataclasses.asdict(student.kind))
        history = [Epoch(*entry) for entry in (kept.recorder or {"history": []})["history"]]
        for number in range(len(history) + 1, last + 1):
            order = np.random.default_rng([seed, number]).permutation(len(lessons))
            rate = tf.constant(_step_length((number - 1) / epochs))
            loss = float(np.mean([float(student.learn(lessons[place], rate)) for place in order]))
            unseen = [float(student.loss_of(lesson)) for lesson in held_out]
            history.append(Epoch(number, loss, float(np.mean(unseen)) if unseen else math.nan))
            kept.save(
                number,
                lambda: {"history": [list(dataclasses.astuple(epoch)) for epoch in history]},
                last=number == last,
            )
            show(history[-1])
    return history


def _step_length(share: float) -> float:
    """Of an epoch that begins after that share of all of them: half a cosine, from 1 on."""
    return _SHORTEST + (1 - _SHORTEST) * 0.5 * (1 + math.cos(math.pi * share))
