"""Memory: the room that a step needs on one device, and plans that take the least."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from colocation.op_facts import reached
from tf_placer.base import interrupt
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import excess, percentage, size
from tf_placer.cluster.cluster import Cluster, fullest_share, preset_names, short_device_name
from tf_placer.evaluation.simulated import SimulatedEvaluator, search_simulator
from tf_placer.graph.item import Item
from tf_placer.planners.plain import metis, single_device_placements, topological_fill
from tf_placer.problem.analytic_problem import VIEWS, analytic_problem
from tf_placer.problem.bounds import least_share
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import order_of_use
from tf_placer.search.methods import PLAIN, Budget, configured, find
from tf_placer.search.recorder import HistoryEntry, LeastMemory, SearchResult
from tf_placer.transform.recompute import Passes, parkable, recomputable, recompute, with_copies
from tf_placer.transform.split.split_batch import split_program

_HOLDERS = 3
MOST_EXAMPLES = 2**16
# Choices of what is done again: segments of the forward pass, and shares of what is held that are kept because they
# take longest to make.
_SEGMENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
_KEPT = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
_PARKED = (0.1, 0.25, 0.5, 0.75, 1.0)  # shares of what is held that are parked
_LEAST_PARKED = 1 << 16  # bytes; a transfer of less is all latency
_ATTEMPTS = 3
_TOGGLES, _LEAST_TOGGLES = 100_000, 20  # ops that are held or dropped on trial, for each op of a program


@dataclasses.dataclass(frozen=True)
class Room:
    """A step that no accelerator of a cluster holds by itself."""

    device: str  # the accelerator that lacks least, by name
    needed_bytes: int  # at the peak of a step with everything there that may be there
    has_bytes: int  # its memory
    # The units that take most of it: name of the first op -> bytes, with what of its outputs is alive at the fullest
    # moment.
    holders: Mapping[str, int]
    # The smallest described machine whose accelerators hold the step, by total memory and then their number; None where
    # none of them does.
    preset: str | None

    def __str__(self) -> str:
        held = ", ".join(f"{name!r} ({size(num_bytes)})" for name, num_bytes in self.holders.items())
        machine = "no described machine holds the step on its accelerators"
        if self.preset is not None:
            machine = f"the smallest described machine whose accelerators hold the step is {self.preset}"
        return (
            f"{short_device_name(self.device)} has {size(self.has_bytes)} and would need {size(self.needed_bytes)} "
            f"({self.needed_bytes} bytes), most of it for the units of {held}; {machine}"
        )


def room_needed(problem: Problem) -> Room | None:
    """Memory that the step needs of the accelerator that lacks least; None where one holds the step, simulated.

    A preset that holds it is sought with the op times of this cluster: a device that has none of its type here is like
    the first one.
    """
    devices = np.flatnonzero(problem.cluster.accelerators())
    capacity, needed = problem.cluster.capacity_bytes(), device_peaks(problem)[0][devices]
    if (needed <= capacity[devices]).any():
        return None
    preset, sized = None, list[tuple[int, int, Cluster]]()
    for cluster in map(Cluster.preset, preset_names()):
        counted = cluster.accelerators()
        sized.append((int(cluster.capacity_bytes()[counted].sum()), int(counted.sum()), cluster))
    first = {device.type: d for d, device in reversed(list(enumerate(problem.cluster.devices)))}
    for _, _, cluster in sorted(sized, key=lambda entry: entry[:2]):
        like = [first.get(device.type, 0) for device in cluster.devices]
        allowed, compute_ns = problem.allowed[:, like], problem.compute_ns[:, like]
        allowed[~allowed.any(axis=1)] = True  # what is pinned to another device here
        there = dataclasses.replace(problem, cluster=cluster, compute_ns=compute_ns, allowed=allowed)
        if (device_peaks(there)[1] <= cluster.capacity_bytes()).all():
            preset = cluster.name
            break
    least = int((needed - capacity[devices]).argmin())
    held = problem.resident_bytes + problem.held_bytes()
    largest = np.argsort(-held, kind="stable")[:_HOLDERS]
    return Room(
        device=problem.cluster.devices[devices[least]].name,
        needed_bytes=int(needed[least]),
        has_bytes=int(capacity[devices[least]]),
        holders={problem.name_of_unit(int(unit)): int(held[unit]) for unit in largest if held[unit]},
        preset=preset,
    )


def device_peaks(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """[D] bytes at each peak, simulated: with everything on that device, and by the smallest of plain plans over all.

    Accelerators have all that may run there. The plans are METIS's and those that fill devices in topological order.
    """
    devices, (_, peaks) = np.arange(problem.num_devices), _plain_plans(problem)
    return peaks[devices, devices], peaks[fullest_share(problem.cluster, peaks).argmin()]


def _plain_plans(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """[B, U] plans, and [B, D] bytes at their peaks; the first D have everything on each device.

    Every unit that may run on an accelerator is kept off the host.
    """
    on_accelerators = problem.allowed & problem.cluster.accelerators()
    allowed = np.where(on_accelerators.any(axis=1, keepdims=True), on_accelerators, problem.allowed)
    offloaded = dataclasses.replace(problem, allowed=allowed)
    planners = single_device_placements, topological_fill, metis
    plans = np.concatenate([planner(offloaded) for planner in planners])
    peaks = SimulatedEvaluator(offloaded).evaluate(plans).peak_bytes
    assert peaks is not None  # simulated
    return plans, peaks


def largest_batches(item: Item, cluster: Cluster) -> tuple[int, int, int, int]:
    """Examples of a step, the most that one accelerator holds, that all hold, and that one holds with ops done again.

    All is simulated, without search. Where even ``MOST_EXAMPLES`` fit, no more are tried. Raises InputError where no
    batch is found in the program.
    """
    program, capacity, counted = split_program(item, 2), cluster.capacity_bytes(), cluster.accelerators()
    whole = program.whole_of(program.batch)
    passes, problem = Passes.of(whole.index.names, whole.index.edges), analytic_problem(whole, cluster)
    may = recomputable(whole, passes)
    held, _ = _held_bytes(problem, passes, may)
    choices = dict.fromkeys(tuple(choice.ops) for choice in _choices(problem, may, held, passes))
    again = min(choices, key=lambda ops: device_peaks(with_copies(problem, passes, ops))[0][counted.argmax()])

    @functools.cache
    def fits(batch: int) -> tuple[bool, bool, bool]:
        larger = analytic_problem(program.whole_of(batch), cluster)
        single, least = device_peaks(larger)
        with_less = (single, device_peaks(with_copies(larger, passes, again))[0])
        on_one, on_one_again = ((peaks <= capacity)[counted].any() for peaks in with_less)
        return bool(on_one), bool((least <= capacity).all()), bool(on_one_again)

    most = [0, 0, 0]
    for case in range(len(most)):
        fitting, too_large, tried = 0, MOST_EXAMPLES + 1, program.batch
        while too_large - fitting > 1:
            fitting, too_large = (tried, too_large) if fits(tried)[case] else (fitting, tried)
            middle = (fitting + too_large) // 2
            tried = min(2 * fitting, middle) if fitting else middle  # simulating a huge batch takes longer
        most[case] = fitting
    return program.batch, most[0], most[1], most[2]


@dataclasses.dataclass(frozen=True)
class Recomputation:
    """What is done again in the backward pass or parked on the host, so that a step fits."""

    ops: tuple[int, ...]  # positions in the program
    parked: tuple[tuple[int, int], ...]  # ops, and those after which their outputs come back
    more: float  # share of the step time that it adds, by the same plan
    before: float  # largest share of the memory of an accelerator that a step needs without it
    after: float  # and with it
    origin_of: Mapping[str, str]  # op of the changed step -> op of the step
    plan: np.ndarray  # [U] devices by which the changed step fits

    def __str__(self) -> str:
        again = f"{len(self.ops)} ops are done again in the backward pass" if self.ops else ""
        parked = f"outputs of {len(self.parked)} ops are parked on the host" if self.parked else ""
        how = " and ".join(filter(None, (again, parked)))
        slower = f"{percentage(self.more)} more" if self.more > 0 else "no more"
        return (
            f"{how}, {slower} time: the fullest device needs {percentage(self.after)} of its memory, and "
            f"{percentage(self.before)} without."
        )


def recomputation(
    item: Item,
    problem: Problem,
    recomputes: bool = True,
    parks: bool = False,
    plan: np.ndarray | None = None,
) -> tuple[Item, Recomputation | None]:
    """A step with the choice that fits and takes least longer; unchanged, and None, where nothing need be done.

    Where no choice fits, that of the least memory. Ops may be done again (``recomputes``), outputs parked on the host
    (``parks``). It is chosen for the devices of a ``plan`` [U], the smallest of plain ones (``device_peaks``) without.

    Raises:
      InputError: the step does not fit, and has no backward pass, or the cluster no host to park on.
    """
    cluster = problem.cluster
    if parks and (cluster.host is None or cluster.accelerators()[cluster.host]):
        raise InputError(
            f"cluster {cluster.name!r} has no host beside its accelerators to park on; leave offload out"
        )
    passes, nothing = Passes.of(problem.op_names, item.index.edges), np.zeros(problem.num_ops, bool)
    is_free = plan is None
    if plan is None:
        plans, peaks = _plain_plans(problem)
        plan = plans[fullest_share(cluster, peaks).argmin()]
    step = _Step(problem, passes, plan)
    if step.share <= 1:
        return item, None
    may = recomputable(item, passes) if recomputes else nothing
    may_park = parkable(item, passes) if parks else nothing
    held, read = _held_bytes(problem, passes, may | may_park)

    ranked = [step.judged(choice) for choice in _choices(problem, may, held, passes)]
    nothing_again = ranked[0][2]
    fastest_first = sorted(ranked, key=lambda row: row[1])
    least = np.minimum.accumulate([math.inf, *(share for share, _, _ in fastest_first)])
    front = [choice for (share, _, choice), bound in zip(fastest_first, least, strict=False) if share < bound]
    is_large = may_park & (read > _LEAST_PARKED)
    # Large outputs that are parked together: the first ones made, or the largest.
    for key in (step.end_ns, -read) if is_large.any() else ():
        parking = sorted(np.flatnonzero(is_large).tolist(), key=key.__getitem__)
        parked_share = np.cumsum(read[parking]) / read.sum()
        for share in _PARKED:
            parked_set = step.fetched(
                nothing_again.parking(parking[: np.searchsorted(parked_share, share) + 1])
            )
            ranked += [step.judged(choice.parking(parked_set)) for choice in front]
    ranked = [row for row in ranked if row[2].ops or row[2].parked]
    if not ranked:
        raise InputError(f"{item.name!r} has no backward pass that could do ops again; give more memory")
    most, generator = 1.0, np.random.default_rng(0)
    toggles = np.flatnonzero(held * (may | is_large))
    for _ in range(_ATTEMPTS):
        best = min(ranked, key=lambda row: (max(row[0], most), row[1]))
        for op in generator.choice(toggles, _TOGGLES // problem.num_ops + _LEAST_TOGGLES).tolist():
            on_host = bool(is_large[op] and (not may[op] or generator.integers(2)))
            toggled = best[2].toggled(op, on_host)
            row = step.judged(toggled) if toggled.ops or toggled.parked else best
            if (max(row[0], most), row[1]) <= (max(best[0], most), best[1]):
                best = row
        ops, parked = best[2].ops, tuple(step.fetched(best[2]).items())
        again, origin_of = recompute(item, ops, parked)
        fitting = analytic_problem(again, cluster)
        plans = with_devices_of(fitting, origin_of, problem, plan)[np.newaxis]
        plans = np.concatenate([plans, _plain_plans(fitting)[0]]) if is_free else plans
        shares = fullest_share(cluster, SimulatedEvaluator(fitting).times(plans).peak_bytes.numpy())
        by_plan, after = plans[shares.argmin()], float(shares.min())
        if after <= 1:
            break
        most = min(most, best[0]) / after  # the program itself takes more than was simulated
    return again, Recomputation(tuple(ops), parked, best[1], step.share, after, origin_of, by_plan)


def with_devices_of(
    problem: Problem, origin_of: Mapping[str, str], whole: Problem, plan: np.ndarray
) -> np.ndarray:
    """[U] int32, the plan of a program that puts what was made of an op on that op's device, if allowed.

    ``problem`` is of a program made of another one, whose are ``whole`` and ``plan``; ``origin_of``: op -> op there.
    """
    device_of = dict(zip(whole.op_names, plan[whole.unit_of_op].tolist(), strict=True))
    row = np.zeros(problem.num_units, np.int32)
    for unit, name in zip(problem.unit_of_op.tolist(), problem.op_names, strict=True):
        row[unit] = device_of[origin_of[name]]
    return problem.legalized(row[np.newaxis])[0]


@dataclasses.dataclass(frozen=True)
class _Choice:
    """Ops whose outputs are not held for the backward pass, and what these are made of again."""

    dropped: frozenset[int]
    kept: frozenset[int]  # outputs that what is done again may read
    inputs: list[list[int]]  # [N] ops that each reads
    parked: frozenset[int] = frozenset()  # of those that are kept: on the host

    @functools.cached_property
    def ops(self) -> list[int]:
        """All that is done again."""
        again = reached(
            self.dropped, lambda op: [source for source in self.inputs[op] if source not in self.kept]
        )
        return sorted(again)

    def parking(self, ops: Iterable[int]) -> _Choice:
        """The choice in which outputs of these ops, and no others, are parked."""
        parked = frozenset(ops)
        return dataclasses.replace(
            self, dropped=self.dropped - parked, kept=self.kept | parked, parked=parked
        )

    def toggled(self, op: int, on_host: bool) -> _Choice:
        """The choice in which one op is held, or no longer."""
        if op in self.parked or op in self.ops or on_host:
            choice = self.parking(self.parked ^ {op} if op in self.parked or on_host else self.parked)
            return dataclasses.replace(choice, dropped=choice.dropped - {op}, kept=choice.kept | {op})
        return dataclasses.replace(self, dropped=self.dropped | {op}, kept=self.kept - {op})


def _time_and_share(problem: Problem, plan: np.ndarray) -> tuple[float, float]:
    """Seconds of the step by a plan [U], and the share of its memory that the fullest accelerator takes."""
    times = SimulatedEvaluator(problem).times(plan[np.newaxis])
    return float(times.runtime_s[0]), float(fullest_share(problem.cluster, times.peak_bytes.numpy())[0])


class _Step:
    """A step by one plan, however much memory that takes."""

    def __init__(self, problem: Problem, passes: Passes, plan: np.ndarray) -> None:
        """The step unchanged, by devices ``plan`` [U]."""
        self._problem, self._passes, self._plan = problem, passes, plan
        schedule = SimulatedEvaluator(problem).schedule(plan[np.newaxis])
        self._start_ns, self.end_ns = schedule.start_ns.numpy()[0], schedule.end_ns.numpy()[0]  # [N]
        self.seconds, self.share = _time_and_share(problem, plan)
        self._trials: dict[object, tuple[float, float, _Choice]] = {}

    def judged(self, choice: _Choice) -> tuple[float, float, _Choice]:
        """Share of its memory that the fullest accelerator takes by a choice, and the share of time that is added."""
        key = frozenset(choice.ops), choice.parked
        if key not in self._trials:
            changed = with_copies(self._problem, self._passes, choice.ops, self.fetched(choice))
            copies = np.full(changed.num_units - len(self._plan), self._problem.cluster.host or 0)
            row = np.concatenate([self._plan, copies]).astype(np.int32)
            step_s, share = _time_and_share(changed, row)
            self._trials[key] = share, excess(step_s, self.seconds), choice
        return self._trials[key]

    def fetched(self, choice: _Choice) -> dict[int, int]:
        """Parked op -> the late op after which its output comes back, in time for the first reader.

        The link of a device is busy with one at a time, the last read first; what would not be back in time is not
        parked.
        """
        if not choice.parked:
            return {}
        passes, problem, host = self._passes, self._problem, self._problem.cluster.host
        assert host is not None  # of a cluster where outputs are parked
        late = np.flatnonzero(passes.is_late)
        late = late[np.argsort(self.end_ns[late], kind="stable")]
        earliest, ended_ns = int(late[passes.depth[late].argmin()]), self.end_ns[late]
        copies = passes.copies(choice.ops, dict.fromkeys(choice.parked, earliest))
        reader = {op: copies[op][0] for op in choice.parked if op in copies}
        num_bytes = np.bincount(problem.tensor_producer, problem.tensor_bytes, problem.num_ops)
        device, transfer = self._plan[problem.unit_of_op], problem.op_graph.transfer
        gone_ns, waits = dict[int, float](), dict[int, int]()
        free_ns = np.zeros(problem.num_devices)
        for op in sorted(reader, key=lambda op: (self.end_ns[op], op)):
            begin_ns = max(free_ns[device[op]], self.end_ns[op])
            gone_ns[op] = begin_ns + transfer.between_ns(num_bytes[op], device[op], np.array(host))
            free_ns[device[op]] = gone_ns[op]
        free_ns[:] = np.inf
        for op in sorted(reader, key=lambda op: (self._start_ns[reader[op]], op), reverse=True):
            target = device[reader[op]]
            end_ns = min(free_ns[target], self._start_ns[reader[op]])
            begin_ns = end_ns - transfer.between_ns(num_bytes[op], np.array(host), target)
            before = late[: np.searchsorted(ended_ns, begin_ns, side="right")]
            before = before[passes.depth[before] < passes.depth[reader[op]]]
            if len(before) and begin_ns > gone_ns[op]:
                free_ns[target], waits[op] = begin_ns, int(before[-1])
        return waits


def _held_bytes(problem: Problem, passes: Passes, may: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[N] bytes of all outputs of ops of which the backward pass reads some, and of the outputs read there alone.

    Only of ops that may lose them; views have none.
    """
    graph, producer, num_ops = problem.op_graph, problem.tensor_producer, problem.num_ops
    is_read = np.zeros(len(problem.tensor_bytes), bool)
    is_read[graph.tensor[passes.is_late[graph.consumer]]] = True
    read = np.bincount(producer, problem.tensor_bytes * is_read, num_ops)
    is_held = may & [op_type not in VIEWS for op_type in problem.op_types] & (read > 0)
    held = np.bincount(producer, problem.tensor_bytes, num_ops) * is_held
    return held, read * (held > 0)


