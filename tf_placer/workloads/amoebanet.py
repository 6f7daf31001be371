"""AmoebaNet-A on images (Real et al. 2018)."""

from __future__ import annotations

from tf_placer.workloads.cells import Cell, cell_network
from tf_placer.workloads.images import image_batch
from tf_placer.workloads.spec import WorkloadSpec, variants
from tf_placer.workloads.train_step import begin, step_of
from tf_placer.workloads.workload import Workload

_NORMAL = Cell(
    pairs=(
        (("average_3", 0), ("max_3", 1)),
        (("separable_3", 0), ("separable_5", 2)),
        (("separable_3", 0), ("average_3", 3)),
        (("separable_3", 1), ("same", 1)),
        (("same", 0), ("average_3", 1)),
    ),
    joined=(4, 5, 6),
)
_REDUCTION = Cell(
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
    model, stages = cell_network(image_size, classes, _NORMAL, _REDUCTION, repeats, filters, stem_filters)
    step = step_of(model, optimizer, training)
    return Workload(step, image_batch(batch, image_size, classes, seed), stages)


ROWS: tuple[WorkloadSpec, ...] = variants(
    WorkloadSpec("amoebanet", amoebanet, "AmoebaNet-A (N = 6, F = 190), Real et al. 2018; as in GO's table"),
    small={
        "repeats": 1,
        "filters": 16,
        "stem_filters": 8,
        "batch": 4,
        "image_size": 64,
        "classes": 10,
        "optimizer": "sgd",
    },
)
