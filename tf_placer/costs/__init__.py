"""What ops cost on each device, and which devices have kernels for them."""

from tf_placer.costs.analytic import OpCosts
from tf_placer.costs.analytic import analytic_costs
from tf_placer.costs.op_work import OpWork

__all__ = ["OpCosts", "OpWork", "analytic_costs"]
