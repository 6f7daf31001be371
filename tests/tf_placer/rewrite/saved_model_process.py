"""Exports SavedModels of several kinds with placements over logical devices, and prints what differs, as JSON.

A process of its own: TensorFlow fixes its logical devices when its first op runs. Its arguments are a folder to write
in and the names of checks.
"""

from __future__ import annotations

import functools
import pathlib
import sys
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from tests.logical_devices import NUM_DEVICES, report
from tests.tf_placer.rewrite import saved_models
from tests.tf_placer.rewrite.saved_models import Example
from tf_placer.calibration.build_problem import build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.read_saved_model import read_saved_model
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.pins import pinned
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.load_saved_model import load_saved_model
from tf_placer.rewrite.saved_model import export_saved_model, plan_file
from tf_placer.search.search import search


def placement_of(
    path: pathlib.Path,
    signature: str,
    batch_size: int = 32,
    held: Mapping[str, str] | None = None,
) -> Placement:
    """A random one, in which the ops of ``held`` are where that says."""
    item = Item.from_saved_model(path, signature, batch_size)
    there = {op: device for op, device in (held or {}).items() if op in item.index.id_of_name}
    problem = pinned(item, analytic_problem(item, Cluster.logical(NUM_DEVICES)), there)
    generator = np.random.default_rng(0)
    return Placement(problem, [generator.choice(np.flatnonzero(row)) for row in problem.allowed])


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


