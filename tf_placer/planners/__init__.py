"""Placements that are not learned."""

from tf_placer.planners.cpu_only import cpu_only
from tf_placer.planners.heft import heft
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.planners.m_etf import m_etf
from tf_placer.planners.m_sct import m_sct
from tf_placer.planners.m_topo import m_topo
from tf_placer.planners.peft import peft
from tf_placer.planners.random_blocks import RandomBlocks
from tf_placer.planners.single_device import single_device_placements
from tf_placer.planners.tf_default import tf_default
from tf_placer.planners.topological_fill import topological_fill

__all__ = [
    "RandomBlocks",
    "cpu_only",
    "heft",
    "list_schedule",
    "m_etf",
    "m_sct",
    "m_topo",
    "peft",
    "single_device_placements",
    "tf_default",
    "topological_fill",
]
