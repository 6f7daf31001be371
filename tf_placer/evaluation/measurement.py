"""Measurement of a batch of placements by an evaluator."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import milliseconds

UNKNOWN_BYTES = -1


class TraceFailed(RuntimeError):
    """A placement did not run to the end of the step that was to be traced."""


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

    Raises:
      InputError: an array has another shape.
    """

    runtime_s: np.ndarray  # [B] float64, of one step; nan where the status is not OK
    peak_bytes: (
        np.ndarray | None
    )  # [B, D] int64 on each device, or ``UNKNOWN_BYTES``; None where all are unknown
    status: np.ndarray  # [B] int32 of ``Status``
    messages: tuple[str, ...]  # [B] one line each, may be ""
    spread_s: np.ndarray | None = None  # [B] float64, interquartile range; None where all steps are alike
    # [B] bool, clearly slower than the best before all steps were timed: ``runtime_s`` is the median of fewer steps,
    # and the status is OK. None where nothing stops early.
    stopped_early: np.ndarray | None = None

    def __repr__(self) -> str:
        ran_s = self.runtime_s[self.status == Status.OK]
        fastest = f", the fastest {milliseconds(float(ran_s.min()))} a step" if len(ran_s) else ""
        return f"<Measurement of {len(self.status)} placements: {len(ran_s)} ran{fastest}>"

    def __post_init__(self) -> None:
        arguments.items_of("messages", self.messages, str, "give a tuple of one text for each placement")
        for name in ("runtime_s", "status", "peak_bytes", "spread_s", "stopped_early"):
            value = getattr(self, name)
            if value is None and name not in ("runtime_s", "status"):
                continue
            arguments.instance_of(name, value, np.ndarray, "give an array, one row for each placement")
            if value.ndim != 1 + (name == "peak_bytes") or len(value) != self.batch:
                needed = f"[{self.batch}{', D' * (name == 'peak_bytes')}]"
                raise InputError(
                    f"{name} has shape {value.shape}, expected {needed}: as many rows as messages"
                )
        if np.any(np.isnan(self.runtime_s) != (self.status != Status.OK)):
            raise InputError("runtime_s must be nan exactly where status is not OK")

    @property
    def batch(self) -> int:
        return len(self.messages)

    @staticmethod
    def joined(parts: Sequence[Measurement], num_devices: int) -> Measurement:
        """The plans of several measurements on D devices, in order; which of them stopped early is dropped."""
        empty = np.zeros(0)
        peaks = [
            np.full((part.batch, num_devices), UNKNOWN_BYTES) if part.peak_bytes is None else part.peak_bytes
            for part in parts
        ]
        spreads_s = [part.spread_s for part in parts if part.spread_s is not None]
        return Measurement(
            runtime_s=np.concatenate([empty, *(part.runtime_s for part in parts)]),
            peak_bytes=np.concatenate(peaks) if any(p.peak_bytes is not None for p in parts) else None,
            status=np.concatenate([np.zeros(0, np.int32), *(part.status for part in parts)]).astype(np.int32),
            messages=tuple(message for part in parts for message in part.messages),
            spread_s=np.concatenate([empty, *spreads_s]) if len(spreads_s) == len(parts) else None,
        )