def answers(model, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Bytes, or lists of strings, by output."""
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    return {key: bits(value.numpy()) for key, value in model.signatures[signature](**tensors).items()}


def bits(value: np.ndarray) -> object:
    return value.tolist() if value.dtype == object else value.tobytes()


def served_by_v1(path: pathlib.Path, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    config.device_count["CPU"] = NUM_DEVICES
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        entry = meta.signature_def[signature]
        feeds = {entry.inputs[name].name: value for name, value in inputs.items()}
        results = session.run({key: output.name for key, output in entry.outputs.items()}, feeds)
    return {key: bits(np.asarray(value)) for key, value in results.items()}


def same_answers(
    source: pathlib.Path, target: pathlib.Path, questions: Mapping[str, Mapping[str, np.ndarray]]
) -> bool:
    """Whether every signature answers alike, whoever loads it."""
    for signature, inputs in questions.items():
        expected = served(source, signature, inputs)
        found = [
            served(target, signature, inputs),
            served_by_v1(target, signature, inputs),
            answers(load_saved_model(target), signature, inputs),
        ]
        if not expected or any(one != expected for one in found):
            return False
    return True


def one_signature_placed(example: Example) -> pathlib.Path | None:
    """The exported model, where it is the same one."""
    target = exported(example.path, next(iter(example.questions)))
    return target if same_answers(example.path, target, example.questions) else None


def a_keras_model(folder: pathlib.Path) -> bool:
    target = one_signature_placed(saved_models.a_keras_model(folder))
    return target is not None and variables_are_spread(target)


def a_keras_application(folder: pathlib.Path) -> bool:
    target = one_signature_placed(saved_models.a_keras_application(folder))
    return target is not None and variables_are_spread(target)


def variables_are_spread(target: pathlib.Path) -> bool:
    """Whether they are on all devices, each where the plan says."""
    loaded = load_saved_model(target)  # its functions do not keep its variables alive
    captured = loaded.signatures["serving_default"].variables
    objects = read_saved_model(target).meta_graph.object_graph_def.nodes
    saved = sorted(node.variable.device for node in objects if node.variable.device)
    return saved == sorted(variable.device for variable in captured) and len(set(saved)) == NUM_DEVICES


def any_batch(folder: pathlib.Path) -> bool:
    """Placed for 8 rows, asked for others."""
    example = saved_models.a_keras_model(folder)
    target = exported(example.path, batch_size=8)
    ((name, x),) = example.questions["serving_default"].items()
    return all(
        same_answers(example.path, target, {"serving_default": {name: np.resize(x, (rows, *x.shape[1:]))}})
        for rows in (1, 3, 32)
    )


def several_signatures_a_loop_and_a_side_effect(folder: pathlib.Path) -> bool:
    return one_signature_placed(saved_models.several_signatures(folder)) is not None


def several_signatures_each_placed(folder: pathlib.Path) -> bool:
    """At once, and one on top of the other: the same file."""
    example = saved_models.several_signatures(folder)
    power = placement_of(example.path, "power")
    scaled = placement_of(example.path, "scaled", held=power.device_names)
    both, first, again = (folder / name for name in ("both", "first", "again"))
    export_saved_model(example.path, both, {"power": power, "scaled": scaled})
    export_saved_model(example.path, first, power, "power")
    over = placement_of(first, "scaled", held=power.device_names)
    export_saved_model(first, again, over, "scaled")
    files = sorted(path.relative_to(both) for path in both.rglob("*") if path.is_file())
    assert {plan_file("power"), plan_file("scaled")} <= set(files)
    assert files == sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    same = all((both / file).read_bytes() == (again / file).read_bytes() for file in files)
    graphs = [load_saved_model(both).signatures[name].graph for name in ("power", "scaled")]
    spread = all(len({op.device for op in graph.get_operations() if op.device}) > 1 for graph in graphs)
    return same and spread and same_answers(example.path, both, example.questions)


def a_hash_table_with_an_asset(folder: pathlib.Path) -> bool:
    """The table is where the plan has it, too, and not only in the plan."""
    example = saved_models.a_hash_table(folder)
    target = one_signature_placed(example)
    if target is None:
        return False
    plan = placement_of(example.path, "serving_default").device_names
    (handle,) = [
        node.name
        for node in read_saved_model(target).meta_graph.graph_def.node
        if node.op == "HashTableV2" and node.name in plan
    ]
    assert not plan[handle].endswith("CPU:0"), "the plan says nothing: choose another seed"
    return load_saved_model(target).table.resource_handle.device == plan[handle]


def string_inputs(folder: pathlib.Path) -> bool:
    return one_signature_placed(saved_models.string_inputs(folder)) is not None


def from_tensorflow_1(folder: pathlib.Path) -> bool:
    return one_signature_placed(saved_models.from_tensorflow_1(folder)) is not None


def a_call_from_tensorflow_1(folder: pathlib.Path) -> bool:
    """Every op that the plan names is in the file, where it was put."""
    example = saved_models.a_call_from_tensorflow_1(folder)
    target = one_signature_placed(example)
    if target is None:
        return False
    plan = placement_of(example.path, "serving_default").device_names
    graph = load_saved_model(target).signatures["serving_default"].graph
    scope, arguments = "placed/serving_default/", {"x", "w", "calls"}
    devices = {op.name.removeprefix(scope): op.device for op in graph.get_operations()}
    return all(devices[op] == device for op, device in plan.items() if op not in arguments)


def a_recurrent_model(folder: pathlib.Path) -> bool:
    """Searched, too."""
    example = saved_models.a_recurrent_model(folder, by_keras=True)
    item = Item.from_saved_model(example.path)
    problem = build_problem(item, Cluster.logical(NUM_DEVICES))
    found = search(problem, "local_search", budget_evaluations=100, seed=0)
    searched = example.path.with_name("searched")
    export_saved_model(example.path, searched, found)
    assert item.estimated_sizes, "it would have been placed before"
    return (
        same_answers(example.path, searched, example.questions) and one_signature_placed(example) is not None
    )


def a_recurrent_model_saved_by_tensorflow(folder: pathlib.Path) -> bool:
    """TensorFlow 1 does not load it: it finds no values for the variables, in the source neither."""
    example = saved_models.a_recurrent_model(folder, by_keras=False)
    target = exported(example.path)
    inputs = example.questions["serving_default"]
    expected = served(example.path, "serving_default", inputs)
    found = answers(load_saved_model(target), "serving_default", inputs)
    return expected == found == served(target, "serving_default", inputs)


def a_text_model(folder: pathlib.Path) -> bool:
    return one_signature_placed(saved_models.a_text_model(folder)) is not None


def a_model_of_categories(folder: pathlib.Path) -> bool:
    return one_signature_placed(saved_models.a_model_of_categories(folder)) is not None


def ragged_words(folder: pathlib.Path) -> bool:
    return one_signature_placed(saved_models.ragged_words(folder)) is not None


def a_detector(folder: pathlib.Path) -> bool:
    return one_signature_placed(saved_models.a_detector(folder)) is not None


CHECKS: tuple[Callable[[pathlib.Path], bool], ...] = (
    a_keras_model,
    a_keras_application,
    any_batch,
    several_signatures_a_loop_and_a_side_effect,
    several_signatures_each_placed,
    a_hash_table_with_an_asset,
    string_inputs,
    from_tensorflow_1,
    a_call_from_tensorflow_1,
    a_recurrent_model,
    a_recurrent_model_saved_by_tensorflow,
    a_text_model,
    a_model_of_categories,
    ragged_words,
    a_detector,
)


def main() -> None:
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    checks = []
    for check in CHECKS:
        if check.__name__ in names:
            (folder / check.__name__).mkdir()
            checks.append(functools.update_wrapper(functools.partial(check, folder / check.__name__), check))
    report(checks, soft_placement=True)


if __name__ == "__main__":
    main()
