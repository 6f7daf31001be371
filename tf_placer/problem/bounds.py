"""Lower bounds on the step time and on the memory of any placement."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy.optimize
import scipy.sparse

from tf_placer.problem.problem import Problem, made_once

_HOLDERS = 3  # that are named where all devices together are too small

_CLASSES = 256
_THRESHOLDS = 6  # of heads and of tails that work is looked at between
PROVEN = "proven"  # name of a bound that a search has proven
# For people: name of a bound -> what it is.
MEANING = {
    "critical_path": "the longest chain of ops, each on its fastest device, with free transfers",
    "total_work": "all ops shared perfectly among all devices",
    "largest_unit": "the heaviest unit, which is ops that must share a device",
    "path_with_transfers": "the longest chain of ops with the transfers that it cannot avoid",
    "work_in_memory": "all ops shared among all devices, within their memory, and dispatched to them",
    "work_between": (
        "the ops that can neither begin at once nor be the last to end, shared perfectly, and what must come before "
        "and after them"
    ),
}


def shortage(problem: Problem) -> str | None:
    """One sentence: which devices lack how many bytes and what holds most; None where a placement may fit.

    Proven: a unit that fits nowhere, alone with what its ops read and write while they run; and units that may be on
    some devices only and together need more than those have. That none of this is so proves nothing.
    """
    capacity, resident = problem.cluster.capacity_bytes(), problem.resident_bytes
    running, op_of_unit = bytes_while_running(problem)
    need = resident[:, np.newaxis] + running  # [U, D]
    lacks = np.where(problem.allowed, need - capacity, np.iinfo(np.int64).max)
    least = lacks.min(axis=1, initial=np.iinfo(np.int64).max)
    if len(least) and least.max() > 0:
        unit = int(least.argmax())
        device = int(lacks[unit].argmin())
        ops = int((problem.unit_of_op == unit).sum())
        unit_name = f"the unit of op {problem.name_of_unit(unit)!r} ({ops} op{'s' if ops > 1 else ''})"
        held = f"{resident[unit]} bytes stay there"
        if running[unit, device]:
            name = problem.op_names[op_of_unit[unit, device]]
            held += f", {running[unit, device]} are held while op {name!r} runs"
        return (
            f"{unit_name} fits on no device: {held}, and {problem.cluster.devices[device].name} "
            f"with {capacity[device]} bytes is {least[unit]} bytes short"
        )
    # Units tied to a few devices, against the memory of these devices: a case of Hall's condition.
    for mask in np.unique(problem.allowed, axis=0)[::-1]:
        bound = ~(problem.allowed & ~mask).any(axis=1)
        needed, has = int(resident[bound].sum()), int(capacity[mask].sum())
        if needed > has:
            names = [problem.cluster.devices[d].name for d in np.flatnonzero(mask)]
            where = f"{names[0]} has" if len(names) == 1 else f"{', '.join(names)} have together"
            tenants = "units" if bound.all() else "units that run nowhere else"
            units = np.flatnonzero(bound)
            largest = units[np.argsort(-resident[units], kind="stable")[:_HOLDERS]]
            holders = ", ".join(
                f"the unit of op {problem.name_of_unit(int(unit))!r} ({resident[unit]})"
                for unit in largest
                if resident[unit]
            )
            return (
                f"{needed} bytes stay with {tenants} and {where} {has}: {needed - has} bytes short; "
                f"most is with the variables in {holders}"
            )
    return None


def bytes_while_running(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """[U, D] int64 most bytes that one op of a unit reads and writes where that takes time, and [U, D] which op.

    Of tensors that have the memory of one and the same, the largest counts, unless that may be what stays anyway.
    """
    num_tensors = len(problem.tensor_producer)
    root, least = np.arange(num_tensors), problem.tensor_bytes.copy()
    for sharing in np.flatnonzero(problem.alias_of_tensor >= 0):  # what is shared comes before who shares
        shared = problem.alias_of_tensor[sharing]
        root[sharing], least[sharing] = root[shared], min(least[sharing], least[shared])
    tensors = np.concatenate([np.arange(num_tensors), problem.op_graph.tensor])
    ops = np.concatenate([problem.tensor_producer, problem.consumer_op]).astype(np.int64)
    keys = ops * max(num_tensors, 1) + root[tensors]
    order = np.lexsort((-least[tensors], keys))
    keys, counted = keys[order], least[tensors][order]
    is_largest = np.ones(len(keys), bool)
    is_largest[1:] = keys[1:] != keys[:-1]
    held = np.zeros(problem.num_ops, np.int64)
    np.add.at(held, keys[is_largest] // max(num_tensors, 1), counted[is_largest])
    # What takes no time holds nothing at any moment.
    by_device = np.where(problem.compute_ns > 0, held[:, np.newaxis], 0)
    most = np.zeros(problem.allowed.shape, np.int64)
    np.maximum.at(most, problem.unit_of_op, by_device)
    which = np.zeros(problem.allowed.shape, np.int64)
    ops, devices = np.nonzero(by_device == most[problem.unit_of_op])
    which[problem.unit_of_op[ops], devices] = ops
    return most, which


def least_share(problem: Problem, within_s: float = math.inf) -> float:
    """Lower bound on ``fullest_share`` of any placement whose step takes at most ``within_s`` seconds.

    The larger of two bounds. Of each unit: somewhere it is, with what one of its ops reads and writes while it runs.
    Of all together: what stays with them is on accelerators, but for what the other devices have memory for, and time
    for the ops of it (a fractional knapsack of bytes and time).
    """
    counted, capacity = problem.cluster.accelerators(), problem.cluster.capacity_bytes()
    unit_ns = np.zeros(problem.allowed.shape, np.int64)
    np.add.at(unit_ns, problem.unit_of_op, problem.compute_ns)
    has_ns = np.minimum(problem.cluster.streams() * within_s * 1e9, np.iinfo(np.int64).max)  # [D]
    possible = problem.allowed & (unit_ns <= has_ns)  # [U, D]
    running, _ = bytes_while_running(problem)
    need = np.where(counted, (problem.resident_bytes[:, np.newaxis] + running) / capacity, 0.0)
    of_units = np.where(possible, need, np.inf).min(axis=1, initial=np.inf)
    of_units = of_units[np.isfinite(of_units)]  # a unit that is possible nowhere bounds nothing
    together = float(problem.resident_bytes.sum())
    elsewhere = ~counted
    if elsewhere.any() and len(possible):
        # Resident bytes that the other devices hold at most, as one device of the memory and time of all of them.
        least_ns = np.where(possible[:, elsewhere], unit_ns[:, elsewhere], np.inf).min(axis=1)
        can = np.isfinite(least_ns) & (problem.resident_bytes > 0)
        held, takes_ns = problem.resident_bytes[can].astype(float), least_ns[can]
        order = np.argsort(takes_ns / held, kind="stable")
        held, takes_ns = held[order], takes_ns[order]
        remaining_ns = np.maximum(float(has_ns[elsewhere].sum()) - (np.cumsum(takes_ns) - takes_ns), 0.0)
        part = np.minimum(remaining_ns / np.maximum(takes_ns, 1e-9), 1.0)
        together -= min(float((held * part).sum()), float(capacity[elsewhere].sum()))
    return max(float(of_units.max(initial=0.0)), max(together, 0.0) / capacity[counted].sum())


def possible_devices(problem: Problem) -> np.ndarray:
    """[U, D] bool: ``problem.allowed`` without the devices where a unit cannot fit.

    A unit needs room for what stays with it and for what its ops read and write while they run, beside all that
    stays with units that can be nowhere else. Each device that is ruled out may leave a unit with one device only,
    so this is repeated until nothing changes. Where some unit fits nowhere, nothing fits, and what is allowed is given.
    """
    capacity = problem.cluster.capacity_bytes()
    resident = problem.resident_bytes
    need = resident[:, np.newaxis] + bytes_while_running(problem)[0]
    possible = problem.allowed & (need <= capacity)
    while possible.any(axis=1).all():
        bound = possible & (possible.sum(axis=1) == 1)[:, np.newaxis]
        bound_bytes = (bound * resident[:, np.newaxis]).sum(axis=0)
        # A unit that is bound to the device is counted in what is taken there.
        total = need + bound_bytes - np.where(bound, resident[:, np.newaxis], 0)
        fitting = possible & (total <= capacity)
        if (fitting == possible).all():
            return possible
        possible = fitting
    return problem.allowed


def earliest_times(problem: Problem, possible: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cost, head and tail of each op, [N, D] float64: longest paths, each input arriving from the best device.

    The cost is infinite where an op cannot be; no step starts an op on a device before its head, nor ends sooner after
    it than its tail. An op waits for each tensor that it reads: for its producer, on some device where that can be,
    and, if that is another device, for the link. Ops of one unit are on one device. Streams and channels are free.
    Units are where they can be, ``possible`` [U, D]. It takes O((N + E) D^2) steps, a few NumPy calls for each level.
    """
    cost = np.where(possible[problem.unit_of_op], problem.compute_ns.astype(np.float64), np.inf)
    head, tail = np.zeros(cost.shape), np.zeros(cost.shape)
    graph = problem.op_graph
    if not len(graph.consumer):
        return cost, head, tail
    one_unit = problem.unit_of_op[graph.producer] == problem.unit_of_op[graph.consumer]
    level = graph.top_levels(np.ones(problem.num_ops, np.int64))
    for edges in _runs(level[graph.consumer]):
        source = graph.producer[edges]
        same = head[source] + cost[source]
        arrives = _over_links(problem, graph.edge_bytes[edges], same, forward=True)
        np.maximum.at(head, graph.consumer[edges], np.where(one_unit[edges, np.newaxis], same, arrives))
    for edges in _runs(level[graph.producer])[::-1]:
        target = graph.consumer[edges]
        same = cost[target] + tail[target]
        leaves = _over_links(problem, graph.edge_bytes[edges], same, forward=False)
        np.maximum.at(tail, graph.producer[edges], np.where(one_unit[edges, np.newaxis], same, leaves))
    return cost, head, tail


