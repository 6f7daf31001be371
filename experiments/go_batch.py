"""Does GO learn something of several graphs, by rewards, that another graph is placed better by?

    python -m experiments.go_batch [--rounds=100] [--seeds=5] [--out=FILE.md]

PPO on small programs of several families at once (Zhou et al. 2020, section 3.4), from new weights and from taught ones
(``experiments/weights``, which do not know the families left out either). Then each set of weights begins a search of
the programs that were left out: its best after 33, 320 and 1,632 placements, beside a search from scratch, as shares of
the best single device.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import flags

from experiments.curves.machine import machine_lines
from experiments.main_program import run_program
from tf_placer import workloads
from tf_placer.agents.go.batch_training import ManyProblems
from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.go.learner import GoLearner
from tf_placer.agents.go.policy import GoPolicy, go_kind
from tf_placer.agents.learner import Beginning
from tf_placer.agents.weights import restore_weights, weights_bytes
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.files import write_atomically
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.spec import Role
from tf_placer.search.starts import Starts

_ROUNDS = flags.DEFINE_integer("rounds", 100, "Updates on each program.", lower_bound=1)
_SEEDS = flags.DEFINE_integer("seeds", 5, "Of each search, from 100 on.", lower_bound=1)
_OUT = flags.DEFINE_string("out", None, "Page to write.")

_CLUSTER = "p100x4"
_TAUGHT = (
    "rnnlm_2_small",
    "transformer_xl_2_small",
    "bert_base_small",
    "inception_v3_small",
    "amoebanet_small",
)
_LEFT_OUT = ("gnmt_2_small", "wavenet_2x18_small")
_IMITATING = pathlib.Path(__file__).parent / "weights" / "without_gnmt_wavenet.npz"
_AT = (33, 320, 1632)
_ROLLOUTS = 32  # of an update


def main(argv: list[str]) -> None:
    """Prints a line for each program and set of weights, and writes the page."""
    del argv
    begun = {name: _beginning(name) for name in (*_TAUGHT, *_LEFT_OUT)}
    lines, told = [], []
    with tempfile.TemporaryDirectory() as folder:
        files = {"from scratch": "", "imitation": str(_IMITATING)}
        for way, weights in list(files.items()):
            path = pathlib.Path(folder) / f"{len(files)}.npz"
            told.append(f"- {way}, then rewards: {_taught([begun[name] for name in _TAUGHT], weights, path)}")
            print(told[-1], flush=True)
            files["rewards" if not weights else "imitation, then rewards"] = str(path)
        lines = [
            f"| program | begun with | {' | '.join(f'{count:,}' for count in _AT)} |",
            "|---|---|---|---|---|",
        ]
        for name in _LEFT_OUT:
            for way, weights in files.items():
                curves = [_curve(*begun[name], weights, 100 + seed) for seed in range(_SEEDS.value)]
                lines.append(
                    f"| {name} | {way} | {' | '.join(f'{share:.3f}' for share in np.mean(curves, axis=0))} |"
                )
                print(lines[-1], flush=True)
    if _OUT.value is not None:
        write_atomically(pathlib.Path(_OUT.value), "\n".join([*_head(), *told, "", *lines]) + "\n")


def _beginning(name: str) -> tuple[Problem, Beginning, float]:
    """A program, where a search of it begins, and the time of its best single device."""
    problem = analytic_problem(workloads.build(name), Cluster.preset(_CLUSTER))
    simulator = SimulatedEvaluator(problem)

    def simulate(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        times = simulator.times(tf.constant(rows))
        return times.runtime_s.numpy(), times.fits.numpy()

    starts = Starts(problem, simulator, methods.having(Role.BESIDE))
    single_s = starts.single_device_s
    assert single_s is not None, "they are chosen so"
    return problem, Beginning(starts.plans, starts.reference_s, simulate), single_s


def _taught(begun: Sequence[tuple[Problem, Beginning, float]], weights: str, path: pathlib.Path) -> str:
    """Teaches a policy by rewards and writes its weights; how its samples fared, in words."""
    config = GoConfig(rollouts=_ROLLOUTS)
    policy = GoPolicy(config, seed=0)
    if weights:
        restore_weights(pathlib.Path(weights), go_kind(config), policy)
    begin_s = time.monotonic()
    many = ManyProblems([one[0] for one in begun], config, [one[1] for one in begun], seed=0, policy=policy)
    mean_s = np.array(list(many.rounds(_ROUNDS.value)))
    write_atomically(path, weights_bytes(go_kind(config), policy, {"rounds": _ROUNDS.value, "seed": 0}))
    first, last = (
        np.exp(np.log(rows / [one[2] for one in begun]).mean()) for rows in (mean_s[:1], mean_s[-8:])
    )
    took_s = time.monotonic() - begin_s
    return f"the mean of the samples went from {first:.3f} to {last:.3f} of the best single device ({took_s:.0f} s)"


def _curve(problem: Problem, beginning: Beginning, single_s: float, weights: str, seed: int) -> list[float]:
    """The best after so many placements, as shares of the best single device."""
    learner = GoLearner(problem, GoConfig(rollouts=_ROLLOUTS, weights=weights), beginning, seed)
    tried_s: list[float] = [float(beginning.reference_s)]
    while len(tried_s) < _AT[-1]:
        proposal = learner.propose()
        runtime_s, fits = beginning.simulate(proposal.placements.numpy())
        learner.learn(proposal.actions, tf.constant(runtime_s), tf.constant(fits))
        tried_s += np.where(fits, runtime_s, np.inf).tolist()
    return [min(tried_s[:count]) / single_s for count in _AT]


def _head() -> list[str]:
    return [
        "# GO on several graphs at once",
        "",
        f"- Command: `python -m experiments.go_batch --rounds={_ROUNDS.value} --seeds={_SEEDS.value}`",
        f"- Seed: 0 for teaching; {', '.join(str(100 + seed) for seed in range(_SEEDS.value))} for searches",
        *machine_lines(),
        "",
        f"Taught by rewards on {', '.join(_TAUGHT)}, on `{_CLUSTER}`, {_ROUNDS.value} updates of",
        f"{_ROLLOUTS} placements on each. Then a search of programs of other families: the best so far, as shares of",
        "the best single device; means of seeds. *Imitation* are `experiments/weights/without_gnmt_wavenet.npz`.",
        "",
    ]


if __name__ == "__main__":
    run_program(main)
