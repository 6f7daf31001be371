"""Fusion: clusters of ops that XLA compiles as one kernel launch each."""

from typing import TYPE_CHECKING

from tf_placer.base.lazy_face import make_lazy

if TYPE_CHECKING:
    from tf_placer.transform.fusion.clusters import check_clusters
    from tf_placer.transform.fusion.clusters import convex_clusters
    from tf_placer.transform.fusion.writer import fused_graph
    from tf_placer.transform.fusion.rules import RULES

__all__ = ["RULES", "check_clusters", "convex_clusters", "fused_graph"]

make_lazy(
    __name__,
    {
        "RULES": "tf_placer.transform.fusion.rules",
        "check_clusters": "tf_placer.transform.fusion.clusters",
        "convex_clusters": "tf_placer.transform.fusion.clusters",
        "fused_graph": "tf_placer.transform.fusion.writer",
    },
)
