"""Gain of an order of execution that is decided with the placement, and cost of the control edges that realize it.

    python -m experiments.order [--quick] [--evaluations=6000] [--seed=0] [--out=docs/results/order.md]

Rules on plans that were searched without an order, beside a search that decides both (``--order=auto``); the search's
choice beside one-forward-one-backward and all-forward where the batch is in parts; executed orders and costs of edges
on this machine's own devices. All but the last is simulated. Writes the page.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import flags

import tf_placer
from colocation.op_facts import parse_input
from experiments.main_program import run_program
from experiments.studies.formats import header, line, machine_lines
from tf_placer import workloads
from tf_placer.base.files import write_atomically
from tf_placer.base.quantities import in_unit
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planners.order import RULES, priorities
from tf_placer.planners.plain import expert
from tf_placer.problem.placement import Decisions, Placement
from tf_placer.problem.problem import Problem, simulator_inputs
from tf_placer.rewrite.rewrite import rewrite
from tf_placer.runtime.audit import executed_order
from tf_placer.runtime.graph_program import build_program, open_program
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.search.methods import AUTO_ORDER, NO_ORDER
from tf_placer.search.recorder import SearchResult
from tf_placer.search.search import search
from tf_placer.transform.order import order_edges, ordered_pairs, simulate_with_edges
from tf_placer.workers.local_workers import workers_of

_QUICK = flags.DEFINE_boolean("quick", False, "Small programs, and 1,000 evaluations of each search.")
_EVALUATIONS = flags.DEFINE_integer("evaluations", 6000, "Of each search.", lower_bound=100)
_SEED = flags.DEFINE_integer("seed", 0, "Of the searches.", lower_bound=0)
_OUT = flags.DEFINE_string("out", "docs/results/order.md", "The page to write.")

_QUICK_EVALUATIONS = 1000
_METHOD = "memetic"  # what `auto` spends most of its time on
# Workload, devices, parts of the batch.
_PROGRAMS = (
    ("nmt_2", "k40x2", 1),
    ("rnnlm_2", "k40x2", 1),
    ("transformer_xl_2", "p100x2", 1),
    ("inception_v3", "k40x2", 2),
    ("bert_base", "p100x4", 4),
)
_IN_PARTS = (("nmt_4", "p100x4", 4), ("bert_base", "p100x4", 4))
_MICRO_BATCHES = ("all_forward", "one_forward_one_backward", AUTO_ORDER)
_TRACED_STEPS, _ROUNDS = 5, 101
_MOST_EDGES = 50  # to one op, of those that cost and order nothing
_AUDITED, _COSTED = "two_towers", "dense_small"


def built(workload: str, cluster: str, parts: int) -> tuple[Item, Problem]:
    """A workload, small with ``--quick``, with its batch in parts, on described devices."""
    item = tf_placer.split(workloads.build(f"{workload}_small" if _QUICK.value else workload), parts)
    return item, tf_placer.build_problem(item, tf_placer.Cluster.preset(cluster))


def found(problem: Problem, evaluations: int, seed: int, order: str) -> SearchResult:
    """One search."""
    return search(problem, _METHOD, budget_evaluations=evaluations, seed=seed, order=order)


@dataclasses.dataclass(frozen=True)
class Ordered:
    """A program, searched without an order and with one."""

    # the plans found without an order, by two seeds, and with both decided
    plain: SearchResult
    again: SearchResult
    auto: SearchResult
    # rule -> step of ``plain`` with the rule's priorities, as a share of it without
    afterwards: dict[str, float]
    # of the plan of ``auto``: pairs of ops that its order is about, and edges that are written
    pairs: int
    edges: int
    kept: float  # its simulated step with these edges, as a share of that with its priorities


def ordered(item: Item, problem: Problem, evaluations: int, seed: int) -> Ordered:
    """Searches a program three times, and tries every rule on the first plan."""
    plain, again = (found(problem, evaluations, one, NO_ORDER) for one in (seed, seed + 1))
    auto = found(problem, evaluations, seed, AUTO_ORDER)
    devices = plain.placement.device_of_unit
    rows = [priorities(rule, problem, devices, seed) for rule in RULES]
    times = SimulatedEvaluator(problem).times(Decisions([devices] * len(rows), rows)).runtime_s.numpy()
    pairs, edges, kept = realized(item, auto.placement)
    return Ordered(
        plain, again, auto, dict(zip(RULES, times / plain.runtime_s, strict=True)), pairs, edges, kept
    )


def realized(item: Item, plan: Placement) -> tuple[int, int, float]:
    """Pairs that a plan's order is about, edges written, and the step with these as a share of that with priorities."""
    if plan.priority_of_op is None:
        return 0, 0, 1.0
    edges, inputs = order_edges(plan, item), simulator_inputs(plan.problem)
    with_edges_s = float(simulate_with_edges(inputs, plan.device_of_unit, edges).runtime_ns[0]) / 1e9
    step_s = float(SimulatedEvaluator(plan.problem).evaluate(plan.decisions).runtime_s[0])
    return len(ordered_pairs(plan, item)), len(edges), with_edges_s / step_s


