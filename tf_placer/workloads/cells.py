"""Networks for images of many cells with parallel branches, as architecture search finds them (Zoph et al. 2018)."""

from __future__ import annotations

import dataclasses

import keras
import tensorflow as tf

from tf_placer.workloads.normalization import FusedBatchNormalization
from tf_placer.workloads.spec import Workload, WorkloadSpec, begin, image_batch, step_of, variants

_SEPARABLE = {"separable_3": 3, "separable_5": 5, "separable_7": 7}
_POOLS = {"average_3": keras.layers.AveragePooling2D, "max_3": keras.layers.MaxPooling2D}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell that was found: pairs of branches, the ends of each of which are added up.

    Attributes:
      pairs: two (operation, input) each. Input 0 is what the cell before the last gives, 1 what the last gives, 2 and
        more are the sums before. Operations are ``separable_3``, ``separable_5``, ``separable_7``, ``average_3``,
        ``max_3``, ``same`` and ``row_column_7``.
      joined: the inputs and sums whose channels are the cell's output.
    """

    pairs: tuple[tuple[tuple[str, int], tuple[str, int]], ...]
    joined: tuple[int, ...]


def cell_network(
    image_size: int,
    classes: int,
    normal: Cell,
    reduction: Cell,
    repeats: int,
    filters: int,
    stem_filters: int,
) -> tuple[keras.Model, tuple[str, ...]]:
    """A network of such cells, and its stages, which are the cells.

    A convolution and two reductions stand before three times ``repeats`` normal cells with a reduction between.

    Args:
      image_size: images are [image_size, image_size, 3].
      normal: keeps the size.
      reduction: halves it.
      repeats: normal cells in a row.
      filters: of the first normal cells; each reduction among them doubles it.
      stem_filters: of the first convolution.
    """
    images = keras.Input((image_size, image_size, 3))
    x = keras.layers.Conv2D(stem_filters, 3, 2, use_bias=False, name="stem_conv")(images)
    before = x = _normalized(x, "stem")
    sizes = [(reduction, filters // 4), (reduction, filters // 2)]
    for part in range(3):
        sizes += [(reduction, filters << part)] * (part > 0) + [(normal, filters << part)] * repeats
    for position, (cell, width) in enumerate(sizes):
        stride = 2 if cell is reduction else 1
        before, x = x, _cell(cell, before, x, width, stride, f"cell_{position}")
    x = keras.layers.ReLU(name="head_relu")(x)
    x = keras.layers.GlobalAveragePooling2D(name="head_pool")(x)
    x = keras.layers.Dense(classes, activation="softmax", name="head_softmax")(x)
    cells = (rf"\bcell_{position}_" for position in range(len(sizes)))
    return keras.Model(images, x), (r"\bstem_", *cells, r"\b(head|sparse_categorical)_")


def _cell(cell: Cell, before: tf.Tensor, x: tf.Tensor, width: int, stride: int, name: str) -> tf.Tensor:
    ends = [_fitted(before, x, width, f"{name}_before"), _narrow(x, width, f"{name}_last")]
    for position, pair in enumerate(cell.pairs):
        both = [
            # What the cell itself has made is as small as its output.
            _operation(operation, ends[end], stride if end < 2 else 1, f"{name}_{position}_{side}")
            for (operation, end), side in zip(pair, ("left", "right"), strict=True)
        ]
        ends.append(keras.layers.Add(name=f"{name}_{position}_add")(both))
    return keras.layers.Concatenate(name=f"{name}_joined")([ends[end] for end in cell.joined])


def _operation(operation: str, x: tf.Tensor, stride: int, name: str) -> tf.Tensor:
    if operation == "same":
        return x
    if operation in _POOLS:
        return _POOLS[operation](3, stride, padding="same", name=f"{name}_pool")(x)
    if operation == "row_column_7":
        return _row_column(x, stride, name)
    for turn, step in (("first", stride), ("second", 1)):
        x = keras.layers.ReLU(name=f"{name}_{turn}_relu")(x)
        x = keras.layers.SeparableConv2D(
            x.shape[-1],
            _SEPARABLE[operation],
            step,
            padding="same",
            use_bias=False,
            name=f"{name}_{turn}_conv",
        )(x)
        x = _normalized(x, f"{name}_{turn}")
    return x


def _row_column(x: tf.Tensor, stride: int, name: str) -> tf.Tensor:
    """A convolution of 1 by 7 and one of 7 by 1."""
    width = x.shape[-1]
    x = keras.layers.ReLU(name=f"{name}_relu")(x)
    for turn, kernel, steps in (("row", (1, 7), (1, stride)), ("column", (7, 1), (stride, 1))):
        x = keras.layers.Conv2D(
            width, kernel, steps, padding="same", use_bias=False, name=f"{name}_{turn}_conv"
        )(x)
    return _normalized(x, name)


def _fitted(before: tf.Tensor, x: tf.Tensor, width: int, name: str) -> tf.Tensor:
    """Output of the cell before the last, with the height and width of the last one's."""
    if before.shape[1] == x.shape[1]:
        return _narrow(before, width, name)
    before = keras.layers.ReLU(name=f"{name}_relu")(before)
    moved = keras.layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_moved_pad")(before)
    moved = keras.layers.Cropping2D(((1, 0), (1, 0)), name=f"{name}_moved_crop")(moved)
    halves = []
    for half, y, filters in (("half", before, width // 2), ("moved", moved, width - width // 2)):
        y = keras.layers.AveragePooling2D(1, 2, name=f"{name}_{half}_pool")(y)
        halves.append(keras.layers.Conv2D(filters, 1, use_bias=False, name=f"{name}_{half}_conv")(y))
    return _normalized(keras.layers.Concatenate(name=f"{name}_halves")(halves), name)


def _narrow(x: tf.Tensor, width: int, name: str) -> tf.Tensor:
    x = keras.layers.ReLU(name=f"{name}_relu")(x)
    x = keras.layers.Conv2D(width, 1, use_bias=False, name=f"{name}_conv")(x)
    return _normalized(x, name)


def _normalized(x: tf.Tensor, name: str) -> tf.Tensor:
    return FusedBatchNormalization(momentum=0.9, name=f"{name}_norm")(x)


_SMALL = {
    "repeats": 1,
    "filters": 16,
    "stem_filters": 8,
    "batch": 4,
    "image_size": 64,
    "classes": 10,
    "optimizer": "sgd",
}

_AMOEBANET_NORMAL = Cell(
    pairs=(
        (("average_3", 0), ("max_3", 1)),
        (("separable_3", 0), ("separable_5", 2)),
        (("separable_3", 0), ("average_3", 3)),
        (("separable_3", 1), ("same", 1)),
        (("same", 0), ("average_3", 1)),
    ),
    joined=(4, 5, 6),
)
_AMOEBANET_REDUCTION = Cell(
    pairs=(
        (("average_3", 0), ("separable_3", 1)),
        (("max_3", 0), ("separable_7", 2)),
        (("separable_7", 0), ("average_3", 1)),
        (("max_3", 0), ("max_3", 1)),
        (("row_column_7", 0), ("separable_3", 5)),
    ),
    joined=(3, 4, 6),
)


def amoebanet(
    repeats: int = 6,
    filters: int = 190,
    stem_filters: int = 96,
    batch: int = 16,
    image_size: int = 331,
    classes: int = 1000,
    optimizer: str = "rmsprop",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on [batch, image_size, image_size, 3]; a stage is a cell.

    By default the paper's large network, N = 6 and F = 190. GO, which places it, says neither size nor batch.

    Args:
      repeats: normal cells in a row, N.
      filters: of the first normal cells, F.
      stem_filters: of the first convolution.
      training: with gradients and update; else forward pass and loss.
    """
    begin(seed)
    model, stages = cell_network(
        image_size, classes, _AMOEBANET_NORMAL, _AMOEBANET_REDUCTION, repeats, filters, stem_filters
    )
    step = step_of(model, optimizer, training)
    return Workload(step, image_batch(batch, image_size, classes, seed), stages)


AMOEBANET: tuple[WorkloadSpec, ...] = variants(
    WorkloadSpec("amoebanet", amoebanet, "AmoebaNet-A (N = 6, F = 190), Real et al. 2018; as in GO's table"),
    small=_SMALL,
)


_NASNET_NORMAL = Cell(
    pairs=(
        (("separable_5", 1), ("separable_3", 0)),
        (("separable_5", 0), ("separable_3", 0)),
        (("average_3", 1), ("same", 0)),
        (("average_3", 0), ("average_3", 0)),
        (("separable_3", 1), ("same", 1)),
    ),
    joined=(0, 2, 3, 4, 5, 6),
)
_NASNET_REDUCTION = Cell(
    pairs=(
        (("separable_5", 1), ("separable_7", 0)),
        (("max_3", 1), ("separable_7", 0)),
        (("average_3", 1), ("separable_5", 0)),
        (("average_3", 2), ("same", 3)),
        (("separable_3", 2), ("max_3", 1)),
    ),
    joined=(3, 4, 5, 6),
)


def nasnet(
    repeats: int = 6,
    filters: int = 168,
    stem_filters: int = 96,
    batch: int = 8,
    image_size: int = 331,
    classes: int = 1000,
    optimizer: str = "rmsprop",
    seed: int = 0,
    training: bool = True,
) -> Workload:
    """Returns a step on [batch, image_size, image_size, 3]; a stage is a cell.

    By default the paper's large network, 6 @ 4032.

    Args:
      repeats: normal cells in a row.
      filters: of the first normal cells, a multiple of 4.
      stem_filters: of the first convolution.
      training: with gradients and update; else forward pass and loss.
    """
    begin(seed)
    model, stages = cell_network(
        image_size, classes, _NASNET_NORMAL, _NASNET_REDUCTION, repeats, filters, stem_filters
    )
    step = step_of(model, optimizer, training)
    return Workload(step, image_batch(batch, image_size, classes, seed), stages)


NASNET: tuple[WorkloadSpec, ...] = variants(
    WorkloadSpec(
        "nasnet", nasnet, "NASNet-A (6 @ 4032) on ImageNet, Zoph et al. 2018; as in Placeto's table"
    ),
    small=_SMALL,
)

ROWS = (*AMOEBANET, *NASNET)
