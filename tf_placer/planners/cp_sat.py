"""Constraint programming: exact on small programs, windows on large ones."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import subprocess
import sys
import weakref
from typing import Any, ClassVar

import numpy as np

from tf_placer.base.method_spec import Kind, Settings, method, setting
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.grouper.memory_repair import repairs
from tf_placer.planners.planner import Resumable, Round
from tf_placer.problem.bounds import lower_bounds
from tf_placer.problem.problem import Problem


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """N' ops of U' units whose devices are open; the rest of the step stays in place and time."""

    problem: Problem
    units: np.ndarray  # [U'] the units
    ops: np.ndarray  # [N'] the ops, ascending
    unit: np.ndarray  # [N'] of each op, a position in ``units``
    release_ns: np.ndarray  # [N', D] when what the op reads from outside can be on the device
    tail_ns: np.ndarray  # [N', D] what must follow the op outside

    def description(self) -> dict[str, Any]:
        """Plain lists, for the solver's process.

        Of each tensor (source, target, channel, ns to send, to cross, to hand over and receive) of each link, too.
        """
        problem, cluster = self.problem, self.problem.cluster
        position = {op: index for index, op in enumerate(self.ops.tolist())}
        channel = cluster.channel_of_link()
        tensors = []
        for tensor, readers in enumerate(problem.op_graph.readers()):
            producer = position.get(int(problem.tensor_producer[tensor]))
            inside = [position[op] for op in readers if op in position]
            if producer is None or not inside:
                continue
            num_bytes = int(problem.tensor_bytes[tensor])
            links = [
                (
                    link.source,
                    link.target,
                    int(channel[link.source, link.target]),
                    link.send_ns + -(-num_bytes * link.send_ps_per_byte // 1000),
                    link.latency_ns + -(-num_bytes * 10**9 // max(1, round(link.bytes_per_s))),
                    link.tensor_ns + link.receive_ns + -(-num_bytes * link.receive_ps_per_byte // 1000),
                )
                for link in cluster.links
            ]
            tensors.append((producer, inside, [link for link in links if any(link[3:])]))
        return {
            "allowed": problem.allowed[self.units].tolist(),
            "resident": problem.resident_bytes[self.units].tolist(),
            "capacity": cluster.capacity_bytes().tolist(),
            "streams": cluster.streams().tolist(),
            "join": cluster.join_ns().tolist(),
            "unit": self.unit.tolist(),
            "cost": problem.compute_ns[self.ops].tolist(),
            "release": self.release_ns.tolist(),
            "tail": self.tail_ns.tolist(),
            "tensors": tensors,
        }


def whole(problem: Problem) -> Window:
    """The whole problem as a window."""
    nothing = np.zeros((problem.num_ops, problem.num_devices), np.int64)
    ops = np.arange(problem.num_ops)
    return Window(problem, np.arange(problem.num_units), ops, problem.unit_of_op, nothing, nothing)


def stretch(
    problem: Problem, row: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, first: int, size: int
) -> Window:
    """The units of the ``size`` ops that start after ``first`` ones in the schedule [N] of a placement [U]."""
    ops = np.sort(np.argsort(start_ns, kind="stable")[first : first + size])
    units, unit = np.unique(problem.unit_of_op[ops], return_inverse=True)
    graph, inside = problem.op_graph, np.zeros(problem.num_ops, bool)
    inside[ops] = True
    position = np.cumsum(inside) - 1
    shape, devices = (len(ops), problem.num_devices), np.arange(problem.num_devices)
    release, tail = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    device = row[problem.unit_of_op]
    enters = np.flatnonzero(~inside[graph.producer] & inside[graph.consumer])
    leaves = np.flatnonzero(inside[graph.producer] & ~inside[graph.consumer])
    for edges, bound_ns, inner, outer in (
        (enters, release, graph.consumer, graph.producer),
        (leaves, tail, graph.producer, graph.consumer),
    ):
        op, outside = inner[edges], outer[edges]
        ends = (device[outside][:, np.newaxis], devices)
        source, target = ends if bound_ns is release else ends[::-1]
        link_ns = graph.transfer.between_ns(graph.edge_bytes[edges][:, np.newaxis], source, target)
        link_ns[problem.unit_of_op[op] == problem.unit_of_op[outside]] = 0
        outside_ns = (end_ns if bound_ns is release else graph.bottom_level_ns)[outside]
        np.maximum.at(bound_ns, position[op], outside_ns[:, np.newaxis] + link_ns.astype(np.int64))
    # Streams are taken by what came before.
    release = np.maximum(release, start_ns[ops].min())
    return Window(problem, units, ops, unit, release, tail)


_PROGRAM = pathlib.Path(__file__).with_name("window_model.py")


class SolverProcess:
    """Asks ``window_model.py``, which cannot run beside TensorFlow in one process; ends with its owner."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        weakref.finalize(self, self._process.communicate)  # it stops when it has no more to read

    def solve(self, window: Window, **request: Any) -> dict[str, Any]:
        """Answer of ``WindowModel.solve`` to a request, ``devices`` [K, U'] as an array.

        Raises:
          RuntimeError: the solver has died.
        """
        options = {"under_ns": None, "forbidden": [], "early": False, "on_clock": False, **request}
        question = json.dumps({"window": window.description(), **options}, default=np.ndarray.tolist)
        assert self._process.stdin is not None and self._process.stdout is not None  # they are pipes
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the solver's process has ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return {**answer, "devices": np.array(answer["devices"], np.int32).reshape(-1, len(window.units))}


