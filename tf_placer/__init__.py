"""Finds which device should run which operation of a TensorFlow program."""

from typing import TYPE_CHECKING

import tf_placer.native_log  # noqa: F401 - before everything that imports TensorFlow
from tf_placer.base.lazy_face import make_lazy
from tf_placer.version import VERSION as __version__  # noqa: F401 - no public name, but there

if TYPE_CHECKING:
    from tf_placer.automatic.auto_placed import auto_place
    from tf_placer.automatic.auto_placed import RunsAsItIs
    from tf_placer.cluster.cluster import Cluster
    from tf_placer.base.arguments import InputError
    from tf_placer.evaluation.measurement import Measurement
    from tf_placer.evaluation.measurement import Status
    from tf_placer.evaluation.runtime import RuntimeEvaluator
    from tf_placer.evaluation.simulated import SimulatedEvaluator
    from tf_placer.graph.item import Item
    from tf_placer.calibration.build_problem import build_problem
    from tf_placer.presentation.chrome_trace import write_timeline
    from tf_placer.problem.decisions import Decisions
    from tf_placer.problem.pins import pinned
    from tf_placer.problem.placement import Placement
    from tf_placer.problem.problem import Problem
    from tf_placer.rewrite.rewrite import apply_placement
    from tf_placer.rewrite.load_saved_model import load_saved_model
    from tf_placer.rewrite.placed_function import placed_function
    from tf_placer.rewrite.saved_model import export_saved_model
    from tf_placer.search.known import methods
    from tf_placer.search.recorder import SearchResult
    from tf_placer.search.search import search
    from tf_placer.transform.split.split_batch import split
    from tf_placer.workers.connection import attach
    from tf_placer.workers.connection import session_target

__all__ = [
    "Cluster",
    "Decisions",
    "InputError",
    "Item",
    "Measurement",
    "Placement",
    "Problem",
    "RunsAsItIs",
    "RuntimeEvaluator",
    "SearchResult",
    "SimulatedEvaluator",
    "Status",
    "apply_placement",
    "attach",
    "auto_place",
    "build_problem",
    "export_saved_model",
    "load_saved_model",
    "methods",
    "pinned",
    "placed_function",
    "search",
    "session_target",
    "split",
    "write_timeline",
]

make_lazy(
    __name__,
    {
        "Cluster": "tf_placer.cluster.cluster",
        "Decisions": "tf_placer.problem.decisions",
        "InputError": "tf_placer.base.arguments",
        "Item": "tf_placer.graph.item",
        "Measurement": "tf_placer.evaluation.measurement",
        "Placement": "tf_placer.problem.placement",
        "Problem": "tf_placer.problem.problem",
        "RunsAsItIs": "tf_placer.automatic.auto_placed",
        "RuntimeEvaluator": "tf_placer.evaluation.runtime",
        "SearchResult": "tf_placer.search.recorder",
        "SimulatedEvaluator": "tf_placer.evaluation.simulated",
        "Status": "tf_placer.evaluation.measurement",
        "apply_placement": "tf_placer.rewrite.rewrite",
        "attach": "tf_placer.workers.connection",
        "auto_place": "tf_placer.automatic.auto_placed",
        "build_problem": "tf_placer.calibration.build_problem",
        "export_saved_model": "tf_placer.rewrite.saved_model",
        "load_saved_model": "tf_placer.rewrite.load_saved_model",
        "methods": "tf_placer.search.known",
        "pinned": "tf_placer.problem.pins",
        "placed_function": "tf_placer.rewrite.placed_function",
        "search": "tf_placer.search.search",
        "session_target": "tf_placer.workers.connection",
        "split": "tf_placer.transform.split.split_batch",
        "write_timeline": "tf_placer.presentation.chrome_trace",
    },
)
