"""Wrong arguments of what times placements."""

from __future__ import annotations

import numpy as np

import tf_placer
from tests.conformance.wrong_arguments.row import INF, NAN, Row, Told
from tests.conformance.wrong_arguments.scene import Scene, step
from tf_placer.runtime.timing import RuntimeConfig


def of_evaluators(scene: Scene) -> dict[str, Row]:
    runtime, units = scene.runtime, scene.live_problem.num_units
    one = np.zeros(units, np.int32)
    wrong_plans = _not_for_the_runtime(one[np.newaxis], scene.live_problem.num_ops)
    rows_of_item = (*wrong_plans, one, one[np.newaxis, 1:], 3, "a", [["a"] * units], [[0.5] * units])
    plans = (*wrong_plans, one[1:], one + 9, one - 1, one + 0.5, one[np.newaxis], 3, "a")
    return (
        {
            "RuntimeEvaluator.evaluate": Row(
                runtime.evaluate,
                lambda: {"device_of_unit": one[np.newaxis]},
                {"device_of_unit": rows_of_item},
                runs=False,
            ),
            **{
                f"RuntimeEvaluator.{races.__name__}": Row(
                    races,
                    lambda: {"device_of_unit": one[np.newaxis], "rounds": 2, "confidence": 0.9, "beside": ()},
                    {
                        "device_of_unit": (*rows_of_item, one[np.newaxis] + 9, np.zeros((0, units))),
                        "beside": (3, "a", [3]),
                        "rounds": (0, -1, 1.5, "a", True),
                        "confidence": (0, 1.5, NAN, "a", True),
                    },
                    runs=False,
                )
                for races in (runtime.race, runtime.race_unplaced)
            },
            "RuntimeEvaluator.try_programs": Row(
                runtime.try_programs,
                lambda: {"function": lambda opened: None, "deadline_s": 1.0},
                {"function": (3, "a", None), "deadline_s": (0, -1, "a", NAN, INF)},
                runs=False,
            ),
            "RuntimeEvaluator.start": Row(runtime.start, dict, {"beside_unplaced": (1, "yes")}, runs=False),
            **{
                f"RuntimeEvaluator.{runs.__name__}": Row(
                    runs, lambda: {"device_of_unit": one}, {"device_of_unit": plans}, runs=False
                )
                for runs in (runtime.audit, runtime.compare_values, runtime.traced_step)
            },
            "RuntimeEvaluator.program": Row(
                runtime.program,
                lambda: {"device_of_unit": one, "is_call": True},
                {"device_of_unit": plans, "is_call": (1, "yes")},
            ),
        }
        | _of_the_simulator(scene)
        | _of_what_they_take_and_give(scene)
    )


def _of_the_simulator(scene: Scene) -> dict[str, Row]:
    simulated = tf_placer.SimulatedEvaluator(scene.two)
    rows_of_two = (
        tf_placer.Decisions([[0, 1, 1]]),
        [0, 1],
        [[0]],
        [[0.5, 0]],
        [[0, 1], [0]],
        [["a", "b"]],
        [[2**40, 0]],
        3,
        "ab",
    )
    illegal = ([[0, 2]], [[-1, 0]])
    return {
        "SimulatedEvaluator": Row(
            tf_placer.SimulatedEvaluator, lambda: {"problem": scene.two}, {"problem": (3, scene.item)}
        ),
        "SimulatedEvaluator.evaluate": Row(
            simulated.evaluate, lambda: {"device_of_unit": [[0, 1]]}, {"device_of_unit": rows_of_two}
        ),
        **{
            f"SimulatedEvaluator.{name}": Row(
                getattr(simulated, name),
                lambda: {"device_of_unit": [[0, 1]]},
                {"device_of_unit": (*rows_of_two, *illegal)},
            )
            for name in ("times", "schedule")
        },
        "SimulatedEvaluator.ordered": Row(
            simulated.ordered,
            lambda: {"priority_of_op": [1, 0]},
            {"priority_of_op": (3, "ab", [1], [[1, 0]], [0.5, 0], [2**40, 0])},
        ),
    }


def _not_for_the_runtime(rows: np.ndarray, num_ops: int) -> tuple[Told, ...]:
    """Plans that decide what no runtime heeds."""
    fused = tf_placer.Decisions(rows, cluster_of_op=np.arange(num_ops)[np.newaxis])
    return (Told(fused, "cluster"),)


def _of_what_they_take_and_give(scene: Scene) -> dict[str, Row]:
    whole = (-1, 1.5, "a", True)
    forms = {"item": (3, scene.other_item), "problem": (3, scene.two, Told(scene.problem, "cluster"))}
    return {
        "RuntimeEvaluator": Row(
            tf_placer.RuntimeEvaluator,
            lambda: {
                "item": scene.item,
                "problem": scene.live_problem,
                "config": RuntimeConfig(),
                "as_it_is": None,
            },
            {
                "item": (3, step, scene.other_item),
                "problem": (3, scene.two, Told(scene.problem, "is logical")),
                "config": (3, {"steps": 3}),
                "as_it_is": (3, step),
            },
        ),
        "RuntimeEvaluator.of_form": Row(
            scene.runtime.of_form, lambda: {"item": scene.item, "problem": scene.live_problem}, forms
        ),
        "RuntimeConfig": Row(
            RuntimeConfig,
            lambda: {"keep": 2},
            {
                "warmup_steps": whole,
                "steps": (0, *whole),
                "keep": (0, 11, *whole),
                "deadline_s": (0, -1, NAN, INF, "5", True),
                "inter_op_threads": (0, *whole),
                "early_stop": (1, "yes"),
                "false_stop_rate": (0, 1, NAN, "a"),
                "stop_margin": (-1, NAN, "a"),
            },
        ),
        "Measurement": Row(
            tf_placer.Measurement,
            lambda: {
                "runtime_s": np.array([1.0]),
                "peak_bytes": np.array([[1]]),
                "status": np.array([0]),
                "messages": ("",),
                "spread_s": np.array([0.0]),
                "stopped_early": np.array([False]),
            },
            {
                "runtime_s": (1.0, [1.0], np.array([1.0, 2.0]), np.array([NAN])),
                "peak_bytes": ([[1]], np.array([1]), np.array([[1], [2]])),
                "status": (0, [0], np.array([0, 0]), np.array([1])),
                "messages": ("", (3,), ("", "")),
                "spread_s": (0.0, np.array([0.0, 1.0])),
                "stopped_early": (False, np.array([False, True])),
            },
        ),
        "Status": Row(tf_placer.Status, lambda: {"value": 0}, {"value": (-1, 9, "OK", 0.5)}),
    }
