"""Worth of policies that were taught on other families of programs, beside plain search.

    python -m experiments.taught_policy [--seeds=3] [--long_s=30] [--short_s=5] [--out=FILE.md]

Each program of the table ``go_generalization``, by policies that were not taught its family: GO's and the learned list
scheduler's first placement and the best of 64; plain search (the portfolio's lead) of 64, of ``--long_s`` and of
``--short_s``, and the latter begun at the best of the list scheduler's; both policies fine-tuned by as many placements
as 50 updates of GO's, and plain search of as many. All as fractions of the long search; and the seconds of the policies
beside those after which the long search was there.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Mapping, Sequence

import numpy as np
from absl import flags

import tf_placer
from experiments.main_program import out_flag, run_program
from experiments.studies.formats import header, line, write_page
from experiments.studies.study import TABLES, Row, read_study
from tf_placer import workloads
from tf_placer.agents.go.learner import GoZeroShotConfig, go_zero_shot
from tf_placer.agents.learned_list.learned_list import LearnedList, LearnedListConfig
from tf_placer.evaluation.simulated import Status, search_simulator
from tf_placer.problem.placement import Decisions
from tf_placer.search import methods
from tf_placer.search.search import search

_SEEDS = flags.DEFINE_integer("seeds", 3, "Of each, from 100 on.", lower_bound=1)
_LONG_S = flags.DEFINE_float("long_s", 30.0, "Seconds of plain search.", lower_bound=1.0)
_SHORT_S = flags.DEFINE_float("short_s", 5.0, "Seconds of search on top of the policy.", lower_bound=1.0)
_OUT = out_flag(None, "Page to write.")

_TABLE, _COLUMN, _TUNED = "go_generalization", "go_zero_shot", "go_tuned"
_SAMPLES = 64
_UPDATES = 1632  # placements: 32 by taught weights, and 50 updates of 32
_FRACTIONS = (
    *("go: likeliest", "go: best of 64", "list: first", "list: best of 64", "untaught list: best of 64"),
    *("plain search of 64", "short search", "list, short search", "go fine-tuned", "list fine-tuned"),
    "plain search, as many",
)
_SECONDS = ("go: best of 64", "list: best of 64", "go fine-tuned")


def main() -> None:
    """Prints the tables, and writes them."""
    rows = read_study(TABLES / f"{_TABLE}.toml").rows
    worth = {}
    for row in rows:
        worth[row.name] = _mean([_worth(row, 100 + number) for number in range(_SEEDS.value)])
        print(row.name, worth[row.name].round(3).tolist(), flush=True)
    worth["mean"] = _mean(list(worth.values()))
    lines = _table(_FRACTIONS, "{:.3f}", "OOM", {name: one[: len(_FRACTIONS)] for name, one in worth.items()})
    titles = [title for one in _SECONDS for title in (one, "plain search there")]
    del worth["mean"]
    lines += ["", "Seconds:", ""]
    lines += _table(titles, "{:.1f}", "never", {name: one[len(_FRACTIONS) :] for name, one in worth.items()})
    print("\n".join(lines))
    if _OUT.value is not None:
        _write(lines)


def _worth(row: Row, seed: int) -> np.ndarray:
    """[11 + 6] what stands below the titles, of one seed."""
    problem = tf_placer.build_problem(workloads.build(row.workload), tf_placer.Cluster.preset(row.cluster))
    simulator, plain = search_simulator(problem), methods.find(methods.LEAD)
    of_go = pathlib.Path(row.settings[_COLUMN]["weights"])
    # Taught without the same families.
    of_list = LearnedListConfig(weights=str(of_go.with_name(f"learned_list_{of_go.name}")))

    def times_s(plans: np.ndarray | Decisions) -> np.ndarray:
        legal = plans if isinstance(plans, Decisions) else problem.legalized(plans)
        found = simulator.evaluate(legal)
        return np.where(found.status == Status.OK, found.runtime_s, np.inf)

    long = search(problem, plain, _LONG_S.value, seed=seed)

    def there_s(runtime_s: float) -> float:
        """Seconds until the long search was there; infinite where it never was."""
        return min((at.elapsed_s for at in long.history if at.best_s <= runtime_s), default=np.inf)

    begin_s = time.monotonic()
    go_s = times_s(go_zero_shot(problem, GoZeroShotConfig(**row.settings[_COLUMN]), seed))
    go_took_s = time.monotonic() - begin_s
    by_weights = [{"weights": weights} for weights in (of_list.weights, "")]
    listed, untaught = (
        search(problem, "learned_list", budget_evaluations=_SAMPLES, seed=seed, config=config)
        for config in by_weights
    )
    planner = LearnedList(problem, of_list, None, seed)
    begun = np.array(listed.placement.device_of_unit)
    as_many = (("go", row.settings[_TUNED]), ("learned_list", by_weights[0]), (plain, None))
    tuned, tuned_list, searched = (
        search(problem, method, budget_evaluations=_UPDATES, seed=seed, config=config)
        for method, config in as_many
    )
    fractions = (
        go_s[0],
        go_s.min(),
        times_s(planner.propose()[:1])[0],
        listed.runtime_s,
        untaught.runtime_s,
        search(problem, plain, budget_evaluations=_SAMPLES, seed=seed).runtime_s,
        search(problem, plain, _SHORT_S.value, seed=seed).runtime_s,
        search(problem, plain, _SHORT_S.value, seed=seed, start=begun).runtime_s,
        tuned.runtime_s,
        tuned_list.runtime_s,
        searched.runtime_s,
    )
    there = [(go_took_s, go_s.min())]
    there += [(one.history[-1].elapsed_s, one.runtime_s) for one in (listed, tuned)]
    seconds = [value for took_s, runtime_s in there for value in (took_s, there_s(runtime_s))]
    return np.concatenate([np.divide(fractions, long.runtime_s), seconds])


def _mean(worth: Sequence[np.ndarray]) -> np.ndarray:
    """Geometric means of each column; infinite where one is."""
    mean: np.ndarray = np.exp(np.log(np.array(worth)).mean(axis=0))
    return mean


def _table(titles: Sequence[str], form: str, infinite: str, rows: Mapping[str, np.ndarray]) -> list[str]:
    lines = header("program", *titles)
    for name, values in rows.items():
        cells = [form.format(value) if np.isfinite(value) else infinite for value in values]
        lines.append(line(name, *cells))
    return lines


def _write(lines: list[str]) -> None:
    seeds, long_s, short_s = _SEEDS.value, _LONG_S.value, _SHORT_S.value
    command = f"python -m experiments.taught_policy --seeds={seeds} --long_s={long_s:g} --short_s={short_s:g}"
    title, of_each = "What is a policy worth that was taught on other families?", range(100, 100 + seeds)
    about = [
        f"Step times as fractions of {long_s:g} s of plain search (`{methods.LEAD}`), geometric means.",
        "Neither policy was taught the program's family (`experiments/weights`). *go* is `go_zero_shot`: its likeliest",
        "placement, and the best of 64. *list* is `learned_list`: its first placement, which is by a rule written by",
        "hand, and the best of 64; *untaught list* draws around that rule. *Short search* is",
        f"{short_s:g} s of plain search, and *list, short search* begins at the best of the 64. *Fine-tuned* are",
        f"`go` and `learned_list` with {_UPDATES:,} placements, and *as many* is plain search with so many.",
        "*Plain search there* are the seconds until the long search was there; *never* where one seed never was.",
        "",
    ]
    write_page(_OUT.value, title, f"`{command}`", ", ".join(map(str, of_each)), [*about, *lines])


if __name__ == "__main__":
    run_program(main)
