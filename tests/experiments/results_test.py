"""The one command that makes results again, and small experiments: folders, peaks, robust plans, ops done again."""

import dataclasses
import os
import pathlib
import subprocess
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.experiments.without_flags import loaded
from tests.own_process import python
from tests.tf_placer.base.warm_workers import WarmWorkers
from tests.tf_placer.problem.small_problems import altered, problem_of
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Decisions
from tf_placer.transform.recompute import Passes, recomputable

ROOT = pathlib.Path(__file__).absolute().parents[2]
results, _ = loaded("results")
memory_fidelity, _ = loaded("memory_fidelity")


def test_every_page_of_simulated_figures_is_made_again():
    tables = {f"papers/{page.stem}" for page in (ROOT / "docs/results/papers").glob("*.md")}
    studies = {page.stem for page in (ROOT / "experiments/studies").glob("*.toml")}
    assert tables | studies <= set(results.PAGES)
    for page in results.PAGES:
        assert results.command_of(page).startswith("python -m experiments."), page


def test_every_file_of_weights_is_taught_as_it_was():
    there = {
        str(file.relative_to(ROOT))
        for folder in ("tf_placer", "experiments")
        for file in (ROOT / folder).rglob("*.npz")
    }
    taught = {step.writes: step.command for step in results.steps(teaches=True) if "pretrain" in step.command}
    assert set(taught) == there and "tf_placer/agents/go/weights.npz" in there
    for file, command in taught.items():
        assert command.startswith("python -m experiments.pretrain ") and command.endswith(f" --out={file}")
        assert command.count("--out=") == 1


