"""Many damaged inputs through worker processes; run as a program it replays one, or runs a range of seeds.

python -m tests.fuzz.campaign KIND SEED [COUNT]
"""

import collections
import dataclasses
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
START_S = 120  # importing TensorFlow and making the good inputs, on a busy machine
INPUT_S = 60
COMPLETE = {"placement.json", "placed_graph.pb", "report.html", "summary.json", "timeline.json"}


@dataclasses.dataclass
class Outcome:
    """What a campaign found."""

    # (kind, exit status) -> inputs
    counts: collections.Counter[tuple[str, int]] = dataclasses.field(default_factory=collections.Counter)
    # one text for each input that did not end as it must, with the command that replays it
    failures: list[str] = dataclasses.field(default_factory=list)


def campaign(inputs: Iterable[tuple[str, int]], folder: pathlib.Path) -> Outcome:
    """Runs inputs (kind, seed) in one worker at a time, a new one wherever an input ended the last."""
    outcome = Outcome()
    worker = _Worker(folder)
    try:
        for kind, seed in inputs:
            answer = worker.ask(kind, seed)
            problem = _problem(kind, answer)
            if problem is None:
                outcome.counts[kind, answer["status"]] += 1
            else:
                replay = f"{sys.executable} -m tests.fuzz.campaign {kind} {seed}"
                outcome.failures.append(f"{replay}\n  {answer['what']}\n  {problem}")
    finally:
        worker.close()
    return outcome


def _problem(kind: str, answer: dict[str, Any]) -> str | None:
    """What is wrong with how an input ended, or None."""
    status, lines, left = answer["status"], answer["stderr"].splitlines(), set(answer["left"])
    if status == 0:
        if any(not line.startswith("tf-placer: warning: ") for line in lines):
            return f"status 0, but {answer['stderr']}"
        return None if kind == "plan" or left >= COMPLETE else f"status 0, but only {sorted(left)} written"
    if status != 2:
        return f"status {status}: {answer['stderr']}"
    if len(lines) != 1 or not lines[0].startswith("tf-placer: "):
        return f"not one line of ours: {answer['stderr']}"
    return f"status 2, but {sorted(left)} written" if left else None


class _Worker:
    """A process that runs inputs, and is started again after one that it did not survive."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._log = open(folder / "native.log", "w+", encoding="utf8", errors="replace")  # noqa: SIM115

    def ask(self, kind: str, seed: int) -> dict[str, Any]:
        """The worker's answer; status None where it died or did not answer in time."""
        limit_s = INPUT_S
        if self._process is None:
            self._start()
            limit_s += START_S
        assert self._process is not None and self._process.stdin is not None
        assert self._process.stdout is not None
        self._log.seek(0)
        self._log.truncate()
        self._process.stdin.write(f"{kind} {seed}\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], limit_s)
        line = self._process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        if not ready:
            self._process.kill()
        code = self._process.wait()
        self._process = None
        self._log.seek(0)
        why = f"no answer in {limit_s} s" if not ready else f"the process died ({code})"
        return {"status": None, "stderr": f"{why}: {self._log.read()[-2000:]}", "left": [], "what": "?"}

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.fuzz.worker", str(self._folder / "good")]
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        self._process = subprocess.Popen(command, cwd=REPOSITORY, env=env, **streams, text=True)

    def close(self) -> None:
        """Ends the process."""
        self._log.close()
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait(INPUT_S)
            self._process.stdout.close()


def main() -> None:
    """Prints what came of one input, or of several in a row."""
    kind, seed, *count = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(int(seed), int(seed) + int(*count or ("1",)))
        outcome = campaign(((kind, one) for one in seeds), pathlib.Path(folder))
    sys.stdout.write("\n".join([*outcome.failures, str(dict(outcome.counts)), ""]))


if __name__ == "__main__":
    main()
