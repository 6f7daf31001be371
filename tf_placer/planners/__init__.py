"""Placements that are not learned."""

from tf_placer.planners.list_schedule import list_schedule
from tf_placer.planners.partition import min_cut_partition
from tf_placer.planners.random_blocks import RandomBlocks
from tf_placer.planners.single_device import single_device_placements
from tf_placer.planners.topological_fill import topological_fill
from tf_placer.planners.within_memory import WithinMemory

__all__ = [
    "RandomBlocks",
    "WithinMemory",
    "list_schedule",
    "min_cut_partition",
    "single_device_placements",
    "topological_fill",
]