def test_what_ended_is_not_run_again_until_costs_change(tmp_path, monkeypatch, capsys):
    begun: list[list[str]] = []

    def ends(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        begun.append(command[1:])
        return subprocess.CompletedProcess(command, 1 if len(begun) == 1 else 0)

    monkeypatch.setattr(results.subprocess, "run", ends)
    wanted = results.steps(only="hdp_2018")
    with pytest.raises(SystemExit, match=r"results: 1 of 1 failed"):
        results.make_again(wanted, tmp_path)
    results.make_again(wanted, tmp_path)
    results.make_again(wanted, tmp_path)
    assert len(begun) == 2 and begun[0] == begun[1]
    assert begun[0][:3] == ["-m", "experiments.study", "--study=hdp_2018"]
    assert "1 of 1, done: python -m experiments.study --study=hdp_2018" in capsys.readouterr().out
    monkeypatch.setattr(results, "costs_digest", lambda: "others")
    results.make_again(wanted, tmp_path)
    assert len(begun) == 3


def test_lessons_come_before_pages(tmp_path, capsys):
    results.make_again(results.steps(teaches=True), tmp_path, only_lists=True)
    said = capsys.readouterr().out
    assert len(said.splitlines()) == len(results.steps(teaches=True))
    shipped = "--course=workloads,generated:60 --epochs=3 --out=tf_placer/agents/learned_list/weights.npz"
    assert said.index(shipped) < said.index("python -m experiments.taught_policy")
    assert list(tmp_path.iterdir()) == []


# wrong_flags_test.py has the same in this process.
@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to_is_one_line():
    done = python("-m", "experiments.study", "--study=ablations", "--out=/proc/out", TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("study: --out=/proc/out: it cannot be written to: ")


WORKER = "/job:worker/replica:0/task:0/device:CPU:0"


def traced(records, outputs=True):
    """A trace with these (microsecond, bytes) of each op on one device, and a second device that does nothing."""
    trace = tf.compat.v1.RunMetadata()
    device = trace.step_stats.dev_stats.add(device=WORKER)
    for name, changes in records.items():
        node = device.node_stats.add(node_name=name)
        if outputs:
            node.output.add()
        memory = node.memory.add(allocator_name="cpu")
        for micros, num_bytes in changes:
            memory.allocation_records.add(alloc_micros=micros, alloc_bytes=num_bytes)
    trace.step_stats.dev_stats.add(device="idle")
    return trace


def test_the_peak_is_of_what_is_held_at_once():
    # a holds 100 from 1 to 5; b 30 from 3 to 4; c takes 50 in the moment at which a gives back: 130, never 180.
    trace = traced({"a": [(1, 100), (5, -100)], "b": [(3, 30), (4, -30)], "c": [(5, 50)]})
    assert memory_fidelity.traced_peak_bytes(trace, {}) == {WORKER: 130, "idle": 0}


def test_a_new_value_of_a_variable_takes_the_place_of_the_old_one():
    # What an assignment keeps was there before the step, under another address; its scratch memory was not.
    trace = traced({"assign": [(1, 100), (2, 30), (3, -30)]}, outputs=False)
    assert memory_fidelity.traced_peak_bytes(trace, {})[WORKER] == 30


def test_what_a_variable_is_given_takes_the_place_of_its_value():
    # made holds 100, which scaled writes into and the variable has from 8 on: then the 100 from before are free.
    trace = traced({"made": [(1, 100)], "scaled": [], "assign": [], "late": [(9, 50), (10, -50)]})
    assign = trace.step_stats.dev_stats[0].node_stats[2]
    assign.all_start_micros, assign.all_end_rel_micros = 7, 1
    readers = {"made": ["scaled"], "scaled": ["assign"]}
    assert memory_fidelity.traced_peak_bytes(trace, readers)[WORKER] == 150
    assign.timeline_label = "assign = AssignVariableOp(v, scaled)"
    assert memory_fidelity.traced_peak_bytes(trace, readers)[WORKER] == 100
    assert memory_fidelity.traced_peak_bytes(trace, {**readers, "made": ["scaled", "late"]})[WORKER] == 150


def test_a_copy_lives_from_its_arrival_until_its_last_reader_has_ended():
    early, late, later = [(5, 7), (6, -7)], [(25, 50), (30, -50)], [(41, 60), (45, -60)]
    trace = traced({"early": early, "late": late, "later": later})
    arrivals = trace.step_stats.dev_stats.add(device=WORKER)
    copy = arrivals.node_stats.add(node_name="RecvTensor", all_start_micros=1, all_end_rel_micros=9)
    sender = "/job:worker/replica:0/task:1/device:CPU:0"
    copy.timeline_label = f"[1KB] [1Gb/s] edge_12_made_there/MatMul from {sender} to {WORKER}"
    copy.output.add().tensor_description.allocation_description.requested_bytes = 1000
    for node, times in zip(
        trace.step_stats.dev_stats[0].node_stats, ((5, 1), (25, 15), (41, 4)), strict=True
    ):
        node.all_start_micros, node.all_end_rel_micros = times
    assert memory_fidelity.traced_peak_bytes(trace, {"made_there/MatMul": ["early", "late"]})[WORKER] == 1050
    assert memory_fidelity.traced_peak_bytes(trace, {"made_there/MatMul": ["later"]})[WORKER] == 1060


def test_readers_are_told_by_name():
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a")
    graph_def.node.add(name="b", input=["a:1", "^c"])
    graph_def.node.add(name="c", input=["a", "b"])
    assert memory_fidelity.readers_of(graph_def) == {"a": ["b", "c"], "b": ["c"]}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_a_row_for_each_device_that_a_placement_uses(monkeypatch):
    warm = WarmWorkers()
    monkeypatch.setattr(memory_fidelity, "FLAGS", types.SimpleNamespace(steps=1, threads=2))
    monkeypatch.setattr(memory_fidelity, "workers_of", warm.lend)
    try:
        found = list(memory_fidelity.peaks("dense_small", warm.cluster))
    finally:
        warm.close()
    rows = [(peak.placement, peak.device) for peak in found]
    workers = [device.name for device in warm.cluster.devices]
    as_it_is = [("one worker", workers[0]), *(("min-cut", name) for name in workers)]
    assert rows == as_it_is + [(f"{placement}, recomputed", name) for placement, name in as_it_is]
    assert all(peak.predicted > 0 and peak.measured > 0 for peak in found)
    for peak in found:
        assert peak.error == peak.predicted / peak.measured - 1
        assert abs(peak.error) < 0.5, peak


def test_a_small_program_is_compared():
    experiment, _ = loaded("robust_plans")
    compared = experiment.compared
    found = compared("branches_small", "p100x2", evaluations=40, draws=20, seed=0)
    assert min(found.step_s) > 0 and min(found.worst_gain) > 0 and 0 <= found.faster <= 1
    assert found == compared("branches_small", "p100x2", evaluations=40, draws=20, seed=0)


def test_plans_under_draws_that_no_search_knows():
    experiment, _ = loaded("robust_plans")
    # A message that takes about as long as it gains.
    dear = problem_of([10**6] * 3, [(0, 2), (1, 2)], 10**6)
    step_ns = experiment.drawn_step_ns(dear, Decisions([[0, 1, 0], [0, 0, 0]]), 100, 0)
    assert 20 < (step_ns[:, 0] < step_ns[:, 1]).sum() < 80


P100 = Cluster.preset("p100x1")


@pytest.fixture(scope="module")
def recompute() -> types.ModuleType:
    module, _ = loaded("recompute")
    return module


@pytest.mark.medium
@pytest.mark.parametrize("share", [0.8, 0.65])
@pytest.mark.parametrize("name", ["chain of 8", "u_net"])
def test_it_is_within_three_percent_of_checkmates_optimum(recompute, name, share):
    ours, optimum, twice = recompute.fitted_to(recompute.SMALL[name](), share, seconds=60.0)
    assert optimum["status"] == twice["status"] == "OPTIMAL"
    assert optimum["found"] <= twice["found"] <= 1.001 * ours  # a launch more or less
    assert ours <= 1.03 * optimum["found"]


@pytest.mark.medium
@pytest.mark.parametrize("name", ["chain of 8", "u_net", "dense_net"])
def test_the_optimum_fits_in_the_simulator_and_takes_what_it_tells(recompute, name):
    item = recompute.SMALL[name]()
    problem, (_, peak_bytes) = analytic_problem(item, P100), recompute.step(item, P100)
    may = recomputable(item, Passes.of(problem.op_names, item.index.edges))
    graph = recompute.coarse_graph(problem, may)
    resident_bytes = int((problem.resident_bytes + problem.staying_bytes()).sum())
    as_it_is = simulated(graph, list(range(len(graph["ns"]))))
    np.testing.assert_allclose(as_it_is, [sum(graph["ns"]), peak_bytes - resident_bytes], rtol=1e-3)
    budget_bytes = int(0.8 * peak_bytes) - resident_bytes
    answer = recompute.checkmate(graph, budget_bytes, len(graph["ns"]), seconds=10.0)
    again_ns, needed_bytes = np.subtract(simulated(graph, answer["order"]), [as_it_is[0], 0])
    assert again_ns == answer["again_ns"] >= answer["bound_ns"] and needed_bytes <= budget_bytes


def simulated(graph: dict[str, list], order: list[int]) -> tuple[int, int]:
    """Time and peak of ops, some of them several times, in an order: each reads what was made last."""
    row_of: dict[int, int] = {}
    edges, written = [], []
    for row, op in enumerate(order):
        edges += [(row_of[source], row) for source in graph["inputs"][op]]
        written.append(row_of.get(graph["into"][op], -1))
        row_of[op] = row
    producers = [producer for producer, _ in edges]
    output_bytes = np.array(graph["num_bytes"])[order]
    problem = problem_of(
        np.array(graph["ns"])[order],
        edges,
        output_bytes[producers],
        altered(P100, {"dispatch_ns": 0}),
        output_bytes=output_bytes,
        edge_tensor=np.array(producers, np.int32),
    )
    tensor_of = {row: tensor for tensor, row in enumerate(problem.tensor_producer.tolist())}
    alias = np.full(len(problem.tensor_bytes), -1, np.int32)
    for row, source in enumerate(written):
        if source >= 0:
            alias[tensor_of[row]] = tensor_of[source]
    priority = np.arange(len(order), dtype=np.int32)
    problem = dataclasses.replace(problem, alias_of_tensor=alias, priority=priority)
    times = SimulatedEvaluator(problem).evaluate(np.zeros([1, len(order)], np.int32))
    return round(1e9 * times.runtime_s[0]), int(times.peak_bytes[0, 0])


@pytest.mark.medium
@pytest.mark.parametrize(
    ("budget_bytes", "most", "again_ns"), [(4, 1, 0), (3, 2, 2), (3, 1, None), (2, 9, None)]
)
def test_a_chain_of_three_by_hand(recompute, budget_bytes, most, again_ns):
    """A byte for each output; of the backward pass each op reads one of the forward pass, and writes into the last.

    The first backward op has 4 bytes alive. In 3 bytes one output less is kept: the second, made again of the first in
    2 ns when a gradient alone is there too, or the first, which takes 3. In 2 bytes that does not fit.
    """
    graph = {
        "ns": [3, 2, 4, 5, 5, 5],
        "num_bytes": [1] * 6,
        "inputs": [[], [0], [1], [2], [1, 3], [0, 4]],
        "into": [-1, -1, -1, -1, 3, 4],
        "may": [True, True, True, False, False, False],
    }
    answer = recompute.checkmate(graph, budget_bytes, most, seconds=10.0)
    assert answer["status"] == ("INFEASIBLE" if again_ns is None else "OPTIMAL")
    assert answer.get("again_ns") == again_ns
