"""Facts of every workload: the file that ships with tf_placer, and a table.

    python -m experiments.workload_facts [--workloads=nmt_2,gnmt_2] [--again] [--out=tf_placer/workloads]

A process for each workload, one after the other, because the largest take 10 GB. The file is written after each: run
again, it goes on where it was killed.
"""

from __future__ import annotations

import multiprocessing
import pathlib
import sys

from absl import flags

from experiments.main_program import out_flag, run
from tf_placer import workloads
from tf_placer.command_line.list_workloads import as_markdown, find_facts, found_settings, ship
from tf_placer.workloads.known import FACTS, shipped, shipped_rows

_WORKLOADS = flags.DEFINE_list("workloads", [], "Which; without it all.")
_AGAIN = flags.DEFINE_bool(
    "again", False, "Also those whose facts are there already, with the same settings."
)
_OUT = "tf_placer/workloads"
out_flag(_OUT, "Folder for the file.")


def main(out: pathlib.Path) -> None:
    file = out / FACTS.name
    names = _WORKLOADS.value or workloads.names()
    missing = [name for name in names if _AGAIN.value or _is_stale(name, file)]
    for position, name in enumerate(missing, 1):
        sys.stderr.write(f"{position} of {len(missing)}: {name} ...\n")
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # gives its memory back
            facts = pool.apply(find_facts, (name,))
        ship({name: facts}, file)
    print(as_markdown(names, file))


def _is_stale(name: str, file: pathlib.Path) -> bool:
    row = shipped_rows(file).get(name, {"found_with": {}})
    return shipped(name, file) is None or not found_settings(name).items() <= row["found_with"].items()


if __name__ == "__main__":
    run(main)
