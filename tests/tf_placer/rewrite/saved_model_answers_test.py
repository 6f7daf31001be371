"""A SavedModel with a placement in it answers as it did, over four logical devices, whoever loads it."""

import pathlib
from collections.abc import Mapping

import numpy as np
import pytest
import tensorflow as tf

from tests.logical_devices import NUM_DEVICES
from tests.tf_placer.rewrite import saved_models
from tests.tf_placer.rewrite.saved_models import Example, answers, bits, placement_of
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.read_graph import read_saved_model
from tf_placer.rewrite.load_saved_model import load_saved_model
from tf_placer.rewrite.saved_model import export_saved_model, plan_file
from tf_placer.search.search import search

pytestmark = [pytest.mark.medium, pytest.mark.own_process(exact="soft")]


def exported(source: pathlib.Path, signature: str = "serving_default", batch_size: int = 32) -> pathlib.Path:
    """A copy with a random placement of one signature."""
    placement = placement_of(source, signature, batch_size)
    target = source.with_name(f"{source.name}_placed")
    export_saved_model(source, target, placement, signature, batch_size)
    assert len(planned_devices(target)) > 1, "nothing was placed"
    assert (target / plan_file(signature)).read_text() == placement.to_json()
    return target


def planned_devices(path: pathlib.Path) -> set[str]:
    """Those of the cluster that stand in the file."""
    graph_def = read_saved_model(path).meta_graph.graph_def
    bodies = [node for function in graph_def.library.function for node in function.node_def]
    return {node.device for node in [*graph_def.node, *bodies]} & {
        device.name for device in Cluster.logical(NUM_DEVICES).devices
    }


