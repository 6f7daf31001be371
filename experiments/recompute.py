"""What doing ops again, and parking outputs, takes for how much less memory: networks on one P100, simulated.

    python -m experiments.recompute [--out=docs/results]

Each step may take a share of the memory that it takes as it is; the choice is that of ``--recompute=auto``, without and
with ``--offload=auto``. On small networks the optimum of Checkmate's integer program stands beside ops done again
(``tests/oracles/checkmate.py``).
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import math
import pathlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

import tf_placer
from experiments.main_program import out_flag, run
from experiments.studies.formats import header, line, machine_lines
from tf_placer import workloads
from tf_placer.base.files import write_atomically
from tf_placer.base.quantities import in_unit, milliseconds
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning.forms import made_to_fit
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem
from tf_placer.search.memory import recomputation
from tf_placer.transform.recompute import Passes, recomputable

_NETWORKS = ("inception_v3", "resnet_152", "bert_base", "transformer_xl_2", "nmt_2", "wavenet_2x18")
out_flag("docs/results", "Folder for the page.")
_SHARES = (0.8, 0.65, 0.5, 0.4)
_SMALL_SHARES = (0.8, 0.65, 0.5)
_EXAMPLES, _FEATURES = 1 << 16, 32  # of a small network
_NEGLIGIBLE, _SECONDS = 1e-3, 60.0  # of the largest tensor, and of the work of a step; of each solver
_CHECKMATE = pathlib.Path(__file__).parents[1] / "tests" / "oracles" / "checkmate.py"

Dense = Callable[[tf.Tensor, int], tf.Tensor]


def step(item: Item, cluster: tf_placer.Cluster) -> tuple[float, int]:
    """Seconds of a step on the GPU alone, however much memory that takes, and bytes at its peak."""
    gpu, *others = cluster.devices
    large = dataclasses.replace(cluster, devices=(dataclasses.replace(gpu, memory_bytes=10**15), *others))
    problem = analytic_problem(item, large)
    times = SimulatedEvaluator(problem).evaluate(problem.everything_on(0)[np.newaxis])
    assert times.peak_bytes is not None  # simulated
    return float(times.runtime_s[0]), int(times.peak_bytes[0, 0])


def row(workload: str) -> str:
    """A line on one network."""
    item, cluster = workloads.build(workload), tf_placer.Cluster.preset("p100x1")
    whole_s, whole_bytes = step(item, cluster)
    cells = [workload, milliseconds(whole_s), in_unit(whole_bytes, "GB")]
    for share in _SHARES:
        limited, told = cluster.with_memory_limit({"GPU:0": int(share * whole_bytes)}), []
        for parks in (False, True):
            again, _ = made_to_fit(item, limited, parks=parks)
            step_s, num_bytes = step(again, cluster)
            least = "" if num_bytes <= share * whole_bytes else f" (least: {num_bytes / whole_bytes:.2f})"
            told.append(f"{step_s / whole_s:.3f}{least}")
        cells.append(", ".join(told))
    return line(*cells)


def training_step(forward: Callable[[Dense, tf.Tensor], tf.Tensor]) -> Item:
    """A step of gradient descent on what a function makes of dense layers."""
    weights: list[tf.Variable] = []

    def first_dense(x: tf.Tensor, width: int) -> tf.Tensor:
        weights.append(tf.Variable(tf.zeros([x.shape[-1], width])))
        return x @ weights[-1]

    forward(first_dense, tf.zeros([1, _FEATURES]))

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        left = iter(weights)
        with tf.GradientTape() as tape:
            loss = tf.nn.l2_loss(forward(lambda y, _: y @ next(left), x))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(gradient)
        return loss

    return Item.from_function(step, tf.TensorSpec([_EXAMPLES, _FEATURES]))


def chain(layers: int, seed: int = 0) -> Item:
    """Dense layers of random widths; the activations of a third of them are held beside what they are made of."""
    generator = np.random.default_rng(seed)
    widths, is_leaky = 32 * generator.integers(2, 9, layers), generator.random(layers) < 1 / 3

    def forward(dense: Dense, x: tf.Tensor) -> tf.Tensor:
        for width, leaky in zip(widths.tolist(), is_leaky.tolist(), strict=True):
            x = (tf.nn.leaky_relu if leaky else tf.tanh)(dense(x, width))
        return x

    return training_step(forward)


def _residual(dense: Dense, x: tf.Tensor) -> tf.Tensor:
    x = dense(x, 128)
    for width in (224, 64, 160, 32, 96, 256, 128, 192):
        x += dense(tf.tanh(dense(x, width)), 128)
    return x


def _u_net(dense: Dense, x: tf.Tensor) -> tf.Tensor:
    skips = []
    for width in (256, 128, 64, 32):
        x = tf.tanh(dense(tf.tanh(dense(x, width)), width))
        skips.append(x)
    for width, skip in zip((64, 128, 256), skips[-2::-1], strict=True):
        x = tf.tanh(dense(tf.concat([tf.tanh(dense(x, width)), skip], 1), width))
    return x


def _dense_net(dense: Dense, x: tf.Tensor) -> tf.Tensor:
    every = [dense(x, 64)]
    for width in (96, 80, 64, 48, 48, 32):
        every.append(tf.tanh(dense(tf.concat(every, 1), width)))
    return dense(tf.concat(every, 1), 64)


def coarse_graph(problem: Problem, may: np.ndarray) -> dict[str, list[Any]]:
    """The graph of ``tests/oracles/checkmate.py``: ops in the order in which one device runs them.

    An op that writes into what nothing else reads, or that gives nothing, is one with the op that it reads, if it can
    run right behind. What is negligible is left out.

    Args:
      may: [N] whether an op may be done again.
    """
    ns, graph = problem.compute_ns[:, 0], problem.op_graph
    producer, alias = problem.tensor_producer.tolist(), problem.alias_of_tensor.tolist()
    readers, reads, outputs = ([set[int]() for _ in items] for items in (producer, ns, ns))
    for tensor, op in zip(graph.tensor.tolist(), graph.consumer.tolist(), strict=True):
        readers[tensor].add(op)
        reads[op].add(tensor)
    for tensor in np.flatnonzero(problem.tensor_bytes > _NEGLIGIBLE * problem.tensor_bytes.max()).tolist():
        outputs[producer[tensor]].add(tensor)
    start_ns = SimulatedEvaluator(problem).schedule(problem.everything_on(0)[np.newaxis]).start_ns[0]
    row_of: dict[int, int] = {}
    rows: list[dict[str, Any]] = []
    for op in np.lexsort((np.arange(len(ns)), start_ns)).tolist():
        inputs = {row_of[producer[tensor]] for tensor in reads[op] if producer[tensor] in row_of}
        held = {t for t in outputs[op] if alias[t] < 0 or producer[alias[t]] in row_of}
        written = {alias[tensor] for tensor in held} or {t for t in reads[op] if readers[t] == {op}}
        into = {t for t in written if t >= 0 and producer[t] in row_of and (readers[t] == {op} or not ns[op])}
        source = max((row_of[producer[tensor]] for tensor in into), default=-1)
        one = {"ns": int(ns[op]), "inputs": inputs, "into": source if held else -1, "may": bool(may[op])}
        one["num_bytes"] = sum(int(problem.tensor_bytes[tensor]) for tensor in held)
        if into and inputs <= rows[source]["inputs"] | {source}:
            row_of[op] = source
            rows[source]["ns"] += one["ns"]
            rows[source]["may"] &= one["may"]
        elif (
            into
            and source == len(rows) - 2
            and not rows[-1]["num_bytes"]
            and inputs <= rows[-1]["inputs"] | {source}
        ):
            row_of[op] = len(rows) - 1
            rows[-1] |= one | {"ns": rows[-1]["ns"] + one["ns"], "inputs": rows[-1]["inputs"] | {source}}
        elif held or ns[op] > _NEGLIGIBLE * ns.sum():
            row_of[op] = len(rows)
            rows.append(one)
    return {key: [sorted(row[key]) if key == "inputs" else row[key] for row in rows] for key in rows[0]}


def checkmate(graph: Mapping[str, list[Any]], budget_bytes: int, most: int, seconds: float) -> dict[str, Any]:
    """The answer of ``tests/oracles/checkmate.py``."""
    asked = json.dumps({**graph, "budget_bytes": budget_bytes, "most": most, "seconds": seconds})
    command = [sys.executable, "-P", str(_CHECKMATE)]
    solved = subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(solved.stdout))


def fitted_to(item: Item, share: float, seconds: float) -> tuple[float, dict[str, Any], dict[str, Any]]:
    """Times over that of a step as it is, on a GPU with a share of the memory that the step takes as it is.

    Returns:
      The time by the choice of ``recomputation``, infinite where that does not fit; the answers of ``checkmate``, with
      any number of computations of an op and with two at most, and the times found and proven over that of the step.
    """
    cluster = tf_placer.Cluster.preset("p100x1")
    problem = analytic_problem(item, cluster)
    budget_bytes = int(share * step(item, cluster)[1])
    limited = analytic_problem(item, cluster.with_memory_limit({"GPU:0": budget_bytes}))
    _, choice = recomputation(item, limited)
    assert choice is not None  # less than the step takes
    graph = coarse_graph(problem, recomputable(item, Passes.of(problem.op_names, item.index.edges)))
    resident_bytes = int((problem.resident_bytes + problem.staying_bytes()).sum())
    room_bytes, step_ns = budget_bytes - resident_bytes, sum(graph["ns"])
    optimum = twice = checkmate(graph, room_bytes, len(graph["ns"]), seconds)
    if max(collections.Counter(optimum.get("order", ())).values(), default=0) > 2:
        twice = checkmate(graph, room_bytes, 2, seconds)
    for answer in (optimum, twice):
        answer["least"] = 1 + answer.get("bound_ns", 0) / step_ns
        answer["found"] = 1 + answer.get("again_ns", math.inf) / step_ns
    return 1 + choice.more if choice.after <= 1 else math.inf, optimum, twice


def cell(answer: Mapping[str, Any]) -> str:
    """The time that an answer of ``checkmate`` tells, and what is proven where that is less."""
    if answer["status"] == "INFEASIBLE":
        return "does not fit"
    found = f"{answer['found']:.3f}" if math.isfinite(answer["found"]) else "none found"
    return found if answer["status"] == "OPTIMAL" else f"{found} (at least {answer['least']:.3f})"


def beside_the_optimum(name: str) -> list[str]:
    """Lines on a small network, one for each share of its memory."""
    lines = []
    for share in _SMALL_SHARES:
        ours, optimum, twice = fitted_to(SMALL[name](), share, _SECONDS)
        told = f"{ours:.3f}" if math.isfinite(ours) else "does not fit"
        ratio = f"{ours / optimum['found']:.3f}" if math.isfinite(ours + optimum["found"]) else ""
        lines.append(line(name, f"{share:g}", told, cell(twice), cell(optimum), ratio))
    return lines


SMALL: Mapping[str, Callable[[], Item]] = {
    **{f"chain of {layers}": functools.partial(chain, layers) for layers in (8, 16, 24)},
    **{f.__name__[1:]: functools.partial(training_step, f) for f in (_residual, _u_net, _dense_net)},
}


def main(out: pathlib.Path) -> None:
    names = ("network", "step", "peak", *(f"at {share:g} of the peak" for share in _SHARES))
    table = header(*names) + [print(name, flush=True) or row(name) for name in _NETWORKS]
    optima = header("network", "memory", "ours", "twice at most", "Checkmate", "ours over Checkmate")
    for name in SMALL:
        print(name, flush=True)
        optima += beside_the_optimum(name)
    parts = {"machine": "\n".join(machine_lines()), "table": "\n".join(table), "optima": "\n".join(optima)}
    page = pathlib.Path(__file__).with_name("recompute.md").read_text(encoding="utf8")
    write_atomically(out / "recompute.md", page.format(**parts))


if __name__ == "__main__":
    run(main)
