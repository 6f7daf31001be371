"""Trial of a plan against the function as it is, on the user's own first steps."""

from __future__ import annotations

import dataclasses
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from colocation.tensorflow_internals import ConcreteFunction, call_flat, wait_for_ops
from tf_placer.runtime.timing import OtherLoad, clearly_slower

WARMUP_STEPS = 2
TIMED_STEPS = 9  # eight of them faster is clear
MOST_STEPS = 5 * (WARMUP_STEPS + TIMED_STEPS)  # of each; where steps overlap there may never be enough

# The trials whose variables are where their plans have them, of which there is one at a time: functions share variables
# (a step to train and one to test), and each puts them back to where it found them.
_with_plan: weakref.WeakSet[Trial] = weakref.WeakSet()
_taking_turns = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Verdict of a trial."""

    is_used: bool  # calls run by the plan
    # placed_s, unplaced_s: seconds of a step by the plan and as it is; None where they could not be timed, so that the
    # race has the last word
    placed_s: float | None = None
    unplaced_s: float | None = None
    # share of the CPUs that other processes took meanwhile; None where nobody knows
    load: float | None = dataclasses.field(default=None, compare=False)


class Trial:
    """Runs a user's steps, the first ones as they are and as many more by the plan, and keeps what is faster.

    Every step runs once: what it does to variables, files or the screen is the user's. The steps as they are come
    first, while the variables are where they were, since a function whose variables live on workers is slower by
    itself. A step is timed from the call until its outputs can be read. One that another call overlaps is not timed,
    and variables move only while none runs. While another function's trial has its variables moved, this one waits.
    """

    def __init__(
        self,
        traced: ConcreteFunction,
        place: Callable[[], ConcreteFunction],
        move_back: Callable[[], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Begins with the function as it is.

        ``place`` moves its variables to where the plan has them, and makes the function that runs by it; ``move_back``
        moves them to where they were before that.
        """
        self._traced = traced
        self._place = place
        self._move_back = move_back
        self._clock = clock
        self._lock = threading.RLock()
        self._placed: ConcreteFunction | None = None
        self._begun = {False: 0, True: 0}  # steps as it is, and by the plan
        self._samples_s: dict[bool, list[float]] = {False: [], True: []}
        self._load = OtherLoad()
        self._running = 0
        self._is_overlapped = False
        self.verdict: Verdict | None = None  # None while it runs

    @property
    def concrete(self) -> ConcreteFunction:
        """Function that the last step ran."""
        return self._traced if self._placed is None else self._placed

    def call(self, inputs: Sequence[tf.Tensor]) -> Any:
        """Runs a step on inputs of ``call_flat``; it may be timed.

        Raises whatever the step does; or, before it runs, what keeps the variables from being moved.
        """
        with self._lock:
            if not self._running:
                self._go_on()
                self._is_overlapped = False
            concrete, is_placed = self.concrete, self._placed is not None
            self._running += 1
            self._is_overlapped |= self._running > 1
            self._begun[is_placed] += 1
            is_timed = self.verdict is None and self._begun[is_placed] > WARMUP_STEPS
        try:
            start_s = self._clock()
            outputs = call_flat(concrete, inputs)
            if is_timed:
                wait_for(outputs)
            took_s = self._clock() - start_s
            with self._lock:
                if is_timed and not self._is_overlapped:
                    self._samples_s[is_placed].append(took_s)
        finally:
            with self._lock:
                self._running -= 1
        return outputs

    def end(self) -> None:
        """Ends it before it has found anything, where steps cannot be timed: the plan is used, unless a step runs.

        Raises whatever keeps the variables from being moved.
        """
        with self._lock:
            if self.verdict is None and not self._running:
                self._leave()
                self._placed = self._placed or self._place()
                self.verdict = Verdict(is_used=True)

    def _go_on(self) -> None:
        """Goes on to steps by the plan, or to the verdict, when there are enough steps; nothing runs meanwhile."""
        if self.verdict is not None:
            return
        is_placed = self._placed is not None
        has_samples = len(self._samples_s[is_placed]) >= TIMED_STEPS
        if not has_samples and self._begun[is_placed] < MOST_STEPS:
            return
        if not has_samples:
            self.end()
        elif is_placed:
            unplaced_s, placed_s = (self._samples_s[by_plan][-TIMED_STEPS:] for by_plan in (False, True))
            is_used = clearly_slower(unplaced_s, placed_s)
            self._leave()
            if not is_used:
                self._move_back()
                self._placed = None
            medians_s = (float(np.median(placed_s)), float(np.median(unplaced_s)))
            self.verdict = Verdict(is_used, *medians_s, load=self._load.share)
        else:
            with _taking_turns:  # another trial runs its plan, unless that takes too long
                if _with_plan and self._begun[False] < MOST_STEPS:
                    return
                _with_plan.add(self)
            try:
                self._placed = self._place()
            except BaseException:
                self._leave()
                raise

    def _leave(self) -> None:
        with _taking_turns:
            _with_plan.discard(self)


def wait_for(outputs: Any) -> None:
    """Waits until the outputs of a step can be read, wherever they are."""
    for output in tf.nest.flatten(outputs, expand_composites=True):
        if isinstance(output, tf.Tensor) and output.dtype not in (tf.resource, tf.variant):
            output.numpy()
    wait_for_ops()  # what gives nothing back may still run
