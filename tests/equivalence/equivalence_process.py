"""Checks the pairs of a range of seeds, and prints what it found, as JSON.

A process of its own: TensorFlow fixes its logical devices when its first op runs. To replay a failure:

    python -m tests.equivalence.equivalence_process --first_seed=SEED --programs=1
"""

import argparse
import collections
import dataclasses
import gc
import json
import sys

from tests.equivalence.operations import program_of_seed
from tests.equivalence.pairs import Way, check_item, check_pair, item_of, problem_of, random_row, subject_of
from tests.equivalence.programs import Program, to_text
from tests.equivalence.structure import functions_of, library_of
from tests.logical_devices import exact_mode
from tf_placer.graph.item import Item


def way_of(number: int) -> Way:
    """How the placement of this number of a program is checked: what costs most not for every one."""
    return Way(publicly=number == 0, session=number == 1, gradients=number == 0)


def takes_gradients(seed: int) -> bool:
    """Whether gradients from outside are compared for a program."""
    return seed % 3 == 0


@dataclasses.dataclass(frozen=True)
class Checked:
    """What came of a program."""

    complaints: tuple[str, ...] = ()  # what is wrong; empty when all is well
    on_several: int = 0  # how many placements ran on several devices
    op_types: frozenset[str] = frozenset()  # of the ops in the item and in the functions that it calls


def check_program(program: Program, placements: range) -> Checked:
    """Checks a program with each of some placements; whatever it raises is a complaint."""
    try:
        subject = subject_of(program, takes_gradients(program.seed))
        item = item_of(subject)
        if not item.index.num_ops:  # it gives back what it is given
            return Checked(tuple(check_item(subject, item)))
        item, problem = problem_of(subject)
    except Exception as error:  # noqa: BLE001 - reported with its seed, and the test fails on it
        return Checked((f"raised {type(error).__name__}: {str(error)[:1000]}",))
    complaints, on_several = check_item(subject, item), 0
    for number in placements:
        row = random_row(problem, program.seed, number)
        outcome = check_pair(subject, item, problem, row, way_of(number))
        complaints += [f"placement {number}: {line}" for line in outcome.complaints]
        on_several += outcome.devices > 1
    return Checked(tuple(complaints), on_several, op_types_of(item))


def op_types_of(item: Item) -> frozenset[str]:
    """Types of the ops in the graph and in the functions that it calls."""
    library = library_of(item.graph_def)
    nodes = list(item.graph_def.node)
    for node in nodes:  # grows on the way
        for name in functions_of(node):
            nodes.extend(library.pop(name).node_def if name in library else ())
    return frozenset(node.op for node in nodes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--programs", type=int, required=True)
    parser.add_argument("--placements", type=int, default=5)
    arguments = parser.parse_args()
    exact_mode()
    op_types: collections.Counter[str] = collections.Counter()
    report: dict = {"programs": 0, "pairs": 0, "on_several_devices": 0, "failures": []}
    placements = range(arguments.placements)
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.programs):
        program = program_of_seed(seed)
        sys.stderr.write(f"seed {seed}\n")  # the last one, where TensorFlow ends the process
        if (seed - arguments.first_seed) % 20 == 0:
            # Moving a variable looks through everything alive: modules and what is done need not be looked at again.
            gc.collect()
            gc.freeze()
        checked = check_program(program, placements)
        op_types.update(checked.op_types)
        report["programs"] += 1
        report["pairs"] += len(placements)
        report["on_several_devices"] += checked.on_several
        if checked.complaints:
            failure = {"seed": seed, "complaints": checked.complaints[:20], "program": to_text(program)}
            report["failures"].append(failure)
    report["op_types"] = dict(op_types)
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
