"""What is to be placed: ``Problem``, ``Placement``, and how good one can be."""

from tf_placer.problem.bounds import LowerBounds
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.decisions import Decisions
from tf_placer.problem.op_graph import OpGraph
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.problem.transfer_times import TransferTimes
from tf_placer.problem.unit_graph import UnitGraph
from tf_placer.problem.unit_graph import unit_graph

__all__ = [
    "Decisions",
    "LowerBounds",
    "OpGraph",
    "Placement",
    "Problem",
    "TransferTimes",
    "UnitGraph",
    "analytic_problem",
    "lower_bounds",
    "unit_graph",
]
