"""What every op of a graph does, whatever device it runs on."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError


@dataclasses.dataclass(frozen=True, eq=False)
class OpWork:
    """Device-independent work of N ops, as estimated; where a device is profiled, times do not follow from it.

    An op that calls functions has the work of what it calls: a loop its body's and its condition's times its trip count
    (once where that is unknown), a branch the most of each that one of its branches has. An op of a type without
    formula has the bytes of its inputs and outputs and no FLOPs.

    Attributes:
      flops: [N] float64, floating point operations; a multiply-add counts two.
      num_bytes: [N] float64, bytes read and written.
      launches: [N] float64, kernels started; 0 for what is free everywhere.

    Raises:
      InputError: no numbers, a negative one or one that is not finite, or arrays of different lengths.
    """

    flops: np.ndarray
    num_bytes: np.ndarray
    launches: np.ndarray

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _amounts(field.name, getattr(self, field.name)))
        lengths = [len(getattr(self, field.name)) for field in dataclasses.fields(self)]
        if len(set(lengths)) > 1:
            raise InputError(f"flops, num_bytes and launches have {lengths} entries; give one for each op")

    def sum(self) -> np.ndarray:
        """[3] float64: FLOPs, bytes and launches of all ops together."""
        return np.array([self.flops.sum(), self.num_bytes.sum(), self.launches.sum()])

    def times(self, count: float) -> OpWork:
        """The work of doing all of it ``count`` times."""
        return OpWork(self.flops * count, self.num_bytes * count, self.launches * count)

    @staticmethod
    def joined(parts: Sequence[OpWork]) -> OpWork:
        """The ops of all parts, one after the other."""
        fields = [field.name for field in dataclasses.fields(OpWork)]
        return OpWork(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def _amounts(name: str, value: object) -> np.ndarray:
    try:
        amounts = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        amounts = np.full(1, np.nan)
    if amounts.ndim != 1 or not np.isfinite(amounts).all() or (amounts < 0).any():
        raise InputError(f"{name} is {arguments.shown(value)}; give one number of at least 0 for each op")
    return amounts


# What one op does, whatever device it runs on: FLOPs, bytes, and the kind of work that is.


class Kind(enum.IntEnum):
    """Classes of work that share an efficiency (``efficiency.py``)."""

    FREE = 0  # starts no kernel: exactly 0 on every device
    CONVOLUTION = 1
    DEPTHWISE_CONVOLUTION = 2
    MATRIX_PRODUCT = 3
    STREAMING = 4  # element-wise: each byte once, in order
    REDUCTION = 5  # pooling, sums, softmax, batch normalization
    REARRANGEMENT = 6  # transpose, concatenate, pad: each byte once, out of order
    IRREGULAR = 7  # gather, scatter, segments: addresses from data
    RANDOM = 8


@dataclasses.dataclass(frozen=True)
class Work:
    """Device-independent cost of one op.

    Attributes:
      kind: the class that decides the efficiencies.
      flops: floating point operations; a multiply-add counts two.
      num_bytes: bytes read and written.
      guessed: no formula is known for this op type; ``num_bytes`` is its inputs and outputs.
    """

    kind: Kind
    flops: float
    num_bytes: float
    guessed: bool = False


FREE = Work(Kind.FREE, 0.0, 0.0)
