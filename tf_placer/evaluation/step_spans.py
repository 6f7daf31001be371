"""When each op and each transfer of a step ran."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from tf_placer.problem.problem import Problem

Kind = Literal["op", "send", "transfer", "receive"]
ON_DEVICES: tuple[Kind, ...] = ("op", "send", "receive")
NEVER_NS = -1  # stands for the start and end of what did not happen


@dataclasses.dataclass(frozen=True, eq=False)
class StepSpans:
    """The N ops and the K transfers of one step, each from its start to its end, in nanoseconds since the step began.

    A tensor that crosses to a device does so once. Sending and receiving it come before and after, where its link takes
    time of the devices at its ends; where it does not, both are ``NEVER_NS``.

    Attributes:
      problem: what was placed.
      runtime_ns: how long the step takes; ends behind the last span where workers had to be called.
      peak_bytes: [D] int64, most memory of each device at a moment.
      device_of_op: [N] int32.
      start_ns, end_ns: [N] int64, of each op.
      transfer_tensor: [K] int32, tensor of ``problem``; transfers are in the order of their starts.
      transfer_source, transfer_target: [K] int32, devices.
      transfer_start_ns, transfer_end_ns: [K] int64, while it occupies its channel.
      send_start_ns, send_end_ns: [K] int64, while the source works for it.
      receive_start_ns, receive_end_ns: [K] int64, while the target works for it.
    """

    problem: Problem
    runtime_ns: int
    peak_bytes: np.ndarray
    device_of_op: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    transfer_tensor: np.ndarray
    transfer_source: np.ndarray
    transfer_target: np.ndarray
    transfer_start_ns: np.ndarray
    transfer_end_ns: np.ndarray
    send_start_ns: np.ndarray
    send_end_ns: np.ndarray
    receive_start_ns: np.ndarray
    receive_end_ns: np.ndarray

    def times_ns(self, kind: Kind) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends of all ops, or of one part of all transfers: sending, on the way, receiving."""
        if kind == "op":
            return self.start_ns, self.end_ns
        return getattr(self, f"{kind}_start_ns"), getattr(self, f"{kind}_end_ns")

    def device_of(self, kind: Kind) -> np.ndarray:
        """The device of every op, or the one at which a part of every transfer takes time: not on its way."""
        where = {"op": self.device_of_op, "send": self.transfer_source, "receive": self.transfer_target}
        return where[kind]

    @property
    def num_transfers(self) -> int:
        return len(self.transfer_tensor)

    @property
    def transfer_bytes(self) -> np.ndarray:
        """[K] int64."""
        return self.problem.tensor_bytes[self.transfer_tensor]

    @property
    def transfer_producer(self) -> np.ndarray:
        """[K] int32, the op whose output each tensor is."""
        return self.problem.tensor_producer[self.transfer_tensor]

    @property
    def transfer_channel(self) -> np.ndarray:
        """[K] int32, position in ``channel_names``."""
        return self.problem.cluster.channel_of_link()[self.transfer_source, self.transfer_target]

    @property
    def channel_names(self) -> tuple[str, ...]:
        """[C] what the cluster calls its channels."""
        return self.problem.cluster.channel_names()

    @property
    def last_end_ns(self) -> int:
        """When the last op ends; what the step takes beyond it is the call to other workers."""
        return int(self.end_ns.max())
