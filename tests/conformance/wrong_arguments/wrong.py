"""Values that are refused: what annotations say, and what only a table can say."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from annotated_types import Ge, Gt, Le, Lt

import tf_placer
from tests.conformance.wrong_arguments.scene import Scene, step
from tests.tf_placer.problem.small_problems import small_cluster
from tf_placer.cluster.device import full_device_name
from tf_placer.costs.formulas import OpWork
from tf_placer.search.methods import Budget

NAN, INF = float("nan"), float("inf")


@dataclasses.dataclass(frozen=True)
class Told:
    """A wrong value of which the message says something else than the argument's name: a file or an op, say."""

    value: Any
    by: str


class Nothing:
    """Of no use to anybody."""


# Pattern of an annotation without None -> values that are of no such type, or never make sense; the first that matches.
_OF_TYPES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"int", (1.5, "a", "1", True, NAN)),
    (r"float", ("a", "1", True, NAN)),
    (r"bool", (1, "yes")),
    (r"str", (3, "")),
    (r".*Path.*", (3, "", b"a")),
    (r"(Mapping|dict|Sequence|Collection|Iterable|tuple)\[.*", (3, "a", [3])),
    (r".*\bAny\b.*", ()),
    (r".*(ndarray|Tensor).*", (3, "ab", [["a", "b"]], [[0], [0, 1]])),
    (r".*\|.*", ()),
    (r".*", (3, "a")),
)
_ALLOWED = {"Device.address": "", "Status.value": True}  # values of a wrong kind that are right there


def wrong_values(name: str, annotation: Any, table: dict[str, tuple[Any, ...]]) -> Iterator[Any]:
    """Everything that ``name``, a call with an argument, must refuse; nothing takes an object of no use."""
    if not isinstance(annotation, str):
        if typing.get_origin(annotation) is typing.Annotated:
            annotation, *limits = typing.get_args(annotation)
            yield from (value for limit in limits for value in _beyond(limit))
        annotation = getattr(annotation, "__name__", str(annotation))
    kind = annotation.removesuffix(" | None")
    by_type = next(values for pattern, values in _OF_TYPES if re.fullmatch(pattern, kind))
    yield from (value for value in by_type if name not in _ALLOWED or value is not _ALLOWED[name])
    argument = name.rpartition(".")[2]
    yield from table.get(f".{argument}", ())
    yield from table.get(name, ())
    if annotation != "Any" and argument != "example_args":
        yield Nothing()
        if "None" not in annotation:
            yield None


def _beyond(limit: Any) -> Iterator[Any]:
    """Numbers that do not keep to a limit."""
    bounds = (
        (Ge, "ge", lambda least: least - 1),
        (Le, "le", lambda most: most * 2),
        (Gt, "gt", float),
        (Lt, "lt", float),
    )
    yield from (beyond(getattr(limit, name)) for kind, name, beyond in bounds if isinstance(limit, kind))


def wrong_by_hand(scene: Scene) -> dict[str, tuple[Any, ...]]:
    """Call and argument, or an argument of any call -> what its annotation does not exclude."""
    return {
        **_of_any_call(), **_of_clusters(scene), **_of_programs(scene), **_of_plans(scene),
        **_of_problems(scene), **_timing(scene),
    }  # fmt: skip


def _of_any_call() -> dict[str, tuple[Any, ...]]:
    return {
        ".batch_size": (0, -1),
        ".input_shapes": ("x", {3: [3]}, {"x": 3}, {"x": "3"}, {"x": [0]}, Told({"nowhere": [3]}, "nowhere")),
        ".tags": ("serve", Told(["train"], "train"), Told((), "tagged")),
        ".signature": ("train",),
        ".seed": (-1, 2**31),
        ".index": (-1, 1),
        ".rounds": (0, -1),
        ".confidence": (0, 1.5),
        ".deadline_s": (0, -1, INF),
        ".budget_s": (0, -1, "5"),
        ".objective": ("space",),
        ".slow_down": (-0.1,),
    }


