"""A cluster file of two running servers."""

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
