"""A placed SavedModel is loaded over four logical devices as it was placed, or as it is asked.

Soft device placement is off, without which TensorFlow's own loader does not put variables where they were saved."""

import pathlib
import tempfile
import warnings
from collections.abc import Mapping

import numpy as np
import pytest
import tensorflow as tf

from tests.logical_devices import NUM_DEVICES
from tests.tf_placer.rewrite import saved_models
from tests.tf_placer.rewrite.saved_models import Example, answers, placement_of
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.read_graph import read_saved_model
from tf_placer.problem.analytic_problem import analytic_problem, pinned
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.load_saved_model import load_saved_model
from tf_placer.rewrite.saved_model import export_saved_model

pytestmark = [pytest.mark.medium, pytest.mark.own_process(exact=True)]

CPUS = [device.name for device in Cluster.logical(NUM_DEVICES).devices]


def placed(example: Example) -> tuple[pathlib.Path, str, dict[str, str]]:
    """A placed copy, its signature and its plan."""
    signature = next(iter(example.questions))
    placement = placement_of(example.path, signature)
    target = example.path.with_name("placed")
    export_saved_model(example.path, target, placement, signature)
    return target, signature, placement.device_names


def is_as_planned(loaded, signature: str, plan: Mapping[str, str]) -> bool:
    """Whether the variables, and all ops that the plan names, are there; and both are several."""
    function = loaded.signatures[signature]
    scope = f"placed/{signature}/"  # of models of TensorFlow 1
    devices = {op.name.removeprefix(scope): op.device for op in function.graph.get_operations() if op.device}
    ops = {op: device for op, device in devices.items() if op in plan}
    variables = [variable.device for variable in function.variables]
    planned = sorted(
        plan[node] for node in plan if node in {v.name.partition(":")[0] for v in function.variables}
    )
    assert len(ops) > 3 and len(set(ops.values())) > 1 and variables, "nothing to see"
    if planned and planned != sorted(variables):
        return False
    return all(plan[name] == device for name, device in ops.items())


def same(example: Example, loaded, signature: str) -> bool:
    expected = answers(tf.saved_model.load(str(example.path)), signature, example.questions[signature])
    return answers(loaded, signature, example.questions[signature]) == expected


def test_it_is_as_planned_and_soft_placement_stays_off(tmp_path):
    example = saved_models.several_signatures(tmp_path)
    target, signature, plan = placed(example)
    with tf.device(CPUS[3]):  # which moves nothing
        loaded = load_saved_model(target)
    assert not tf.config.get_soft_device_placement()
    assert is_as_planned(loaded, signature, plan)
    assert same(example, loaded, signature)
    assert plan["weights"] != plan["calls"], "choose another seed"
    assert loaded.weights.device == plan["weights"]
    assert loaded.calls.device == plan["calls"]


def test_devices_change_places(tmp_path, monkeypatch):
    """All at once, in memory: the file stays, and nothing is left behind."""
    example = saved_models.several_signatures(tmp_path)
    target, signature, plan = placed(example)
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    moved = dict(zip(CPUS, [CPUS[1], CPUS[0], CPUS[3], CPUS[2]], strict=True))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    loaded = load_saved_model(target, {name[name.index("CPU") :]: here for name, here in moved.items()})
    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [example.path.name, target.name]
    there = {op: moved[device] for op, device in plan.items()}
    assert loaded.weights.device == there["weights"]
    assert is_as_planned(loaded, signature, there)
    assert same(example, loaded, signature)


def test_everything_goes_where_it_is_sent(tmp_path):
    example = saved_models.several_signatures(tmp_path)
    target, signature, _ = placed(example)
    loaded = load_saved_model(target, dict.fromkeys(CPUS, CPUS[3]))
    function = loaded.signatures[signature]
    devices = {op.device for op in function.graph.get_operations() if op.device}
    variables = {variable.device for variable in function.variables}
    assert devices == variables == {CPUS[3]}
    assert same(example, loaded, signature)


def test_it_can_be_saved_again(tmp_path):
    """With the asset, which a temporary copy must not take along."""
    example = saved_models.a_hash_table(tmp_path)
    target, signature, plan = placed(example)
    assert len(set(plan.values())) > 1
    loaded = load_saved_model(target, dict.fromkeys(set(plan.values()), CPUS[2]))
    assert loaded.table.resource_handle.device == CPUS[2]
    tf.saved_model.save(loaded, str(tmp_path / "again"), signatures=loaded.signatures)
    assert same(example, load_saved_model(tmp_path / "again"), signature)


def test_from_tensorflow_1(tmp_path):
    example = saved_models.from_tensorflow_1(tmp_path)
    target, signature, plan = placed(example)
    loaded = load_saved_model(target)
    (variable,) = loaded.variables
    assert plan["w"] != CPUS[0], "choose another seed"
    assert variable.device == plan["w"]
    assert is_as_planned(loaded, signature, plan)
    assert same(example, loaded, signature)


