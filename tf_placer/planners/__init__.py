"""Placements that are not learned."""

from tf_placer.planners.partition import min_cut_partition
from tf_placer.planners.random_blocks import RandomBlocks
from tf_placer.planners.single_device import single_device_placements

__all__ = ["RandomBlocks", "min_cut_partition", "single_device_placements"]
