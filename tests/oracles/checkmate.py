"""The least time for which a graph of ops fits a budget, by Checkmate's integer program (Jain et al. 2020, 9).

A program of its own, like ``window_model.py``: the solver cannot run beside TensorFlow. It reads the arguments of
``least_again`` as JSON and writes the answer.

In stage t op t is computed for the first time, after others again, all in the order of the graph. R[t, i] says that
stage t computes op i, S[t, i] that the output of i is kept from stage t - 1. The paper's FREE[t, i, k], that an output
ends with reader k, stands here as what it denies: that a reader after k in stage t, or stage t + 1, needs the output.
So an output that nothing needs is freed at the beginning of a stage, as the paper does once a plan is found. An op that
may write into an input takes memory beside it only where that input is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ortools.sat.python import cp_model


def least_again(
    ns: Sequence[int],
    num_bytes: Sequence[int],
    inputs: Sequence[Sequence[int]],
    into: Sequence[int],
    may: Sequence[bool],
    budget_bytes: int,
    most: int,
    seconds: float,
) -> dict[str, Any]:
    """Solves for the least time of what is computed again.

    Args:
      ns: [N] of each op, in topological order.
      num_bytes: [N] of its output.
      inputs: of each op, the ops that it reads.
      into: [N] input that it may write into, -1 for none.
      may: [N] whether it may be computed more than once.
      budget_bytes, most: at each moment; computations of one op.
      seconds: of the solver.

    Returns:
      The status, and where a solution is found the time, a proven bound, and the ops in their order.
    """
    num_ops, model = len(ns), cp_model.CpModel()
    no, yes = model.new_constant(0), model.new_constant(1)
    readers = [[op for op in range(num_ops) if i in inputs[op]] for i in range(num_ops)]
    needed_until = list(range(num_ops))  # the last stage in which an output is of use
    for i in reversed(range(num_ops)):
        uses = [needed_until[op] if may[op] else op for op in readers[i]]
        needed_until[i] = max([i, *uses])

    def computed(t: int, i: int) -> cp_model.IntVar:
        if t == i:
            return yes
        return model.new_bool_var("") if may[i] and i < t <= needed_until[i] else no

    def kept(t: int, i: int) -> cp_model.IntVar:
        return model.new_bool_var("") if i < t <= needed_until[i] else no

    r = [[computed(t, i) for i in range(num_ops)] for t in range(num_ops)]
    s = [[kept(t, i) for i in range(num_ops)] for t in range(num_ops + 1)]
    for t in range(num_ops):
        for i in range(t + 1):
            model.add_at_most_one(r[t][i], s[t][i])
            if t < num_ops - 1:
                model.add_bool_or(s[t + 1][i].negated(), r[t][i], s[t][i])
            for source in inputs[i]:
                model.add_bool_or(r[t][i].negated(), r[t][source], s[t][source])
        # Output -> (op, that the output is needed when that op is computed or later), the last op first.
        needed: list[list[tuple[int, cp_model.IntVar]]] = []
        for i in range(t + 1):
            since = [(t + 1, s[t + 1][i])]
            for op in [*(op for op in reversed(readers[i]) if op <= t), i]:
                either = model.new_bool_var("")
                model.add_implication(r[t][op], either)
                model.add_implication(since[-1][1], either)
                since.append((op, either))
            needed.append(since)
        for k in range(t + 1):
            if r[t][k] is no:
                continue  # as much as when the op before was computed
            alive = [next(need for op, need in reversed(needed[i]) if op >= k) for i in range(k + 1)]
            if into[k] >= 0:
                alive[k] = model.new_bool_var("")
                model.add_bool_or(r[t][k].negated(), s[t + 1][into[k]].negated(), alive[k])
            alive += s[t][k + 1 : t + 1]
            model.add(sum(size * need for size, need in zip(num_bytes, alive, strict=False)) <= budget_bytes)
    for i in range(num_ops):
        model.add(sum(r[t][i] for t in range(i, num_ops)) <= most)
    model.minimize(sum(ns[i] * r[t][i] for t in range(num_ops) for i in range(t)))
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time, solver.parameters.num_workers = seconds, 8
    status = solver.solve(model)
    answer: dict[str, Any] = {"status": solver.status_name(status)}
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        order = [i for t in range(num_ops) for i in range(t + 1) if solver.value(r[t][i])]
        bound_ns = solver.best_objective_bound
        answer |= {"again_ns": solver.objective_value, "bound_ns": bound_ns, "order": order}
    return answer


if __name__ == "__main__":
    print(json.dumps(least_again(**json.load(sys.stdin))))
