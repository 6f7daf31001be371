"""Analytic op costs: work of each op against the rates of each device."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from colocation.constraints import references_of
from colocation.op_facts import BRANCHES, CALLS, LOOPS, GraphIndex
from colocation.tensorflow_internals import is_onednn_on
from colocation.units import paired_pools
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device
from tf_placer.costs.formulas import OpView, work_of
from tf_placer.costs.kernels import cpu_limit, find_kernel
from tf_placer.costs.op_work import OpWork, WorkClass
from tf_placer.costs.shares import POWER, efficiencies
from tf_placer.costs.trips import FunctionLibrary, frame_trips, trip_count
from tf_placer.graph.item import Item
from tf_placer.graph.program import returned_functions
from tf_placer.graph.sizes import OutputSpec, tensor_bytes

# Two weeks: longer than any step that the simulator takes, and still far from the end of int64.
LONGEST_NS = 1 << 50


def run_time_ns(
    work_class: np.ndarray, flops: np.ndarray, num_bytes: np.ndarray, tiles: np.ndarray, device: Device
) -> np.ndarray:
    """Time of ops on one stream of a device, by the roofline model with the shares of ``shares.py``.

    A CPU takes ``launch + max(compute, memory)`` with ``compute = flops / (peak_flops * share)``, ``memory = bytes /
    (memory_bytes_per_s * share)`` and the device's rates divided by its streams. A GPU takes ``LAUNCHES * launch +
    (compute^POWER + memory^POWER)^(1 / POWER)``; there a kernel whose result is cut into tiles computes ``1 +
    multiprocessors / tiles`` times as long: the last wave of tiles does not fill the GPU. ``WorkClass.FREE`` takes 0.

    Args:
      work_class: [N] values of ``WorkClass``.
      flops, num_bytes, tiles: [N] of each op's ``Work``.
      device: where they run.

    Returns:
      [N] int64 nanoseconds, rounded; at most ``LONGEST_NS`` and the launches.
    """
    found = efficiencies(device)
    compute_s = flops * device.streams / (device.peak_flops * found.compute[work_class])
    memory_s = num_bytes * device.streams / (device.memory_bytes_per_s * found.memory[work_class])
    if device.type == "GPU":
        waves = np.where(tiles > 0, found.multiprocessors / np.maximum(tiles, 1), 0.0)
        seconds = smooth_maximum(compute_s * (1 + waves), memory_s)
    else:
        seconds = np.maximum(compute_s, memory_s)
    kernel_ns = np.rint(np.minimum(1e9 * seconds, LONGEST_NS))
    run_ns = round(found.launches * device.launch_ns) + kernel_ns.astype(np.int64)
    return np.where(work_class == WorkClass.FREE, 0, run_ns)


def smooth_maximum(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """``(one^POWER + other^POWER)^(1 / POWER)``, without overflow."""
    larger = np.maximum(one, other)
    share = np.divide(np.minimum(one, other), larger, out=np.zeros_like(larger), where=larger > 0)
    return larger * (1 + share**POWER) ** (1 / POWER)


_MOST_WORK = 1e30  # of one op: loops in loops do not overflow


@dataclasses.dataclass(frozen=True)
class OpCosts:
    """What every op costs on every device, and where it may run.

    Attributes:
      compute_ns: [N, D] int64, launch included; 0 for ops that start no kernel (``free``).
      allowed: [N, D] bool, the device has a kernel for the op (and for all ops it calls).
      guessed: op type -> ops of this type whose cost is a guess; ops in the body of a loop,
        branch or call count too.
      work: what the times were made of.
      why_not_on_cpu: op id -> why no CPU runs it though it has kernels there, and the remedy: one clause.
    """

    compute_ns: np.ndarray
    allowed: np.ndarray
    guessed: dict[str, int]
    work: OpWork
    why_not_on_cpu: dict[int, str] = dataclasses.field(default_factory=dict)

    def report(self) -> str:
        """One line that says how much of the costs is guessed."""
        if not self.guessed:
            return f"{len(self.compute_ns)} ops, no cost guessed"
        counts = ", ".join(f"{op_type} x {count}" for op_type, count in sorted(self.guessed.items()))
        return f"{len(self.compute_ns)} ops, cost guessed from their bytes (loops: one iteration): {counts}"


def analytic_costs(item: Item, cluster: Cluster) -> OpCosts:
    """Estimates the time of every op of a program on every device of a cluster.

    An op takes what ``run_time_ns`` says, with class, FLOPs and bytes from its type's formula
    (``formulas.FORMULA_OF_TYPE``). An op of unknown type moves its inputs and
    outputs once and is counted in ``guessed``. An op whose GPU kernel keeps its outputs in host memory
    takes as long as on the cluster's first CPU. A loop takes its body and condition times its trip
    count (once, and guessed, where that is unknown), a branch its longest branch. An op in a loop of TensorFlow 1 takes
    all of its runs; of a branch of TensorFlow 1 (``Switch``) both sides count. Such an op of many kernels takes at
    least the ``dispatch_ns`` of all of them but the first, which the simulator counts.

    Args:
      item: the program, N ops.
      cluster: D devices.

    Returns:
      Costs; a row of ``allowed`` is all False where no device of the cluster has a kernel.
    """
    library = FunctionLibrary(item.graph_def)
    return _graph_costs(item.index, item.outputs, True, library, cluster)


def op_views(item: Item) -> list[OpView]:
    """[N] the ops of a program as the cost formulas see them."""
    return _op_views(item.index, item.outputs)


def _graph_costs(
    index: GraphIndex,
    outputs: tuple[tuple[OutputSpec, ...], ...],
    is_shape_known: bool,
    library: FunctionLibrary,
    cluster: Cluster,
) -> OpCosts:
    outputs_if_known = outputs if is_shape_known else None
    views = _op_views(index, outputs)
    works = list(map(work_of, views))
    calling = [op for op, view in enumerate(views) if _calls_functions(view, library)]
    work_class = np.array([work.work_class for work in works], np.int64)
    flops, num_bytes, tiles = np.array(
        [(work.flops, work.num_bytes, work.tiles) for work in works], np.float64
    ).reshape(-1, 3).T  # fmt: skip
    launches = (work_class != WorkClass.FREE).astype(np.float64)
    times = [run_time_ns(work_class, flops, num_bytes, tiles, device) for device in cluster.devices]
    compute_ns = np.stack(times, axis=1) if len(works) else np.zeros((0, len(cluster.devices)), np.int64)
    allowed, on_host = _kernel_tables(index, cluster)
    limited = _cpu_limits(index, views, is_shape_known, cluster)
    is_cpu = np.array([device.type == "CPU" for device in cluster.devices])
    allowed[np.ix_(np.array(list(limited), np.int64), is_cpu)] = False
    if cluster.host is not None:
        compute_ns = np.where(on_host, compute_ns[:, cluster.host, np.newaxis], compute_ns)
    guessed = collections.Counter(view.type for view, work in zip(views, works, strict=True) if work.guessed)
    for op in calling:
        guessed[views[op].type] -= 1
        costs = _call_costs(index, op, views[op], outputs_if_known, library, cluster)
        compute_ns[op] = np.minimum(costs.compute_ns.sum(axis=0), LONGEST_NS)
        allowed[op] = costs.allowed.all(axis=0)
        flops[op], num_bytes[op], launches[op] = np.minimum(costs.work.sum(), _MOST_WORK)
        work_class[op] = _longest_class(costs)
        guessed.update(costs.guessed)
        if costs.why_not_on_cpu:
            limited[op] = next(iter(costs.why_not_on_cpu.values()))
    trips = frame_trips(index, outputs_if_known)
    if trips.unknown:
        guessed["LoopCond"] += trips.unknown
    # In floats, which do not overflow.
    flops, num_bytes, launches = (
        np.minimum(amount * trips.runs, _MOST_WORK) for amount in (flops, num_bytes, launches)
    )
    # The simulator dispatches an op once.
    fed_ns = np.maximum(launches - 1, 0)[:, np.newaxis] * cluster.dispatch_ns()
    run_ns = np.maximum(compute_ns * trips.runs[:, np.newaxis], fed_ns)
    times_ns = np.minimum(run_ns, LONGEST_NS).astype(np.int64)
    return OpCosts(
        times_ns,
        allowed,
        guessed={op_type: count for op_type, count in guessed.items() if count > 0},
        work=OpWork(flops, num_bytes, launches, work_class),
        why_not_on_cpu=limited,
    )


def _op_views(index: GraphIndex, outputs: tuple[tuple[OutputSpec, ...], ...]) -> list[OpView]:
    inputs: list[list[OutputSpec]] = [[] for _ in range(index.num_ops)]
    references = references_of(index)
    for producer, output, consumer, position in index.data_edges.tolist():
        spec = outputs[producer][output]
        if (producer, output) in references.made and (consumer, position) not in references.taken:
            spec = dataclasses.replace(
                spec, num_bytes=tensor_bytes(spec.shape, spec.dtype)
            )  # its value is read
        inputs[consumer].append(spec)
    return [OpView(node, tuple(inputs[op]), outputs[op]) for op, node in enumerate(index.graph_def.node)]


def _kernel_tables(index: GraphIndex, cluster: Cluster) -> tuple[np.ndarray, np.ndarray]:
    """Per op and device: [N, D] bool "has a kernel" and [N, D] bool "which is CPU code"."""
    allowed = np.zeros((index.num_ops, len(cluster.devices)), bool)
    on_host = np.zeros_like(allowed)
    for device_type in sorted({device.type for device in cluster.devices}):
        columns = [d for d, device in enumerate(cluster.devices) if device.type == device_type]
        for op, node in enumerate(index.graph_def.node):
            is_cpu_code = find_kernel(node, device_type)
            if is_cpu_code is not None:
                allowed[op, columns] = True
                on_host[op, columns] = is_cpu_code
    return allowed, on_host


def _cpu_limits(
    index: GraphIndex, views: list[OpView], is_shape_known: bool, cluster: Cluster
) -> dict[int, str]:
    """Op id -> why no CPU of the cluster runs it, of the ops that CPU kernels refuse."""
    # The kernels of described hardware and of other machines may be with oneDNN or without.
    has_onednn = cluster.kind in ("local", "logical") and is_onednn_on()
    paired = paired_pools(index)
    found = {}
    for op, view in enumerate(views):
        limit = cpu_limit(view, has_onednn, is_shape_known, op in paired)
        if limit is not None:
            found[op] = limit
    return found


def _longest_class(costs: OpCosts) -> int:
    """The class of the op that takes longest on the first device."""
    return (
        int(costs.work.work_class[costs.compute_ns[:, 0].argmax()])
        if len(costs.compute_ns)
        else WorkClass.FREE
    )


def _first_limit(parts: list[OpCosts]) -> dict[int, str]:
    """One for all ops of all parts."""
    found = [why for part in parts for why in part.why_not_on_cpu.values()]
    return {0: found[0]} if found else {}


def _calls_functions(view: OpView, library: FunctionLibrary) -> bool:
    return view.type in LOOPS | BRANCHES | CALLS or view.type in library


def _call_costs(
    index: GraphIndex,
    op: int,
    view: OpView,
    outputs: tuple[tuple[OutputSpec, ...], ...] | None,
    library: FunctionLibrary,
    cluster: Cluster,
) -> OpCosts:
    """Costs of an op that calls functions; the sum over rows is the op's time on each device."""
    attributes = view.node.attr
    if view.type in LOOPS:
        parts = [
            _function_costs(attributes[key].func.name, view.inputs, library, cluster)
            for key in ("body", "cond")
        ]
        iterations = trip_count(index, op, outputs)
        if iterations is None:
            return _joined(parts, 1, {view.type: 1})
        return _joined(parts, iterations, {})
    if view.type in BRANCHES:
        parts = [
            _function_costs(name, view.inputs[1:], library, cluster) for name in returned_functions(view.node)
        ]
        longest = np.max([part.compute_ns.sum(axis=0) for part in parts], axis=0)
        most = np.max([part.work.sum() for part in parts], axis=0)
        joined = _joined(parts, 1, {})
        flops, num_bytes, launches = most[:, np.newaxis]
        work = OpWork(flops, num_bytes, launches, np.array([_longest_class(joined)]))
        return dataclasses.replace(joined, compute_ns=longest[None, :], work=work)
    name = view.type if view.type in library else attributes["f"].func.name
    return _function_costs(name, view.inputs, library, cluster)


def _function_costs(
    name: str, inputs: tuple[OutputSpec, ...], library: FunctionLibrary, cluster: Cluster
) -> OpCosts:
    body = library.body(name, inputs)
    costs = _graph_costs(body.index, body.outputs, body.is_shape_known, library, cluster)
    if body.is_shape_known:
        return costs
    return dataclasses.replace(costs, guessed={**costs.guessed, f"{name} (unknown shapes)": 1})


def _joined(parts: list[OpCosts], times: int, guessed: dict[str, int]) -> OpCosts:
    """The rows of all parts, each taking ``times`` as long."""
    counts = collections.Counter(guessed)
    for part in parts:
        counts.update(part.guessed)
    return OpCosts(
        # In floats, which do not overflow.
        compute_ns=np.minimum(
            np.concatenate([part.compute_ns for part in parts]).astype(np.float64) * times, LONGEST_NS
        ).astype(np.int64),
        allowed=np.concatenate([part.allowed for part in parts]),
        guessed=dict(counts),
        work=OpWork.joined([part.work.times(times) for part in parts]),
        why_not_on_cpu=_first_limit(parts),
    )
