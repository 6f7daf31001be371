"""Fidelity of the simulator: simulated against measured step times of many placements.

    python -m experiments.fidelity --workloads=inception_v3_small,lstm_lm_small,transformer_small

Places each workload on the local workers in every way that a search meets: single devices, random blocks of every
granularity, min-cut partitions, samples of HDP while it learns, and what searches on the simulator end with, where a
simulator's errors are exploited. All are measured in one run, in small heats: the placements of a heat and the
single device run step by step in turn. Heats are minutes apart on a machine that drifts, so a heat's times are
divided by its single device's and multiplied by that of all heats together; the drift is printed. The profile is
minutes older still, so the simulator's op times are brought to that single device's time, too, as a live search
brings them to what it measures. What crossing costs moves, too: placements of the program that it is fitted to (our
own, ``calibration/refit.py``) take turns in every heat, and it is fitted to those. What the profile alone would say
is printed beside it. So is what measuring itself leaves uncertain: how well the odd turns agree with the even ones.

Writes <workload>.json for each and fidelity.png.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
from absl import flags

import tf_placer
from experiments.main_program import out_flag, run
from tf_placer import workloads
from tf_placer.base.files import Cache, write_atomically
from tf_placer.base.quantities import percentage
from tf_placer.calibration.build_problem import traffic_problem
from tf_placer.calibration.refit import Correction, fit_traffic, traffic_item, traffic_placements
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.grouper.groups import min_cut_partition
from tf_placer.planners.plain import RandomBlocks, single_device_placements
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph
from tf_placer.runtime.graph_program import GraphProgram
from tf_placer.search import methods
from tf_placer.search.methods import configured
from tf_placer.search.round import Context, Round, Run

FLAGS = flags.FLAGS
flags.DEFINE_list(
    "workloads", ["inception_v3_small", "lstm_lm_small", "transformer_small"], "training steps to place"
)
flags.DEFINE_integer("placements", 62, "at least this many, filled up with random blocks", lower_bound=1)
flags.DEFINE_integer("partitions", 12, "min-cut partitions", lower_bound=0)
flags.DEFINE_integer("samples", 12, "samples of HDP", lower_bound=0)
flags.DEFINE_integer("optima", 12, "ends of searches", lower_bound=0)
flags.DEFINE_float("budget_s", 10.0, "seconds of each search", lower_bound=0.001)
flags.DEFINE_integer("heat", 12, "placements measured together, with the single device", lower_bound=1)
flags.DEFINE_integer("rounds", 12, "turns of each, at least", lower_bound=1)
flags.DEFINE_float(
    "heat_s", 20.0, "more turns where a heat's placements would take fewer seconds than this", lower_bound=0.0
)
out_flag("out/fidelity", "folder for the results")

PARTS = (2, 4, 8, 16, 32, 64)
_SHORTEST_TURN_S = 0.05  # as races have it: as many steps as that takes


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A placement and its origin."""

    kind: str  # "single", "random", "partition", "sample" or "optimum"
    origin: str  # in more detail
    device_of_unit: np.ndarray  # [U]


def candidates(problem: Problem) -> list[Candidate]:
    """Distinct placements of every kind."""
    singles = single_device_placements(problem)
    blocks = RandomBlocks(problem, seed=0).draw(16 * FLAGS.placements)
    found = [Candidate("single", f"device {d}", row) for d, row in enumerate(singles)]
    found += [Candidate("random", f"draw {i}", row) for i, row in enumerate(blocks)]
    graph, generator = unit_graph(problem), np.random.default_rng(0)
    for i in range(FLAGS.partitions):
        parts = PARTS[i % len(PARTS)]
        part = min_cut_partition(problem, graph, parts)
        device = (generator.permutation(parts) % problem.num_devices)[part].astype(np.int32)
        found.append(Candidate("partition", f"{parts} parts, {i // len(PARTS)}", problem.legalized(device)))
    found += _searched(problem)
    distinct: dict[bytes, Candidate] = {}
    for one in found:
        distinct.setdefault(one.device_of_unit.tobytes(), one)
    drawn = [one for one in distinct.values() if one.kind == "random"]
    others = [one for one in distinct.values() if one.kind != "random"]
    return others + drawn[: max(FLAGS.placements - len(others), 0)]


