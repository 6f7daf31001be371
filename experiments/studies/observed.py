"""Curves of searches, and learned methods whose learner is watched: what it drew, and how sure its policy is."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.agents.learner import PolicyLearner, Proposal
from tf_placer.base.method_spec import MethodSpec
from tf_placer.search.recorder import HistoryEntry

# The entropy is asked for at a few updates only: at each that is so many times as late as the one before.
_LATER = 1.15


@dataclasses.dataclass(frozen=True)
class Point:
    """A search at one moment."""

    evaluations: int  # placements tried so far
    elapsed_s: float  # seconds since the start
    best_s: float  # fastest step so far, nan while nothing ran
    mean_s: float  # mean step of what was tried since the point before and ran, nan if nothing did


def curve_of(history: Sequence[HistoryEntry], points: int) -> list[Point]:
    """Curve of at most ``points`` points, evenly spaced in evaluations; the last is the end.

    A round's mean counts as often as it has placements that ran; where a round says only its best, it is that.
    """
    if not history:
        return []
    step = history[-1].evaluations / points
    curve: list[Point] = []
    sum_s, ran, before = 0.0, 0, 0
    for entry in history:
        rows = entry.evaluations - before - entry.failed
        if rows > 0 and not math.isnan(entry.mean_s):
            sum_s, ran = sum_s + rows * entry.mean_s, ran + rows
        before = entry.evaluations
        if entry is history[-1] or entry.evaluations >= step * (len(curve) + 1):
            mean_s = sum_s / ran if ran else math.nan
            curve.append(Point(entry.evaluations, entry.elapsed_s, entry.best_s, mean_s))
            sum_s, ran = 0.0, 0
    return curve


@dataclasses.dataclass
class Seen:
    """Samples of one learner. The start of a search, and so its own best so far, is not among them."""

    most: float = math.inf  # samples that count; what an update has beyond them does not
    history: list[HistoryEntry] = dataclasses.field(default_factory=list)  # an entry for each update
    ran_s: list[np.ndarray] = dataclasses.field(default_factory=list)  # steps of the samples of each that ran
    # Pairs of samples so far, and the policy's mean entropy of a decision in nats, if the learner tells.
    entropy: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    begin_s: float = dataclasses.field(default_factory=time.monotonic)  # on the monotonic clock

    @property
    def updates(self) -> int:
        """Updates so far."""
        return len(self.history)

    @property
    def samples(self) -> int:
        """Samples so far."""
        return self.history[-1].evaluations if self.history else 0

    @property
    def best_s(self) -> float:
        """The fastest step of all samples, nan where none ran."""
        return self.history[-1].best_s if self.history else math.nan

    def add(self, runtime_s: np.ndarray, valid: np.ndarray) -> None:
        """Takes in what an update was given: [B] step times, and [B] bool which of them ran."""
        count = int(min(len(runtime_s), self.most - self.samples))
        ran_s = np.asarray(runtime_s, np.float64)[:count][np.asarray(valid, bool)[:count]]
        self.ran_s.append(ran_s)
        self.history.append(
            HistoryEntry(
                evaluations=self.samples + count,
                elapsed_s=time.monotonic() - self.begin_s,
                best_s=float(np.fmin.reduce(ran_s, initial=self.best_s)),
                mean_s=float(ran_s.mean()) if len(ran_s) else math.nan,
                failed=count - len(ran_s),
            )
        )

    def first(self, window: int) -> tuple[float, float]:
        """Fastest and mean step, of the first updates that together have at least ``window`` samples.

        Of the samples that ran; infinite and nan where none did.
        """
        return self._best_and_mean_s(window, 1)

    def last(self, window: int) -> tuple[float, float]:
        """The same of the last updates."""
        return self._best_and_mean_s(window, -1)

    def _best_and_mean_s(self, window: int, step: int) -> tuple[float, float]:
        samples = np.diff([entry.evaluations for entry in self.history], prepend=0)[::step].cumsum()
        ran_s = np.concatenate([[], *self.ran_s[::step][: np.searchsorted(samples, window) + 1]])
        return float(ran_s.min(initial=math.inf)), float(ran_s.mean()) if len(ran_s) else math.nan


def observed(spec: MethodSpec, evaluations: int) -> tuple[MethodSpec, Seen]:
    """The same learned method, and what is going to be seen of its next learner in a search of so many evaluations."""
    seen = Seen(most=evaluations - 1 if spec.uses_start else evaluations)

    def build(*given: Any) -> _Watched:
        return _Watched(spec.build(*given), seen)

    return dataclasses.replace(spec, build=build), seen


class _Watched(tf.Module):
    """A learner that does what another one does."""

    def __init__(self, learner: PolicyLearner, seen: Seen):
        super().__init__(name="watched")
        self._learner = learner
        self._seen = seen
        self._next = 1

    def propose(self) -> Proposal:
        return self._learner.propose()

    def learn(self, actions: Any, runtime_s: tf.Tensor, valid: tf.Tensor) -> None:
        self._learner.learn(actions, runtime_s, valid)
        self._seen.add(runtime_s.numpy(), valid.numpy())
        entropy = getattr(self._learner, "entropy", None)
        if callable(entropy) and self._seen.updates >= self._next:
            self._next = max(self._next + 1, math.ceil(self._next * _LATER))
            self._seen.entropy.append((self._seen.samples, float(entropy())))
