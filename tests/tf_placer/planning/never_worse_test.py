"""A run that tries the batch in parts is worse than neither data parallelism nor the best plan of the whole."""

import numpy as np
import pytest
import rich.console

from tf_placer import workloads
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.place import place
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.planning.forms import Form, estimated_in_parts
from tf_placer.planning.outcome import DATA_PARALLEL, SPLIT, Note, Outcome
from tf_placer.search.methods import Budget
from tf_placer.transform.split import SplitProgram, split_program
from tf_placer.workloads.registry import settings_of

PRESETS = ("k40x2", "p100x4")
SMALL = tuple(name for name in workloads.names() if name.endswith("_small"))
METHOD = "local_search"


def placed(workload: str, preset: str, evaluations: int = 500) -> Outcome:
    request = Request(
        Source(workload), Cluster.preset(preset), Budget(evaluations=evaluations), 0, tries_parts=True
    )
    return place(request, METHOD, rich.console.Console(quiet=True))


def check(workload: str, preset: str) -> None:
    found = placed(workload, preset)
    times = {one.name: one.simulated_s for one in found.candidates if one.simulated_s is not None}
    why, batch = found.notes[Note.WHY_NOT_SPLIT], (settings_of(workload) or {}).get("batch")
    devices = found.problem.cluster.accelerators().sum()
    if batch is not None and batch < devices:
        assert why.endswith(f"parts is {devices}, but the batch has {batch} examples.")
        assert found.written.simulated_s == min(times.values())
        return
    assert {DATA_PARALLEL, SPLIT, METHOD, "single"} <= set(times), why
    assert times[SPLIT] <= times[DATA_PARALLEL], "the search began at it, or at something faster"
    assert found.written.simulated_s == min(times.values())


@pytest.mark.parametrize(("workload", "preset"), [("dense_small", "p100x2"), ("branches_small", "k40x2")])
def test_a_few(workload, preset):
    check(workload, preset)


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("workload", SMALL)
def test_all_small_workloads(workload, preset):
    check(workload, preset)


@pytest.mark.medium
@pytest.mark.parametrize(("workload", "starts_together"), [("dense_small", True), ("two_towers", False)])
def test_a_search_in_parts_begins_at_the_faster_of_data_parallel_and_the_whole(workload, starts_together):
    found = placed(workload, "p100x2", evaluations=1)
    whole, split = found.named(METHOD), found.named(SPLIT)
    assert whole is not None and whole.placement is not None and split is not None
    in_parts = estimated_in_parts(Form(whole.placement.problem, workloads.build(workload)))
    plans = in_parts.data_parallel, in_parts.lift(whole.placement), in_parts.starts([whole.placement])[0]
    rows = np.stack([plan.device_of_unit for plan in plans])
    apart_s, together_s, begins_s = SimulatedEvaluator(in_parts.problem).evaluate(rows).runtime_s.tolist()
    assert (together_s < apart_s) == starts_together, "or one of the starts is not looked at"
    assert split.simulated_s == begins_s <= min(apart_s, together_s), "less, with small kernels on the host"


@pytest.mark.parametrize("preset", ["p100x2", "k40x4"])
def test_a_program_is_split_once_for_each_form(preset, monkeypatch):
    forms: list[tuple[object, ...]] = []

    def counted(item: Item, *form: object) -> SplitProgram:
        forms.append(form)
        return split_program(item, *form)  # type: ignore[arg-type]

    monkeypatch.setattr("tf_placer.planning.forms.split_program", counted)
    placed("two_towers", preset, evaluations=50)
    assert 1 <= len(forms) == len(set(forms)) <= 2
