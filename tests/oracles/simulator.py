"""The simulator's model, written to be read: the oracle that the C++ op must equal.

Ops compute on devices, tensors travel through channels. Where a link says so, a device also works for a
tensor that it sends or receives (a *chore*): on CPU workers, copying and waking up take the same
core's time as the ops. Time is int64 nanoseconds and everything is
deterministic. The state changes at *moments*; what happens at a moment happens in this order:

1. *Ends.* Every computation and every transfer that is due ends; the channel goes on to the next
   transfer of its queue, and ends that too if it takes no time. An op is *ready* once every tensor
   it waits for is on its device. A ready op that costs nothing there starts and ends at once and so
   may make further ops ready. When an op ends, each of its tensors is handed to each other device
   that has consumers of it, once however many they are.
2. *Queues.* The transfers handed over in 1 join the queues of their channels, by tensor id, then
   target device. A channel moves one tensor at a time, in the order of its queue, and is occupied for
   ``latency_ns + ceil(bytes * 1e9 / bytes_per_s)``. Channels do not disturb computation. If a
   transfer has thereby started that takes no time, 1 is repeated. Where its link has ``tensor_ns > 0`` a tensor
   that has crossed is handed over so long, which occupies nothing, before it goes on. A transfer whose link takes
   ``send_ns + ceil(bytes * send_ps_per_byte / 1000) > 0`` of the source's time joins the source's
   chores instead, and its channel's queue at the moment when that chore has ended; one whose link
   takes time of the target, alike, joins the target's chores when it has been handed over, and the tensor
   is there when that chore has ended. What joins at one moment joins by tensor id, then target.
3. *Starts.* Every device with a free stream starts its chores, first in, first out, and then its ready
   op with the least (priority, moment it became ready, op index), until it has no free stream or
   nothing to start. The priority is the placement's, if it has any, and where that is equal the problem's. Below 0
   the placement's also says that the device waits for the op: before it has started, if it takes time there, nothing of
   a greater priority does. Where thereby nothing at all is under way, the first device that could start something
   starts the least. A device
   that runs the newest first takes, among the least priority, the op with the
   greatest (moment, op index): so do the threads of TensorFlow's executor, which keep what they have just made
   ready for themselves. There sending is an op too (``_Send``) and waits like one: its chore has the priority of
   the tensor's producer and comes behind the ops that became ready at the moment it joined, first joined first.
   The host feeds a device with ``dispatch_ns > 0`` one op after the other, in the order of their starts, and is
   ahead where it can: an op is dispatched ``dispatch_ns`` after the op before it was, or, if that is later, after the
   last tensor came that the op, or an op that costs nothing there and that it reads, had from another device. Its
   stream is occupied from the start, and computes when the op has been dispatched.

Between producer ends of different moments the queues are first in, first out; so a channel serves by
(end of the producer, tensor id, target), as long as no transfer takes no time.

Memory of a device is what lives there after step 3, at every moment, so what is freed at a moment
makes room for what is allocated at it:

* the resident bytes of the units placed on it, always;
* an op's outputs, from the start of the op until it has ended, their last consumer on this device has
  ended, and all their transfers have ended; one that has the memory of an input (``alias_of_tensor``) takes none
  itself, but keeps that input's for so long, as a consumer of it would;
* a received copy, from the start of its transfer until its last consumer on this device has ended.

The step takes until everything has ended.
"""

import collections
import heapq
from typing import Any, NamedTuple

import numpy as np

from tf_placer.ops.simulator import SimulatorInputs

_NS_PER_SECOND = 1_000_000_000

SEND, CROSS, RECEIVE = range(3)


class ReferenceResult(NamedTuple):
    """Of one placement, what the op gives for a batch."""

    runtime_ns: int
    peak_bytes: list[int]  # [D]
    start_ns: list[int]  # [N]
    end_ns: list[int]  # [N]
    # (leg, tensor, target) -> (start, end), of what happens: SEND, CROSS and RECEIVE.
    legs: dict[tuple[int, int, int], tuple[int, int]]
    memory: list[
        list[tuple[int, int]]
    ]  # [D] (moment, bytes from then on), each different from the one before


