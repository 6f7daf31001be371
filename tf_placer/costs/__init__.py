"""What ops cost on each device, and which devices have kernels for them."""

from tf_placer.costs.analytic import OpCosts
from tf_placer.costs.analytic import analytic_costs

__all__ = ["OpCosts", "analytic_costs"]
