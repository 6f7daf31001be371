"""NASNet-A on images (Zoph et al. 2018)."""

from __future__ import annotations

from tf_placer.workloads.cells import Cell, cell_network
from tf_placer.workloads.images import image_batch
from tf_placer.workloads.spec import WorkloadSpec, variants
from tf_placer.workloads.train_step import begin, step_of
from tf_placer.workloads.workload import Workload

_NORMAL = Cell(
    pairs=(
        (("separable_5", 1), ("separable_3", 0)),
        (("separable_5", 0), ("separable_3", 0)),
        (("average_3", 1), ("same", 0)),
        (("average_3", 0), ("average_3", 0)),
        (("separable_3", 1), ("same", 1)),
    ),
    joined=(0, 2, 3, 4, 5, 6),
)
_REDUCTION = Cell(
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
    model, stages = cell_network(image_size, classes, _NORMAL, _REDUCTION, repeats, filters, stem_filters)
    step = step_of(model, optimizer, training)
    return Workload(step, image_batch(batch, image_size, classes, seed), stages)


ROWS: tuple[WorkloadSpec, ...] = variants(
    WorkloadSpec(
        "nasnet", nasnet, "NASNet-A (6 @ 4032) on ImageNet, Zoph et al. 2018; as in Placeto's table"
    ),
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
