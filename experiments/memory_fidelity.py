"""Fidelity of predicted peaks of memory: small workloads on local CPU workers.

    python -m experiments.memory_fidelity

Each workload runs on one worker and split over two by a min-cut partition, as it is and with ops done again. Predicted
is what the simulator says of each device; in any order, the most over the orders that a search holds against a device's
memory (``AnyOrderEvaluator``). Measured is what the runtime's trace of a step says: the most bytes that TensorFlow's
allocators had handed out at once (outputs, received copies, what kernels need while they run), and the variables and
inputs that are there before. The last figure is what the worker as a whole grew by (``WorkerMemory``), which counts
whole chunks of TensorFlow's allocator for oneDNN, up to 128 MB larger than their tensors. Memory depends on the order
in which ops run, so of several steps the largest peak counts. A worker with one executor thread (``--threads=1``) runs
the newest op first, as the simulator does; a second one takes the oldest of what waits whenever the system lets it run.
Op times are estimates, which decide that order in the simulator.

Writes memory_fidelity.json.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

import tf_placer
from colocation.op_facts import data_inputs
from experiments.main_program import out_flag, run
from tf_placer import workloads
from tf_placer.base.files import write_atomically
from tf_placer.base.quantities import percentage
from tf_placer.evaluation.attempts import SMALL_VALUE_BYTES
from tf_placer.evaluation.simulated import AnyOrderEvaluator, SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.grouper.groups import min_cut_partition
from tf_placer.planning.forms import made_to_fit
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import unit_graph
from tf_placer.rewrite.rewrite import rewrite
from tf_placer.runtime.graph_program import GraphProgram, build_program, open_program, run_watched
from tf_placer.search.memory import device_peaks
from tf_placer.workers.local_workers import Workers, peaks_bytes, workers_of

FLAGS = flags.FLAGS
flags.DEFINE_list(
    "workloads",
    [
        "dense_small",
        "branches_small",
        "two_towers",
        "inception_v3_small",
        "lstm_lm_small",
        "transformer_small",
        "nmt_2_small",
        "bert_base_small",
    ],
    "training steps to measure",
)
flags.DEFINE_integer("steps", 3, "traced steps of each, of which the largest peak counts", lower_bound=1)
flags.DEFINE_integer("threads", 2, "executor threads of each worker", lower_bound=1)
out_flag("out/memory_fidelity", "folder for the results")

WITHIN = 0.1
_SHARE = 0.7  # of the peak, that a step with ops done again is to have
_DEADLINE_S = 300.0
_RECEIVED, _ASSIGNS = "RecvTensor", "= AssignVariableOp("


@dataclasses.dataclass(frozen=True)
class Peak:
    """One device of one placement; sizes are bytes."""

    # which
    workload: str
    placement: str
    device: str
    predicted: int  # by the simulator
    any_order: int  # by the simulator, the most over several orders of execution
    measured: int  # by the runtime's trace, with the variables and inputs
    worker: int | None  # what the worker process grew by; None where that cannot be told

    @property
    def error(self) -> float:
        """Error of the prediction, as a share of what was measured."""
        return self.predicted / self.measured - 1


def placements(name: str, cluster: tf_placer.Cluster) -> Iterator[tuple[str, Item, Problem, np.ndarray]]:
    """One device, and a split over all; of the step as it is, and with ops done again for ``_SHARE`` of its peak."""
    item, alone = workloads.build(name), tf_placer.Cluster.local(cores=1)
    peak_bytes = int(device_peaks(analytic_problem(item, alone))[0][0])
    limited = alone.with_memory_limit({"CPU:0": int(_SHARE * peak_bytes)})
    for again, program in (("", item), (", recomputed", made_to_fit(item, limited)[0])):
        problem = analytic_problem(program, cluster)
        yield f"one worker{again}", program, problem, problem.everything_on(0)
        parts = min_cut_partition(problem, unit_graph(problem), problem.num_devices)
        yield f"min-cut{again}", program, problem, problem.legalized(parts.astype(np.int32))


def peaks(name: str, cluster: tf_placer.Cluster) -> Iterator[Peak]:
    """Peaks of each device that a placement uses; fresh workers for every placement."""
    for placement, item, problem, row in placements(name, cluster):
        predicted = SimulatedEvaluator(problem).evaluate(row[np.newaxis]).peak_bytes
        any_order = AnyOrderEvaluator(problem).evaluate(row[np.newaxis]).peak_bytes
        assert predicted is not None and any_order is not None  # simulated
        program = build_program(item, rewrite(item, tf_placer.Placement(problem, row)))
        with contextlib.closing(workers_of(cluster, FLAGS.threads)) as workers:
            held, grown = measure(workers, program)
        resident = program.resident_bytes()
        for d in np.unique(row):
            device = cluster.devices[d].name
            measured = resident.get(device, 0) + held.get(device, 0)
            yield Peak(
                name,
                placement,
                device,
                int(predicted[0, d]),
                int(any_order[0, d]),
                measured,
                grown.get(device),
            )


def measure(workers: Workers, program: GraphProgram) -> tuple[dict[str, int], dict[str, int]]:
    """Device -> most bytes that a step's tensors hold, by its trace, and what the worker grew by in a plain step."""
    workers.start()
    target, readers = workers.target, readers_of(program.graph_def)
    small_bytes = program.resident_bytes(below=SMALL_VALUE_BYTES)

    def traced() -> tuple[dict[str, int], dict[str, int]]:
        for memory in workers.memories:
            memory.settle()
        with open_program(target, program, _DEADLINE_S) as loaded:
            for memory in workers.memories:
                memory.begin(small_bytes.get(memory.device, 0))
            loaded.step()
            grown = peaks_bytes(workers.memories)
            steps = [traced_peak_bytes(loaded.traced_step(), readers) for _ in range(FLAGS.steps)]
        return {device: max(step.get(device, 0) for step in steps) for device in steps[0]}, grown

    return run_watched(workers, _DEADLINE_S, traced)