@dataclasses.dataclass(frozen=True)
class CpSatConfig(Settings):
    """Settings of constraint programming."""

    exact_ops: int = setting(100, least=0, most=2**20)  # programs of at most so many are solved as a whole
    window_ops: int = setting(40, least=1, most=2**20)  # of a window of a larger one
    # Deterministic seconds of the solver for each solution; twice as many whenever they were too few.
    effort: float = setting(0.5, least=0.001, most=3600)


@method(
    "cp_sat",
    Kind.IMPROVING,
    config=CpSatConfig,
    ignores=("the simulator's order", "what devices do for messages", "peaks of memory"),
    uses_start=True,
)
class CpSat(Resumable):
    """Constraint programming (CP-SAT): proves small programs, places stretches of large ones anew.

    Plans are solutions of a relaxed model (``window_model``), and what times them has the last word.

    On a small program it looks for plans that take less there than the best known one and have not been tried: a
    logic-based Benders decomposition (Hooker & Ottosson 2003). Where none are left, the best is the simulator's
    optimum, and is proposed from then on. On a large program a stretch of the best plan's step is placed anew, all else
    fixed, and kept if it is no slower (large-neighborhood search, Shaw 1998); nothing is proven.
    """

    _KEPT: ClassVar[dict[str, type]] = {
        "_best": np.int32,
        "_best_s": float,
        "_tried": np.int32,
        "_effort": float,
    }
    _KEPT |= {"proven_bound_ns": int, "_generator": np.random.Generator}

    def __init__(self, problem: Problem, config: CpSatConfig, start: np.ndarray, seed: int) -> None:
        """Starts from a placement ``start`` [U]."""
        self._problem, self._config = problem, config
        self._generator = np.random.default_rng(seed)
        self._whole = problem.num_ops <= config.exact_ops
        self._certain, _ = repairs(problem)
        self._simulator = SimulatedEvaluator(problem)
        self._best, self._best_s = np.array(start, np.int32), math.inf
        self._tried = np.zeros((0, problem.num_units), np.int32)
        self._effort = config.effort
        self._solver = SolverProcess()
        # No placement that fits takes less in the simulator.
        self.proven_bound_ns = math.ceil(lower_bounds(problem).best_s * 1e9 - 1e-3)

    @property
    def is_proven(self) -> bool:
        """The best plan so far is the optimum of the simulator."""
        return self._best_s * 1e9 <= self.proven_bound_ns + 1e-3

    def proven_s(self) -> float:
        """``proven_bound_ns`` in seconds."""
        return self.proven_bound_ns / 1e9

    def ask(self, most: float) -> np.ndarray:
        """[B, U] int32 legal placements: the solver's, or without any the best one again."""
        if self.is_proven:
            return self._best[np.newaxis]
        if not self._whole:  # a stretch of the best plan's step is placed anew
            problem, size = self._problem, self._config.window_ops
            step = self._simulator.schedule(self._best[np.newaxis])
            start_ns, end_ns = np.asarray(step.start_ns)[0], np.asarray(step.end_ns)[0]
            first = int(self._generator.integers(max(problem.num_ops - size, 0) + 1))
            window = stretch(problem, self._best, start_ns, end_ns, first, size)
            seed, hint = int(self._generator.integers(2**31 - 1)), self._best[window.units]
            answer = self._solver.solve(window, hint=hint, effort=self._effort, seed=seed, early=True)
            rows = np.repeat(self._best[np.newaxis], max(len(answer["devices"]), 1), axis=0)
            if len(answer["devices"]):
                rows[:, window.units] = answer["devices"]
            return np.stack([self._certain(row) for row in rows])
        under = None if math.isinf(self._best_s) else math.ceil(self._best_s * 1e9 - 1e-3)
        seed = int(self._generator.integers(2**31 - 1))
        request = {"forbidden": self._tried, "hint": self._best, "effort": self._effort, "seed": seed}
        answer = self._solver.solve(whole(self._problem), under_ns=under, **request)
        devices = answer["devices"]
        if under is not None:
            # What was tried takes at least ``under``, all else at least the solver's bound.
            self.proven_bound_ns = max(self.proven_bound_ns, min(int(answer["bound_ns"]), under))
        if not len(devices):
            self._effort *= 2
            return self._best[np.newaxis]
        return devices

    def tell(self, decisions: object, times: Round) -> None:
        """Remembers the tried placements, and goes to the fastest unless slower."""
        rows, runtime_s = times.decisions.device_of_unit, times.times_s
        fastest = int(np.argmin(runtime_s))
        if runtime_s[fastest] <= self._best_s:
            self._best, self._best_s = np.array(rows[fastest], np.int32), float(runtime_s[fastest])
        if (self._problem.allowed.sum(axis=1) == 1).all() and math.isfinite(self._best_s):
            self.proven_bound_ns = math.ceil(self._best_s * 1e9 - 1e-3)  # there is no other placement
        if self._whole:
            self._tried = np.unique(np.concatenate([self._tried, rows]), axis=0)
