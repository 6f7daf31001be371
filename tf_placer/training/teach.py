"""Teaches a policy on many problems, epoch by epoch, and goes on where it was."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf_placer import arguments
from tf_placer.agents.student import Student
from tf_placer.errors import InputError
from tf_placer.folders import reserved
from tf_placer.search.checkpoint import Checkpoint

_SAVED_EVERY_S = 30.0


@dataclasses.dataclass(frozen=True)
class Epoch:
    """Once through all lessons.

    Attributes:
      number: from 1 on.
      loss: the mean of a decision's -log p in nats, over the lessons, each before its step.
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
) -> list[Epoch]:
    """Shows a student each lesson once in an epoch, in another order each time.

    The same call goes on where a killed one was, at the end of its last whole epoch that is kept.

    Args:
      student: is changed.
      lessons: what ``student.meets`` made of each problem, in an order that is the same in each call.
      held_out: as many as there are, never taught.
      epochs: in all, those of earlier calls included.
      seed: of the order.
      checkpoint: folder of this one training, made if need be.
      show: is given each epoch when it ends.

    Returns:
      All epochs, those of earlier calls included.

    Raises:
      InputError: no lesson, or a folder that holds another training, is damaged, in use or cannot be written to.
    """
    if not lessons:
        raise InputError("there is no lesson; give at least one")
    arguments.whole_number("epochs", epochs, least=1)
    with reserved(checkpoint, f"checkpoint={checkpoint}"):
        identity = {"seed": seed, "lessons": len(lessons), "held_out": len(held_out)}
        kept = Checkpoint(checkpoint, identity, _SAVED_EVERY_S)
        kept.track(student, dataclasses.asdict(student.kind))
        history = [Epoch(*entry) for entry in (kept.recorder or {"history": []})["history"]]
        for number in range(len(history) + 1, epochs + 1):
            order = np.random.default_rng([seed, number]).permutation(len(lessons))
            loss = float(np.mean([float(student.learn(lessons[place])) for place in order]))
            unseen = [float(student.loss_of(lesson)) for lesson in held_out]
            history.append(Epoch(number, loss, float(np.mean(unseen)) if unseen else math.nan))
            kept.save(
                number,
                lambda: {"history": [list(dataclasses.astuple(epoch)) for epoch in history]},
                last=number == epochs,
            )
            show(history[-1])
    return history
