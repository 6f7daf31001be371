"""Wrong arguments of problems and of what makes them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import tf_placer
from tests.conformance.wrong_arguments.of_placements import not_legal
from tests.conformance.wrong_arguments.row import NAN, Row, Told
from tests.conformance.wrong_arguments.scene import Scene, step
from tf_placer.costs.formulas import OpWork


def of_problems(scene: Scene) -> dict[str, Row]:
    return _from_arrays(scene) | _of_files(scene) | _by_hand(scene) | _of_items_and_clusters(scene)


def _no_cluster(scene: Scene) -> tuple[Any, ...]:
    return ("p100x2", "box.toml", 3, scene.two)


def _from_arrays(scene: Scene) -> dict[str, Row]:
    two = scene.two
    ones = np.ones((2, 2), np.int64)
    per_unit = ([1], [[1], [2]], [-1, 0], [0.5, 0], [NAN, 0], ["a", "b"], [2**63, 0], [2**62, 2**62], 3, "ab")
    return {
        "Problem.from_arrays": Row(
            tf_placer.Problem.from_arrays,
            lambda: {
                "compute_ns": ones,
                "edges": [[0, 1]],
                "edge_bytes": [4],
                "resident_bytes": [0, 0],
                "output_bytes": [0, 0],
                "allowed": ones.astype(bool),
                "cluster": two.cluster,
                "names": ["a", "b"],
                "edge_tensor": [0],
                "name": "pair",
                "unit_of_op": [0, 0],
            },
            {
                "compute_ns": (
                    [[1, 2], [3]],
                    np.zeros((0, 2)),
                    [1, 2],
                    np.ones((2, 3)),
                    -ones,
                    ones * NAN,
                    ones * 0.5,
                    ones * 2**61,
                    "ab",
                    3,
                ),
                "edges": (
                    [[0, 2]],
                    [[-1, 0]],
                    [[1, 1]],
                    [[0, 1, 1]],
                    [0, 1, 1],
                    [[0.5, 1]],
                    [["a", "b"]],
                    [[0, 1], [1]],
                    3,
                ),
                "edge_bytes": ([1, 2], [-1], [0.5], [NAN], ["a"], [2**63], [[1]], 3),
                "resident_bytes": per_unit,
                "output_bytes": per_unit,
                "allowed": (
                    [[True, True], [False, False]],
                    [[True], [True]],
                    ones * 2,
                    [[1, 1], [1]],
                    "ab",
                    True,
                ),
                "cluster": _no_cluster(scene),
                "names": (["a"], ["a", "a"], ["a", 3], "ab", 3),
                "edge_tensor": ([0, 1], [-1], [0.5], ["a"], 3),
                "name": (3, ""),
                "unit_of_op": (
                    [0],
                    [[0, 0]],
                    [0, -1],
                    [0, 2],
                    [1, 1],
                    [0.5, 0],
                    ["a", "b"],
                    [2**40, 0],
                    3,
                    "ab",
                ),
            },
        ),
    }


def _of_files(scene: Scene) -> dict[str, Row]:
    two, saved, text = scene.two, scene.new(".problem"), scene.file("no problem")
    two.save(saved)
    return {
        "Problem.save": Row(
            two.save,
            lambda: {"path": scene.new(".problem")},
            {"path": (3, "", b"a", scene.folder, scene.folder / "a" / "b")},
        ),
        "Problem.load": Row(
            tf_placer.Problem.load,
            lambda: {"path": saved},
            {"path": (3, "", b"a", Told(text, text.name), Told(scene.folder / "none", "none"))},
        ),
    }


def _by_hand(scene: Scene) -> dict[str, Row]:
    two = scene.two
    ones = np.ones((2, 2), np.int64)
    fields = {field.name: getattr(two, field.name) for field in dataclasses.fields(two)}
    positions = ([-1], [9], [0.5], "a", [[0]], [2**40])
    return {
        "Problem": Row(
            tf_placer.Problem,
            lambda: dict(fields),
            {
                "name": (3, ""),
                "cluster": _no_cluster(scene),
                "unit_of_op": ([], [-1, 0], [9, 0], [0.5, 1], "a", [[0]]),
                "compute_ns": ([[1, 2], [3]], -ones, [1, 2], "a"),
                "tensor_producer": positions,
                "tensor_bytes": ([-1], [0.5], "a", [[1]]),
                "consumer_offset": ([0], [1, 1], [0, 2], "a"),
                "consumer_op": ([0], *positions),
                "resident_bytes": ([-1, 0], [0.5, 0], "a", [[1]]),
                "allowed": ([[True, True], [False, False]], [[True], [True]], "a"),
                "priority": ([0], [0.5, 1], "a"),
                "op_names": (("a",), ("a", "a"), ("a", 3), "ab", 3),
                "op_types": (("a",), ("a", 3), "ab", 3),
                "output_shapes": (((1,),), (3, 4), "ab", 3),
                "fingerprint": (3, ""),
                "guessed_op_types": (3, "a", ["a"]),
                "estimated_sizes": (3, "a", ["a"]),
                "work": (3, "a", [1, 1], OpWork([1], [1], [1])),
                "alias_of_tensor": ([0], [-2], [9], [0.5], "a", [[0]], [0, 0]),
                "splitting": (3, "a", {"parts": 2}),
                "stage_of_op": ([-2, 0], [0], [0.5, 1], "a", [[0]]),
                "fusible_of_op": ([True], [2, 0], [0.5, 1], "a", [[True, False]]),
            },
        ),
        "Problem.legalized": Row(
            two.legalized,
            lambda: {"rows": [[0, 1]], "order": [1, 0]},
            {
                "rows": ([0], [0, 2], [-1, 0], [0.5, 0], [NAN, 0], ["a", "b"], [[0], [0, 1]], 3, "ab"),
                "order": ([0], [0, 0], [0, 2], [[0, 1]], [0.5, 1], "ab", 3),
            },
        ),
        "Problem.everything_on": Row(
            two.everything_on, lambda: {"device": 1}, {"device": (-1, 2, 0.5, "a", True)}
        ),
        "Problem.check_legal": Row(
            two.check_legal, lambda: {"device_of_unit": [0, 1]}, {"device_of_unit": not_legal()}
        ),
        "Problem.name_of_unit": Row(two.name_of_unit, lambda: {"unit": 1}, {"unit": (-1, 2, 0.5, "a", True)}),
    }


def _of_items_and_clusters(scene: Scene) -> dict[str, Row]:
    two = scene.two
    return {
        "build_problem": Row(
            tf_placer.build_problem,
            lambda: {
                "item": scene.item,
                "cluster": scene.cluster,
                "costs": "analytic",
                "cache": None,
                "check": None,
            },
            {
                "item": (step, "a", 3),
                "cluster": ("p100x2", 3),
                "costs": ("guessed", 3, "", "profiled"),
                "cache": ("folder", 3),
                "check": ("a", 3),
            },
        ),
        "pinned": Row(
            tf_placer.pinned,
            lambda: {
                "item": scene.item,
                "problem": scene.problem,
                "device_of_op": scene.placement.device_names,
            },
            {
                "item": (scene.other_item, 3, "a"),
                "problem": (two, 3, "a"),
                "device_of_op": (
                    3,
                    "a",
                    {"a": 3},
                    {3: "a"},
                    {"no such op": "CPU:0"},
                    Told(dict.fromkeys(scene.problem.op_names, "GPU:7"), "GPU:7 is no device"),
                ),
            },
        ),
    }