def _of_clusters(scene: Scene) -> dict[str, tuple[Any, ...]]:
    box = small_cluster(2)
    no_toml = Told(scene.file("a"), "not valid TOML")
    unlinked = Told(box.devices[:1], "link")
    limits = ("GPU:0=1KB", {3: "1KB"}, {"GPU:0": 1.5}, {"GPU:0": -1}, {"GPU:0": "1 banana"})
    nowhere = Told("nowhere.toml", "nowhere.toml"), Told(scene.folder, scene.folder.name)
    return {
        "Cluster.devices": ((), unlinked),
        "Device.type": ("", "TPU"),
        "Device.memory_bytes": (0, -1),
        "Device.streams": (0,),
        "Device.peak_flops": (0, -1, INF),
        "Device.memory_bytes_per_s": (0, INF),
        "Device.launch_ns": (-1,),
        "Link.latency_ns": (-1,),
        "Link.bytes_per_s": (0, INF),
        "Cluster.links": (Told((), "link"), Told(box.links * 2, "listed twice")),
        "Cluster.kind": ("live",),
        "Cluster.preset.name": (Told("p100x3", "'p100x2'"),),
        "Cluster.from_file.path": (*nowhere, no_toml),
        "Cluster.local.cores": (0, -1, 10**6),
        "Cluster.local.kept_in": (no_toml,),
        "Cluster.logical.n": (0, -1, 65),
        "Cluster.with_memory_limit.limits": (
            *limits,
            Told({"GPU:9": "1KB"}, "GPU:9"),
            Told({"GPU:0": "9TB"}, "give no more"),
        ),
    }


def _of_programs(scene: Scene) -> dict[str, tuple[Any, ...]]:
    item, folder, no_model = scene.item, scene.folder, Told(scene.folder, "saved_model.pb")
    described = scene.file(tf_placer.Cluster.preset("p100x2").to_toml(), ".toml")
    no_place = ("p100x2", "p100x9", "local:two", "local:0", "local:1000000", "local:", str(described))
    other_device = Told({"GPU:0": "CPU:0"}, full_device_name("GPU:0"))
    of_other_program = Told(scene.placement, "fingerprint")
    of_two = tf_placer.Placement(scene.two, [0, 1])
    simulated = tf_placer.SimulatedEvaluator(scene.problem)
    pairs = (
        *((3, 4), (None, None), ("a", "b"), scene.examples[:1], scene.examples * 2),
        (tf.ones((2, 3)), tf.ones((2, 3))),
        *((spec, tf.TensorSpec([3, 2])) for spec in (tf.TensorSpec([2, None]), tf.TensorSpec(None))),
        (tf.RaggedTensorSpec([2, None]), tf.TensorSpec([3, 2])),
        (np.array([object()]), tf.TensorSpec([3, 2])),
    )
    return {
        "split.item": (step,),
        "split.parts": (0, -1, 10**6),
        "split.batch_statistics": ("parts",),
        "split.kept_whole": (["a"], item.index.names),
        "split.recomputed": ([-1], [10**6], [0]),
        "split.parked": ([0], [(0,)], [(0, 10**6)], [(0, 0)]),
        ".fn": (3, "step"),
        "Item.from_function.fn": (None,),
        "Item.from_function.example_args": ((), *pairs),
        "Item.from_saved_model.path": (no_model,),
        "Item.from_meta_graph.meta_graph": (item.graph_def, b""),
        "Item.from_meta_graph.fetches": ((), Told(["nowhere"], "nowhere")),
        "Item.with_variables.values": ({3: np.ones(2)},),
        "Item.from_program.program": (item,),
        "auto_place.fn": (tf_placer.auto_place(step),),
        "auto_place.cluster": (3, "", *no_place),
        "auto_place.method": ("hpd",),
        "auto_place.budget_s": (INF,),
        "auto_place.budget_of": ("method",),
        "auto_place.plan": (folder / "nowhere.json",),
        "auto_place.variables": ("swap",),
        "auto_place.pins": ({"a": 3}, {"(": "/device:CPU:0"}, {"a": "CPU::1"}),
        "auto_place.memory_limit": ({"CPU:0": 0}, {"CPU:0": "5 apples"}, {"CPU:7": "1GB"}),
        "auto_place.slow_down": (INF,),
        "auto_place.parts": (0, -1, 1.5, "two", "2", True, None),
        "auto_place.batch_statistics": ("all",),
        "attach.cluster": ("local",),
        "attach.devices": ("CPU:0", ["CPU:7"]),
        "session_target.cluster": ("local",),
        "write_timeline.path": (folder, folder / "nowhere" / "timeline.json"),
        "write_timeline.placement": ([0], scene.result),
        "write_timeline.evaluator": (simulated,),
        "placed_function.fn": (None,),
        "placed_function.placement": (scene.result, [0], of_two, _fused(scene.placement)),
        "placed_function.example_args": pairs,
        "load_saved_model.path": (no_model, Told(scene.file("a"), "not the folder")),
        "load_saved_model.devices": (["GPU:0"], {"GPU:0": 1}, {"a": "b"}, other_device),
        "export_saved_model.source": (Told(folder / "nowhere", "nowhere"),),
        "export_saved_model.target": (folder, scene.model / "inside"),
        "export_saved_model.result": (
            *(3, [0], {}, {"serving_default": 3}, {3: scene.model_placement}),
            *(of_other_program, _fused(scene.model_placement)),
        ),
        "search.problem": (item, Told(scene.problem, scene.problem.name)),
        "search.method": (3, "", "hpd", ["single"]),
        "search.budget": (0, -1, "5", NAN, True, Budget(1.0)),  # the last with budget_s
        "search.budget_evaluations": (0, -1),
        "search.progress": (True,),
        "search.evaluator": (3, "simulated", tf_placer.SimulatedEvaluator, simulated),
        "search.checkpoint": (scene.file("a"), scene.file("a") / "b"),
        "search.start": (*_PLANS, [[0], [0, 1]], [], [[0, 1], [0, 2]]),
        "search.objective": ("memory",),  # and robust and order: with an evaluator
        "search.robust": (None, True),
        "search.order": ("fastest", "auto"),
        "search.config": ({"batch": 1}, [1], tf_placer.SearchResult),
    }


