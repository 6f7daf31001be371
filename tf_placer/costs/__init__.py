"""Costs of ops on each device, and the devices that have kernels for them."""

COSTS = ("analytic", "profiled")  # sources

__all__ = ["COSTS"]
