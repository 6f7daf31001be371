"""Searched plans beside proven optima: public instances of devices and order, and built ones with links and memory.

    python -m experiments.optima --stg=DIR --fjsp=DIR [--quick] [--seconds=60] [--most=12] [--seed=1]

STG (Tobita & Kasahara 2002; GitHub: thelonesailor/MSP) is tasks on equal processors, a flexible job shop (GitHub:
ScheduleOpt/benchmarks) operations on unlike machines; ``built`` says what else there is. All are searched by ``auto``
with ``order="auto"``, and solved by CP-SAT with as many seconds. Writes the page.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import flags

from experiments.main_program import run_program, seed_flag
from experiments.studies.formats import header, line, write_page
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device, links_between
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.planners.cp_sat import SolverProcess, whole
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.placement import Decisions
from tf_placer.problem.problem import Problem
from tf_placer.search.search import NothingFits, search

_STG = flags.DEFINE_string("stg", None, "Folder with 50/, 100/ and Optimal_values/ of STG; left out without.")
_FJSP = flags.DEFINE_string("fjsp", None, "Folder with job shops and best_known.json; left out without.")
_QUICK = flags.DEFINE_boolean("quick", False, "Ten of each family, four seconds each.")
_SECONDS = flags.DEFINE_float("seconds", 60.0, "Of each search and each solver.", lower_bound=0.1)
_MOST = flags.DEFINE_integer("most", 12, "Of a family, spread over its list; 0 for all.", lower_bound=0)
_OUT = flags.DEFINE_string("out", "docs/results/optima.md", "The page to write.")
_SEED = seed_flag("Of searches, solvers and built instances.", 1)

_QUICK_SECONDS, _QUICK_MOST = 4.0, 10
_UNIT_NS = 10**6  # of the public instances' integers
_AMPLE = 10**12  # bytes
_OPS, _DEVICES = (50, 100, 200, 500, 1000, 2000, 5000), (2, 4, 8)
_ROOM = 1.05  # memory of a built instance, as a multiple of what the plan takes that is cut into it
_EQUAL = 1e-9
_SOLVED_OPS = 600  # the solver's model of more takes longer to make than it is given


@dataclasses.dataclass(frozen=True)
class Instance:
    """A problem, and what is known of its best plan."""

    family: str
    name: str
    problem: Problem
    best_s: float  # of a solution that is known
    bound_s: float  # proven by others; equal to the best where that is an optimum


def stg(folder: pathlib.Path) -> Iterator[tuple[str, int, list[float]]]:
    """(file, processors, the optimum, or what it is between) of each instance."""
    for table in sorted((folder / "Optimal_values").glob("*.csv")):
        rows = csv.reader(table.read_text().splitlines())
        for name, processors, *known in (row for row in rows if row):
            if (folder / name).is_file():
                yield name, int(processors), [float(text) / 1e3 for text in known]


def stg_instance(folder: pathlib.Path, name: str, processors: int, known_s: list[float]) -> Instance:
    """Tasks of Kasahara's format on equal processors."""
    rows = [line.split() for line in (folder / name).read_text().splitlines() if line[:1] != "#"]
    tasks = [[int(word) for word in row] for row in rows[1:] if row]
    compute = np.array([[task[1]] * processors for task in tasks])
    edges = [(before, task[0]) for task in tasks for before in task[3:]]
    problem = machines(compute, edges, compute >= 0)
    return Instance("STG", f"{pathlib.Path(name).stem}, {processors}", problem, known_s[-1], known_s[0])


def job_shop_instance(folder: pathlib.Path, name: str, known: dict[str, float]) -> Instance:
    """Operations, each on some of the machines."""
    content = json.loads((folder / f"{name}.json").read_text())
    options = content["operations"]
    shape = (1 + max(row["operation"] for row in options), 1 + max(row["machine"] for row in options))
    compute, allowed = np.zeros(shape, np.int64), np.zeros(shape, bool)
    for row in options:
        compute[row["operation"], row["machine"]] = row["duration"]
        allowed[row["operation"], row["machine"]] = True
    edges = [(row["before"], row["after"]) for row in content["precedences"]]
    problem = machines(compute, edges, allowed)
    return Instance("job shop", name, problem, known["upper_bound"] / 1e3, known["lower_bound"] / 1e3)


def machines(compute: np.ndarray, edges: Sequence[tuple[int, int]], allowed: np.ndarray) -> Problem:
    """Tasks with times [N, D], on devices that run one at a time and hand over results in no time."""
    tasks, devices = compute.shape
    nothing = np.zeros(tasks, np.int64)
    return Problem.from_arrays(
        compute_ns=compute * _UNIT_NS,
        edges=np.array(edges, np.int32).reshape(-1, 2),
        edge_bytes=np.zeros(len(edges), np.int64),
        resident_bytes=nothing,
        output_bytes=nothing,
        allowed=allowed,
        cluster=_cluster([1] * devices, [_AMPLE] * devices, latency_ns=0, bytes_per_s=1e15),
    )


