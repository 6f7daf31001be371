"""How long a tensor takes from one device to another when nothing else is on its way."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.cluster.cluster import Cluster


@dataclasses.dataclass(frozen=True, eq=False)
class TransferTimes:
    """What the links of a cluster take, sending and receiving included.

    A tensor of b bytes takes ``fixed_ns + ns_per_byte * b``. That is what the simulator takes for it where its channel
    is free and neither end has anything else to do, but for rounding to whole nanoseconds.

    Attributes:
      fixed_ns: [D, D] int64, latency and the ends' part that does not depend on the size, from row to column.
      ns_per_byte: [D, D] float64. Nothing crosses on the diagonals: they are not read.
    """

    fixed_ns: np.ndarray
    ns_per_byte: np.ndarray

    @staticmethod
    def of(cluster: Cluster) -> TransferTimes:
        """The times of a cluster's links."""
        chores = cluster.link_chores()
        per_byte_ps = chores["link_send_ps_per_byte"] + chores["link_receive_ps_per_byte"]
        return TransferTimes(
            fixed_ns=cluster.link_latency_ns() + chores["link_send_ns"] + chores["link_receive_ns"],
            ns_per_byte=1e9 / cluster.link_bytes_per_s() + per_byte_ps / 1e3,
        )

    def between_ns(self, num_bytes: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """[...] float64: bytes from source to target devices, broadcast against each other; 0 where they are one."""
        time_ns = self.fixed_ns[source, target] + self.ns_per_byte[source, target] * num_bytes
        return np.where(np.equal(source, target), 0.0, time_ns)

    def mean_ns(self, num_bytes: np.ndarray) -> np.ndarray:
        """[...] float64: the mean over all links; 0 on a cluster without links."""
        links = ~np.eye(len(self.fixed_ns), dtype=bool)
        if not links.any():
            return np.zeros(np.shape(num_bytes))
        time_ns: np.ndarray = self.fixed_ns[links].mean() + self.ns_per_byte[links].mean() * num_bytes
        return time_ns