def _choices(problem: Problem, may: np.ndarray, held: np.ndarray, passes: Passes) -> Iterator[_Choice]:
    """What is done again, by several rules; the first is nothing.

    What the backward pass reads is done again from what is kept: the narrowest tensors between segments of the forward
    pass that hold as much each (Chen et al. 2016), and outputs that take longest for their size.
    """
    graph, late, num_ops = problem.op_graph, passes.is_late, problem.num_ops
    producer, alias = problem.tensor_producer, problem.alias_of_tensor
    aliased = np.flatnonzero(alias >= 0)
    inputs: list[list[int]] = [[] for _ in range(num_ops)]
    for source, target in zip(graph.producer.tolist(), graph.consumer.tolist(), strict=True):
        inputs[target].append(source)
    yield _Choice(frozenset(), frozenset(range(num_ops)), inputs)
    if not may.any():
        return
    is_read = np.zeros(num_ops, bool)
    is_read[graph.producer[late[graph.consumer]]] = True
    is_read &= may
    num_bytes, held = np.bincount(producer, problem.tensor_bytes, num_ops), held * may
    by_worth = np.argsort(num_bytes / np.maximum(graph.op_ns, 1), kind="stable")
    by_worth = by_worth[held[by_worth] > 0]
    kept_share = np.cumsum(held[by_worth]) / max(held.sum(), 1)
    # Bytes between forward ops that cross each moment, one op after the other.
    order = np.lexsort((np.arange(num_ops), graph.top_level_ns, late))
    moment = np.argsort(order)
    inner = may[graph.producer] & ~late[graph.consumer]
    last_read = moment[producer]
    np.maximum.at(last_read, graph.tensor[inner], moment[graph.consumer[inner]])
    crossing = np.zeros(num_ops + 1)
    np.add.at(crossing, moment[producer], problem.tensor_bytes * may[producer])
    np.subtract.at(crossing, last_read, problem.tensor_bytes * may[producer])
    crossing, passed = np.cumsum(crossing), np.cumsum(held[order])
    for segments in _SEGMENTS:
        is_cut, cut = np.zeros(num_ops, bool), num_ops
        for end in passed[-1] * np.arange(1, segments) / segments:
            begin, beyond = np.searchsorted(passed, end + np.array([-1, 1]) * passed[-1] / segments / 4)
            near = np.arange(begin, beyond + 1)
            cut = near[np.lexsort((abs(passed[near] - end), crossing[near]))[0]]  # the narrowest there
            is_cut[producer[(moment[producer] <= cut) & (last_read > cut) & may[producer]]] = True
        for share in _KEPT:
            keeps = ~may | is_cut
            keeps[by_worth[: np.searchsorted(kept_share, share)]] = True
            for tensor in aliased.tolist():  # what is written over cannot be read again
                keeps[producer[tensor]] |= keeps[producer[alias[tensor]]]
            # Of several segments the last is needed at once.
            dropped = np.flatnonzero(is_read & ~keeps & (moment <= cut)).tolist()
            kept_ops = frozenset(np.flatnonzero(keeps).tolist())
            yield _Choice(frozenset(dropped), kept_ops, inputs)


