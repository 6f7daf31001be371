"""Every result that depends on costs, made again: facts of workloads, shipped policies, tables and studies.

    python -m experiments.results [--result=hdp_2018] [--list] [--teach] [--out=out/results]

Runs the first command that each page of ``docs/results`` names, one after the other, and keeps what it printed in
OUT/PAGE.log. Tables and studies write their pages; of the others the figures are in the log. A command that ended is
not run again while it and the costs are the same, so a killed run goes on. All of them take many hours of two cores.
``--teach`` first teaches the shipped policies and those of ``experiments/weights`` anew, by the command in each file.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

from absl import flags

from experiments.main_program import out_flag, run
from tf_placer import costs
from tf_placer.agents.features import weights_header
from tf_placer.base.files import write_atomically
from tf_placer.cluster.device import preset_path

ROOT = pathlib.Path(__file__).absolute().parents[1]
PAGES = (
    *("workloads", "gpu_fidelity", "taught_policy", "robust_plans", "order"),
    *("papers/colocrl_2017", "papers/hdp_2018", "papers/placeto_2019", "papers/go_2020"),
    *("papers/go_generalization", "papers/go_multi_task", "papers/mars_2021", "papers/split"),
    *("papers/plain_search", "learning", "convergence", "ablations", "transfer_ablations", "learned_moves"),
)
WEIGHTS = ("experiments/weights/*.npz", "tf_placer/agents/*/weights.npz")
_RESULT = flags.DEFINE_enum("result", None, [page.rpartition("/")[2] for page in PAGES], "Only this page.")
_LIST_ONLY = flags.DEFINE_bool("list", False, "Print what would run, and whether it is done.")
_TEACH = flags.DEFINE_bool("teach", False, "Teach policies before the pages.")
out_flag("out/results", "Folder for what the commands print.")


class Step(NamedTuple):
    """A command."""

    name: str  # of its log
    command: str  # begins with ``python``
    writes: str  # the file that it is run for


def steps(only: str | None = None, teaches: bool = False) -> list[Step]:
    """All commands, in order: whatever reads a file comes after what writes it; of ``only`` one page, or all."""
    made = []
    for path in (path for pattern in WEIGHTS for path in sorted(ROOT.glob(pattern))) if teaches else ():
        # What the file says that it was taught by, for the place where it is.
        file, command = str(path.relative_to(ROOT)), weights_header(path)["history"]["command"]
        words = [word for word in shlex.split(command) if not word.startswith("--out=")]
        name = file.removesuffix(".npz").replace("/", "_")
        made.append(Step(name, shlex.join([*words, f"--out={file}"]), file))
    pages = [page for page in PAGES if only in (None, page.rpartition("/")[2])]
    return made + [
        Step(page.rpartition("/")[2], command_of(page), f"docs/results/{page}.md") for page in pages
    ]


def command_of(page: str) -> str:
    """The first command that a page of ``docs/results`` names."""
    text = (ROOT / "docs" / "results" / f"{page}.md").read_text(encoding="utf8")
    found = re.search(r"^- Command: `(python -m [^`]+)`", text, re.MULTILINE)
    assert found is not None, f"{page}.md names no command"
    return found[1]


def costs_digest() -> str:
    """SHA-256 of what estimates are made of: the cost model and the described machines."""
    folders = (pathlib.Path(costs.__file__).parent, preset_path("k40x2").parents[1])
    every = [file for folder in folders for file in folder.rglob("*")]
    files = sorted(file for file in every if file.suffix in (".py", ".toml", ".json"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def main(out: pathlib.Path) -> None:
    make_again(steps(_RESULT.value, _TEACH.value), out, _LIST_ONLY.value)


def make_again(wanted: list[Step], out: pathlib.Path, only_lists: bool = False) -> None:
    """Runs the commands that are not done, and says of all what they are.

    Raises:
      SystemExit: some failed, or Ctrl-C; the others are kept.
    """
    digest, failed = costs_digest(), []
    for number, step in enumerate(wanted, 1):
        mark, content = out / f"{step.name}.json", {"command": step.command, "costs": digest}
        done = mark.is_file() and json.loads(mark.read_text(encoding="utf8")) == content
        print(f"{number} of {len(wanted)}{', done' if done else ''}: {step.command}", flush=True)
        if done or only_lists:
            continue
        out.mkdir(parents=True, exist_ok=True)
        with (out / f"{step.name}.log").open("wb") as log:
            command = [sys.executable, *shlex.split(step.command)[1:]]
            try:
                status = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False).returncode
            except KeyboardInterrupt:
                sys.exit(f"results: interrupted in {step.command}; run it again to go on")
        if status:
            failed.append(step)
            print(f"  ended with {status}: {out / step.name}.log says why", flush=True)
            continue
        write_atomically(mark, json.dumps(content) + "\n")
    if failed:
        sys.exit(f"results: {len(failed)} of {len(wanted)} failed; run it again to go on with those")
    if not only_lists:
        print("what pages and README say in sentences is by hand: git diff docs shows what moved")


if __name__ == "__main__":
    run(main)