_PLANS = (
    [0],
    [0, 2],
    [-1, 0],
    [0.5, 0],
    [NAN, 0],
    [2**40, 0],
    ["a", "b"],
)  # none, of two units and two devices
_PER_OP = ([0], [0.5, 0], [NAN, 0], [[0, 1]], [2**40, 0], ["a", "b"])
_ROWS = ([[1]], [[1, 2]] * 2, [[1, 2, 3]], [[[0, 1]]], [[0.5, 1]], [[NAN, 0]], [0, 1])


def _fused(placement: tf_placer.Placement) -> Told:
    """A plan that decides what no graph can be given: clusters of ops that cannot be fused."""
    return Told(dataclasses.replace(placement, cluster_of_op=np.arange(placement.problem.num_ops)), "cluster")


def _of_plans(scene: Scene) -> dict[str, tuple[Any, ...]]:
    plan, other, folder, names = scene.plan, scene.problem, scene.folder, scene.two.op_names
    one, of_other = tf_placer.Decisions([[0, 1]]), Told(scene.problem, "device_of_unit")
    file = scene.new(".json")
    scene.placement.save(file)
    illegal = Told(tf_placer.Decisions([[0, 2]]), "device_of_unit")
    return {
        "Decisions.device_of_unit": (*_ROWS[3:], [[0, 1]] * 2, [[2**40, 0]]),
        "Decisions.priority_of_op": (*_ROWS, [[2**40, 0]]),
        "Decisions.cluster_of_op": (*_ROWS, [[-2, 0]]),
        "Decisions.digest.problem": (of_other,),
        "Decisions.joined.parts": ([], one, [one, tf_placer.Decisions([[0, 1, 1]])]),
        "Placement.problem": (scene.item,),
        "Placement.device_of_unit": (*_PLANS, [[0, 1]]),
        "Placement.priority_of_op": _PER_OP,
        "Placement.cluster_of_op": (*_PER_OP, [-2, 0]),
        "Placement.from_decisions.problem": (of_other,),
        "Placement.from_decisions.decisions": (
            *([[0, 1]], plan, tf_placer.Decisions([[0, 1], [0, 0]]), illegal),
        ),
        "Placement.for_program.op_names": (names[:1], ["x", *names[1:]]),
        "Placement.to_json.made_for": ({"a": object()},),
        "Placement.save.path": (folder, folder / "a" / "b"),
        "Placement.save.made_for": ({"a": object()},),
        "Placement.load.path": (Told(folder / "a", "a"), Told(file, file.name)),
        "Placement.load.problem": (Told(other, "json"),),
        "Placement.from_json.text": (Told("{", "here is not JSON"),),
        "Placement.from_json.problem": (Told(other, "here"),),
        "Placement.from_plan.plan": (plan.to_json(),),
        "Placement.from_plan.problem": (Told(other, "here"),),
        "apply_placement.item": (step, scene.other_item),
        "apply_placement.placement": (scene.result, plan, [0], _fused(scene.placement)),
    }


