"""An agent trained on the TensorFlow runtime itself, as in its paper; killed part way, and resumed.

    python -m experiments.agent_on_runtime [--method=hdp] [--workload=two_towers] [--evaluations=224]

Every placement is timed on this machine's own devices (two CPU cores: about five minutes). A child process begins
the search and is killed with SIGKILL while it measures; this one goes on, and checks that no measured placement was
lost and none measured twice. Random search gets as many evaluations. A last race between the agent's placement, random
search's and the best single device has the word about which is faster. Run again with the same folder, it goes on
where it was, whatever ended it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
from absl import flags, logging

import tf_placer
from experiments.main_program import out_flag, run_program, seed_flag
from tf_placer import workloads
from tf_placer.agents.colocrl.learner import ColocRlConfig
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.placeto.inputs import PlacetoConfig
from tf_placer.base.files import reserved, write_atomically
from tf_placer.base.method_spec import MethodSpec
from tf_placer.evaluation.journal import JournaledEvaluator
from tf_placer.planners.plain import single_device_placements
from tf_placer.runtime.timing import RuntimeConfig, clearly_slower, race_times_s
from tf_placer.search import methods
from tf_placer.search.known import Budget
from tf_placer.search.recorder import ConsoleProgress, SearchResult

# For some hundred samples instead of a hundred thousand: small policies that take few, large steps.
ON_RUNTIME = {
    "colocrl": ColocRlConfig(
        max_groups=8,
        hidden=32,
        start_probability=0.5,
        placements=8,
        learning_rate=1e-2,
        entropy_start=0.6,
        entropy_end=0.1,
        entropy_updates=20,
        valid_only_after=20,
    ),
    "hdp": HdpConfig(
        num_groups=8,
        grouper_hidden=32,
        placer_hidden=32,
        landmarks=8,
        groupings=1,
        placements=8,
        loss="reinforce",
        incumbent=False,
        row_rate=0.0,
        learning_rate=1e-2,
        grouper_learning_rate=1e-4,
        start_probability=0.5,
        entropy_start=0.6,
        entropy_end=0.1,
        entropy_updates=20,
        noise_updates=20,
        valid_only_after=20,
    ),
    # A reward for each step of an episode is a measurement for each step, so there is one at its end.
    "placeto": PlacetoConfig(
        parts=8,
        landmarks=8,
        reward="end",
        keep_probability=0.5,
        learning_rate=1e-2,
        learning_rate_updates=28,
        entropy_updates=28,
    ),
}

_METHOD = flags.DEFINE_enum("method", "hdp", sorted(ON_RUNTIME), "The agent.")
_WORKLOAD = flags.DEFINE_string("workload", "two_towers", "What to place.")
_EVALUATIONS = flags.DEFINE_integer("evaluations", 224, "Placements that the agent tries.", lower_bound=1)
_KILL_AFTER = flags.DEFINE_integer(
    "kill_after", 60, "Measured placements until the child is killed.", lower_bound=1
)
_SEED = seed_flag()
_OUT = out_flag(None, "Folder for the search and results.json; out/agent_on_runtime/METHOD by default.")
_CHILD = flags.DEFINE_bool("child", False, "Only search: what the process does that is killed.")

TIMING = RuntimeConfig(warmup_steps=1, steps=3, keep=3)
RACE_ROUNDS = 25
CONFIDENCE = 0.99


def journal_of(out: pathlib.Path) -> pathlib.Path:
    """Journal of the placements that were measured, by whatever method."""
    return out / "measured.jsonl"


def records(path: pathlib.Path) -> list[str]:
    """The whole lines of a journal, without its header."""
    return path.read_text(encoding="utf8").rpartition("\n")[0].split("\n")[1:] if path.exists() else []


def kill_part_way(out: pathlib.Path) -> None:
    """Starts a child that searches, and kills it while it measures."""
    command = [sys.executable, "-m", "experiments.agent_on_runtime", *sys.argv[1:], "--child"]
    with subprocess.Popen(command) as child:
        while child.poll() is None and len(records(journal_of(out))) < _KILL_AFTER.value:
            time.sleep(0.05)
        time.sleep(0.5)  # into the next measurement
        child.kill()
    if child.returncode != -signal.SIGKILL:
        sys.exit(f"the search ended by itself (status {child.returncode}) before it was killed")
    write_atomically(out / "when_killed.jsonl", journal_of(out).read_bytes())
    print(f"killed the search when it had measured {len(records(journal_of(out)))} placements", flush=True)


def run(
    out: pathlib.Path, method: str | MethodSpec, folder: str, runtime: tf_placer.RuntimeEvaluator
) -> tuple[SearchResult, JournaledEvaluator]:
    """Searches, or resumes; all methods share what was measured."""
    budget = Budget(evaluations=_EVALUATIONS.value)
    # The agent begins at the single device that it races with; by itself a search begins at the best cheap plan.
    start = None if method == "random" else best_single(out, runtime)
    with JournaledEvaluator(runtime, journal_of(out)) as evaluator:
        result = tf_placer.search(
            runtime.problem,
            method,
            budget_evaluations=budget.evaluations,
            seed=_SEED.value,
            progress=ConsoleProgress(f"{folder} on the runtime", budget),
            evaluator=evaluator,
            checkpoint=out / folder,
            start=start,
        )
    return result, evaluator


def check_journal(out: pathlib.Path, evaluator: JournaledEvaluator) -> dict[str, int]:
    """Counts, after making sure that nothing measured was lost and nothing measured twice."""
    before, after = records(out / "when_killed.jsonl"), records(journal_of(out))
    placements = [json.loads(line)["placement"] for line in after]
    assert after[: len(before)] == before, "a placement that was measured before the kill is gone"
    assert len(set(placements)) == len(placements), "a placement was measured twice"
    assert len(after) == evaluator.kept + evaluator.measured, "a placement was measured and not kept"
    return {
        "measured_before_the_kill": len(before),
        "kept_at_the_start": evaluator.kept,
        "measured_since": evaluator.measured,
        "reused_from_before_it": evaluator.reused,
        "repeated_since": evaluator.repeated,
    }


def best_single(out: pathlib.Path, runtime: tf_placer.RuntimeEvaluator) -> np.ndarray:
    """[U] everything on the device that was measured the fastest."""
    singles = single_device_placements(runtime.problem)
    with JournaledEvaluator(runtime, journal_of(out)) as evaluator:
        return singles[int(np.nanargmin(evaluator.evaluate(singles).runtime_s))]


def race(
    runtime: tf_placer.RuntimeEvaluator, placements: dict[str, np.ndarray]
) -> dict[str, tuple[float, ...]]:
    """Step times of each placement [U], taken in turn; equal placements share theirs."""
    different = {row.tobytes(): row for row in placements.values()}
    samples = runtime.race(np.stack(list(different.values())), RACE_ROUNDS)
    samples_of = dict(zip(different, map(tuple, samples), strict=True))
    return {name: samples_of[row.tobytes()] for name, row in placements.items()}


def verdict(samples: dict[str, tuple[float, ...]], name: str, other: str) -> str:
    """Sentence on the faster of two, if the race can tell."""
    if samples[name] == samples[other]:
        return f"{name} found nothing but the placement of {other}"
    one, two = race_times_s([samples[name], samples[other]])
    change = abs(one / two - 1)
    if clearly_slower(samples[other], samples[name], CONFIDENCE):
        return f"{name} is {change:.1%} faster than {other}"
    if clearly_slower(samples[name], samples[other], CONFIDENCE):
        return f"{name} is {change:.1%} SLOWER than {other}"
    return f"the race cannot tell {name} from {other}"


def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)  # TensorFlow tells of every checkpoint
    out = pathlib.Path(_OUT.value or f"out/agent_on_runtime/{_METHOD.value}")
    # The child searches in a folder that is its parent's.
    with contextlib.nullcontext() if _CHILD.value else reserved(out, f"--out={out}"):
        search_and_race(out)


def search_and_race(out: pathlib.Path) -> None:
    """Resumes the search after a kill, or begins it in the child; then the race, and results.json."""
    if not _CHILD.value and not journal_of(out).exists():
        kill_part_way(out)
    name = _METHOD.value
    item = workloads.build(_WORKLOAD.value)
    problem = tf_placer.build_problem(item, tf_placer.Cluster.local(kept_in=out / "cluster.toml"))
    with tf_placer.RuntimeEvaluator(item, problem, TIMING) as runtime:
        spec = dataclasses.replace(methods.find(name), default=ON_RUNTIME[name])
        agent, evaluator = run(out, spec, name, runtime)
        if _CHILD.value:
            return
        counts = check_journal(out, evaluator)
        random, _ = run(out, "random", "random", runtime)
        found = {key: result.placement.device_of_unit for key, result in ((name, agent), ("random", random))}
        samples = race(runtime, {**found, "single device": best_single(out, runtime)})
    means = [entry.mean_s for entry in agent.history]
    summary = {
        "method": name,
        "workload": problem.name,
        "single_device_s": agent.single_device_s,
        "best_s": agent.runtime_s,
        "random_best_s": random.runtime_s,
        "first_rounds_mean_s": float(np.nanmean(means[:3])),
        "last_rounds_mean_s": float(np.nanmean(means[-3:])),
        "evaluations": agent.evaluations,
        "search_s": agent.search_s,
        **counts,
        "race_s": dict(zip(samples, np.round(race_times_s(list(samples.values())), 4).tolist(), strict=True)),
        "verdict": verdict(samples, name, "single device"),
        "verdict_on_random": verdict(samples, name, "random"),
    }
    write_atomically(out / "results.json", json.dumps(summary, indent=1))
    for key, value in summary.items():
        print(f"{key:26s} {value:.4g}" if isinstance(value, float) else f"{key:26s} {value}")


if __name__ == "__main__":
    run_program(main)