def _searched(problem: Problem) -> Iterator[Candidate]:
    """Ends of searches with several seeds, and what HDP drew on its way in the first."""
    drawn: list[np.ndarray] = []

    def sampled_hdp(context: Context) -> Iterator[Round]:
        spec = methods.find("hdp")
        run = Run(spec, configured(spec), context)
        while (batch := run.next_round()) is not None:
            if context.seed == 0:
                drawn.append(batch.decisions.row(0).device_of_unit[0])
            yield batch

    for i in range(FLAGS.optima):
        method = ("hdp", "local_search", "random")[i % 3]
        run = sampled_hdp if method == "hdp" else method
        result = tf_placer.search(problem, run, budget_s=FLAGS.budget_s, seed=i)
        yield Candidate("optimum", f"{method}, seed {i}", np.array(result.placement.device_of_unit))
    for i in np.linspace(0, len(drawn) - 1, FLAGS.samples).astype(int):
        yield Candidate("sample", f"update {i} of {len(drawn)}", drawn[i])


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """Step times on the runtime."""

    times_s: np.ndarray  # [B] medians, heats brought to one level
    halves_s: np.ndarray  # [2, B] the same of the even turns and of the odd ones
    single_s: float  # that level: the single device's time
    beside_s: np.ndarray  # [P] the same of the programs that were in every heat
    drift: float  # range of the single device's time between heats


def measure(
    evaluator: RuntimeEvaluator, rows: np.ndarray, simulated_s: np.ndarray, beside: Sequence[GraphProgram]
) -> Measured:
    """Runs placements [B, U] in heats; in each are also the first, a single device's, and P programs ``beside``.

    A step takes about ``simulated_s`` [B].
    """
    order = np.random.default_rng(0).permutation(len(rows))
    ratios, halves, levels = np.empty(len(rows)), np.empty((2, len(rows))), []
    ratios_beside = []
    for start in range(0, len(rows), FLAGS.heat):
        heat = order[start : start + FLAGS.heat]
        turn_s = np.maximum(simulated_s[[0, *heat]], _SHORTEST_TURN_S).sum()
        rounds = max(FLAGS.rounds, round(FLAGS.heat_s / turn_s))
        times = np.array(evaluator.race(np.stack([rows[0], *rows[heat]]), rounds, 1.0, beside))
        single_s, others_s, beside_s = np.split(times, [1, 1 + len(heat)])
        ratios[heat] = np.median(others_s / single_s, axis=1)
        halves[:, heat] = [np.median(others_s[:, half::2] / single_s[:, half::2], axis=1) for half in (0, 1)]
        ratios_beside.append(np.median(beside_s / single_s, axis=1))
        levels.append(float(np.median(single_s)))
        print(
            f"measured {start + len(heat)} of {len(rows)} in {rounds} turns; single device {1e3 * levels[-1]:.1f} ms",
            flush=True,
        )
    level_s = float(np.median(levels))
    return Measured(
        times_s=ratios * level_s,
        halves_s=halves * level_s,
        single_s=level_s,
        beside_s=np.median(ratios_beside, axis=0) * level_s,
        drift=max(levels) / min(levels) - 1,
    )


def study(name: str, cache: Cache) -> dict:
    """Measures one workload."""
    item, cluster = workloads.build(name), tf_placer.Cluster.local()
    problem = tf_placer.build_problem(item, cluster, costs="profiled", cache=cache)
    chosen = candidates(problem)
    rows = np.stack([one.device_of_unit for one in chosen])
    profiled_s = tf_placer.SimulatedEvaluator(problem).evaluate(rows).runtime_s

    traffic = traffic_item()
    crossing = traffic_problem(traffic, cluster, cache)
    crossing_rows = traffic_placements(crossing)
    with RuntimeEvaluator(item, problem) as evaluator, RuntimeEvaluator(traffic, crossing) as other:
        measured = measure(evaluator, rows, profiled_s, list(map(other.program, crossing_rows)))

    fitted = fit_traffic(crossing, crossing_rows, measured.beside_s)
    meanwhile = dataclasses.replace(problem, cluster=fitted.correction.apply_to_cluster(crossing.cluster))
    level = Correction(compute=measured.single_s / profiled_s[0])
    simulated_s = tf_placer.SimulatedEvaluator(level.apply(meanwhile)).evaluate(rows).runtime_s
    return {
        "workload": name,
        "ops": problem.num_ops,
        "drift": measured.drift,
        "single_s": measured.single_s,
        "profiled_links": [dataclasses.asdict(link) for link in problem.cluster.links],
        "links": [dataclasses.asdict(link) for link in meanwhile.cluster.links],
        "profiled_join_ns": problem.cluster.join_ns().tolist(),
        "join_ns": meanwhile.cluster.join_ns().tolist(),
        "traffic_error": fitted.error,
        "placements": [
            {
                "kind": one.kind,
                "origin": one.origin,
                "profiled_s": float(profiled),
                "simulated_s": float(simulated),
                "measured_s": float(time),
                "halves_s": half.tolist(),
                "device_of_unit": one.device_of_unit.tolist(),
            }
            for one, profiled, simulated, time, half in zip(
                chosen, profiled_s, simulated_s, measured.times_s, measured.halves_s.T, strict=True
            )
        ],
    }


