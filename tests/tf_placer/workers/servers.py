"""A cluster file of two running servers."""

from tf_placer.cluster.cluster import Cluster

TWO_SERVERS = """
[[device]]
name = "/job:worker/task:0/device:CPU:0"
model = "haswell"
address = "{0}"
[[device]]
name = "/job:worker/task:1/device:CPU:0"
model = "haswell"
address = "{1}"
[[link]]
source = "/job:worker/task:0/device:CPU:0"
target = "/job:worker/task:1/device:CPU:0"
latency_ns = 100_000
bytes_per_s = 1e9
duplex = true
"""


def cluster_file(tmp_path, *addresses) -> Cluster:
    path = tmp_path / "two.toml"
    path.write_text(TWO_SERVERS.format(*addresses))
    return Cluster.from_file(path)
