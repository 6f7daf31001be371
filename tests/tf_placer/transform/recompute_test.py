"""Recomputation and parking: the same bits, held back until the backward pass, and less memory where that can be."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import tf_placer
from tests.oracles.split_equality import differences, run_lifted
from tests.tf_placer.transform.random_steps import RandomStep
from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.evaluation.simulated import SimulatedEvaluator, Status
from tf_placer.graph.item import Item
from tf_placer.planning.forms import Form, fitted_to, in_parts, made_to_fit
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.placed_function import placed_function
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.search.memory import device_peaks, recomputation
from tf_placer.transform.recompute import Passes, parkable, recomputable, recompute, with_copies
from tf_placer.transform.split import split

P100 = Cluster.preset("p100x1")
LAYER = ("MatMul", "Tanh")  # of a chain


def passes_of(item: Item) -> Passes:
    return Passes.of(item.index.names, item.index.edges)


def chosen(item: Item, share: float, seed: int) -> list[int]:
    may = np.flatnonzero(recomputable(item, passes_of(item)))
    return may[np.random.default_rng(seed).random(len(may)) < share].tolist()


def parked_by(item: Item, share: float, seed: int) -> dict[int, int]:
    """A random share of what can be parked, back after random ops of the backward pass that are not too late."""
    passes, random = passes_of(item), np.random.default_rng(seed)
    may, late = np.flatnonzero(parkable(item, passes)), np.flatnonzero(passes.is_late)
    if not len(late):
        return {}
    some = may[random.random(len(may)) < share].tolist()
    copies = passes.copies((), dict.fromkeys(some, int(late[passes.depth[late].argmin()])))
    before = {op: late[passes.depth[late] < passes.depth[reader]] for op, (reader, _) in copies.items()}
    return {op: int(random.choice(waits)) for op, waits in before.items()}


def complaints(item: Item, ops: list[int], parked: dict[int, int] | None = None) -> list[str]:
    parked = parked or {}
    ops = [op for op in ops if op not in parked]
    if not passes_of(item).copies(ops, parked):
        return []
    again, _ = recompute(item, ops, parked.items())
    return differences(run_lifted(item), run_lifted(again), relative=0.0)


def random_item(seed: int) -> Item:
    step = RandomStep(seed, 2 + seed % 5)
    return Item.from_function(step.function(), *step.arguments)


@pytest.mark.parametrize(("parts", "share"), [(1, 0.2), (1, 0.6), (1, 1.0), (2, 0.5)])
@pytest.mark.parametrize("seed", range(4))
def test_random_training_steps_compute_the_same_bits(seed, parts, share):
    item = split(random_item(seed), parts)
    ops = chosen(item, share, seed)
    assert complaints(item, ops) == []
    assert complaints(item, ops, parked_by(item, 1 - share / 2, seed)) == []


@pytest.mark.equivalence
@pytest.mark.parametrize("block", range(100))
def test_thousands_of_training_steps_compute_the_same_bits(block):
    for seed in range(5000 + 30 * block, 5030 + 30 * block):
        item = random_item(seed)
        ops, parked = chosen(item, (0.1, 0.4, 0.8, 1.0)[seed % 4], seed), parked_by(item, 0.4, seed)
        assert complaints(item, ops, parked if seed % 2 else None) == [], seed


def test_what_draws_or_has_a_state_is_not_done_twice():
    v = tf.Variable(tf.ones([4, 4]))

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            y = tf.nn.dropout(tf.tanh(x @ v), 0.5, seed=1)
            loss = tf.reduce_sum(tf.sin(y) * y)
        v.assign_sub(tape.gradient(loss, v))
        return loss

    item = Item.from_function(step, tf.ones([3, 4]))
    kinds = {item.index.op_types[op] for op in np.flatnonzero(recomputable(item, passes_of(item)))}
    assert {"Tanh", "Sin", "MatMul"} <= kinds
    assert not kinds & {"RandomUniform", "ReadVariableOp", "Const", "Placeholder", "AssignSubVariableOp"}
    for op in (item.index.op_types.index("RandomUniform"), 99999):
        with pytest.raises(InputError, match=r"has op .*, which .* lacks or cannot do twice; take it out"):
            recompute(item, [op])


def test_a_program_without_a_backward_pass_is_refused():
    item = Item.from_function(tf.function(lambda x: tf.tanh(x) + x), tf.ones([3]))
    with pytest.raises(InputError, match="has no backward pass that needs what is recomputed or parked"):
        recompute(item, [item.index.op_types.index("Tanh")])
    with pytest.raises(InputError, match=r"parked has op .*, which .* lacks or cannot bring back after"):
        recompute(item, (), [(item.index.op_types.index("Tanh"), 0)])
    with pytest.raises(InputError, match="has no host beside its accelerators to park on; leave offload out"):
        made_to_fit(item, Cluster.logical(2), parks=True)


def chain(layers: int, width: int, batch: int) -> Item:
    weights = [tf.Variable(tf.ones([width, width]) / width) for _ in range(layers)]

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            for weight in weights:
                x = tf.tanh(x @ weight)
            loss = tf.reduce_sum(x)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(gradient)
        return loss

    return Item.from_function(step, tf.ones([batch, width]))


def peak_of(problem) -> int:
    return int(device_peaks(problem)[0][0])


def test_a_chain_holds_less_and_every_copy_waits_for_the_backward_pass():
    item = chain(layers=12, width=64, batch=4096)
    problem, passes = analytic_problem(item, P100), passes_of(item)
    layers = [op for op in np.flatnonzero(recomputable(item, passes)) if item.index.op_types[op] in LAYER]
    ops = [
        op for position, op in enumerate(layers) if position % 8 not in (6, 7)
    ]  # every fourth layer is kept
    again, origin_of = recompute(item, ops)
    copies = [name for name in again.index.names if name != origin_of[name]]
    assert len(copies) == len(ops)
    is_late = dict(zip(again.index.names, passes_of(again).is_late, strict=True))
    assert all(is_late[name] for name in copies)
    assert peak_of(analytic_problem(again, P100)) < 0.7 * peak_of(problem)


@pytest.mark.parametrize("name", ["dense_small", "lstm_lm_small", "inception_v3_small", "transformer_small"])
def test_the_problem_with_copies_is_that_of_the_program(name):
    item = workloads.build(name)
    problem, passes = analytic_problem(item, P100), passes_of(item)
    ops = chosen(item, 0.5, 1)
    quick, built = with_copies(problem, passes, ops), analytic_problem(recompute(item, ops)[0], P100)
    assert sorted(quick.op_types) == sorted(built.op_types)
    assert quick.tensor_bytes.sum() == built.tensor_bytes.sum()
    assert_alike(quick, built)
    parked = {op: wait for op, wait in parked_by(item, 0.5, 2).items() if op not in ops}
    some = with_copies(problem, passes, ops, parked)
    assert_alike(some, analytic_problem(recompute(item, ops, parked.items())[0], P100))


def assert_alike(quick: Problem, built: Problem) -> None:
    """Step times and peaks, everything on the GPU, are within 5 %."""
    simulated = [SimulatedEvaluator(one).evaluate(one.everything_on(0)[np.newaxis]) for one in (quick, built)]
    np.testing.assert_allclose(*(times.runtime_s for times in simulated), rtol=0.05)
    np.testing.assert_allclose(*(times.peak_bytes[:, 0] for times in simulated), rtol=0.05)


def test_what_is_parked_leaves_its_device_and_is_back_in_time() -> None:
    item = chain(layers=12, width=64, batch=4096)
    slow = dataclasses.replace(P100.devices[0], peak_flops=1e11)  # so that links have time
    cluster = dataclasses.replace(P100, devices=(slow, *P100.devices[1:]))
    whole = analytic_problem(item, cluster)
    limited = cluster.with_memory_limit({"GPU:0": int(0.6 * peak_of(whole))})
    fitting, unfit = made_to_fit(item, limited, recomputes=False, parks=True)
    assert unfit.choice.parked and not unfit.choice.ops and unfit.choice.after <= 1 < unfit.choice.before
    problem = analytic_problem(fitting, limited)
    is_parked = np.array([op_type == "Snapshot" for op_type in problem.op_types])
    assert (problem.allowed[problem.unit_of_op[is_parked]] == [False, True]).all()  # the host alone
    times = [
        float(SimulatedEvaluator(one).times(one.everything_on(0)[np.newaxis]).runtime_s[0])
        for one in (whole, problem)
    ]
    assert times[1] < 1.02 * times[0]


@pytest.mark.medium
@pytest.mark.own_process("parked")
def test_tensorflow_leaves_what_is_parked_where_it_is_put() -> None:
    """With its graph optimizers on, which take away what only hands a tensor on."""
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    weights, x = [tf.Variable(tf.ones([64, 64]) / 64) for _ in range(6)], tf.random.normal([256, 64], seed=1)

    @tf.function
    def step(y: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            for weight in weights:
                y = tf.tanh(y @ weight)
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, weights)

    item = Item.from_function(step, x)
    parked = parked_by(item, 1.0, 0)
    problem = analytic_problem(split(item, 1, parked=list(parked.items())), Cluster.logical(2))
    is_parked = np.array([op_type == "Snapshot" for op_type in problem.op_types])
    row = np.zeros(problem.num_units, np.int32)
    row[problem.unit_of_op[is_parked]] = 1
    placed = placed_function(step, Placement(problem, row), x)
    context.context().enable_graph_collection()
    gradients = placed(x)
    graphs = [
        graph
        for function in context.context().export_run_metadata().function_graphs
        for graph in function.partition_graphs
    ]
    devices = [node.device for graph in graphs for node in graph.node if node.op == "Snapshot"]
    assert len(devices) == is_parked.sum() > 3 and all(device.endswith("CPU:1") for device in devices)
    for gradient, whole in zip(gradients, step(x), strict=True):
        np.testing.assert_array_equal(gradient, whole)


def test_parts_of_a_batch_are_made_to_fit_where_the_whole_was() -> None:
    item = workloads.build("two_towers")
    cluster = Cluster.preset("p100x2").with_memory_limit({"GPU:0": "22MB", "GPU:1": "22MB"})
    fitting, unfit = made_to_fit(item, cluster, parks=True)
    problem = analytic_problem(fitting, cluster)
    whole, plan = Form(problem, fitting, unfit=unfit), Placement(problem, unfit.choice.plan)
    assert unfit.choice.after < unfit.choice.before
    form = in_parts(whole, "whole")
    assert form.parts == 2 and form.problem.splitting.recomputed + form.problem.splitting.parked
    assert len(form.starts([plan])) == 2  # plans of the whole are lifted
    assert form.where_it_pays(1e-3).parts == 2
    again, lifted = fitted_to(whole, plan)
    assert again.has(lifted) and again.problem.splitting


@pytest.mark.parametrize("share", [0.91, 0.81, 0.71, 0.61])
def test_on_chains_it_is_within_two_percent_of_the_best_choice(share):
    """Every subset of the layers is done again in turn, in the simulator."""
    item = chain(layers=8, width=64, batch=8192)
    passes, whole = passes_of(item), analytic_problem(item, P100)
    cluster = P100.with_memory_limit({"GPU:0": int(share * peak_of(whole))})
    problem = analytic_problem(item, cluster)
    may = np.flatnonzero(recomputable(item, passes)).tolist()
    pairs = zip(*([op for op in may if item.index.op_types[op] == kind] for kind in LAYER), strict=True)
    best_ns = np.inf
    for ops in map(list, itertools.product(*((pair, ()) for pair in pairs))):
        ops = list(itertools.chain(*ops))
        more_ns = problem.op_graph.op_ns[ops].sum()
        fits = device_peaks(with_copies(problem, passes, ops))[1] <= cluster.capacity_bytes()
        best_ns = min(best_ns, more_ns) if fits.all() else best_ns
    _, choice = recomputation(item, problem)
    step_ns = problem.op_graph.op_ns.sum()
    assert choice.after <= 1 and choice.more * step_ns + step_ns <= 1.02 * (step_ns + best_ns)


@pytest.mark.medium
def test_a_step_that_a_worker_has_no_memory_for_runs_with_ops_done_again():
    item = chain(layers=8, width=128, batch=1 << 18)
    alone = Cluster.local(cores=1)
    peak_bytes = peak_of(analytic_problem(item, alone))
    cluster = alone.with_memory_limit({"CPU:0": int(0.8 * peak_bytes)})
    # So much less that what the allocator takes beyond tensors fits, too.
    again, _ = made_to_fit(item, alone.with_memory_limit({"CPU:0": int(0.61 * peak_bytes)}))
    outcomes = []
    for program in (item, again):
        problem = analytic_problem(program, cluster)
        rows = problem.everything_on(0)[np.newaxis]
        with RuntimeEvaluator(program, problem, RuntimeConfig(warmup_steps=1, steps=2, keep=1)) as evaluator:
            outcomes.append(Status(int(evaluator.evaluate(rows).status[0])))
    assert outcomes == [Status.OUT_OF_MEMORY, Status.OK]


def test_a_function_is_placed_with_ops_done_again_and_by_its_plan_file(tmp_path):
    weight, x = tf.Variable(tf.ones([32, 32]) / 32), tf.ones([4096, 32])

    @tf.function
    def step(y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            for _ in range(6):
                y = tf.tanh(y @ weight)
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, weight)

    peak_bytes = peak_of(analytic_problem(Item.from_function(step, x), Cluster.logical(1)))
    settings = {"cluster": Cluster.logical(1), "keep_unplaced": False, "strict": True}
    limit = {"CPU:0": int(0.86 * peak_bytes)}
    placed = tf_placer.auto_place(step, recompute="auto", memory_limit=limit, budget_s=1.0, **settings)
    np.testing.assert_array_equal(placed(x), step(x))
    assert placed.placement.problem.splitting.recomputed and "done again" in placed.report()
    placed.placement.save(tmp_path / "placement.json")
    again = tf_placer.auto_place(step, plan=tmp_path / "placement.json", **settings)
    np.testing.assert_array_equal(again(x), step(x))
    assert again.placement.problem.splitting == placed.placement.problem.splitting