_FILLS = (1.0, 0.75, 0.5, 0.25)  # caps under which devices are filled, as shares of the fastest plan's
_BATCH, _PATIENCE = 16, 8  # moves tried together, and batches without a gain before time is sought again
_LEAST_STEPS = 16  # however long the fastest plan took: without a step nothing is lowered
_BURST = 128  # placements tried for time, under the cap that the best plan sets


def least_memory(
    fastest: SearchResult,
    budget: Budget,
    slow_down: float,
    show: Callable[[HistoryEntry], None],
    stop: interrupt.Stop,
) -> SearchResult:
    """Lowers the cap that the best plan sets on all accelerators, from the fastest plan of a method.

    Runs of units are moved off the fullest accelerator while the plan stays within the slow-down. Where that gains no
    more, the plain search continues from the plan for time, with accelerators no larger than the plan's share of them.
    All of it is simulated. Ctrl-C keeps the best. The ``budget`` is of the ``fastest`` search and this one together;
    ``slow_down`` is the share of the fastest plan's step time that the plan may take longer. Returns the plan, with
    ``least_memory`` set; where none takes less, the fastest.
    """
    begin_s = time.monotonic() - fastest.search_s
    problem, interrupted = fastest.placement.problem, fastest.interrupted
    bound = least_share(problem, fastest.runtime_s * (1 + slow_down))
    lowering = _Lowering(fastest, slow_down)
    random = np.random.default_rng(fastest.seed)
    steps = in_vain = bursts = 0
    while not interrupted and lowering.share > bound:
        left = budget.left(lowering.evaluations)
        is_late = time.monotonic() - begin_s >= budget.seconds
        if left < 1 or (is_late and steps >= _LEAST_STEPS):
            break
        steps += 1
        if in_vain < _PATIENCE:
            share = lowering.share
            lowering.keep(lowering.moved(int(min(_BATCH, left)), random))
            in_vain = 0 if lowering.share < share else in_vain + 1
        else:
            # A search for time, with no accelerator larger than the best plan's share of it.
            in_vain, bursts = 0, bursts + 1
            capped = _capped(problem, lowering.share)
            plain = find(PLAIN)
            assert plain.build_inside is not None  # it searches inside the simulator
            planner = plain.build_inside(
                capped, configured(plain), lowering.best, fastest.seed + bursts, search_simulator(capped)
            )
            burst = planner.advance(int(min(_BURST, left)))
            lowering.evaluations += burst.evaluations
            lowering.keep(burst.decisions.device_of_unit, counts=False)
        elapsed_s = time.monotonic() - begin_s
        show(HistoryEntry(lowering.evaluations, elapsed_s, lowering.runtime_s, math.nan, 0))
        interrupted, stop.requested = stop.requested, False
    names = [device.name for device in problem.cluster.devices]
    return dataclasses.replace(
        fastest,
        placement=Placement.from_decisions(problem, Decisions(lowering.best[np.newaxis])),
        runtime_s=lowering.runtime_s,
        peak_bytes={name: int(b) for name, b in zip(names, lowering.peak_bytes, strict=True)},
        evaluations=lowering.evaluations,
        search_s=time.monotonic() - begin_s,
        interrupted=interrupted,
        least_memory=LeastMemory(slow_down, fastest, lowering.share, bound),
    )