def in_parts_rows(name: str, problem: Problem, evaluations: int, seed: int) -> list[str]:
    """Lines on the expert's plan, whose devices are stages of a pipeline, and on searches, under orders of parts."""
    stages = expert(problem)[0]
    lines = []
    for order in (NO_ORDER, *_MICRO_BATCHES[:2]):
        ranks = None if order == NO_ORDER else [priorities(order, problem, stages, seed)]
        lines.append(_step_and_peak(name, "the expert's stages", order, problem, Decisions([stages], ranks)))
    for order in (NO_ORDER, *_MICRO_BATCHES):
        plan = found(problem, evaluations, seed, order)
        told = f"{order}: {plan.order}" if order == AUTO_ORDER else order
        lines.append(_step_and_peak(name, "searched", told, problem, plan.placement.decisions))
    return lines


def _step_and_peak(name: str, plan: str, order: str, problem: Problem, decisions: Decisions) -> str:
    times = SimulatedEvaluator(problem).times(decisions)
    peak = int(times.peak_bytes.numpy()[0][problem.cluster.accelerators()].max())
    return line(name, plan, order, f"{1e3 * float(times.runtime_s[0]):.1f} ms", in_unit(peak, "MB"))


def audited() -> list[str]:
    """Lines on executed orders of a step in a random order over this machine's devices, with edges and without.

    Every pair is written, also those that the simulated step does not need.
    """
    item, problem, plan = _random_plan(_AUDITED)
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
            shares = [executed_order(pairs, trace, names).share for trace in traces]
            lines.append(line(told, str(len(pairs)), f"{min(shares):.0%}"))
    return lines


def costed() -> str:
    """A sentence on a step with redundant edges beside the same without, in turn."""
    item, problem, plan = _random_plan(_COSTED)
    plan = Placement(problem, plan.device_of_unit)
    placed, edges = rewrite(item, plan), 0
    device, fed = plan.device_of_op, {item.index.id_of_name[feed.node] for feed in item.feeds}
    ahead: list[set[int]] = []  # of each op, all that it waits for
    for op, node in enumerate(placed.node):
        reads = {item.index.id_of_name[parse_input(text)[1]] for text in node.input}
        behind = set().union(*(ahead[other] for other in reads))
        ahead.append(reads | behind)
        # What its inputs wait for, an op waits for in any case.
        redundant = [other for other in sorted(behind - reads - fed) if device[other] == device[op]]
        for other in redundant[-_MOST_EDGES:]:
            node.input.append(f"^{problem.op_names[other]}")
            edges += 1
    with RuntimeEvaluator(item, problem) as evaluator:
        evaluator.evaluate(plan.decisions.plain)
        without_s, with_s = evaluator.race(
            plan.decisions.plain, _ROUNDS, confidence=1.0, beside=[build_program(item, placed)]
        )
    ratios = np.array(with_s) / np.array(without_s)
    low, high = np.quantile(ratios, [0.25, 0.75])
    more_s = (np.median(ratios) - 1) * np.median(without_s)
    return (
        f"{_COSTED} has {problem.num_ops} ops and a step of {1e3 * np.median(without_s):.2f} ms on the same devices. "
        f"With {edges} redundant control edges it takes {np.median(ratios):.3f} of that in the median of {_ROUNDS} "
        f"turns (quartiles {low:.3f} and {high:.3f}): {1e6 * more_s / max(edges, 1):.2f} µs an edge."
    )