def _of_problems(scene: Scene) -> dict[str, tuple[Any, ...]]:
    two, folder, text, ones = scene.two, scene.folder, scene.file("no problem"), np.ones((2, 2), np.int64)
    no_cluster = ("p100x2", "box.toml", two)
    no_devices = [[True, True], [False, False]], [[True], [True]]
    per_unit = ([1], [[1], [2]], [-1, 0], [0.5, 0], [NAN, 0], ["a", "b"], [2**63, 0], [2**62, 2**62])
    positions = ([-1], [9], [0.5], [[0]], [2**40])
    no_times = ([[1, 2], [3]], [1, 2], -ones)
    return {
        "Problem.from_arrays.compute_ns": (
            *(*no_times, np.zeros((0, 2)), np.ones((2, 3)), ones * NAN, ones * 0.5, ones * 2**61),
        ),
        "Problem.from_arrays.edges": (
            *([[0, 2]], [[-1, 0]], [[1, 1]], [[0, 1, 1]], [0, 1, 1], [[0.5, 1]], [[0, 1], [1]]),
        ),
        "Problem.from_arrays.edge_bytes": ([1, 2], [-1], [0.5], [NAN], ["a"], [2**63], [[1]]),
        "Problem.from_arrays.resident_bytes": per_unit,
        "Problem.from_arrays.output_bytes": per_unit,
        "Problem.from_arrays.allowed": (*no_devices, ones * 2, [[1, 1], [1]], True),
        "Problem.from_arrays.cluster": no_cluster,
        "Problem.from_arrays.names": (["a"], ["a", "a"], ["a", 3]),
        "Problem.from_arrays.edge_tensor": ([0, 1], [-1], [0.5], ["a"]),
        "Problem.from_arrays.unit_of_op": (
            *([0], [[0, 0]], [0, -1], [0, 2], [1, 1], [0.5, 0], ["a", "b"], [2**40, 0]),
        ),
        "Problem.save.path": (folder, folder / "a" / "b"),
        "Problem.load.path": (Told(text, text.name), Told(folder / "none", "none")),
        "Problem.cluster": no_cluster,
        "Problem.unit_of_op": ([], [-1, 0], [9, 0], [0.5, 1], [[0]]),
        "Problem.compute_ns": no_times,
        "Problem.tensor_producer": positions,
        "Problem.tensor_bytes": ([-1], [0.5], [[1]]),
        "Problem.consumer_offset": ([0], [1, 1], [0, 2]),
        "Problem.consumer_op": ([0], *positions),
        "Problem.resident_bytes": ([-1, 0], [0.5, 0], [[1]]),
        "Problem.allowed": no_devices,
        "Problem.priority": ([0], [0.5, 1]),
        "Problem.op_names": (("a",), ("a", "a"), ("a", 3)),
        "Problem.op_types": (("a",), ("a", 3)),
        "Problem.output_shapes": (((1,),), (3, 4)),
        "Problem.work": ([1, 1], OpWork([1], [1], [1])),
        "Problem.alias_of_tensor": ([-2], [9], [0.5], [[0]], [0, 0]),
        "Problem.splitting": ({"parts": 2},),
        "Problem.stage_of_op": ([-2, 0], [0], [0.5, 1], [[0]]),
        "Problem.fusible_of_op": ([True], [2, 0], [0.5, 1], [[True, False]]),
        "Problem.legalized.rows": _PLANS,
        "Problem.legalized.order": ([0], [0, 0], [0, 2], [[0, 1]], [0.5, 1]),
        "Problem.everything_on.device": (-1, 2),
        "Problem.check_legal.device_of_unit": (*_PLANS, [[0, 1]]),
        "Problem.name_of_unit.unit": (-1, 2),
        "build_problem.item": (step,),
        "build_problem.cluster": ("p100x2",),
        "build_problem.costs": ("guessed", "profiled"),
        "pinned.item": (scene.other_item,),
        "pinned.problem": (two,),
        "pinned.device_of_op": (
            *(3, "a", {"a": 3}, {3: "a"}, {"no such op": "CPU:0"}),
            Told(dict.fromkeys(scene.problem.op_names, "GPU:7"), "GPU:7 is no device"),
        ),
    }


