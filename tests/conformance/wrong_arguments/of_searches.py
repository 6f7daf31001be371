"""Wrong arguments of searches."""

from __future__ import annotations

import numpy as np

import tf_placer
from tests.conformance.wrong_arguments.of_placements import no_legal_plans
from tests.conformance.wrong_arguments.row import NAN, Row, Told
from tests.conformance.wrong_arguments.scene import Scene
from tf_placer.search.methods import Budget


def of_searches(scene: Scene) -> dict[str, Row]:
    return {
        "search": Row(
            tf_placer.search,
            lambda: {
                "problem": scene.two,
                "method": "local_search",
                "budget": None,
                "budget_s": 9,
                "budget_evaluations": np.int64(2),
                "seed": np.int64(1),
                "progress": None,
                "evaluator": tf_placer.SimulatedEvaluator(scene.two),
                "checkpoint": scene.new(),
                "start": [0, 1],
                "config": None,
                "objective": "time",
                "slow_down": 0.1,
                "robust": False,
                "order": "none",
            },
            {
                "problem": (3, "a", scene.item, Told(scene.problem, scene.problem.name)),
                "method": (3, "", "hpd", ["single"]),
                "budget": (0, -1, "5", NAN, True, Budget(1.0)),  # the last with budget_s
                "budget_s": (0, -1, "5", NAN, True),
                "budget_evaluations": (0, -1, 1.5, "5", True),
                "seed": (-1, 1.5, "1", True, 2**31, NAN),
                "progress": (3, True, "bar"),
                "evaluator": (
                    3,
                    "simulated",
                    tf_placer.SimulatedEvaluator,
                    tf_placer.SimulatedEvaluator(scene.problem),
                ),
                "checkpoint": (3, "", b"a", scene.file("a"), scene.file("a") / "b"),
                "start": (*no_legal_plans(), [], [[0, 1], [0, 2]]),
                "objective": ("space", 3, "", "memory"),  # the last with an evaluator
                "slow_down": (-0.1, "a", NAN, True),
                "robust": (1, "yes", None, True),  # the last with an evaluator
                "order": (3, "", "fastest", "auto"),  # the last with an evaluator
                "config": (3, "a", {"batch": 1}, [1], tf_placer.SearchResult),
            },
        ),
    }
