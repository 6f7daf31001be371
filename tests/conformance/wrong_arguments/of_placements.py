"""Wrong arguments of placements."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import tf_placer
from tests.conformance.wrong_arguments.row import NAN, Row, Told
from tests.conformance.wrong_arguments.scene import Scene, step
from tf_placer.problem.placement import PlanFile


def not_legal() -> tuple[Any, ...]:
    """Of a problem with two units and two devices."""
    return (*no_legal_plans(), [[0, 1]])


def no_legal_plans() -> tuple[Any, ...]:
    """Of the same, where several placements may be given, too."""
    return (
        [0],
        [0, 2],
        [-1, 0],
        [0.5, 0],
        [NAN, 0],
        [2**40, 0],
        ["a", "b"],
        [[0], [0, 1]],
        3,
        "ab",
    )


_PER_OP = ([0], [0.5, 0], [NAN, 0], [[0, 1]], [2**40, 0], ["a", "b"], 3, "ab")


def of_decisions(scene: Scene) -> dict[str, Row]:
    of_two = (
        [[1]],
        [[1, 2]] * 2,
        [[1, 2, 3]],
        [[0.5, 1]],
        [[NAN, 0]],
        [["a", "b"]],
        [0, 1],
        [[0], [0, 1]],
        3,
        "ab",
    )
    decisions = tf_placer.Decisions([[0, 1]])
    return {
        "Decisions": Row(
            tf_placer.Decisions,
            lambda: {"device_of_unit": [[0, 1]], "priority_of_op": [[1, 0]], "cluster_of_op": [[-1, 0]]},
            {
                "device_of_unit": (*of_two[3:], [[0, 1]] * 2, [[2**40, 0]]),
                "priority_of_op": (*of_two, [[2**40, 0]]),
                "cluster_of_op": (*of_two, [[-2, 0]]),
            },
        ),
        "Decisions.row": Row(decisions.row, lambda: {"index": 0}, {"index": (-1, 1, 0.5, "a", True)}),
        "Decisions.digest": Row(
            decisions.digest,
            lambda: {"index": 0, "problem": scene.two},
            {"index": (-1, 1, 0.5, "a", True), "problem": (3, "a", Told(scene.problem, "device_of_unit"))},
        ),
        "Decisions.joined": Row(
            tf_placer.Decisions.joined,
            lambda: {"parts": [decisions, decisions]},
            {"parts": (3, "a", [], [3], decisions, [decisions, tf_placer.Decisions([[0, 1, 1]])])},
        ),
    }


def with_schedules(placement: tf_placer.Placement) -> tuple[Told, ...]:
    """Plans that decide what no graph can be given: clusters of ops that cannot be fused."""
    fused = dataclasses.replace(placement, cluster_of_op=np.arange(placement.problem.num_ops))
    return (Told(fused, "cluster"),)


def of_placements(scene: Scene) -> dict[str, Row]:
    two = scene.two
    placement = tf_placer.Placement(two, np.array([0, 1]))
    text, here = placement.to_json(), scene.new(".json")
    placement.save(here)
    written = {"made_for": (3, "a", {"a": object()}), "by_layer": (3, "a", None)}
    load, other = scene.new(".json"), scene.problem
    scene.placement.save(load)
    return {
        "Placement": Row(
            tf_placer.Placement,
            lambda: {
                "problem": two,
                "device_of_unit": [0, 1],
                "priority_of_op": [1, 0],
                "cluster_of_op": [-1, 3],
            },
            {
                "problem": (3, "a", scene.item),
                "device_of_unit": not_legal(),
                "priority_of_op": _PER_OP,
                "cluster_of_op": (*_PER_OP, [-2, 0]),
            },
        ),
        "Placement.from_decisions": Row(
            tf_placer.Placement.from_decisions,
            lambda: {"problem": two, "decisions": placement.decisions},
            {
                "problem": (3, "a", Told(other, "device_of_unit")),
                "decisions": (
                    3,
                    [[0, 1]],
                    placement,
                    tf_placer.Decisions([[0, 1], [0, 0]]),
                    Told(tf_placer.Decisions([[0, 2]]), "device_of_unit"),
                ),
            },
        ),
        "Placement.for_program": Row(
            placement.for_program,
            lambda: {"op_names": two.op_names},
            {"op_names": (3, "a", two.op_names[:1], ["x", *two.op_names[1:]])},
        ),
        "Placement.to_json": Row(placement.to_json, lambda: {"made_for": {}, "by_layer": False}, written),
        "Placement.save": Row(
            placement.save,
            lambda: {"path": scene.new(".json"), "made_for": {"a": 1}, "by_layer": True},
            {"path": (3, "", b"a", scene.folder, scene.folder / "a" / "b"), **written},
        ),
        "Placement.load": Row(
            tf_placer.Placement.load,
            lambda: {"path": here, "problem": two},
            {
                "path": (3, "", b"a", Told(scene.folder / "a", "a"), Told(load, load.name)),
                "problem": (3, "a", Told(other, here.name)),
            },
        ),
        "Placement.from_json": Row(
            tf_placer.Placement.from_json,
            lambda: {"text": text, "problem": two, "source": "here"},
            {
                "text": (3, "", Told("{", "here is not JSON")),
                "problem": (3, Told(other, "here")),
                "source": (3, ""),
            },
        ),
        "Placement.from_plan": Row(
            tf_placer.Placement.from_plan,
            lambda: {"plan": PlanFile.parse(text, "here"), "problem": two},
            {"plan": (text, 3), "problem": (3, Told(other, "here"))},
        ),
        "apply_placement": Row(
            tf_placer.apply_placement,
            lambda: {"item": scene.item, "placement": scene.placement},
            {
                "item": (step, 3, scene.other_item),
                "placement": (scene.result, placement, 3, [0], *with_schedules(scene.placement)),
            },
        ),
    }