def _timing(scene: Scene) -> dict[str, tuple[Any, ...]]:
    units = scene.live_problem.num_units
    one = np.zeros(units, np.int32)
    clusters = np.arange(scene.live_problem.num_ops)[np.newaxis]
    fused = Told(
        tf_placer.Decisions(one[np.newaxis], cluster_of_op=clusters), "cluster"
    )  # which no runtime heeds
    rows = (fused, one, one[np.newaxis, 1:], [["a"] * units], [[0.5] * units])
    raced = (*rows, one[np.newaxis] + 9, np.zeros((0, units)))
    plans = (fused, one[1:], one + 9, one - 1, one + 0.5, one[np.newaxis])
    rows_of_two = (tf_placer.Decisions([[0, 1, 1]]), [0, 1], [[0]], [[0.5, 0]], [[2**40, 0]])
    legal_of_two = (*rows_of_two, [[0, 2]], [[-1, 0]])
    return {
        "RuntimeEvaluator.evaluate.device_of_unit": rows,
        "RuntimeEvaluator.race.device_of_unit": raced,
        "RuntimeEvaluator.race_unplaced.device_of_unit": raced,
        **{
            f"RuntimeEvaluator.{call}.device_of_unit": plans
            for call in ("audit", "compare_values", "traced_step", "program")
        },
        "RuntimeEvaluator.item": (step, scene.other_item),
        "RuntimeEvaluator.problem": (scene.two, Told(scene.problem, "is logical")),
        "RuntimeEvaluator.config": ({"steps": 3},),
        "RuntimeEvaluator.as_it_is": (step,),
        "RuntimeEvaluator.of_form.item": (scene.other_item,),
        "RuntimeEvaluator.of_form.problem": (scene.two, Told(scene.problem, "cluster")),
        # Literally, beside what annotations say: a limit that is lost is missed.
        "RuntimeConfig.warmup_steps": (-1,),
        "RuntimeConfig.steps": (0, -1),
        "RuntimeConfig.keep": (0, -1, 11),
        "RuntimeConfig.deadline_s": (0, INF),
        "RuntimeConfig.inter_op_threads": (0, -1),
        "SimulatedEvaluator.problem": (scene.item,),
        "SimulatedEvaluator.evaluate.device_of_unit": rows_of_two,
        "SimulatedEvaluator.times.device_of_unit": legal_of_two,
        "SimulatedEvaluator.schedule.device_of_unit": legal_of_two,
        "SimulatedEvaluator.ordered.priority_of_op": ([1], [[1, 0]], [0.5, 0], [2**40, 0]),
        "Measurement.runtime_s": (1.0, [1.0], np.array([1.0, 2.0]), np.array([NAN])),
        "Measurement.peak_bytes": ([[1]], np.array([1]), np.array([[1], [2]])),
        "Measurement.status": (0, [0], np.array([0, 0]), np.array([1])),
        "Measurement.messages": ("", (3,), ("", "")),
        "Measurement.spread_s": (0.0, np.array([0.0, 1.0])),
        "Status.value": (-1, 9),
    }
