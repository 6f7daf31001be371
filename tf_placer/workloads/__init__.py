"""Training steps to place, by name."""

from tf_placer.workloads.registry import batch_of
from tf_placer.workloads.registry import build
from tf_placer.workloads.registry import check_name
from tf_placer.workloads.registry import find
from tf_placer.workloads.registry import function
from tf_placer.workloads.registry import names
from tf_placer.workloads.registry import register
from tf_placer.workloads.workload import Workload

__all__ = ["Workload", "batch_of", "build", "check_name", "find", "function", "names", "register"]
