"""What one op does, whatever device it runs on: FLOPs, bytes, and the kind of work that is."""

from __future__ import annotations

import dataclasses
import enum


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