def _runs(level: np.ndarray) -> list[np.ndarray]:
    """Positions of equal levels together, the least level first."""
    order = np.argsort(level, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(level[order])) + 1)


def _over_links(problem: Problem, num_bytes: np.ndarray, there_ns: np.ndarray, forward: bool) -> np.ndarray:
    """[E', D] least time over all other ends [E', D] plus the transfer from or to there."""
    transfer = problem.op_graph.transfer
    best = there_ns.copy()
    for device in range(problem.num_devices):
        for end in range(problem.num_devices):
            link = (end, device) if forward else (device, end)
            if device != end:
                # As the simulator rounds up, less a little more than floats can be off.
                way_ns = transfer.fixed_ns[link] + np.ceil(
                    transfer.ns_per_byte[link] * num_bytes * (1 - 1e-12)
                )
                best[:, device] = np.minimum(best[:, device], there_ns[:, end] + way_ns)
    return best


def shared_work_ns(
    work: np.ndarray,
    streams: np.ndarray,
    resident: np.ndarray | None = None,
    capacity: np.ndarray | None = None,
) -> float:
    """A lower bound on the least T [ns] at which units can be shared among the devices; without memory if nothing fits.

    min T with sum_u x_ud work_ud <= T streams_d, sum_u x_ud resident_u <= capacity_d, sum_d x_ud = 1 and x >= 0.
    For any w, m >= 0 with sum_d w_d streams_d = 1, weak duality gives
    T >= sum_u min_d (w_d work_ud + m_d resident_u) - sum_d m_d capacity_d. So w and m may come from anywhere: here
    they are the dual of the same problem with like units joined (HiGHS), and the sum is over all units.

    Args:
      work: [U, D] float64 time of each unit, infinite where it cannot be.
      streams: [D] of each device.
      resident: [U] bytes of each unit; None for no limit of memory.
      capacity: [D] bytes of each device.
    """
    units, devices = work.shape
    if not units:
        return 0.0
    sizes = np.zeros(units) if resident is None else resident.astype(np.float64)
    room = np.full(devices, np.inf) if capacity is None else capacity.astype(np.float64)
    if sizes.sum() <= room.min():
        sizes, room = np.zeros(units), np.zeros(devices)  # memory binds nothing
    weight, price = _prices(work, streams.astype(np.float64), sizes, room)
    total = weight @ streams
    if total <= 0:
        return 0.0
    finite = np.isfinite(work)
    cost = np.where(finite, np.where(finite, work, 0) * weight + sizes[:, np.newaxis] * price, np.inf)
    least = cost.min(axis=1)
    # Off by one part in 10^9 of what is added up, for the rounding of the float sums.
    slip = 1e-9 * (np.abs(least).sum() + price @ room)
    return max(float((least.sum() - price @ room - slip) / total), 0.0)


