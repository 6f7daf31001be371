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
      work_class: [N] int64, values of ``WorkClass``; of an op that calls functions the class of its longest op.
        Where it is not given, ``FREE`` for what starts no kernel and else ``UNCLASSIFIED``.

    Raises:
      InputError: no numbers, a negative one or one that is not finite, a class that is none, or arrays of different
        lengths.
    """

    flops: np.ndarray
    num_bytes: np.ndarray
    launches: np.ndarray
    work_class: np.ndarray = None  # type: ignore[assignment]  # made below

    def __post_init__(self) -> None:
        for name in _AMOUNTS:
            object.__setattr__(self, name, _amounts(name, getattr(self, name)))
        lengths = [len(getattr(self, name)) for name in _AMOUNTS]
        if len(set(lengths)) > 1:
            raise InputError(f"flops, num_bytes and launches have {lengths} entries; give one for each op")
        classes = _default_classes(self.launches) if self.work_class is None else self.work_class
        object.__setattr__(self, "work_class", _checked_classes(classes, lengths[0]))

    def sum(self) -> np.ndarray:
        """[3] float64: FLOPs, bytes and launches of all ops together."""
        return np.array([self.flops.sum(), self.num_bytes.sum(), self.launches.sum()])

    def times(self, count: float) -> OpWork:
        """The work of doing all of it ``count`` times."""
        return OpWork(self.flops * count, self.num_bytes * count, self.launches * count, self.work_class)

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


_AMOUNTS = ("flops", "num_bytes", "launches")


def _default_classes(launches: np.ndarray) -> np.ndarray:
    return np.where(launches > 0, WorkClass.UNCLASSIFIED, WorkClass.FREE)


def _checked_classes(value: object, length: int) -> np.ndarray:
    try:
        classes = np.asarray(value)
    except (TypeError, ValueError):
        classes = np.zeros(0)
    is_class = classes.dtype.kind == "i" and np.isin(classes, list(WorkClass)).all()
    if classes.shape != (length,) or not is_class:
        raise InputError(f"work_class is {arguments.shown(value)}; give a WorkClass for each of {length} ops")
    return classes.astype(np.int64)


# What one op does, whatever device it runs on: FLOPs, bytes, and the class of work that is.


class Kind(enum.IntEnum):
    """Kinds of work: what the classes of one kind have in common."""

    FREE = 0  # starts no kernel: exactly 0 on every device
    CONVOLUTION = 1
    DEPTHWISE_CONVOLUTION = 2
    MATRIX_PRODUCT = 3
    STREAMING = 4  # element-wise: each byte once, in order
    REDUCTION = 5  # pooling, sums, softmax, batch normalization
    REARRANGEMENT = 6  # transpose, concatenate, pad: each byte once, out of order
    IRREGULAR = 7  # gather, scatter, segments: addresses from data
    RANDOM = 8


class WorkClass(enum.IntEnum):
    """Classes of work that share an efficiency on GPUs (``shares.py``). Problem files have the numbers.

    Convolutions: of one position; with strides; of the first layer, whose images have few channels; with windows of
    3 x 3 without strides, for which libraries have Winograd's algorithm, by the smaller of the numbers of channels (at
    most 32, 64, 128, or more), those of small images apart; with larger windows of rows and columns alike; and all
    others. Each forward, for the input's gradient and for the filter's. Matrix products: by the smaller side of the
    result.
    """

    FREE = 0
    UNCLASSIFIED = 1  # of a file older than classes
    CONVOLUTION_1X1 = 10
    CONVOLUTION_1X1_INPUT_GRADIENT = 11
    CONVOLUTION_1X1_FILTER_GRADIENT = 12
    CONVOLUTION_STRIDED = 13
    CONVOLUTION_STRIDED_INPUT_GRADIENT = 14
    CONVOLUTION_STRIDED_FILTER_GRADIENT = 15
    CONVOLUTION_FIRST = 16
    CONVOLUTION_FIRST_INPUT_GRADIENT = 17
    CONVOLUTION_FIRST_FILTER_GRADIENT = 18
    CONVOLUTION_3X3_TO_32 = 19
    CONVOLUTION_3X3_TO_32_INPUT_GRADIENT = 20
    CONVOLUTION_3X3_TO_32_FILTER_GRADIENT = 21
    CONVOLUTION_3X3_TO_64 = 22
    CONVOLUTION_3X3_TO_64_INPUT_GRADIENT = 23
    CONVOLUTION_3X3_TO_64_FILTER_GRADIENT = 24
    CONVOLUTION_3X3_TO_128 = 25
    CONVOLUTION_3X3_TO_128_INPUT_GRADIENT = 26
    CONVOLUTION_3X3_TO_128_FILTER_GRADIENT = 27
    CONVOLUTION_3X3_WIDE = 28
    CONVOLUTION_3X3_WIDE_INPUT_GRADIENT = 29
    CONVOLUTION_3X3_WIDE_FILTER_GRADIENT = 30
    CONVOLUTION_3X3_SMALL = 31
    CONVOLUTION_3X3_SMALL_INPUT_GRADIENT = 32
    CONVOLUTION_3X3_SMALL_FILTER_GRADIENT = 33
    CONVOLUTION_SQUARE = 34
    CONVOLUTION_SQUARE_INPUT_GRADIENT = 35
    CONVOLUTION_SQUARE_FILTER_GRADIENT = 36
    CONVOLUTION_OTHER = 37
    CONVOLUTION_OTHER_INPUT_GRADIENT = 38
    CONVOLUTION_OTHER_FILTER_GRADIENT = 39
    DEPTHWISE_CONVOLUTION = 40
    PRODUCT_TO_16 = 50
    PRODUCT_TO_32 = 51
    PRODUCT_TO_64 = 52
    PRODUCT_TO_128 = 53
    PRODUCT_WIDE = 54
    BATCHED_PRODUCT_TO_64 = 55
    BATCHED_PRODUCT_TO_128 = 56
    BATCHED_PRODUCT_WIDE = 57
    STREAMING = 60
    REDUCTION = 61
    BATCH_NORMALIZATION = 62
    BATCH_NORMALIZATION_GRADIENT = 63
    POOLING = 64
    SOFTMAX = 65
    REARRANGEMENT = 66
    IRREGULAR = 67
    RANDOM = 68

    @property
    def kind(self) -> Kind:
        """The kind of work that the class is."""
        return _KIND_OF_CLASS[self]

    @property
    def is_3x3(self) -> bool:
        """A convolution with windows of 3 x 3 and no strides."""
        return self.name.startswith("CONVOLUTION_3X3")


def _kind_of(work_class: WorkClass) -> Kind:
    if work_class.name in Kind.__members__:
        return Kind[work_class.name]
    if work_class.name.startswith("CONVOLUTION"):
        return Kind.CONVOLUTION
    if "PRODUCT" in work_class.name:
        return Kind.MATRIX_PRODUCT
    return Kind.STREAMING if work_class is WorkClass.UNCLASSIFIED else Kind.REDUCTION


_KIND_OF_CLASS = {work_class: _kind_of(work_class) for work_class in WorkClass}


@dataclasses.dataclass(frozen=True)
class Work:
    """Device-independent cost of one op.

    Attributes:
      work_class: decides the efficiencies.
      flops: floating point operations; a multiply-add counts two.
      num_bytes: bytes read and written.
      tiles: pieces of the result, of 64 x 64 elements, that run side by side, each on one multiprocessor; 0 where the
        kernel makes as many pieces as there are multiprocessors.
      guessed: no formula is known for this op type; ``num_bytes`` is its inputs and outputs.
    """

    work_class: WorkClass
    flops: float
    num_bytes: float
    tiles: int = 0
    guessed: bool = False


FREE = Work(WorkClass.FREE, 0.0, 0.0)
