"""Number of groups that ColocRL's rules leave, beside those of Mirhoseini et al. 2017.

python -m experiments.colocrl_groups [--cluster=k80x2] [--workloads=rnnlm_2,nmt_2,inception_v3]
"""

from __future__ import annotations

import numpy as np
from absl import flags

import tf_placer
from experiments.main_program import run_program
from tf_placer import workloads
from tf_placer.agents.colocrl.learner import ColocRlConfig, colocated_groups
from tf_placer.grouper.rules import tied_by_rules

_CLUSTER = flags.DEFINE_string("cluster", "k80x2", "Preset that says which devices ops may run on.")
_WORKLOADS = flags.DEFINE_list("workloads", ["rnnlm_2", "nmt_2", "inception_v3"], "Steps that are grouped.")

# Ops and groups of Mirhoseini et al. 2017, table 1.
_PAPER = {"rnnlm_2": (8943, 188), "nmt_2": (22097, 280), "inception_v3": (31180, 83)}


def table_row(name: str, cluster: tf_placer.Cluster) -> str:
    """One line of the table: ops, units, groups by the rules, those of ours, the paper's."""
    problem = tf_placer.build_problem(workloads.build(name), cluster, costs="analytic")
    paper = ColocRlConfig(preset="paper")
    tied = tied_by_rules(problem, paper.step_pattern, paper.layer_pattern, paper.largest_share)
    by_rules = len(np.unique(tied[problem.allowed.sum(axis=1) > 1]))
    ours = colocated_groups(problem, ColocRlConfig())
    ops, groups = _PAPER.get(name, ("", ""))
    cells = (name, problem.num_ops, problem.num_units, by_rules, ours.count, ops, groups)
    return "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells) + " |"


def main(argv: list[str]) -> None:
    """Prints the table."""
    del argv
    cluster = tf_placer.Cluster.preset(_CLUSTER.value)
    print(
        "| step | ops | units | groups by the rules | groups of the preset ours | ops, paper | groups, paper |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in _WORKLOADS.value:
        print(table_row(name, cluster), flush=True)


if __name__ == "__main__":
    run_program(main)
