"""The one command that makes results again: it names what exists, goes on where it was, and sees new costs."""

import pathlib
import subprocess

import pytest

from tests.experiments.without_flags import loaded

ROOT = pathlib.Path(__file__).absolute().parents[2]
results, _ = loaded("results")


def test_every_page_of_simulated_figures_is_made_again() -> None:
    tables = {f"papers/{page.stem}" for page in (ROOT / "docs/results/papers").glob("*.md")}
    studies = {page.stem for page in (ROOT / "experiments/studies").glob("*.toml")}
    assert tables | studies <= set(results.PAGES)
    for page in results.PAGES:
        assert results.command_of(page).startswith("python -m experiments."), page


def test_every_file_of_weights_is_taught_as_it_was() -> None:
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


def test_what_ended_is_not_run_again_until_costs_change(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_lessons_come_before_pages(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    results.make_again(results.steps(teaches=True), tmp_path, only_lists=True)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(results.steps(teaches=True))
    assert said[1].endswith(
        "python -m experiments.pretrain --method=learned_list --epochs=8"
        " --out=tf_placer/agents/learned_list/weights.npz"
    )
    assert list(tmp_path.iterdir()) == []