def served(path: pathlib.Path, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    options = tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices")
    return answers(tf.saved_model.load(str(path), options=options), signature, inputs)


def served_by_v1(path: pathlib.Path, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    config.device_count["CPU"] = NUM_DEVICES
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        entry = tf.compat.v1.saved_model.load(session, ["serve"], str(path)).signature_def[signature]
        feeds = {entry.inputs[name].name: value for name, value in inputs.items()}
        results = session.run({key: output.name for key, output in entry.outputs.items()}, feeds)
    return {key: bits(np.asarray(value)) for key, value in results.items()}


def check_answers(source, target, questions) -> None:
    """Every signature answers alike, whoever loads it."""
    for signature, inputs in questions.items():
        expected = served(source, signature, inputs)
        assert expected
        assert served(target, signature, inputs) == expected
        assert served_by_v1(target, signature, inputs) == expected
        assert answers(load_saved_model(target), signature, inputs) == expected


def checked_copy(example: Example) -> pathlib.Path:
    """A copy with a placement of its first signature, which answers as the model does."""
    target = exported(example.path, next(iter(example.questions)))
    check_answers(example.path, target, example.questions)
    return target


@pytest.mark.parametrize(
    "model",
    [
        saved_models.several_signatures, saved_models.string_inputs, saved_models.from_tensorflow_1,
        saved_models.a_text_model, saved_models.a_model_of_categories, saved_models.ragged_words,
        saved_models.a_detector,
    ],
)  # fmt: skip
def test_it_answers_as_before(tmp_path, model):
    checked_copy(model(tmp_path))


@pytest.mark.parametrize(
    "model",
    [
        saved_models.a_keras_model,
        pytest.param(
            saved_models.a_keras_application,
            marks=[pytest.mark.slow, pytest.mark.own_process("application", exact="soft")],
        ),
    ],
)
def test_variables_are_on_all_devices_as_planned(tmp_path, model):
    target = checked_copy(model(tmp_path))
    loaded = load_saved_model(target)  # its functions do not keep its variables alive
    captured = loaded.signatures["serving_default"].variables
    objects = read_saved_model(target).meta_graph.object_graph_def.nodes
    saved = sorted(node.variable.device for node in objects if node.variable.device)
    assert saved == sorted(variable.device for variable in captured)
    assert len(set(saved)) == NUM_DEVICES


@pytest.mark.slow
@pytest.mark.own_process("any batch", exact="soft")
def test_any_batch(tmp_path):
    """Placed for 8 rows, asked for others."""
    example = saved_models.a_keras_model(tmp_path)
    target = exported(example.path, batch_size=8)
    ((name, x),) = example.questions["serving_default"].items()
    for rows in (1, 3, 32):
        check_answers(example.path, target, {"serving_default": {name: np.resize(x, (rows, *x.shape[1:]))}})


def test_several_signatures_each_placed(tmp_path):
    """At once, and one on top of the other: the same file."""
    example = saved_models.several_signatures(tmp_path)
    power = placement_of(example.path, "power")
    scaled = placement_of(example.path, "scaled", held=power.device_names)
    both, first, again = (tmp_path / name for name in ("both", "first", "again"))
    export_saved_model(example.path, both, {"power": power, "scaled": scaled})
    export_saved_model(example.path, first, power, "power")
    export_saved_model(first, again, placement_of(first, "scaled", held=power.device_names), "scaled")
    files = sorted(path.relative_to(both) for path in both.rglob("*") if path.is_file())
    assert {plan_file("power"), plan_file("scaled")} <= set(files)
    assert files == sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    same = all((both / file).read_bytes() == (again / file).read_bytes() for file in files)
    graphs = [load_saved_model(both).signatures[name].graph for name in ("power", "scaled")]
    spread = all(len({op.device for op in graph.get_operations() if op.device}) > 1 for graph in graphs)
    assert same
    assert spread
    check_answers(example.path, both, example.questions)


def test_a_hash_table_with_an_asset(tmp_path):
    """The table is where the plan has it, too, and not only in the plan."""
    example = saved_models.a_hash_table(tmp_path)
    target = checked_copy(example)
    plan = placement_of(example.path, "serving_default").device_names
    (handle,) = [
        node.name
        for node in read_saved_model(target).meta_graph.graph_def.node
        if node.op == "HashTableV2" and node.name in plan
    ]
    assert not plan[handle].endswith("CPU:0"), "the plan says nothing: choose another seed"
    assert load_saved_model(target).table.resource_handle.device == plan[handle]


def test_a_call_from_tensorflow_1(tmp_path):
    """Every op that the plan names is in the file, where it was put."""
    example = saved_models.a_call_from_tensorflow_1(tmp_path)
    target = checked_copy(example)
    plan = placement_of(example.path, "serving_default").device_names
    graph = load_saved_model(target).signatures["serving_default"].graph
    scope, arguments = "placed/serving_default/", {"x", "w", "calls"}
    devices = {op.name.removeprefix(scope): op.device for op in graph.get_operations()}
    assert all(devices[op] == device for op, device in plan.items() if op not in arguments)


def test_a_recurrent_model(tmp_path):
    """Searched, too."""
    example = saved_models.a_recurrent_model(tmp_path, by_keras=True)
    item = Item.from_saved_model(example.path)
    problem = build_problem(item, Cluster.logical(NUM_DEVICES))
    found = search(problem, "local_search", budget_evaluations=100, seed=0)
    searched = example.path.with_name("searched")
    export_saved_model(example.path, searched, found)
    assert item.estimated_sizes, "it would have been placed before"
    check_answers(example.path, searched, example.questions)
    checked_copy(example)


def test_a_recurrent_model_saved_by_tensorflow(tmp_path):
    """TensorFlow 1 does not load it: it finds no values for the variables, in the source neither."""
    example = saved_models.a_recurrent_model(tmp_path, by_keras=False)
    with pytest.warns(UserWarning, match="run unplaced, wholly or in part"):
        target = exported(example.path)
    inputs = example.questions["serving_default"]
    expected = served(example.path, "serving_default", inputs)
    found = answers(load_saved_model(target), "serving_default", inputs)
    assert expected == found == served(target, "serving_default", inputs)