class _Lowering:
    """The best plan so far, by ``fullest_share`` and then time, and moves towards smaller ones."""

    def __init__(self, fastest: SearchResult, slow_down: float) -> None:
        self._problem = problem = fastest.placement.problem
        self._limit_s = fastest.runtime_s * (1 + slow_down)
        self._simulator = search_simulator(problem)
        self._order = order_of_use(problem)
        self.evaluations = fastest.evaluations
        self.best, self.share, self.runtime_s = np.zeros(0, np.int32), math.inf, math.inf
        self.peak_bytes = np.zeros(problem.num_devices, np.int64)
        self.keep(np.array(fastest.placement.device_of_unit)[np.newaxis])
        self.keep(np.concatenate([topological_fill(_capped(problem, fill * self.share)) for fill in _FILLS]))

    def moved(self, count: int, random: np.random.Generator) -> np.ndarray:
        """[count, U], the best with a run of units off the fullest accelerator, long or short, on another device."""
        cluster = self._problem.cluster
        shares = self.peak_bytes / cluster.capacity_bytes()
        fullest = int(np.where(cluster.accelerators(), shares, -1.0).argmax())
        units = self._order[self.best[self._order] == fullest]
        # The roomier, the more likely.
        room = np.where(np.arange(len(shares)) == fullest, 0.0, np.maximum(1 - shares / self.share, 0.05))
        rows = np.repeat(self.best[np.newaxis], count, axis=0)
        if not len(units) or not room.any():
            return rows
        targets = random.choice(len(room), size=count, p=room / room.sum())
        lengths = np.exp(random.uniform(0, math.log(1 + len(units) / 2), count)).astype(int)
        for row, target, length in zip(rows, targets, lengths, strict=True):
            first = int(random.integers(len(units) - length + 1))
            run = units[first : first + length]
            row[run[self._problem.allowed[run, target]]] = target
        return rows

    def keep(self, rows: np.ndarray, counts: bool = True) -> None:
        """Keeps the best plan of [B, U], if in time and better than the best so far."""
        if not len(rows):
            return
        measured = self._simulator.evaluate(rows)
        assert measured.peak_bytes is not None  # simulated
        self.evaluations += len(rows) if counts else 0
        in_time = measured.runtime_s <= self._limit_s  # not what does not fit
        shares = np.where(in_time, fullest_share(self._problem.cluster, measured.peak_bytes), np.inf)
        row = int(np.lexsort((measured.runtime_s, shares))[0])
        if in_time[row] and (shares[row], measured.runtime_s[row]) < (self.share, self.runtime_s):
            self.best, self.share = np.array(rows[row]), float(shares[row])
            self.runtime_s, self.peak_bytes = float(measured.runtime_s[row]), measured.peak_bytes[row]


def _capped(problem: Problem, share: float) -> Problem:
    """The problem with accelerators cut to a share of their memory."""
    cluster = problem.cluster
    devices = tuple(
        dataclasses.replace(device, memory_bytes=max(math.ceil(device.memory_bytes * share), 1))
        if counted
        else device
        for device, counted in zip(cluster.devices, cluster.accelerators(), strict=True)
    )
    return dataclasses.replace(problem, cluster=dataclasses.replace(cluster, devices=devices))