def summary(result: dict) -> str:
    """The figures that say how far apart they are, in a few lines."""

    def column(name: str) -> np.ndarray:
        return np.array([one[name] for one in result["placements"]])

    measured, kinds = column("measured_s"), column("kind")
    error = column("simulated_s") / measured - 1
    as_profiled = column("profiled_s") / measured - 1
    rank = scipy.stats.spearmanr(column("simulated_s"), measured).statistic
    even, odd = column("halves_s").T
    rank_of_halves = scipy.stats.spearmanr(even, odd).statistic
    lines = [
        f"{result['workload']}: {len(error)} placements, {1e3 * measured.min():.1f} to "
        f"{1e3 * measured.max():.1f} ms; single device {1e3 * result['single_s']:.1f} ms, "
        f"{1e3 * column('profiled_s')[0]:.1f} ms in its profile; drift between heats {result['drift']:.1%}",
        f"  even turns against odd ones: Spearman {rank_of_halves:.3f}, median difference "
        f"{np.median(np.abs(even / odd - 1)):.1%}",
        f"  a message takes {result['links'][0]['send_ns'] / 1e3:.0f} us of either end and "
        f"{result['links'][0]['latency_ns'] / 1e3:.0f} us on its way "
        f"({result['profiled_links'][0]['send_ns'] / 1e3:.0f} and "
        f"{result['profiled_links'][0]['latency_ns'] / 1e3:.0f} us in the profile), a step on both workers "
        f"{max(result['join_ns']) / 1e3:.0f} us more ({max(result['profiled_join_ns']) / 1e3:.0f} us); fitted to a "
        f"median error of {result['traffic_error']:.1%}",
        f"  Spearman {rank:.3f}; simulated minus measured, op times and links as they were meanwhile; as profiled:",
        f"  {'all':<10}{len(error):>3}: median absolute {np.median(np.abs(error)):.1%}; "
        f"{np.median(np.abs(as_profiled)):.1%}",
    ]
    for kind in dict.fromkeys(kinds):
        these, before = error[kinds == kind], as_profiled[kinds == kind]
        lines.append(f"  {kind:<10}{len(these):>3}: median {spread(these)}; {spread(before)}")
    return "\n".join(lines)


def spread(errors: np.ndarray) -> str:
    """Median, least and largest."""
    median, least, largest = (
        percentage(float(one), signed=True) for one in (np.median(errors), errors.min(), errors.max())
    )
    return f"{median} ({least} to {largest})"


def plot(results: Sequence[dict], path: pathlib.Path) -> None:
    """Simulated over measured, one panel a workload."""
    figure, axes = plt.subplots(1, len(results), figsize=(4.5 * len(results), 4.2), layout="constrained")
    for axis, result in zip(np.atleast_1d(axes), results, strict=True):
        points: dict[str, list[tuple[float, float]]] = {}
        for one in result["placements"]:
            points.setdefault(one["kind"], []).append((1e3 * one["measured_s"], 1e3 * one["simulated_s"]))
        for i, (kind, of_kind) in enumerate(points.items()):
            axis.scatter(*zip(*of_kind, strict=True), s=14, color=f"C{i}", label=kind)
        ends = [measured for of_kind in points.values() for measured, _ in of_kind]
        line = np.array([min(ends), max(ends)])
        axis.plot(line, line, color="black", linewidth=0.8)
        axis.fill_between(line, 0.9 * line, 1.1 * line, color="grey", alpha=0.15)
        axis.set(title=result["workload"], xlabel="measured, ms", ylabel="simulated, ms")
    np.atleast_1d(axes)[0].legend(fontsize=7)
    figure.savefig(path, dpi=120)


def main(out: pathlib.Path) -> None:
    results = []
    with tempfile.TemporaryDirectory() as profiles:
        for name in FLAGS.workloads:
            results.append(study(name, Cache(pathlib.Path(profiles))))
            write_atomically(out / f"{name}.json", json.dumps(results[-1]))
            print(summary(results[-1]), flush=True)
    plot(results, out / "fidelity.png")
    files = ", ".join(str(out / f"{name}.json") for name in FLAGS.workloads)
    print(f"wrote {files} and {out / 'fidelity.png'}")


if __name__ == "__main__":
    run(main)