def test_shared_references_move(tmp_path):
    """A variable takes along what other signatures read from it, whatever device that asks for."""
    for seed in range(12):
        example = saved_models.references_on_devices(tmp_path, seed)
        target, placements = tmp_path / f"placed_{seed}", {}
        for signature in ("first", "second", "third")[seed % 3 :]:
            item = Item.from_saved_model(example.path, signature)
            problem = analytic_problem(item, Cluster.logical(NUM_DEVICES))
            held = {
                node.name: plan.device_names[node.name]
                for plan in placements.values()
                for node in item.graph_def.node
                if node.op in ("VariableV2", "VarHandleOp") and node.name in plan.device_names
            }
            problem = pinned(item, problem, held)
            generator = np.random.default_rng(seed)
            row = [generator.choice(np.flatnonzero(allowed)) for allowed in problem.allowed]
            placements[signature] = Placement(problem, row)
        export_saved_model(example.path, target, placements)
        loaded, before = load_saved_model(target), tf.saved_model.load(str(example.path))
        for signature, question in example.questions.items():
            assert answers(loaded, signature, question) == answers(before, signature, question)


def test_a_strategy_that_moves_it_is_refused(tmp_path):
    target, _, _ = placed(saved_models.several_signatures(tmp_path))
    refused = pytest.raises(InputError, match=r"load it outside of tf\.device and tf\.distribute scopes")
    with tf.distribute.OneDeviceStrategy(CPUS[3]).scope(), refused:
        load_saved_model(target)


def test_what_others_saved_is_checked_too(tmp_path):
    """A variable and an op with partly given devices, and no plan."""
    module = saved_models.TwoSignatures()
    with tf.device("CPU:2"):
        module.weights = tf.Variable(tf.ones([2, 2]), name="weights")
    options = tf.saved_model.SaveOptions(experimental_variable_policy="save_variable_devices")
    path = tmp_path / "theirs"
    tf.saved_model.save(module, str(path), signatures=module.scaled, options=options)
    assert read_saved_model(path).meta_graph.HasField("object_graph_def")
    assert load_saved_model(path).weights.device == CPUS[2]
    assert load_saved_model(path, {"CPU:2": "CPU:1"}).weights.device == CPUS[1]


class Endpoints(tf.Module):
    """Functions that a signature calls, once and twice, and some that it does not call."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.reshape(tf.range(9.0), [3, 3]))

    @tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float32)])
    def twice(self, x):
        return tf.tanh(x @ self.weights)

    @tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float32)])
    def serve(self, x):
        y = tf.nn.relu(x) * 2.0 + tf.exp(x @ self.weights)
        return {"y": tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 0.5), [0, y])[1]}

    @tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float32)])
    def both(self, x):
        return {"y": self.twice(self.twice(x)) + 1.0}

    @tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float32)])
    def other(self, x):
        return x - self.weights[0]


def test_functions_of_objects_run_placed(tmp_path):
    model, x = Endpoints(), tf.reshape(tf.range(6.0) / 6.0, [2, 3])
    path = tmp_path / "model"
    tf.saved_model.save(model, str(path), signatures={"one": model.serve, "again": model.serve})
    placement = placement_of(path, "one")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        export_saved_model(path, tmp_path / "placed", placement, "one")
    loaded = load_saved_model(tmp_path / "placed")
    (serve,) = loaded.serve.concrete_functions
    devices = {op.name: op.device for op in serve.graph.get_operations()}
    planned = {
        op.rpartition("StatefulPartitionedCall/")[2]: device for op, device in placement.device_names.items()
    }
    ours = {name for name in devices if name in planned and devices[name]}
    (as_it_was,) = {op.device for op in loaded.signatures["again"].graph.get_operations()}
    text = " ".join(str(one.message) for one in told if "run unplaced" in str(one.message))
    assert all(devices[name] == planned[name] for name in ours)
    assert {"Relu", "Exp", "matmul", "while"} <= {name.rpartition("/")[2] for name in ours}
    assert not as_it_was
    assert "both, other, twice run unplaced" in text
    assert tf.reduce_all(loaded.serve(x)["y"] == model.serve(x)["y"])
    assert tf.reduce_all(loaded.signatures["again"](x)["y"] == model.serve(x)["y"])


def test_a_function_with_two_plans_is_named(tmp_path):
    model, x = Endpoints(), tf.reshape(tf.range(6.0) / 6.0, [2, 3])
    tf.saved_model.save(model, str(tmp_path / "model"), signatures={"both": model.both})
    told = []
    for source, target in (("model", "placed"), ("placed", "again")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            placement = placement_of(tmp_path / source, "both")
            export_saved_model(tmp_path / source, tmp_path / target, placement, "both")
        told.append(" ".join(str(one.message) for one in caught))
    loaded = [load_saved_model(tmp_path / target) for target in ("placed", "again")]
    results = [one.both(x)["y"] for one in loaded]
    assert all(bool(tf.reduce_all(result == model.both(x)["y"])) for result in results)
    assert "both, other, serve, twice run unplaced" in told[0]
    assert "other, serve run unplaced" in told[1]
