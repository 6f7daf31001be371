"""The simulator: a C++ TensorFlow op and its typed wrapper."""

from tf_placer.ops.local_search import Chains
from tf_placer.ops.local_search import ChainSearch
from tf_placer.ops.local_search import MoveTables
from tf_placer.ops.simulator import Schedule
from tf_placer.ops.simulator import SimulatedStep
from tf_placer.ops.simulator import Simulation
from tf_placer.ops.simulator import simulate
from tf_placer.ops.simulator import simulate_schedule
from tf_placer.ops.simulator import simulate_step
from tf_placer.ops.simulator import SimulatorInputs

__all__ = [
    "ChainSearch",
    "Chains",
    "MoveTables",
    "Schedule",
    "SimulatedStep",
    "Simulation",
    "SimulatorInputs",
    "simulate",
    "simulate_schedule",
    "simulate_step",
]