def _random_plan(workload: str) -> tuple[Item, Problem, Placement]:
    """A plan in a random order over this machine's devices."""
    item = workloads.build(workload)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.local(), costs="analytic")
    rng = np.random.default_rng(_SEED.value)
    devices = problem.legalized(rng.integers(problem.num_devices, size=problem.num_units))
    return item, problem, Placement(problem, devices, rng.permutation(problem.num_ops))


def program_lines(programs: Sequence[tuple[str, str, int]], evaluations: int, seed: int) -> list[str]:
    """The first table: a column for each program."""
    results = []
    for workload, cluster, parts in programs:
        results.append(ordered(*built(workload, cluster, parts), evaluations, seed))
        one = results[-1]
        print(
            f"{workload} on {cluster}: auto {one.auto.runtime_s / one.plain.runtime_s:.3f} ({one.auto.order})",
            flush=True,
        )
    titles = [
        f"{name}, {cluster}{f', {parts} parts' if parts > 1 else ''}" for name, cluster, parts in programs
    ]
    lines = list(header("order", *titles))
    lines.append(line("none", *(f"{1e3 * one.plain.runtime_s:.1f} ms" for one in results)))
    lines.append(
        line("none, another seed", *(f"{one.again.runtime_s / one.plain.runtime_s:.3f}" for one in results))
    )
    for rule in RULES:
        lines.append(line(f"{rule}, afterwards", *(f"{one.afterwards[rule]:.3f}" for one in results)))
    lines.append(
        line(
            "auto, decided with the devices",
            *(f"{one.auto.runtime_s / one.plain.runtime_s:.3f} ({one.auto.order})" for one in results),
        )
    )
    lines.append(line("its pairs, its edges", *(f"{one.pairs}, {one.edges}" for one in results)))
    lines.append(
        line("step with the edges, over that with priorities", *(f"{one.kept:.3f}" for one in results))
    )
    return lines


def main(argv: list[str]) -> None:
    """Prints the tables, and writes them."""
    del argv
    evaluations = _QUICK_EVALUATIONS if _QUICK.value else _EVALUATIONS.value
    seed = _SEED.value
    first = program_lines(_PROGRAMS, evaluations, seed)
    print("\n".join(first), flush=True)
    second = list(header("program", "plan", "order", "step", "peak of the fullest GPU"))
    for workload, cluster, parts in _IN_PARTS:
        _, problem = built(workload, cluster, parts)
        second += in_parts_rows(f"{workload}, {cluster}, {parts} parts", problem, evaluations, seed)
    print("\n".join(second), flush=True)
    third, last = audited(), costed()
    print("\n".join([*third, last]), flush=True)
    write_atomically(pathlib.Path(_OUT.value), "\n".join(_page(first, second, third, last)) + "\n")


def _page(first: list[str], second: list[str], third: list[str], last: str) -> list[str]:
    command = (
        f"python -m experiments.order{' --quick' if _QUICK.value else f' --evaluations={_EVALUATIONS.value}'}"
    )
    small = " The programs are the small twins of those named." if _QUICK.value else ""
    evaluations = _QUICK_EVALUATIONS if _QUICK.value else _EVALUATIONS.value
    return [
        "# Order of execution",
        "",
        f"- Command: `{command}`",
        f"- Seed: {_SEED.value}, of searches, random orders and the plans that are run",
        *machine_lines(),
        "",
        f"Steps in the simulator, after {evaluations} evaluations of `{_METHOD}` each.{small} Rules stand as shares of",
        "the step of the plan that was searched without an order, which is given the rule's priorities afterwards.",
        "`auto` decides both (`place --order=auto`): searches under each rule and under none race, the slower half",
        "leaves after each turn, and the one that is left has the rest. Pairs are those of ops that were ready at the",
        "same time on one device; edges are what is written of them, few that keep step and peaks within 1 %.",
        "",
        *first,
        "",
        "Where the batch is in parts an order decides memory, too: forward ops of all parts first (GPipe), or backward",
        "ops as soon as they are ready (one forward, one backward; a device is never held back). The expert's plan",
        "puts stages of the network on devices, a pipeline.",
        "",
        *second,
        "",
        f"A step of {_AUDITED} in a random order, its units at random on this machine's devices, traced",
        f"{_TRACED_STEPS} times: pairs of ops of which the second began when the first had ended.",
        "",
        *third,
        "",
        last,
    ]


if __name__ == "__main__":
    run_program(main)