def _cluster(kinds: Iterable[int], memory: Iterable[float], latency_ns: int, bytes_per_s: float) -> Cluster:
    """Devices that run one op at a time, on one bus."""
    devices = tuple(
        Device(f"GPU:{number}", "GPU", f"kind {kind}", int(room), 1, 1e12, 1e12, 0)
        for number, (kind, room) in enumerate(zip(kinds, memory, strict=True))
    )
    return Cluster("machines", devices, links_between(len(devices), latency_ns, bytes_per_s, "bus"))


def built(ops: int, devices: int, seed: int) -> Instance:
    """An instance whose optimum is known because a plan without a pause was cut into it.

    Each device's step of length L is cut into ops. They take as long on devices of its kind, of which there are two,
    and up to twice as long on others: so all that there is to compute takes L on all devices together. What an op reads
    had ended before; what crosses did so on the one bus, first come, first served, before its reader began. Memory
    suffices for this plan, and for little else.
    """
    rng = np.random.default_rng((seed, ops, devices))
    kind = np.arange(devices) % 2
    per_device = np.diff(np.linspace(0, ops, devices + 1).astype(int))
    length = int(_UNIT_NS * ops / devices)
    planted = np.repeat(np.arange(devices), per_device)
    cuts = [np.sort(rng.choice(np.arange(1, length), count - 1, replace=False)) for count in per_device]
    start = np.concatenate([np.append(0, cut) for cut in cuts])
    end = np.concatenate([np.append(cut, length) for cut in cuts])
    order = np.lexsort((end, start))
    planted, start, end = planted[order], start[order], end[order]
    slower = 1 + rng.random((ops, devices)) * (kind != kind[planted][:, np.newaxis])
    compute = np.ceil((end - start)[:, np.newaxis] * slower).astype(np.int64)
    latency_ns, bytes_per_s = _UNIT_NS // 50, 1e9
    output = np.ceil(rng.exponential(0.1 * _UNIT_NS, ops)).astype(np.int64)  # a byte takes a nanosecond
    edges, bus_ns = [], 0
    for op in np.lexsort((np.arange(ops), end)):
        later = np.flatnonzero(start >= end[op])
        here = later[planted[later] == planted[op]][:20]
        edges += [(op, int(reader)) for reader in rng.permutation(here)[: rng.integers(1, 3)]]
        sent = max(bus_ns, int(end[op])) + latency_ns + int(output[op])
        there = later[(planted[later] != planted[op]) & (start[later] >= sent)]
        if len(there) and rng.random() < 0.5 and sent - end[op] < 3 * _UNIT_NS:
            bus_ns = sent
            edges.append((op, int(there[min(rng.integers(10), len(there) - 1)])))
    arrays = {
        "compute_ns": compute,
        "edges": np.array(edges, np.int32),
        "edge_bytes": output[[producer for producer, _ in edges]],
        "edge_tensor": np.array([producer for producer, _ in edges]),
        "resident_bytes": rng.integers(1, 4, ops) * 10**6,
        "output_bytes": output,
        "allowed": np.ones_like(compute, bool),
    }
    ample = _cluster(kind, [_AMPLE] * devices, latency_ns, bytes_per_s)
    problem = Problem.from_arrays(**arrays, cluster=ample)
    plan = Decisions([planted], [np.arange(ops)])
    room = SimulatedEvaluator(problem).evaluate(plan).peak_bytes
    assert room is not None  # simulated
    problem = Problem.from_arrays(**arrays, cluster=_cluster(kind, _ROOM * room[0], latency_ns, bytes_per_s))
    took_s = float(SimulatedEvaluator(problem).evaluate(plan).runtime_s[0])
    assert round(took_s * 1e9) == length, (took_s, length)
    return Instance("built", f"{ops} ops, {devices}", problem, took_s, took_s)


@dataclasses.dataclass(frozen=True)
class Row:
    """An instance, and what was made of it; seconds as shares of the best known solution."""

    instance: Instance
    searched: float
    bound: float
    solved: float  # the solver's, in its model; nan where it had none
    proven: float  # the solver's bound
    order: str
    evaluations: int

    def cells(self) -> list[str]:
        """Of the page."""
        instance = self.instance
        known = f"{1e3 * instance.best_s:.6g}" + " (open)" * (instance.bound_s < instance.best_s)
        shares = (f"{share:.4f}" for share in (self.searched, self.bound, self.solved, self.proven))
        return [instance.family, instance.name, str(instance.problem.num_ops), known, *shares, self.order]


