"""Problems with scopes and names of every kind, and pages of their plans."""

import numpy as np

from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.base.quantities import milliseconds
from tf_placer.cluster.cluster import Cluster
from tf_placer.problem.bounds import MEANING
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.report_page.page import HowTo, Page, Section, draw_step

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'`<!--\u2028"

_ROW = dict.fromkeys(
    ("simulated_s", "measured_s", "raced_s", "called_s", "spread_s", "evaluations", "peak_bytes")
) | {"is_single": False, "is_written": False, "note": "", "about": ""}


def layered_problem(num_ops: int, seed: int = 0) -> Problem:
    """A random graph in layers of 20 ops; op 1 has a name that would like to be HTML."""
    rng = np.random.default_rng(seed)
    consumer = np.repeat(np.arange(1, num_ops), 2)
    producer = np.maximum(0, consumer - rng.integers(1, 60, len(consumer)))
    edges = np.unique(np.stack([producer, consumer], axis=1), axis=0).astype(np.int32)
    names = [f"model/layer_{i // 20}/op_{i}" for i in range(num_ops)]
    names[1] = f"model/layer_0/{HOSTILE}"
    compute_ns = rng.integers(1_000, 60_000, (num_ops, 1)) * np.array([1, 1, 8])
    return problem_of(
        compute_ns,
        edges,
        rng.integers(1_000, 100_000, len(edges)),
        Cluster.preset("k40x2"),
        resident_bytes=rng.integers(0, 1_000_000, num_ops),
        output_bytes=100_000,
        names=names,
        name="layered <b>",
    )


def striped(problem: Problem) -> Placement:
    """Layers by turns on the two GPUs."""
    return Placement(problem, (np.arange(problem.num_units) // 20 % 2).astype(np.int32))


def page_of(problem: Problem, placement: Placement | None = None) -> Page:
    """A page of a plan, the striped one where none is given, with candidates whose numbers can be told apart."""
    view = draw_step(problem, (placement or striped(problem)).decisions)
    step_s = view.step_ns / 1e9
    plan = _ROW | {"name": "plan", "simulated_s": step_s, "measured_s": 1.1 * step_s, "peak_bytes": 10**9}
    plan |= {"spread_s": (1.05 * step_s, 1.2 * step_s), "evaluations": 1234}
    plan |= {"is_written": True, "about": "What the plan is."}
    single = _ROW | {"name": "single device", "is_single": True}
    single |= {"simulated_s": 2 * step_s, "measured_s": 2.1 * step_s}
    section = Section(
        name=problem.name,
        title=f"{problem.name} on k40x2",
        headline="The plan takes 25.0% less time than a single device.",
        notes=(f"A note about {HOSTILE}",),
        figures=(("step, simulated", milliseconds(step_s)),),
        step_times=(plan, single, _ROW | {"name": "none", "note": "OUT_OF_MEMORY"}),
        bounds=tuple(
            {"name": name, "bound_s": bound_s, "is_tightest": i == 0, "about": MEANING[name]}
            for i, (name, bound_s) in enumerate((("total_work", step_s / 2), ("critical_path", step_s / 3)))
        ),
        plan=view,
        curves=(
            {"name": "plan", "elapsed_s": (0.1, 1.0), "best_s": (2 * step_s, step_s), "is_written": True},
            {"name": "random", "elapsed_s": (0.2,), "best_s": (3 * step_s,), "is_written": False},
        ),
        apply=(HowTo("Type:", f"tf-placer place --out={HOSTILE}"),),
        compared={"clock": "simulated_s", "single_s": 2 * step_s},
    )
    return Page(section.title, (section,))
