"""Wrong arguments of placed functions and placed SavedModels."""

from __future__ import annotations

import tf_placer
from tests.conformance.wrong_arguments.of_items import WRONG_READING, no_examples
from tests.conformance.wrong_arguments.of_placements import with_schedules
from tests.conformance.wrong_arguments.row import INF, NAN, Row, Told
from tests.conformance.wrong_arguments.scene import Scene, step
from tf_placer.cluster.device import full_device_name


def of_functions(scene: Scene) -> dict[str, Row]:
    described = scene.file(tf_placer.Cluster.preset("p100x2").to_toml(), ".toml")
    return {
        "auto_place": Row(
            tf_placer.auto_place,
            lambda: {"fn": step, "cluster": scene.cluster, "method": "random"},
            {
                "fn": (3, "step", tf_placer.auto_place(step)),
                "cluster": (
                    3,
                    "",
                    "p100x2",
                    "p100x9",
                    "local:two",
                    "local:0",
                    "local:1000000",
                    "local:",
                    str(described),
                ),
                "method": (3, "", "hpd"),
                "budget_s": (0, -1, "5", NAN, INF, True),
                "budget_of": (3, "", "method"),
                "seed": (-1, 1.5, "1", True, 2**31),
                "cache_dir": (3, "", b"a"),
                "plan": (3, "", b"a", scene.folder / "nowhere.json"),
                "variables": (3, "", "swap"),
                "pins": (3, "a", ["a"], {"a": 3}, {"(": "/device:CPU:0"}, {"a": "CPU::1"}),
                "respect_devices": (1, "yes"),
                "keep_unplaced": (1, "yes"),
                "memory_limit": (3, "a", {"CPU:0": 0}, {"CPU:0": "5 apples"}, {"CPU:7": "1GB"}),
                "objective": ("space", 3, ""),
                "slow_down": (-0.1, "a", NAN, INF, True),
                "parts": (0, -1, 1.5, "two", "2", True, None),
                "batch_statistics": (3, "", "all"),
                "fuse": (1, "yes"),
                "batch_size": (0, -1, 1.5, "a", True),
                "refresh": (1, "yes"),
                "strict": (1, "yes"),
            },
        ),
        "attach": Row(
            tf_placer.attach,
            lambda: {"cluster": tf_placer.Cluster.logical(1), "devices": None},
            {"cluster": (3, "local", None), "devices": (3, "CPU:0", [3], ["CPU:7"])},
        ),
        "session_target": Row(
            tf_placer.session_target,
            lambda: {"cluster": tf_placer.Cluster.logical(1)},
            {"cluster": (3, "local", None)},
        ),
        "write_timeline": Row(
            tf_placer.write_timeline,
            lambda: {"path": scene.new(), "placement": scene.placement, "evaluator": None},
            {
                "path": (3, "", b"a", scene.folder, scene.folder / "nowhere" / "timeline.json"),
                "placement": (None, 3, [0], scene.result),
                "evaluator": (3, "runtime", tf_placer.SimulatedEvaluator(scene.problem)),
            },
        ),
        "placed_function": Row(
            tf_placer.placed_function,
            lambda: {"fn": step, "placement": scene.placement, "example_args": scene.specs},
            {
                "fn": (None, 3, "step"),
                "placement": (
                    scene.result,
                    3,
                    [0],
                    tf_placer.Placement(scene.two, [0, 1]),
                    *with_schedules(scene.placement),
                ),
                "example_args": no_examples(scene),
            },
        ),
    }


def of_saved_models(scene: Scene) -> dict[str, Row]:
    full = full_device_name("GPU:0")
    return {
        "load_saved_model": Row(
            tf_placer.load_saved_model,
            lambda: {"path": scene.model, "devices": {}, "tags": ("serve",)},
            {
                "path": (
                    3,
                    "",
                    Told(scene.folder, "saved_model.pb"),
                    Told(scene.file("a"), "not the folder"),
                ),
                "devices": (3, ["GPU:0"], {"GPU:0": 1}, {"a": "b"}, Told({"GPU:0": "CPU:0"}, full)),
                "tags": WRONG_READING["tags"],
            },
        ),
        "export_saved_model": Row(
            tf_placer.export_saved_model,
            lambda: {
                "source": scene.model,
                "target": scene.new(),
                "result": scene.model_placement,
                "signature": "serving_default",
                "batch_size": 32,
                "input_shapes": {},
                "tags": ("serve",),
            },
            {
                **WRONG_READING,
                "source": (3, "", b"a", Told(scene.folder / "nowhere", "nowhere")),
                "target": (3, "", b"a", scene.folder, scene.model / "inside"),
                "result": (
                    3,
                    [0],
                    {},
                    {"serving_default": 3},
                    {3: scene.model_placement},
                    Told(scene.placement, "fingerprint"),
                    *with_schedules(scene.model_placement),
                ),
                "signature": (3, "", "train"),
                "batch_size": (0, -1, 1.5, "a", True),
            },
        ),
    }
