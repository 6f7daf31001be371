from tf_placer.transform.fusion.clusters import check_clusters as check_clusters
from tf_placer.transform.fusion.clusters import convex_clusters as convex_clusters
from tf_placer.transform.fusion.clusters import fused_graph as fused_graph
