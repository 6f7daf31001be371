"""End-to-end demonstration: a described machine in the simulator, this machine on the runtime, a Keras model.

    python -m experiments.demo [--described_s=120] [--local_s=60] [--out=out/demo]

On two cores about four minutes, start to end.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import rich.console
from absl import flags

import experiments
from experiments.main_program import out_flag, run, seed_flag
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.place import place
from tf_placer.command_line.request import Request
from tf_placer.command_line.source import Source
from tf_placer.report.sentences import headline
from tf_placer.report.views import print_report, write_report
from tf_placer.search.methods import DEFAULT, Budget

_DESCRIBED_S = flags.DEFINE_float(
    "described_s", 120.0, "Seconds to wait for inception_v3 on k40x2.", lower_bound=0.001
)
_LOCAL_S = flags.DEFINE_float(
    "local_s", 60.0, "Seconds to wait for two_towers on this machine.", lower_bound=0.001
)
_SEED = seed_flag()
out_flag("out/demo", "Folder for the results.")


def main(out: pathlib.Path) -> None:
    console = rich.console.Console(highlight=False)
    steps = []
    for workload, cluster, budget_s in (
        ("inception_v3", Cluster.preset("k40x2"), _DESCRIBED_S.value),
        ("two_towers", Cluster.local(), _LOCAL_S.value),
    ):
        console.print(f"\nPlacing one training step of {workload} on {cluster.name}:", soft_wrap=True)
        for device in cluster.devices:
            console.print(f"  {device.name}  {device.model}", soft_wrap=True)
        request = Request(Source(workload), cluster, Budget(budget_s), _SEED.value)
        report = place(request, DEFAULT, console)
        print_report(report, console)
        for path in write_report(report, out / workload):
            console.print(f"wrote {path}", soft_wrap=True)
        steps.append(f"{workload} on {cluster.name}: {headline(report)}")
    console.print("\nA Keras model, built, trained, saved and loaded on two CPU workers:")
    folder, root = out / "keras", pathlib.Path(experiments.__file__).absolute().parent.parent
    folder.mkdir(parents=True, exist_ok=True)
    example = [sys.executable, "-m", "experiments.examples.keras_on_two_devices"]
    subprocess.run(example, cwd=folder, env={**os.environ, "PYTHONPATH": str(root)}, check=True)
    pages = " and ".join(str(page) for page in sorted(out.glob("*/report.html")))
    console.print("\n" + "\n".join(steps), soft_wrap=True)
    console.print(f"Open {pages}", soft_wrap=True)


if __name__ == "__main__":
    run(main)
