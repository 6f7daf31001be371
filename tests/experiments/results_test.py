"""The one command that makes results again, and small experiments: folders, peaks, robust plans."""

import os
import pathlib
import subprocess
import types

import pytest

from tests.experiments.without_flags import loaded
from tests.own_process import python
from tests.tf_placer.base.warm_workers import WarmWorkers
from tests.tf_placer.problem.small_problems import problem_of
from tf_placer.problem.placement import Decisions

ROOT = pathlib.Path(__file__).absolute().parents[2]
results, _ = loaded("results")


def test_every_page_of_simulated_figures_is_made_again():
    tables = {f"papers/{page.stem}" for page in (ROOT / "docs/results/papers").glob("*.md")}
    studies = {page.stem for page in (ROOT / "experiments/studies").glob("*.toml")}
    assert tables | studies <= set(results.PAGES)
    for page in results.PAGES:
        assert results.command_of(page).startswith("python -m experiments."), page


def test_every_file_of_weights_is_taught_as_it_was():
    there = {
        str(file.relative_to(ROOT))
        for folder in ("tf_placer", "experiments")
        for file in (ROOT / folder).rglob("*.npz")
    }
    taught = {step.writes: step.command for step in results.steps(teaches=True) if "pretrain" in step.command}
    assert set(taught) == there and "tf_placer/agents/go/weights.npz" in there
    for file, command in taught.items():
        assert command.startswith("python -m experiments.pretrain ") and command.endswith(f" --out={file}")
        assert command.count("--out=") == 1


def test_what_ended_is_not_run_again_until_costs_change(tmp_path, monkeypatch, capsys):
    begun: list[list[str]] = []

    def ends(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        begun.append(command[1:])
        return subprocess.CompletedProcess(command, 1 if len(begun) == 1 else 0)

    monkeypatch.setattr(results.subprocess, "run", ends)
    wanted = results.steps(only="hdp_2018")
    with pytest.raises(SystemExit, match=r"results: 1 of 1 failed"):
        results.make_again(wanted, tmp_path)
    results.make_again(wanted, tmp_path)
    results.make_again(wanted, tmp_path)
    assert len(begun) == 2 and begun[0] == begun[1]
    assert begun[0][:3] == ["-m", "experiments.study", "--study=hdp_2018"]
    assert "1 of 1, done: python -m experiments.study --study=hdp_2018" in capsys.readouterr().out
    monkeypatch.setattr(results, "costs_digest", lambda: "others")
    results.make_again(wanted, tmp_path)
    assert len(begun) == 3


def test_lessons_come_before_pages(tmp_path, capsys):
    results.make_again(results.steps(teaches=True), tmp_path, only_lists=True)
    said = capsys.readouterr().out
    assert len(said.splitlines()) == len(results.steps(teaches=True))
    shipped = "--course=workloads,generated:60 --epochs=3 --out=tf_placer/agents/learned_list/weights.npz"
    assert said.index(shipped) < said.index("python -m experiments.taught_policy")
    assert list(tmp_path.iterdir()) == []


# wrong_flags_test.py has the same in this process.
@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to_is_one_line():
    done = python("-m", "experiments.study", "--study=ablations", "--out=/proc/out", TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("study: --out=/proc/out: it cannot be written to: ")


@pytest.fixture(scope="module")
def experiment() -> types.ModuleType:
    module, _ = loaded("memory_fidelity")
    return module


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores for two workers")
def test_a_row_for_each_device_that_a_placement_uses(experiment, monkeypatch):
    warm = WarmWorkers()
    monkeypatch.setattr(experiment, "FLAGS", types.SimpleNamespace(steps=1, threads=2))
    monkeypatch.setattr(experiment, "workers_of", warm.lend)
    try:
        found = list(experiment.peaks("dense_small", warm.cluster))
    finally:
        warm.close()
    rows = [(peak.placement, peak.device) for peak in found]
    workers = [device.name for device in warm.cluster.devices]
    as_it_is = [("one worker", workers[0]), *(("min-cut", name) for name in workers)]
    assert rows == as_it_is + [(f"{placement}, recomputed", name) for placement, name in as_it_is]
    assert all(peak.predicted > 0 and peak.measured > 0 for peak in found)
    for peak in found:
        assert peak.error == peak.predicted / peak.measured - 1
        assert abs(peak.error) < 0.5, peak


def test_a_small_program_is_compared():
    experiment, _ = loaded("robust_plans")
    compared = experiment.compared
    found = compared("branches_small", "p100x2", evaluations=40, draws=20, seed=0)
    assert min(found.step_s) > 0 and min(found.worst_gain) > 0 and 0 <= found.faster <= 1
    assert found == compared("branches_small", "p100x2", evaluations=40, draws=20, seed=0)


def test_plans_under_draws_that_no_search_knows():
    experiment, _ = loaded("robust_plans")
    # A message that takes about as long as it gains.
    dear = problem_of([10**6] * 3, [(0, 2), (1, 2)], 10**6)
    step_ns = experiment.drawn_step_ns(dear, Decisions([[0, 1, 0], [0, 0, 0]]), 100, 0)
    assert 20 < (step_ns[:, 0] < step_ns[:, 1]).sum() < 80
