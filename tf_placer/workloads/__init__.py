"""Training steps to place, by name."""

from typing import TYPE_CHECKING

from tf_placer.base.lazy_face import make_lazy

if TYPE_CHECKING:
    from tf_placer.workloads.registry import batch_of
    from tf_placer.workloads.registry import build
    from tf_placer.workloads.known import check_name
    from tf_placer.workloads.registry import find
    from tf_placer.workloads.registry import function
    from tf_placer.workloads.known import names
    from tf_placer.workloads.registry import register
    from tf_placer.workloads.spec import Workload

__all__ = [
    "Workload",
    "batch_of",
    "build",
    "check_name",
    "find",
    "function",
    "names",
    "register",
]

make_lazy(
    __name__,
    {
        "Workload": "tf_placer.workloads.spec",
        "batch_of": "tf_placer.workloads.registry",
        "build": "tf_placer.workloads.registry",
        "check_name": "tf_placer.workloads.known",
        "find": "tf_placer.workloads.registry",
        "function": "tf_placer.workloads.registry",
        "names": "tf_placer.workloads.known",
        "register": "tf_placer.workloads.registry",
    },
)
