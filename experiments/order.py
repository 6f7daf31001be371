"""Gain of an order of execution that is decided with the placement, and whether it is what runs.

    python -m experiments.order [--quick] [--seconds=60] [--seed=0] [--out=docs/results/order.md]

Searches without an order, under each rule, and with the order searched, too (``--order=auto``), of as many seconds
each; and executed orders on this machine's own devices. All but the last is simulated. Writes the page.
"""

from __future__ import annotations

import contextlib

import numpy as np
import tensorflow as tf
from absl import flags

import tf_placer
from experiments.main_program import run_program
from experiments.studies.formats import header, line, write_page
from tf_placer import workloads
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.ops.simulator import simulate
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import simulator_inputs
from tf_placer.rewrite.rewrite import rewrite
from tf_placer.runtime.audit import executed_order
from tf_placer.runtime.graph_program import build_program, open_program
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.search.methods import AUTO_ORDER, NO_ORDER
from tf_placer.search.search import search
from tf_placer.transform.order import order_edges, ordered_pairs, with_edges
from tf_placer.workers.local_workers import workers_of

_QUICK = flags.DEFINE_boolean("quick", False, "Small programs, and 2 seconds of each search.")
_SECONDS = flags.DEFINE_float("seconds", 60.0, "Of each search.", lower_bound=0.1)
_SEED = flags.DEFINE_integer("seed", 0, "Of the searches.", lower_bound=0)
_OUT = flags.DEFINE_string("out", "docs/results/order.md", "The page to write.")

# Workload, devices, parts of the batch.
_PROGRAMS = (
    ("nmt_2", "k40x2", 1),
    ("nmt_4", "k40x4", 1),
    ("rnnlm_2", "k40x2", 1),
    ("transformer_xl_2", "p100x2", 1),
    ("wavenet_2x18", "p100x2", 1),
    ("inception_v3", "k40x2", 1),
    ("inception_v3", "k40x2", 2),
    ("nasnet", "p100x4", 1),
    ("nmt_4", "p100x4", 4),
    ("bert_base", "p100x4", 4),
)
_RULES = ("heft_rank", "critical_sends", "placed_level")
_OF_PARTS = ("all_forward", "one_forward_one_backward")
_AUDITED, _TRACED_STEPS = "two_towers", 5


def program_row(workload: str, cluster: str, parts: int, seconds: float, seed: int) -> str:
    """A line on one program, with its batch in parts, on described devices."""
    item = tf_placer.split(workloads.build(f"{workload}_small" if _QUICK.value else workload), parts)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset(cluster))
    orders = (NO_ORDER, *_RULES, *(_OF_PARTS if parts > 1 else ()), AUTO_ORDER)
    results = {order: search(problem, budget_s=seconds, seed=seed, order=order) for order in orders}
    plain, auto = results.pop(NO_ORDER), results.pop(AUTO_ORDER)
    rule = min(results, key=lambda order: results[order].runtime_s)
    pairs, edges, kept = realized(item, auto.placement)
    return line(
        f"{workload}, {cluster}{f', {parts} parts' if parts > 1 else ''}",
        f"{1e3 * plain.runtime_s:.1f} ms",
        f"{results[rule].runtime_s / plain.runtime_s:.3f} ({rule})",
        f"{auto.runtime_s / plain.runtime_s:.3f} ({auto.order})",
        f"{auto.runtime_s / results[rule].runtime_s:.3f}",
        f"{auto.lower_bound_s / plain.runtime_s:.3f}",
        f"{pairs}, {edges}",
        f"{kept:.3f}",
    )


def realized(item: Item, plan: Placement) -> tuple[int, int, float]:
    """Pairs that a plan's order is about, edges written, and the step with these as a share of that with priorities."""
    if plan.priority_of_op is None:
        return 0, 0, 1.0
    edges, inputs = order_edges(plan, item), simulator_inputs(plan.problem)
    with_edges_s = (
        float(simulate(with_edges(inputs, edges), plan.device_of_unit[np.newaxis]).runtime_ns[0]) / 1e9
    )
    step_s = float(SimulatedEvaluator(plan.problem).evaluate(plan.decisions).runtime_s[0])
    return len(ordered_pairs(plan, item)), len(edges), with_edges_s / step_s


def audited() -> list[str]:
    """Lines on executed orders of a step in a random order over this machine's devices, with edges and without.

    Every pair is written, also those that the simulated step does not need.
    """
    item, rng = workloads.build(_AUDITED), np.random.default_rng(_SEED.value)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.local(), costs="analytic")
    devices = problem.legalized(rng.integers(problem.num_devices, size=problem.num_units))
    plan = Placement(problem, devices, rng.permutation(problem.num_ops))
    alone, names = Placement(problem, plan.device_of_unit), problem.op_names
    pairs = [(names[a], names[b]) for a, b in ordered_pairs(plan, item).tolist()]
    placed = rewrite(item, alone)
    with_edges = tf.compat.v1.GraphDef()
    with_edges.CopyFrom(placed)
    for before, after in pairs:
        with_edges.node[item.index.id_of_name[after]].input.append(f"^{before}")
    lines = list(header("graph", "pairs", "in order, in the worst of the steps"))
    config = RuntimeConfig()
    with contextlib.closing(workers_of(problem.cluster, config.inter_op_threads)) as workers:
        workers.start()
        for told, graph_def in (("devices alone", placed), ("with control edges", with_edges)):
            with open_program(workers.target, build_program(item, graph_def), config.deadline_s) as loaded:
                loaded.step()
                traces = [loaded.traced_step() for _ in range(_TRACED_STEPS)]
            orders = [executed_order(pairs, trace, names) for trace in traces]
            shares = [order.in_order / max(order.in_order + len(order.broken), 1) for order in orders]
            lines.append(line(told, str(len(pairs)), f"{min(shares):.0%}"))
    return lines


def main() -> None:
    """Prints the tables, and writes them."""
    seconds, seed = 2.0 if _QUICK.value else _SECONDS.value, _SEED.value
    titles = ("program", "no order", "best rule", "auto", "auto over the best rule", "bound")
    table = list(header(*titles, "pairs, edges", "with edges"))
    print("\n".join(table), flush=True)
    for program in _PROGRAMS:
        table.append(program_row(*program, seconds, seed))
        print(table[-1], flush=True)
    executed = audited()
    print("\n".join(executed), flush=True)
    command = f"`python -m experiments.order{' --quick' if _QUICK.value else f' --seconds={seconds:g}'}`"
    page = [
        f"Simulated, after {seconds:g} seconds each of `auto`{', small twins' * _QUICK.value}.",
        "Rules and `auto` stand as shares of the step of the plan that was searched without an order. Each rule had",
        "all seconds; `auto` (`place --order=auto`) races them, and then searches the order itself, too:",
        "`searched` where that had the last word. Pairs are those of ops that were ready at the same time on one",
        "device; edges are what is written of them, few that keep step and peaks within 1 %; the last column is the",
        "step with these over that with priorities.",
        "",
        *table,
        "",
        f"A step of {_AUDITED} in a random order, its units at random on this machine's devices, traced",
        f"{_TRACED_STEPS} times: pairs of ops of which the second began when the first had ended.",
        "",
        *executed,
    ]
    seeds = f"{seed}, of searches, random orders and the plans that are run"
    write_page(_OUT.value, "Order of execution", command, seeds, page)


if __name__ == "__main__":
    run_program(main)
