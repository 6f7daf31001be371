"""The best schedule of a window, over all devices and all orders: a constraint program (OR-tools' CP-SAT).

This is a program of its own and imports nothing of TensorFlow: the two have parts of the same names, and the solver
ends the process in which TensorFlow was loaded before it. It reads a window a line (JSON, ``Window.description`` and
what ``WindowModel`` takes besides) and answers each with a line (``WindowModel.solve``).
"""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Any

from ortools.sat.python import cp_model

_MOST_NS = 2**50


class WindowModel:
    """Devices, starts and transfers of a window's ops as variables.

    A device runs as many ops at once as it has streams, a channel one transfer, resident bytes fit. Orders are free,
    time that a device spends on sending and receiving delays the tensor and nothing else, and outputs need no memory.
    So each schedule of the simulator is a solution, and the least time of all solutions is a lower bound.
    """

    def __init__(self, window: dict[str, Any], under_ns: int | None = None, early: bool = False) -> None:
        """Builds the model.

        Args:
          window: ``Window.description``.
          under_ns: only schedules that take less are wanted.
          early: of equally long ones prefer those whose ops end early; there is no bound then.
        """
        self._window = window
        self._under = _MOST_NS if under_ns is None else under_ns
        self._model = model = cp_model.CpModel()
        self._time = functools.partial(model.new_int_var, 0, self._under, "")
        self._devices = range(len(window["capacity"]))
        self._on = [[self._model.new_bool_var("") for _ in self._devices] for _ in window["allowed"]]
        self._start = [self._time() for _ in window["unit"]]
        self._end = [self._time() for _ in window["unit"]]
        for unit_on, allowed in zip(self._on, window["allowed"], strict=True):
            model.add_exactly_one(unit_on)
            for on, may in zip(unit_on, allowed, strict=True):
                if not may:
                    model.add(on == 0)
        for device, room in enumerate(window["capacity"]):
            if sum(window["resident"]) > room:
                sizes = zip(self._on, window["resident"], strict=True)
                model.add(sum(unit_on[device] * size for unit_on, size in sizes) <= room)
        for device, streams in enumerate(window["streams"]):
            intervals = []
            for op, (start, end) in enumerate(zip(self._start, self._end, strict=True)):
                on, cost = self._on[window["unit"][op]][device], window["cost"][op][device]
                model.add(start >= window["release"][op][device]).only_enforce_if(on)
                interval = model.new_optional_interval_var(start, cost, end, on, "")
                if cost:
                    intervals.append(interval)
            model.add_cumulative(intervals, [1] * len(intervals), streams)
        self._move_tensors()
        span = self._time()
        # The step takes longer by the largest join time of the devices that take part.
        join: cp_model.LinearExprT = 0
        if any(window["join"]):
            join = model.new_int_var(0, max(window["join"]), "")
            for op, unit in enumerate(window["unit"]):
                for device, on in enumerate(self._on[unit]):
                    if window["cost"][op][device]:
                        model.add(join >= window["join"][device]).only_enforce_if(on)
        total = span + join
        for op, end in enumerate(self._end):
            for device, on in enumerate(self._on[window["unit"][op]]):
                model.add(span >= end + window["tail"][op][device]).only_enforce_if(on)
        model.add(total <= self._under - 1)
        model.minimize(len(self._end) * total + sum(self._end) if early else total)
        self._early = early

    def solve(
        self, forbidden: list[list[int]], hint: list[int], effort: float, seed: int, on_clock: bool
    ) -> dict[str, Any]:
        """Looks for placements of the window's units; the same answer every time, also on a machine that is busy.

        Args:
          forbidden: [K, U'] placements that are known already.
          hint: [U'] where to look first.
          effort: deterministic seconds of work, or ``on_clock`` seconds of the clock on all cores.

        Returns:
          ``devices`` [K, U'] of each better solution in turn; ``runtime_ns``, what the best takes in the model; and
          ``bound_ns``: no other placement of the units takes less, in any order. ``under_ns`` where there is none.
        """
        for row in forbidden:
            self._model.add_bool_or([self._on[unit][device].negated() for unit, device in enumerate(row)])
        for unit, device in enumerate(hint):
            for other, on in enumerate(self._on[unit]):
                self._model.add_hint(on, other == device)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = len(os.sched_getaffinity(0)) if on_clock else 1
        solver.parameters.random_seed = seed
        setattr(solver.parameters, "max_time_in_seconds" if on_clock else "max_deterministic_time", effort)
        solutions = _Solutions(self._on)
        if solver.solve(self._model, solutions) == cp_model.INFEASIBLE:
            return {"devices": [], "bound_ns": self._under, "runtime_ns": self._under}
        bound = 0 if self._early else round(solver.best_objective_bound)
        runtime = round(solver.objective_value) if solutions.rows else self._under
        return {"devices": solutions.rows, "bound_ns": max(0, min(bound, self._under)), "runtime_ns": runtime}

    def _move_tensors(self) -> None:
        """Each tensor to each device once, one at a time on a channel."""
        window, model = self._window, self._model
        busy: dict[int, list[cp_model.IntervalVar]] = {}
        for producer, readers, links in window["tensors"]:
            unit = window["unit"][producer]
            for reader in readers:
                model.add(self._start[reader] >= self._end[producer])
            others = [reader for reader in readers if window["unit"][reader] != unit]
            sent = [self._time() for _ in self._devices]
            for source, target, channel, send, takes, receive in links if others else ():
                here, crosses = self._on[unit][source], model.new_bool_var("")
                model.add(sent[target] >= self._end[producer] + send).only_enforce_if(crosses)
                interval = model.new_optional_fixed_size_interval_var(sent[target], takes, crosses, "")
                busy.setdefault(channel, []).append(interval)
                for reader in others:
                    there = self._on[window["unit"][reader]][target]
                    model.add_bool_or([here.negated(), there.negated(), crosses])
                    arrives = sent[target] + takes + receive
                    model.add(self._start[reader] >= arrives).only_enforce_if([here, there])
        for intervals in busy.values():
            model.add_no_overlap(intervals)


class _Solutions(cp_model.CpSolverSolutionCallback):
    """Keeps every better solution's devices."""

    def __init__(self, on: list[list[cp_model.IntVar]]) -> None:
        super().__init__()
        self._on = on
        self.rows: list[list[int]] = []

    def on_solution_callback(self) -> None:
        row = [[self.boolean_value(on) for on in unit_on].index(True) for unit_on in self._on]
        if row not in self.rows:
            self.rows.append(row)


def main() -> None:
    """Answers line by line until there are no more."""
    for line in sys.stdin:
        request = json.loads(line)
        model = WindowModel(request["window"], request["under_ns"], request["early"])
        names = ("forbidden", "hint", "effort", "seed", "on_clock")
        answer = model.solve(*(request[name] for name in names))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