def transfer_ns(num_bytes: int, latency_ns: int, bytes_per_s: int) -> int:
    """Time that a tensor occupies its channel, in exact integers."""
    return latency_ns + -(-num_bytes * _NS_PER_SECOND // bytes_per_s)


def chore_ns(num_bytes: int, fixed_ns: int, ps_per_byte: int) -> int:
    """Time that a device spends on sending or receiving a tensor, in exact integers."""
    return fixed_ns + -(-num_bytes * ps_per_byte // 1000)


def reference_simulate(
    inputs: SimulatorInputs, device_of_unit: np.ndarray, priority_of_op: np.ndarray | None = None
) -> ReferenceResult:
    """Simulates one placement, slowly.

    Args:
      inputs: the graph and the cluster.
      device_of_unit: [U] device of every unit.
      priority_of_op: [N] of this placement, before the inputs' own.
    """
    return _Reference(inputs, device_of_unit, priority_of_op).run()


class _Reference:
    """One run. Who lives where is a set of holders per (tensor, device): bytes live while it has a member."""

    def __init__(
        self, inputs: SimulatorInputs, device_of_unit: np.ndarray, priority_of_op: np.ndarray | None
    ) -> None:
        self._inputs = inputs
        decided = np.zeros(inputs.num_ops, int) if priority_of_op is None else priority_of_op
        # The placement's, then the inputs' own.
        self._priority = [(int(d), int(p)) for d, p in zip(decided, inputs.priority, strict=True)]
        num_ops, num_devices = inputs.compute_ns.shape
        self._device = [int(device_of_unit[unit]) for unit in inputs.unit_of_op]
        self._cost_ns = [int(inputs.compute_ns[op, self._device[op]]) for op in range(num_ops)]
        self._consumers = [
            [int(op) for op in inputs.consumer_op[inputs.consumer_offset[t] : inputs.consumer_offset[t + 1]]]
            for t in range(len(inputs.tensor_producer))
        ]
        self._inputs_of: dict[int, list[int]] = {op: [] for op in range(num_ops)}
        self._outputs_of: dict[int, list[int]] = {op: [] for op in range(num_ops)}
        for tensor, producer in enumerate(inputs.tensor_producer):
            self._outputs_of[int(producer)].append(tensor)
            for op in self._consumers[tensor]:
                self._inputs_of[op].append(tensor)
        self._missing = {op: set(tensors) for op, tensors in self._inputs_of.items()}
        self._now_ns = 0
        self._agenda: list[tuple[int, str, Any]] = []  # heap of (due, kind, op or channel or chore)
        # Heaps of (priority, moment, order, op or transfer).
        self._ready: list[list[tuple[tuple[int, int], int, int, Any]]] = [[] for _ in range(num_devices)]
        self._num_sends = 0
        self._free_ready: list[int] = []
        self._busy = [0] * num_devices
        self._handed_over: list[tuple[int, int, int, str]] = []
        self._chores: list[collections.deque] = [collections.deque() for _ in range(num_devices)]
        self._queues: dict[int, collections.deque] = collections.defaultdict(collections.deque)
        self._holders: dict[tuple[int, int], set[object]] = {}
        self._alias = inputs.alias_of_tensor.tolist()
        self._resident = [0] * num_devices
        for unit, num_bytes in enumerate(inputs.resident_bytes):
            self._resident[int(device_of_unit[unit])] += int(num_bytes)
        for tensor, producer in enumerate(inputs.tensor_producer):
            if self._alias[tensor] == tensor:
                self._resident[self._device[producer]] += int(inputs.tensor_bytes[tensor])
        self._bytes = list(self._resident)
        self._peak = list(self._resident)
        self._legs: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._memory: list[list[tuple[int, int]]] = [[] for _ in range(num_devices)]
        self._start_ns = [-1] * num_ops
        self._end_ns = [-1] * num_ops
        self._dispatched_ns = [0] * num_devices
        self._arrived_ns = [0] * num_ops

    def run(self) -> ReferenceResult:
        for op in [op for op, tensors in self._missing.items() if not tensors]:
            self._become_ready(op)
        while True:
            self._end_free_ops()
            self._queue_transfers()
            if self._agenda and self._agenda[0][0] == self._now_ns:
                self._end_all_due()
                continue
            self._start_ops()
            self._peak = [max(pair) for pair in zip(self._peak, self._bytes, strict=True)]
            self._keep_memory()
            if not self._agenda:
                runtime_ns = self._now_ns + self._joining_ns()
                return ReferenceResult(
                    runtime_ns, self._peak, self._start_ns, self._end_ns, self._legs, self._memory
                )
            self._now_ns = self._agenda[0][0]
            self._end_all_due()

    def _keep_memory(self) -> None:
        for curve, num_bytes in zip(self._memory, self._bytes, strict=True):
            if not curve or curve[-1][1] != num_bytes:
                curve.append((self._now_ns, num_bytes))

    def _joining_ns(self) -> int:
        computing = {device for device, cost in zip(self._device, self._cost_ns, strict=True) if cost}
        return max((int(self._inputs.join_ns[device]) for device in computing), default=0)

    def _end_all_due(self) -> None:
        while self._agenda and self._agenda[0][0] == self._now_ns:
            _, kind, where = heapq.heappop(self._agenda)
            if kind == "compute":
                self._busy[self._device[where]] -= 1
                self._end_op(where)
            elif kind == "chore":
                self._end_chore(*where)
            elif kind == "hand over":
                self._receive(*where)
            else:
                self._end_transfer(where)

    def _become_ready(self, op: int) -> None:
        if self._cost_ns[op] == 0:
            self._free_ready.append(op)
        else:
            sign = -1 if self._inputs.newest_first[self._device[op]] else 1
            key = (self._priority[op], sign * self._now_ns, sign * op)
            heapq.heappush(self._ready[self._device[op]], (*key, op))

    def _end_free_ops(self) -> None:
        while self._free_ready:
            op = self._free_ready.pop()
            self._begin_op(op)
            for tensor in self._outputs_of[op]:
                self._have_arrived(tensor, self._device[op], self._arrived_ns[op])
            self._end_op(op)

    def _begin_op(self, op: int) -> None:
        self._start_ns[op] = self._now_ns
        for tensor in self._outputs_of[op]:
            self._hold(tensor, self._device[op], {("producer", op)})
            if self._alias[tensor] not in (-1, tensor):
                self._holders[self._alias[tensor], self._device[op]].add(("alias", tensor))

    def _end_op(self, op: int) -> None:
        here = self._device[op]
        self._end_ns[op] = self._now_ns
        for tensor in self._inputs_of[op]:
            self._release(tensor, here, ("consumer", op))
        for tensor in self._outputs_of[op]:
            consumers = self._consumers[tensor]
            targets = sorted({self._device[consumer] for consumer in consumers} - {here})
            self._holders[tensor, here] |= {("consumer", c) for c in consumers if self._device[c] == here}
            self._holders[tensor, here] |= {("transfer", target) for target in targets}
            self._release(tensor, here, ("producer", op))
            self._handed_over += [(tensor, target, here, "to send") for target in targets]
        for tensor in self._outputs_of[op]:
            self._arrive(tensor, here)

    def _arrive(self, tensor: int, device: int) -> None:
        for op in self._consumers[tensor]:
            if self._device[op] == device:
                self._missing[op].remove(tensor)
                if not self._missing[op]:
                    self._become_ready(op)

    def _queue_transfers(self) -> None:
        for tensor, target, source, state in sorted(self._handed_over):
            if state == "to send" and self._send_ns(tensor, target, source):
                self._queue_send(tensor, target, source)
            elif state == "crossed":
                self._chores[target].append((tensor, target, source))
            else:
                channel = int(self._inputs.channel_of_link[source, target])
                self._queues[channel].append((tensor, target, source))
                if len(self._queues[channel]) == 1:
                    self._begin_transfer(channel)
        self._handed_over = []

    def _queue_send(self, tensor: int, target: int, source: int) -> None:
        if not self._inputs.newest_first[source]:
            self._chores[source].append((tensor, target, source))
            return
        self._num_sends += 1
        priority = self._priority[self._inputs.tensor_producer[tensor]]
        entry = (priority, -self._now_ns, self._num_sends, (tensor, target, source))
        heapq.heappush(self._ready[source], entry)

    def _send_ns(self, tensor: int, target: int, source: int) -> int:
        inputs, link = self._inputs, (source, target)
        num_bytes = int(inputs.tensor_bytes[tensor])
        return chore_ns(num_bytes, int(inputs.link_send_ns[link]), int(inputs.link_send_ps_per_byte[link]))

    def _receive_ns(self, tensor: int, target: int, source: int) -> int:
        inputs, link = self._inputs, (source, target)
        num_bytes = int(inputs.tensor_bytes[tensor])
        return chore_ns(
            num_bytes, int(inputs.link_receive_ns[link]), int(inputs.link_receive_ps_per_byte[link])
        )

    def _begin_transfer(self, channel: int) -> None:
        tensor, target, source = self._queues[channel][0]
        takes_ns = transfer_ns(
            int(self._inputs.tensor_bytes[tensor]),
            int(self._inputs.link_latency_ns[source, target]),
            int(self._inputs.link_bytes_per_s[source, target]),
        )
        waiting = {("consumer", op) for op in self._consumers[tensor] if self._device[op] == target}
        self._hold(tensor, target, waiting)
        self._legs[CROSS, tensor, target] = (self._now_ns, self._now_ns + takes_ns)
        heapq.heappush(self._agenda, (self._now_ns + takes_ns, "transfer", channel))

    def _end_transfer(self, channel: int) -> None:
        tensor, target, source = self._queues[channel].popleft()
        if self._queues[channel]:
            self._begin_transfer(channel)
        self._release(tensor, source, ("transfer", target))
        hand_over_ns = int(self._inputs.link_tensor_ns[source, target])
        if hand_over_ns:
            due_ns = self._now_ns + hand_over_ns
            heapq.heappush(self._agenda, (due_ns, "hand over", (tensor, target, source)))
        else:
            self._receive(tensor, target, source)

    def _receive(self, tensor: int, target: int, source: int) -> None:
        if self._receive_ns(tensor, target, source):
            self._handed_over.append((tensor, target, source, "crossed"))
        else:
            self._arrive_from_afar(tensor, target)

    def _arrive_from_afar(self, tensor: int, device: int) -> None:
        self._have_arrived(tensor, device, self._now_ns)
        self._arrive(tensor, device)

    def _have_arrived(self, tensor: int, device: int, arrived_ns: int) -> None:
        for op in self._consumers[tensor]:
            if self._device[op] == device:
                self._arrived_ns[op] = max(self._arrived_ns[op], arrived_ns)

    def _end_chore(self, device: int, tensor: int, target: int, source: int) -> None:
        self._busy[device] -= 1
        if device == source:
            self._handed_over.append((tensor, target, source, "sent"))
        else:
            self._arrive_from_afar(tensor, target)

    def _awaits(self, device: int, priority: tuple[int, int]) -> bool:
        awaited = [op for op, where in enumerate(self._device) if where == device and self._cost_ns[op]]
        return any(
            self._start_ns[op] < 0 and self._priority[op][0] < 0 and self._priority[op] < priority
            for op in awaited
        )

    def _start_ops(self) -> None:
        for device in range(len(self._ready)):
            self._start_ops_of(device)
        waiting = [device for device, ready in enumerate(self._ready) if ready]
        if waiting and not self._agenda:
            self._start(waiting[0], heapq.heappop(self._ready[waiting[0]])[3])

    def _start_ops_of(self, device: int) -> None:
        ready, chores = self._ready[device], self._chores[device]
        while chores and self._busy[device] < self._inputs.streams[device]:
            self._start_chore(device, chores.popleft())
        while ready and self._busy[device] < self._inputs.streams[device]:
            if self._awaits(device, ready[0][0]):
                return
            self._start(device, heapq.heappop(ready)[3])

    def _start(self, device: int, item: int | tuple) -> None:
        if isinstance(item, tuple):
            self._start_chore(device, item)
        else:
            self._busy[device] += 1
            self._begin_op(item)
            end_ns = max(self._now_ns, self._dispatch(device, item)) + self._cost_ns[item]
            heapq.heappush(self._agenda, (end_ns, "compute", item))

    def _dispatch(self, device: int, op: int) -> int:
        """When the host has dispatched an op, the next one of its device."""
        begin_ns = max(self._dispatched_ns[device], self._arrived_ns[op])
        self._dispatched_ns[device] = begin_ns + int(self._inputs.dispatch_ns[device])
        return self._dispatched_ns[device]

    def _start_chore(self, device: int, transfer: tuple[int, int, int]) -> None:
        tensor, target, source = transfer
        takes_ns = (self._send_ns if device == source else self._receive_ns)(*transfer)
        leg = SEND if device == source else RECEIVE
        self._legs[leg, tensor, target] = (self._now_ns, self._now_ns + takes_ns)
        self._busy[device] += 1
        heapq.heappush(self._agenda, (self._now_ns + takes_ns, "chore", (device, *transfer)))

    def _hold(self, tensor: int, device: int, holders: set) -> None:
        self._holders[tensor, device] = set(holders)
        self._bytes[device] += self._bytes_on(tensor, device)

    def _release(self, tensor: int, device: int, holder: object) -> None:
        self._holders[tensor, device].remove(holder)
        if not self._holders[tensor, device]:
            self._bytes[device] -= self._bytes_on(tensor, device)
            if self._is_alias(tensor, device) and self._alias[tensor] != tensor:
                self._release(self._alias[tensor], device, ("alias", tensor))

    def _is_alias(self, tensor: int, device: int) -> bool:
        is_made_there = self._device[self._inputs.tensor_producer[tensor]] == device
        return is_made_there and self._alias[tensor] >= 0

    def _bytes_on(self, tensor: int, device: int) -> int:
        return 0 if self._is_alias(tensor, device) else int(self._inputs.tensor_bytes[tensor])
