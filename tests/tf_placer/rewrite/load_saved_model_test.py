"""What a placed SavedModel keeps and says, how it is loaded, and refusals in one line."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import fingerprint_pb2, meta_graph_pb2, saved_model_pb2
from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

import tf_placer
from tests.own_process import python
from tests.refused import refused
from tests.tf_placer.rewrite.saved_models import from_tensorflow_1, several_signatures
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.read_graph import read_saved_model
from tf_placer.problem.analytic_problem import analytic_problem, pinned
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.load_saved_model import load_saved_model, rename_saved_devices
from tf_placer.rewrite.saved_model import export_saved_model, plan_file

CPU_0 = "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.fixture(scope="module")
def unplaced(tmp_path_factory) -> Path:
    return several_signatures(tmp_path_factory.mktemp("model")).path


def placed(unplaced: Path, cluster: Cluster, target: Path) -> Path:
    problem = analytic_problem(Item.from_saved_model(unplaced, "scaled"), cluster)
    row = [np.flatnonzero(allowed)[unit % allowed.sum()] for unit, allowed in enumerate(problem.allowed)]
    export_saved_model(unplaced, target, Placement(problem, row), "scaled")
    return target


def refusal(*args) -> str:
    with pytest.raises(InputError) as error:
        load_saved_model(*args)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_model_without_devices_is_loaded(unplaced):
    loaded = load_saved_model(unplaced)
    assert loaded.signatures["scaled"](scale=tf.constant(2.0))["scaled"].numpy().tolist() == [[2, 4], [6, 8]]


def test_missing_devices_are_named_with_those_there_and_the_remedy(unplaced, tmp_path):
    message = refusal(placed(unplaced, Cluster.logical(2), tmp_path / "placed"))
    assert "device:CPU:1, which this process lacks; it has" in message
    assert 'devices={"/job:localhost/replica:0/task:0/device:CPU:1": ' in message


@pytest.mark.medium
def test_the_command_line_of_tensorflow_runs_what_our_loader_refuses(unplaced, tmp_path):
    """It makes one CPU device, and what is meant for others runs there."""
    done = python(
        *("-m", "tensorflow.python.tools.saved_model_cli", "run"),
        *("--tag_set=serve", "--signature_def=scaled", "--input_exprs=scale=2.0"),
        *(f"--dir={placed(unplaced, Cluster.logical(2), tmp_path / 'placed')}", f"--outdir={tmp_path}"),
        CUDA_VISIBLE_DEVICES="",
    )
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "scaled.npy").tolist() == [[2, 4], [6, 8]]


def test_a_plan_for_a_described_machine_goes_where_it_is_sent(unplaced, tmp_path):
    path = placed(unplaced, Cluster.preset("p100x2"), tmp_path / "placed")
    present = [device.name.rpartition("device:")[2] for device in tf.config.list_logical_devices()]
    gpus = {f"GPU:{k}": "CPU:0" for k in range(2) if f"GPU:{k}" not in present}
    if gpus:
        assert "device:GPU:1, which this process lacks" in refusal(path)
        assert "device:GPU:1, which this process lacks" in refusal(path, {"GPU:0": "CPU:0"})
    loaded = load_saved_model(path, gpus)
    assert loaded.signatures["scaled"](scale=tf.constant(2.0))["scaled"].numpy().tolist() == [[2, 4], [6, 8]]
    if len(gpus) == 2:
        assert {op.device for op in loaded.signatures["scaled"].graph.get_operations()} <= {CPU_0, ""}


def test_a_mapping_must_fit_the_model_and_the_process(unplaced, tmp_path):
    path = placed(unplaced, Cluster.logical(2), tmp_path / "placed")
    assert "has nothing on /job:localhost/replica:0/task:0/device:CPU:7; it names" in refusal(
        path, {"CPU:7": "CPU:0"}
    )
    assert "is to be /job:localhost/replica:0/task:0/device:CPU:9, which this process lacks" in refusal(
        path, {"CPU:1": "CPU:9"}
    )
    assert "'CPU' is not a TensorFlow device name" in refusal(path, {"CPU": "CPU:0"})


@pytest.mark.parametrize("device", ["/device:CPU:1", "/job:worker/task:1", "/device:TPU:*", "/gpu:7"])
def test_whatever_names_a_missing_device_is_refused(unplaced, tmp_path, device):
    model = read_saved_model(unplaced)
    model.meta_graph.graph_def.library.function[0].node_def[0].device = device
    (tmp_path / "saved_model.pb").write_bytes(model.proto.SerializeToString())
    assert "which this process lacks" in refusal(tmp_path)


@pytest.mark.parametrize("file", ["variables.index", "variables.data-00000-of-00001"])
def test_a_model_that_tensorflow_cannot_load_is_refused(unplaced, tmp_path, file):
    shutil.copytree(unplaced, tmp_path / "model")
    (tmp_path / "model" / "variables" / file).unlink()
    assert "TensorFlow cannot load" in refusal(tmp_path / "model")


def test_a_damaged_device_is_refused(unplaced, tmp_path):
    model = read_saved_model(unplaced)
    model.meta_graph.graph_def.node[0].device = "/device:what"
    (tmp_path / "saved_model.pb").write_bytes(model.proto.SerializeToString())
    assert "names the device '/device:what', which is none" in refusal(tmp_path)


@pytest.fixture
def model(tmp_path) -> Path:
    module = tf.Module()
    module.weights = tf.Variable(tf.ones([3, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def serve(x):
        return {"y": x @ module.weights}

    tf.saved_model.save(module, str(tmp_path / "model"), signatures=serve)
    return tmp_path / "model"


def a_placement(path: Path, devices: int = 2) -> Placement:
    problem = analytic_problem(Item.from_saved_model(path), Cluster.logical(devices))
    return Placement(problem, np.arange(problem.num_units) % devices)


def test_variables_come_from_the_checkpoint(model):
    (variable,) = Item.from_saved_model(model).variables
    assert variable.value.tolist() == [[1.0, 1.0]] * 3


def rewrite(file: Path, change: Callable[[meta_graph_pb2.MetaGraphDef], None]) -> None:
    proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    change(proto.meta_graphs[0])
    file.write_bytes(proto.SerializeToString())


def name_an_asset(meta_graph: meta_graph_pb2.MetaGraphDef) -> None:
    meta_graph.asset_file_def.add(filename="words.txt")


def enlarge_variable(meta_graph: meta_graph_pb2.MetaGraphDef) -> None:
    handle = next(node for node in meta_graph.graph_def.node if node.op == "VarHandleOp")
    handle.attr["shape"].shape.dim[0].size += 1


def drop_outputs(meta_graph: meta_graph_pb2.MetaGraphDef) -> None:
    meta_graph.signature_def["serving_default"].outputs.clear()


def feed_a_resource(meta_graph: meta_graph_pb2.MetaGraphDef) -> None:
    meta_graph.signature_def["serving_default"].inputs["x"].dtype = types_pb2.DT_RESOURCE


def feed_much(meta_graph: meta_graph_pb2.MetaGraphDef) -> None:
    meta_graph.signature_def["serving_default"].inputs["x"].tensor_shape.dim[1].size = 10**15


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.unlink(), "it is a SavedModel without its saved_model.pb; export the model again"),
        (lambda file: file.write_bytes(b"\xff" * 100), "saved_model.pb is damaged"),
        (lambda file: file.write_bytes(b"\x08\x01"), "has no graph tagged {serve}; it has none"),
        (lambda file: file.write_bytes(b""), "it is a folder whose saved_model.pb is empty"),
        (lambda file: (file.parent / "variables" / "variables.index").unlink(), "variables.index is missing"),
        (
            lambda file: os.truncate(next(file.parent.glob("variables/*.data*")), 4),
            r"variables\.\* is damaged",
        ),
        (lambda file: rewrite(file, name_an_asset), "the asset 'words.txt' is missing"),
        (
            lambda file: rewrite(file, enlarge_variable),
            "'Variable' has the shape .* in the graph and .* checkpoint",
        ),
        (lambda file: rewrite(file, drop_outputs), "'serving_default' has no outputs"),
        (lambda file: rewrite(file, feed_a_resource), "is a resource, which cannot be fed"),
        (lambda file: rewrite(file, feed_much), "is larger than any device"),
    ],
)
def test_a_damaged_model_is_refused_in_one_line(model, damage, message):
    damage(model / "saved_model.pb")
    with refused(message):
        Item.from_saved_model(model)


def test_a_function_that_captures_what_is_not_there_is_refused(model, tmp_path):
    placement = a_placement(model)
    damaged = read_saved_model(model)
    for function in damaged.meta_graph.object_graph_def.concrete_functions.values():
        function.bound_inputs[:] = [1000 for _ in function.bound_inputs]
    (model / "saved_model.pb").write_bytes(damaged.proto.SerializeToString())
    with pytest.raises(InputError, match="captures object 1000, which is not there"):
        export_saved_model(model, tmp_path / "new", placement)


def test_nothing_appears_where_the_export_is_refused(model, tmp_path):
    placement = a_placement(model)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="there is there already"):
        export_saved_model(model, tmp_path / "there", placement)
    with pytest.raises(InputError, match="search a placement for this item"):
        export_saved_model(model, tmp_path / "new", placement, batch_size=5)
    with pytest.raises(InputError, match="inside of the model"):
        export_saved_model(model, model / "new", placement)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "there"]


def test_the_fingerprint_is_that_of_the_original(model, tmp_path):
    export_saved_model(model, tmp_path / "placed", a_placement(model))
    before, after = (
        tf.saved_model.experimental.read_fingerprint(str(path)) for path in (model, tmp_path / "placed")
    )
    assert (model / "fingerprint.pb").read_bytes() == (tmp_path / "placed" / "fingerprint.pb").read_bytes()
    assert after == before
    assert after.singleprint() == before.singleprint()
    # What TensorFlow would write for the copy: of its parts, those that a placement leaves alone are equal.
    written = fingerprint_pb2.FingerprintDef.FromString(
        fingerprinting.CreateFingerprintDef(str(tmp_path / "placed"))
    )
    fresh = tf.saved_model.experimental.Fingerprint.from_proto(written)
    assert fresh.signature_def_hash == before.signature_def_hash
    assert fresh.checkpoint_hash == before.checkpoint_hash
    assert fresh.saved_model_checksum != before.saved_model_checksum


@pytest.fixture
def two(tmp_path) -> tuple[Path, dict[str, Placement]]:
    """A model of two signatures that share a variable, and plans that put it on different devices."""
    path = several_signatures(tmp_path).path
    plans = {}
    for device, name in enumerate(("power", "scaled")):
        problem = analytic_problem(Item.from_saved_model(path, name), Cluster.logical(2))
        plans[name] = Placement(problem, problem.everything_on(device))
    return path, plans


def test_the_first_plan_decides_where_a_shared_variable_is(two, tmp_path):
    path, plans = two
    with pytest.raises(
        InputError, match=r"'scaled' puts 'weights' on .*CPU:1, but 'power', .* has it on .*CPU:0"
    ):
        export_saved_model(path, tmp_path / "placed", plans)
    with pytest.raises(
        InputError, match=r"'power' puts 'weights' on .*CPU:0, but 'scaled', .* has it on .*CPU:1"
    ):
        export_saved_model(path, tmp_path / "placed", dict(reversed(plans.items())))
    assert not (tmp_path / "placed").exists()


def test_an_exported_plan_decides_too_unless_it_is_replaced(two, tmp_path):
    path, plans = two
    export_saved_model(path, tmp_path / "first", plans["power"], "power")
    scaled = Placement(
        analytic_problem(Item.from_saved_model(tmp_path / "first", "scaled"), Cluster.logical(2)),
        plans["scaled"].device_of_unit,
    )
    with pytest.raises(
        InputError, match=r"'scaled' puts 'weights' on .*CPU:1, but 'power', .* has it on .*CPU:0"
    ):
        export_saved_model(tmp_path / "first", tmp_path / "second", scaled, "scaled")
    again = analytic_problem(Item.from_saved_model(tmp_path / "first", "power"), Cluster.logical(2))
    export_saved_model(
        tmp_path / "first", tmp_path / "second", Placement(again, again.everything_on(1)), "power"
    )
    nodes = read_saved_model(tmp_path / "second").meta_graph.graph_def.node
    assert {node.device[-5:] for node in nodes if node.name in ("weights", "calls")} == {"CPU:1"}


def test_a_plan_of_tensorflow_1_is_replaced_whole(tmp_path):
    example = from_tensorflow_1(tmp_path)
    path = example.path
    for device in (1, 0):
        problem = analytic_problem(Item.from_saved_model(path), Cluster.logical(2))
        target = tmp_path / f"on_{device}"
        export_saved_model(path, target, Placement(problem, problem.everything_on(device)))
        path = target
    loaded = load_saved_model(path)  # which lacks the first plan's device, as this process does
    x = tf.constant(example.questions["serving_default"]["x"])
    assert loaded.signatures["serving_default"](x=x)["y"].numpy().tolist() == [[1.0, 1.0]]
    nodes = read_saved_model(path).meta_graph.graph_def.node
    assert len([node for node in nodes if node.name.startswith("placed/serving_default/")]) > 3


def test_a_pinned_problem_has_plans_that_agree(two, tmp_path):
    path, plans = two
    held = pinned(Item.from_saved_model(path, "scaled"), plans["scaled"].problem, plans["power"])
    agreeing = Placement(held, held.everything_on(1))
    assert agreeing.device_names["weights"].endswith("CPU:0")
    assert len(set(agreeing.device_names.values())) == 2
    export_saved_model(path, tmp_path / "placed", {"power": plans["power"], "scaled": agreeing})
    for name, placement in (("power", plans["power"]), ("scaled", agreeing)):
        assert (tmp_path / "placed" / plan_file(name)).read_text() == placement.to_json()


def test_a_damaged_plan_and_no_plan_are_refused(two, tmp_path):
    path, plans = two
    export_saved_model(path, tmp_path / "first", plans["power"], "power")
    with pytest.raises(InputError, match="no placement for any signature"):
        export_saved_model(path, tmp_path / "second", {})
    (tmp_path / "first" / plan_file("power")).write_text("{")
    with pytest.raises(InputError, match=r"power\.json is not"):
        export_saved_model(tmp_path / "first", tmp_path / "second", plans["scaled"], "scaled")


@pytest.mark.parametrize("preset", ["p100x2", "k40x2"])
def test_a_described_device_that_is_missing_is_named(preset):
    function = tf.function(lambda x: tf.nn.relu(x) + 1.0)
    item = tf_placer.Item.from_function(function, tf.ones([2]))
    problem = tf_placer.build_problem(item, tf_placer.Cluster.preset(preset))
    gpu, host = problem.everything_on(1), problem.everything_on(problem.cluster.host)
    with pytest.raises(tf_placer.InputError, match=r"this process has no device .*GPU:1; it has /job:"):
        tf_placer.placed_function(function, tf_placer.Placement(problem, gpu), tf.ones([2]))
    placed = tf_placer.placed_function(function, tf_placer.Placement(problem, host), tf.ones([2]))
    assert placed(tf.ones([2])).numpy().tolist() == [2.0, 2.0]  # what the plan does not use need not be there


def test_more_workers_than_cores_are_told(tmp_path):
    example = several_signatures(tmp_path)
    cluster = tf_placer.Cluster.local(1)
    item = tf_placer.Item.from_saved_model(example.path, "scaled")
    problem = tf_placer.build_problem(item, cluster, costs="analytic")
    placement = tf_placer.Placement(problem, np.zeros(problem.num_units, np.int32))
    tf_placer.export_saved_model(example.path, tmp_path / "placed", placement, "scaled")
    here, away = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in (0, 9999))
    model = read_saved_model(tmp_path / "placed")
    rename_saved_devices(model, {here: away})
    (tmp_path / "placed" / "saved_model.pb").write_bytes(model.proto.SerializeToString())
    plan = tmp_path / "placed" / "assets.extra" / "placement" / "scaled.json"
    plan.write_text(plan.read_text().replace(here, away))
    with pytest.raises(tf_placer.InputError, match=r"on this machine's workers.*task:9999.*cores=10000, but"):
        tf_placer.load_saved_model(tmp_path / "placed")
