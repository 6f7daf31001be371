"""Measurement of a batch of placements by an evaluator."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import milliseconds

UNKNOWN_BYTES = -1


class Status(enum.IntEnum):
    """Status of a placement. Only OK has a running time."""

    OK = 0
    OUT_OF_MEMORY = 1
    TIMEOUT = 2
    CRASHED = 3
    ILLEGAL = 4

    @classmethod
    def _missing_(cls, value: object) -> Status:
        raise InputError(
            f"value is {arguments.shown(value)}; give a number from 0 to {len(cls) - 1}, or a Status"
        )


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The result of evaluating B placements.

    Attributes:
      runtime_s: [B] float64, seconds of one step; nan where the status is not OK.
      peak_bytes: [B, D] int64, most memory in use on each device, ``UNKNOWN_BYTES`` where that cannot be told; None
        when it can be told of no device.
      status: [B] int32 of ``Status``.
      messages: [B] one line each, "" where there is nothing to say.
      spread_s: [B] float64, interquartile range of the timed steps; None where one step is like another.
      stopped_early: [B] bool, placements that were clearly slower than the best before all their steps were timed:
        ``runtime_s`` is the median of fewer steps, good enough to say that they are slower, and status is OK.
        None where nothing stops early.

    Raises:
      InputError: what is given is not of these shapes.
    """

    runtime_s: np.ndarray
    peak_bytes: np.ndarray | None
    status: np.ndarray
    messages: tuple[str, ...]
    spread_s: np.ndarray | None = None
    stopped_early: np.ndarray | None = None

    def __repr__(self) -> str:
        ran_s = self.runtime_s[self.status == Status.OK]
        fastest = f", the fastest {milliseconds(float(ran_s.min()))} a step" if len(ran_s) else ""
        return f"<Measurement of {len(self.status)} placements: {len(ran_s)} ran{fastest}>"

    def __post_init__(self) -> None:
        for name in ("runtime_s", "peak_bytes", "status", "spread_s", "stopped_early"):
            value = getattr(self, name)
            if value is not None or name in ("runtime_s", "status"):
                arguments.instance_of(name, value, np.ndarray, "give an array, one row for each placement")
        arguments.items_of("messages", self.messages, str, "give a tuple of one text for each placement")
        batch = len(self.messages)
        if self.runtime_s.shape != (batch,) or self.status.shape != (batch,):
            raise InputError(
                f"runtime_s {self.runtime_s.shape}, status {self.status.shape} and {batch} messages "
                "must be of one length; give one of each for each placement"
            )
        if self.peak_bytes is not None and (self.peak_bytes.ndim != 2 or len(self.peak_bytes) != batch):
            raise InputError(f"peak_bytes has shape {self.peak_bytes.shape}, but [B={batch}, D] is needed")
        if self.stopped_early is not None and self.stopped_early.shape != (batch,):
            raise InputError(f"stopped_early has shape {self.stopped_early.shape}, but [B={batch}] is needed")
        if self.spread_s is not None and self.spread_s.shape != (batch,):
            raise InputError(f"spread_s has shape {self.spread_s.shape}, but [B={batch}] is needed")
        if np.any(np.isnan(self.runtime_s) != (self.status != Status.OK)):
            raise InputError("runtime_s must be nan exactly where status is not OK")

    @property
    def batch(self) -> int:
        return len(self.messages)