def row(instance: Instance, seconds: float, seed: int) -> Row:
    """Searches and solves an instance."""
    problem, best_s = instance.problem, instance.best_s
    solved = proven = float("nan")
    if problem.num_ops <= _SOLVED_OPS:
        hint = problem.legalized(np.zeros(problem.num_units, np.int64))
        request = {"hint": hint, "effort": seconds, "seed": seed, "on_clock": True}
        answer = SolverProcess().solve(whole(problem), **request)
        proven = answer["bound_ns"] / 1e9 / best_s
        solved = answer["runtime_ns"] / 1e9 / best_s if len(answer["devices"]) else solved
    try:
        result = search(problem, "auto", budget_s=seconds, seed=seed, order="auto")
    except NothingFits:
        bound_s = lower_bounds(problem).best_s
        return Row(instance, float("nan"), bound_s / best_s, solved, proven, "nothing fits", 0)
    ours, bound = result.runtime_s / best_s, result.lower_bound_s / best_s
    return Row(instance, ours, bound, solved, proven, result.order, result.evaluations)


def _spread(entries: Iterable[Any], most: int) -> list[Any]:
    """So many of the entries, spread over them."""
    every = list(entries)
    positions = np.linspace(0, len(every) - 1, min(most or len(every), len(every))).astype(int)
    return [every[position] for position in positions]


def instances(most: int, seed: int) -> Iterator[Instance]:
    """Of the families that there are folders for, and built ones."""
    if _STG.value is not None:
        folder = pathlib.Path(_STG.value)
        for entry in _spread(stg(folder), most):
            yield stg_instance(folder, *entry)
    if _FJSP.value is not None:
        folder = pathlib.Path(_FJSP.value)
        known = json.loads((folder / "best_known.json").read_text(encoding="utf-8"))
        for name in _spread((name for name in sorted(known) if (folder / f"{name}.json").is_file()), most):
            yield job_shop_instance(folder, name, known[name])
    sizes = [(ops, devices) for ops in _OPS for devices in _DEVICES if ops >= 25 * devices]
    for ops, devices in _spread(sizes, most):
        yield built(ops, devices, seed)


def summaries(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each family."""
    titles = ("family", "with a plan", "mean gap", "worst", "optimal", "CP-SAT: mean gap")
    yield from header(*titles, "CP-SAT ahead - behind", "our bound")
    for family in dict.fromkeys(row.instance.family for row in rows):
        of_family = [row for row in rows if row.instance.family == family]
        ours = np.array([row.searched for row in of_family])
        solved = np.array([row.solved for row in of_family])
        has_plan, both = np.isfinite(ours), np.isfinite(ours) & np.isfinite(solved)
        yield line(
            family,
            f"{has_plan.sum()} of {len(of_family)}",
            f"{ours[has_plan].mean() - 1:.2%}",
            f"{ours[has_plan].max() - 1:.2%}",
            f"{(ours < 1 + _EQUAL).sum()}",
            f"{solved[both].mean() - 1:.2%}" if both.any() else "",
            f"{(solved[both] < ours[both] - _EQUAL).sum()} - {(solved[both] > ours[both] + _EQUAL).sum()}",
            f"{np.mean([row.bound for row in of_family]):.3f}",
        )


def main() -> None:
    """Prints the tables, and writes them."""
    seconds, most = (_QUICK_SECONDS, _QUICK_MOST) if _QUICK.value else (_SECONDS.value, _MOST.value)
    titles = ("family", "instance", "ops", "best known", "searched", "bound", "CP-SAT", "its bound", "order")
    rows: list[Row] = []
    for instance in instances(most, _SEED.value):
        rows.append(row(instance, seconds, _SEED.value))
        print(line(*rows[-1].cells()), flush=True)
        if rows[-1].bound > 1 + _EQUAL:
            raise ValueError(f"the lower bound of {instance.name} is above a known solution")
    table = list(summaries(rows))
    print("\n".join(table))
    options = "--quick" if _QUICK.value else f"--seconds={seconds:g} --most={most}"
    command = f"`python -m experiments.optima --stg=DIR --fjsp=DIR {options}`"
    page = [
        f'{seconds:g} seconds of `auto` with `order="auto"` on all cores, and as many of CP-SAT with as many threads',
        "and no hint, in the model of `cp_sat`: there outputs take no memory, so on built instances its solutions may",
        f"not fit. It is given at most {_SOLVED_OPS} ops, and its gap is over the instances that both have a plan of.",
        "",
        *table,
        "",
        "Milliseconds of the best known solution; what was found and proven as shares of it.",
        "",
        *header(*titles),
        *(line(*row.cells()) for row in rows),
    ]
    seeds = f"{_SEED.value}, of searches, solvers and built instances"
    write_page(_OUT.value, "Proven optima", command, seeds, page)


if __name__ == "__main__":
    run_program(main)
