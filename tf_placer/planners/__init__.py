"""Planners: placements that are not learned."""

from tf_placer.planners.plain import cpu_only
from tf_placer.planners.list_schedule import heft
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.planners.m_sct import m_etf
from tf_placer.planners.m_sct import m_sct
from tf_placer.planners.m_sct import m_topo
from tf_placer.planners.list_schedule import peft
from tf_placer.planners.plain import RandomBlocks
from tf_placer.planners.plain import single_device_placements
from tf_placer.planners.plain import tf_default
from tf_placer.planners.plain import topological_fill

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
