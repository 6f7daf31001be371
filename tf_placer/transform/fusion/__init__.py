"""Fusion: clusters of ops that XLA compiles as one kernel launch each."""

from typing import TYPE_CHECKING

from tf_placer.base.lazy_face import make_lazy

if TYPE_CHECKING:
    from tf_placer.transform.fusion.clusters import check_clusters
    from tf_placer.transform.fusion.clusters import convex_clusters
    from tf_placer.transform.fusion.writer import fused_graph

__all__ = ["check_clusters", "convex_clusters", "fused_graph"]

make_lazy(
    __name__,
    {
        "check_clusters": "tf_placer.transform.fusion.clusters",
        "convex_clusters": "tf_placer.transform.fusion.clusters",
        "fused_graph": "tf_placer.transform.fusion.writer",
    },
)