def _prices(
    work: np.ndarray, streams: np.ndarray, sizes: np.ndarray, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[D] prices of time and [D] of bytes, all >= 0: the dual of the problem between classes of units."""
    # Classes of like units: of the same devices, and of like ratios.
    finite = np.isfinite(work)
    masks, kind = np.unique(finite, axis=0, return_inverse=True)
    amount = np.where(finite, work, 0)
    share = amount / np.maximum(amount.sum(axis=1, keepdims=True), 1e-30)
    density = sizes / np.maximum(amount.sum(axis=1), 1.0)
    order = np.lexsort((density, *np.round(share, 2).T, kind.ravel()))
    kinds = kind.ravel()[order]
    # As many classes as there may be, none across two kinds.
    block = np.arange(len(order)) * max(_CLASSES - len(masks), 1) // len(order)
    cuts = np.flatnonzero((np.diff(block) != 0) | (np.diff(kinds) != 0)) + 1
    starts = np.concatenate([[0], cuts])
    joined = np.add.reduceat(amount[order], starts, axis=0)
    work, sizes = np.where(masks[kinds[starts]], joined, np.inf), np.add.reduceat(sizes[order], starts)
    classes, devices = work.shape
    time_scale, byte_scale = max(work[np.isfinite(work)].sum(), 1.0), max(sizes.sum(), 1.0)
    may = np.isfinite(work)
    unit, device = np.nonzero(may)
    columns = np.arange(len(unit))
    at_device = lambda values: scipy.sparse.coo_matrix((values, (device, columns)), (devices, len(unit)))  # noqa: E731
    time, num_bytes = at_device(work[may] / time_scale), at_device(sizes[unit] / byte_scale)
    upper = scipy.sparse.bmat([[time, -streams[:, np.newaxis]], [num_bytes, None]])
    # Each class once; the last column is the step's.
    once = scipy.sparse.coo_matrix((np.ones(len(unit)), (unit, columns)), (classes, len(unit) + 1))
    solved = scipy.optimize.linprog(
        np.append(np.zeros(len(unit)), 1.0),
        A_ub=upper.tocsr(),
        b_ub=np.concatenate([np.zeros(devices), room / byte_scale]),
        A_eq=once.tocsr(),
        b_eq=np.ones(classes),
        method="highs",
    )
    if not solved.success:
        return np.ones(devices), np.zeros(devices)
    dual = np.maximum(-solved.ineqlin.marginals, 0.0)
    return dual[:devices], dual[devices:] * time_scale / byte_scale


@dataclasses.dataclass(frozen=True)
class LowerBounds:
    """Lower bounds on the step time of any legal placement that fits, in whatever order ops run.

    The first three know neither memory nor transfers. The others do: units are only where they fit, ops pay for
    links that they cannot avoid, and a device that takes part pays for it.
    """

    # ``MEANING`` says what each is.
    critical_path_ns: int
    total_work_ns: int
    largest_unit_ns: int
    path_with_transfers_ns: int = 0
    work_in_memory_ns: int = 0
    work_between_ns: int = 0  # Carlier & Pinson 1989

    @property
    def rows(self) -> tuple[tuple[str, int], ...]:
        """(name, nanoseconds) of every bound: ``("critical_path", ...)``."""
        return tuple(
            (field.name.removesuffix("_ns"), getattr(self, field.name)) for field in dataclasses.fields(self)
        )

    @property
    def tightest(self) -> str:
        """The name of the largest; of equal ones the first."""
        return max(self.rows, key=lambda row: row[1])[0]

    @property
    def best_s(self) -> float:
        """The largest, in seconds."""
        return max(bound_ns for _, bound_ns in self.rows) / 1e9


def lower_bounds(problem: Problem) -> LowerBounds:
    """The bounds, computed once for a problem in O((N + E) D^2) steps and a few small linear programs."""
    return made_once(_lower_bounds, problem)


def _lower_bounds(problem: Problem) -> LowerBounds:
    streams = problem.cluster.streams().astype(np.float64)
    simple = _unit_work(problem, problem.compute_ns, problem.allowed)
    possible = possible_devices(problem)
    cost_ns, head_ns, tail_ns = earliest_times(problem, possible)
    work = _unit_work(problem, problem.compute_ns, possible)
    resident, capacity = problem.resident_bytes, problem.cluster.capacity_bytes()
    # [U, D] added to a step by the unit's device taking part, infinite where not possible.
    works = np.zeros(possible.shape, bool)
    np.logical_or.at(works, problem.unit_of_op, problem.compute_ns > 0)
    joins = np.where(possible, works * problem.cluster.join_ns().astype(np.float64), np.inf)
    join_ns = int(joins.min(axis=1).max(initial=0))
    # The slowest unit on its best device, with the work that must come before and after.
    through, head, tail = np.zeros(works.shape), np.full(works.shape, np.inf), np.full(works.shape, np.inf)
    np.maximum.at(through, problem.unit_of_op, head_ns + cost_ns + tail_ns)
    np.minimum.at(head, problem.unit_of_op, head_ns)
    np.minimum.at(tail, problem.unit_of_op, tail_ns)
    unit_ns = np.floor(head + work / streams * (1 - 1e-12) + tail)
    path_ns = (np.maximum(through, unit_ns) + joins).min(axis=1).max(initial=0)
    in_memory = shared_work_ns(work, streams, resident, capacity)
    if problem.cluster.dispatch_ns().any():
        # Hosts feed their devices one op after the other; devices that need not be fed work by themselves.
        dispatch_ns = problem.cluster.dispatch_ns().astype(np.float64)
        fed_ns = _unit_work(problem, (problem.compute_ns > 0) * dispatch_ns, np.isfinite(work))
        is_fed = dispatch_ns > 0
        fed, feeders = np.where(is_fed, fed_ns, work), np.where(is_fed, 1.0, streams)
        in_memory = max(in_memory, shared_work_ns(fed, feeders, resident, capacity))
    # h + q + the shared work of the ops with at least h before and q after them, for the best of a few h and q.
    first_ns, last_ns = head_ns.min(axis=1), tail_ns.min(axis=1)
    fastest_ns, between = problem.fastest_ns().astype(np.float64), 0.0
    for before in _quantiles(first_ns, fastest_ns):
        for after in _quantiles(last_ns, fastest_ns):
            inside = (first_ns >= before) & (last_ns >= after)
            if inside.any() and before + after + fastest_ns[inside].sum() > between:
                shared = _unit_work(problem, problem.compute_ns * inside[:, np.newaxis], possible)
                ends_ns = first_ns[inside].min() + last_ns[inside].min()
                between = max(between, ends_ns + shared_work_ns(shared, streams))
    return LowerBounds(
        critical_path_ns=int(problem.op_graph.bottom_level_ns.max(initial=0)),
        total_work_ns=int(shared_work_ns(simple, streams)),
        largest_unit_ns=int(np.floor((simple / streams).min(axis=1).max(initial=0))),
        path_with_transfers_ns=int(path_ns),
        work_in_memory_ns=int(in_memory) + join_ns,
        work_between_ns=int(between) + join_ns,
    )


def _unit_work(problem: Problem, compute_ns: np.ndarray, possible: np.ndarray) -> np.ndarray:
    """[U, D] float64: work of each unit on each device, infinite where not possible."""
    work = np.zeros(possible.shape)
    np.add.at(work, problem.unit_of_op, compute_ns.astype(np.float64))
    return np.where(possible, work, np.inf)


def _quantiles(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values that split the work into like parts, the least first."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order])
    cuts = np.searchsorted(share, share[-1] * np.arange(_THRESHOLDS) / _THRESHOLDS)
    return np.unique(np.append(values[order[np.minimum(cuts, len(order) - 1)]], 0.0))
