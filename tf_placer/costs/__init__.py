"""Costs of ops on each device, and the devices that have kernels for them."""

COSTS = ("analytic", "profiled")
"""Sources of the costs of ops."""

__all__ = ["COSTS"]
