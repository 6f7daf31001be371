"""Arguments with which each public call works."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_placer
from tests.conformance.wrong_arguments.scene import Scene, step
from tests.tf_placer.problem.small_problems import small_cluster
from tf_placer.cluster.device import Device, Link
from tf_placer.graph.item import Item
from tf_placer.graph.program import Program
from tf_placer.problem.placement import PlanFile
from tf_placer.runtime.timing import RuntimeConfig


class NewPath:
    """Stands for a path that nothing is at."""


@dataclasses.dataclass(frozen=True)
class Good:
    call: Callable[..., Any]  # bound, where it is a method
    arguments: dict[str, Any]  # with which it works
    runs: bool = True  # False where it needs worker processes, which these tests do without


def good(call: Callable[..., Any], /, **arguments: Any) -> Good:
    return Good(call, arguments)


def on_workers(call: Callable[..., Any], /, **arguments: Any) -> Good:
    return Good(call, arguments, runs=False)


def good_calls(scene: Scene) -> dict[str, Good]:
    """Name of each public call -> how it works."""
    return _of_programs(scene) | _of_clusters(scene) | _of_plans(scene) | _of_problems(scene) | _timing(scene)


def _of_clusters(scene: Scene) -> dict[str, Good]:
    box, cluster = small_cluster(2), tf_placer.Cluster
    file = scene.file(scene.cluster.to_toml(), ".toml")
    return {
        "Cluster": good(cluster, name="box", devices=box.devices, links=box.links, kind="described"),
        "Cluster.preset": good(cluster.preset, name="p100x2"),
        "Cluster.from_file": good(cluster.from_file, path=file),
        "Cluster.local": good(cluster.local, cores=1, kept_in=file),
        "Cluster.logical": good(cluster.logical, n=2),
        "Cluster.with_memory_limit": good(box.with_memory_limit, limits={"GPU:0": "1KB"}),
        "Device": good(Device, **dataclasses.asdict(box.devices[0])),
        "Link": good(Link, **dataclasses.asdict(box.links[0])),
    }


def _of_programs(scene: Scene) -> dict[str, Good]:
    item, two, model, fetches = scene.item, scene.two, scene.model, list(scene.item.fetches)
    meta_graph = tf.compat.v1.MetaGraphDef(graph_def=item.graph_def)
    program = Program(item.graph_def, item.feeds, item.fetches, item.control_outputs, item.variables)
    read = {"name": "m", "batch_size": 2, "input_shapes": {}}
    serve = {"signature": "serving_default", "tags": ("serve",)}
    written = {"source": model, "target": NewPath(), "batch_size": 32, "input_shapes": {}} | serve
    whole = {"batch_statistics": "whole", "kept_whole": (), "recomputed": (), "parked": ()}
    planned = {"placement": scene.placement}
    sought = {"problem": two, "method": "local_search", "start": [0, 1], "config": None, "robust": False}
    sought |= {"evaluator": tf_placer.SimulatedEvaluator(two), "objective": "time", "order": "none"}
    within = {"budget": None, "budget_s": 9, "budget_evaluations": np.int64(2), "seed": np.int64(1)}
    within |= {"slow_down": 0.1, "progress": None, "checkpoint": NewPath()}
    return {
        "split": good(tf_placer.split, item=item, parts=2, **whole),
        "Item.from_function": good(Item.from_function, fn=step, example_args=scene.examples, name="step"),
        "Item.from_saved_model": good(Item.from_saved_model, path=model, **read, **serve),
        "Item.from_meta_graph": good(Item.from_meta_graph, meta_graph=meta_graph, fetches=fetches, **read),
        "Item.with_variables": good(item.with_variables, values={}),
        "Item.from_program": good(Item.from_program, name="p", program=program),
        "auto_place": good(tf_placer.auto_place, fn=step, cluster=scene.cluster, method="random"),
        "attach": good(tf_placer.attach, cluster=tf_placer.Cluster.logical(1), devices=None),
        "session_target": good(tf_placer.session_target, cluster=tf_placer.Cluster.logical(1)),
        "write_timeline": good(tf_placer.write_timeline, path=NewPath(), evaluator=None, **planned),
        "placed_function": good(tf_placer.placed_function, fn=step, example_args=scene.specs, **planned),
        "load_saved_model": good(tf_placer.load_saved_model, path=model, devices={}, tags=("serve",)),
        "export_saved_model": good(tf_placer.export_saved_model, result=scene.model_placement, **written),
        "search": good(tf_placer.search, **(sought | within)),
    }


def _of_plans(scene: Scene) -> dict[str, Good]:
    two, plan, decisions = scene.two, scene.plan, tf_placer.Decisions([[0, 1]])
    kind, text, file = tf_placer.Placement, scene.plan.to_json(), scene.new(".json")
    plan.save(file)
    rows = {"device_of_unit": [0, 1], "priority_of_op": [1, 0]}
    both = {name: [row] for name, row in rows.items()}
    return {
        "Decisions": good(tf_placer.Decisions, cluster_of_op=[[-1, 0]], **both),
        "Decisions.row": good(decisions.row, index=0),
        "Decisions.digest": good(decisions.digest, index=0, problem=two),
        "Decisions.joined": good(tf_placer.Decisions.joined, parts=[decisions, decisions]),
        "Placement": good(kind, problem=two, cluster_of_op=[-1, 3], **rows),
        "Placement.from_decisions": good(kind.from_decisions, problem=two, decisions=plan.decisions),
        "Placement.for_program": good(plan.for_program, op_names=two.op_names),
        "Placement.to_json": good(plan.to_json, made_for={}, by_layer=False),
        "Placement.save": good(plan.save, path=NewPath(), made_for={"a": 1}, by_layer=True),
        "Placement.load": good(kind.load, path=file, problem=two),
        "Placement.from_json": good(kind.from_json, text=text, problem=two, source="here"),
        "Placement.from_plan": good(kind.from_plan, plan=PlanFile.parse(text, "here"), problem=two),
        "apply_placement": good(tf_placer.apply_placement, item=scene.item, placement=scene.placement),
    }


def _of_problems(scene: Scene) -> dict[str, Good]:
    two, ones, saved = scene.two, np.ones((2, 2), np.int64), scene.new(".problem")
    two.save(saved)
    item, pins = scene.item, scene.placement.device_names
    ops = {"compute_ns": ones, "allowed": ones.astype(bool), "cluster": two.cluster}
    no_bytes = {"resident_bytes": [0, 0], "output_bytes": [0, 0]}
    edges = {"edges": [[0, 1]], "edge_bytes": [4], "edge_tensor": [0]}
    names = {"names": ["a", "b"], "name": "pair", "unit_of_op": [0, 0]}
    fields = {field.name: getattr(two, field.name) for field in dataclasses.fields(two)}
    return {
        "Problem.from_arrays": good(tf_placer.Problem.from_arrays, **(ops | edges | no_bytes | names)),
        "Problem.save": good(two.save, path=NewPath()),
        "Problem.load": good(tf_placer.Problem.load, path=saved),
        "Problem": good(tf_placer.Problem, **fields),
        "Problem.legalized": good(two.legalized, rows=[[0, 1]], order=[1, 0]),
        "Problem.everything_on": good(two.everything_on, device=1),
        "Problem.check_legal": good(two.check_legal, device_of_unit=[0, 1]),
        "Problem.name_of_unit": good(two.name_of_unit, unit=1),
        "build_problem": good(tf_placer.build_problem, item=item, cluster=scene.cluster, costs="analytic"),
        "pinned": good(tf_placer.pinned, item=item, problem=scene.problem, device_of_op=pins),
    }


def _timing(scene: Scene) -> dict[str, Good]:
    runtime, simulated = scene.runtime, tf_placer.SimulatedEvaluator(scene.two)
    plan = np.zeros(scene.live_problem.num_units, np.int32)
    on_runtime = {"item": scene.item, "problem": scene.live_problem}
    config = {"config": RuntimeConfig()}
    times = {"runtime_s": np.array([1.0]), "spread_s": np.array([0.0]), "peak_bytes": np.array([[1]])}
    race = {"device_of_unit": plan[np.newaxis], "rounds": 2, "confidence": 0.9, "beside": ()}
    flags = {"status": np.array([0]), "messages": ("",)}
    return {
        **{
            f"RuntimeEvaluator.{call.__name__}": on_workers(call, device_of_unit=plan)
            for call in (runtime.audit, runtime.compare_values, runtime.traced_step)
        },
        "RuntimeEvaluator.race": on_workers(runtime.race, **race),
        "RuntimeEvaluator.race_unplaced": on_workers(runtime.race_unplaced, **race),
        "RuntimeEvaluator.evaluate": on_workers(runtime.evaluate, device_of_unit=plan[np.newaxis]),
        "RuntimeEvaluator.try_programs": on_workers(runtime.try_programs, function=print, deadline_s=1.0),
        "RuntimeEvaluator.start": on_workers(runtime.start),
        "RuntimeEvaluator.program": good(runtime.program, device_of_unit=plan, is_call=True),
        "RuntimeEvaluator": good(tf_placer.RuntimeEvaluator, as_it_is=None, **on_runtime, **config),
        "RuntimeEvaluator.of_form": good(runtime.of_form, **on_runtime),
        "RuntimeConfig": good(RuntimeConfig, keep=2),
        "SimulatedEvaluator": good(tf_placer.SimulatedEvaluator, problem=scene.two),
        "SimulatedEvaluator.evaluate": good(simulated.evaluate, device_of_unit=[[0, 1]]),
        "SimulatedEvaluator.times": good(simulated.times, device_of_unit=[[0, 1]]),
        "SimulatedEvaluator.schedule": good(simulated.schedule, device_of_unit=[[0, 1]]),
        "SimulatedEvaluator.ordered": good(simulated.ordered, priority_of_op=[1, 0]),
        "Measurement": good(tf_placer.Measurement, **(times | flags)),
        "Status": good(tf_placer.Status, value=0),
    }