def readers_of(graph_def: tf.compat.v1.GraphDef) -> dict[str, list[str]]:
    """Name of an op -> names of the ops that read its outputs."""
    readers: dict[str, list[str]] = {}
    for node in graph_def.node:
        for text in data_inputs(node):
            readers.setdefault(text.partition(":")[0], []).append(node.name)
    return readers


def traced_peak_bytes(
    trace: tf.compat.v1.RunMetadata, readers: Mapping[str, Collection[str]]
) -> dict[str, int]:
    """Device -> peak bytes of the step's tensors, without variables and inputs.

    TensorFlow records each buffer that its allocators hand out and take back in a traced step: outputs, and scratch
    memory of kernels. Tensors from before the step are missing, and so are their replacements once they are in place: a
    variable's new value is in a buffer that is never returned, and the old one goes without a record. Of a copy from
    another worker only the arrival is recorded; it lives until its last reader has ended. Within one microsecond,
    returns come first.

    Args:
      trace: metadata of a step that was run with FULL_TRACE.
      readers: of each op, by name (``readers_of``).
    """
    records: dict[str, list[tuple[int, int]]] = {}  # device -> (microseconds, bytes)
    ends: dict[tuple[str, str], int] = {}
    assigned: dict[str, int] = {}  # AssignVariableOp -> its end
    kept: list[tuple[str, str, int]] = []  # device, op, and bytes that it did not return
    received: list[tuple[str, Any]] = []
    for device in trace.step_stats.dev_stats:
        changes = records.setdefault(device.device, [])
        for node in device.node_stats:
            if node.node_name == _RECEIVED:
                received.append((device.device, node))
            else:
                changes += _buffers(node)
                ends[device.device, node.node_name] = _end_micros(node)
                left = sum(num_bytes for _, num_bytes in _buffers(node))
                kept += [(device.device, node.node_name, left)] if left else []
                if _ASSIGNS in node.timeline_label:
                    assigned[node.node_name] = _end_micros(node)
    for name, op, num_bytes in kept:
        # An op writes into what it alone reads, so a buffer goes from op to op until a variable has it.
        while op not in assigned and len(readers.get(op, ())) == 1:
            (op,) = readers[op]
        if op in assigned:
            records[name].append((assigned[op], -num_bytes))
    for device, node in received:
        # TensorFlow calls the transfer of an output edge_NUMBER_OP.
        edge = next(word for word in node.timeline_label.split() if word.startswith("edge_"))
        num_bytes = sum(o.tensor_description.allocation_description.requested_bytes for o in node.output)
        reads = [ends.get((device, op), 0) for op in readers.get(str(edge.split("_", 2)[2]), ())]
        arrival = _end_micros(node)
        records[device] += [(arrival, num_bytes), (max([arrival, *reads]), -num_bytes)]
    peaks = {}
    for name, changes in records.items():
        held = np.cumsum([num_bytes for _, num_bytes in sorted(changes)], dtype=np.int64)
        peaks[name] = int(held.max(initial=0))
    return peaks


def _buffers(node: Any) -> Iterator[tuple[int, int]]:
    """(microseconds, bytes) of a node's buffers. A variable's new value, kept by an op without outputs, is left out."""
    for memory in node.memory:
        returned = collections.Counter(-r.alloc_bytes for r in memory.allocation_records if r.alloc_bytes < 0)
        for record in memory.allocation_records:
            is_kept = record.alloc_bytes > 0 and not returned[record.alloc_bytes]
            if record.alloc_bytes > 0 and not is_kept:
                returned[record.alloc_bytes] -= 1
            if node.output or not is_kept:
                yield record.alloc_micros, record.alloc_bytes


def _end_micros(node: Any) -> int:
    return int(node.all_start_micros + node.all_end_rel_micros)


def summary(found: list[Peak]) -> str:
    """Two sentences: how far predictions are off, and how often a step takes more than in any order."""
    errors = np.abs([peak.error for peak in found])
    over = np.array([peak.measured / peak.any_order - 1 for peak in found])
    return (
        f"{(errors <= WITHIN).sum()} of {len(errors)} peaks are within {percentage(WITHIN)}; median error "
        f"{percentage(float(np.median(errors)))}, largest {percentage(float(errors.max()))}. "
        f"{(over > WITHIN).sum()} of {len(over)} are more than {percentage(WITHIN)} above all orders."
    )


def main(out: pathlib.Path) -> None:
    cluster = tf_placer.Cluster.local(cores=2)
    found: list[Peak] = []
    print(
        "| workload | placement | worker | predicted MB | any order MB | measured MB | error | whole worker MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in FLAGS.workloads:
        for peak in peaks(name, cluster):
            found.append(peak)
            task = peak.device.split("/task:")[1].partition("/")[0]
            worker = "-" if peak.worker is None else f"{peak.worker / 1e6:.1f}"
            print(
                f"| {name} | {peak.placement} | {task} | {peak.predicted / 1e6:.3f} | {peak.any_order / 1e6:.3f} | "
                f"{peak.measured / 1e6:.3f} | {percentage(peak.error, signed=True)} | {worker} |",
                flush=True,
            )
    for noun, again in (("As they are", False), ("With ops done again", True)):
        print(f"\n{noun}: {summary([p for p in found if p.placement.endswith('recomputed') == again])}")
    text = json.dumps([dataclasses.asdict(peak) | {"error": peak.error} for peak in found], indent=1) + "\n"
    write_atomically(out / "memory_fidelity.json", text)


if __name__ == "__main__":
    run(main)
