"""One program and one placement: whether the placed program does what the program does, to the bit."""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow.core.framework import graph_pb2

from tests.equivalence.building import Built, build
from tests.equivalence.observing import (
    Observation,
    as_session_saw_it,
    close,
    collecting,
    observe,
    observe_gradients,
    observe_session,
)
from tests.equivalence.programs import Program, all_steps
from tests.equivalence.structure import capture_complaints, item_complaints, placed_complaints, ran_complaints
from tests.logical_devices import NUM_DEVICES
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.rewrite import placed_function, rewrite


@dataclasses.dataclass(frozen=True)
class Subject:
    """A program, and what it does without a placement."""

    built: Built  # the traced program
    expected: Observation  # what calls of it do
    expected_gradients: Observation | None  # gradients through it, for programs where they are asked for


@dataclasses.dataclass(frozen=True)
class Way:
    """How a pair is checked beyond calling the placed function."""

    # place with ``placed_function``, which makes the item again, not with its two parts
    publicly: bool = True
    session: bool = True  # also run ``apply_placement``'s graph in a session
    gradients: bool = True  # also take gradients from outside, if the subject has them


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a pair."""

    complaints: tuple[str, ...]  # a line for everything that is wrong; empty when all is well
    devices: int = 0  # how many devices ran the placed function


def subject_of(program: Program, gradients: bool) -> Subject:
    """Builds a program and runs it unplaced.

    Args:
      program: the program.
      gradients: take gradients, too; that costs a second trace, because taking them changes the traced graph.
    """
    built = build(program)
    expected = observe(built.concrete, built)
    expected_gradients = None
    if gradients:
        again = build(program)
        expected_gradients = observe_gradients(again.concrete, again)
    return Subject(built, expected, expected_gradients)


def item_of(subject: Subject) -> Item:
    """The program: made with the variables' first values, which the item keeps."""
    subject.built.state.reset()
    return Item.from_function(subject.built.concrete, *subject.built.arguments(0))


def problem_of(subject: Subject) -> tuple[Item, Problem]:
    """What is to be placed."""
    item = item_of(subject)
    return item, analytic_problem(item, Cluster.logical(NUM_DEVICES))


def random_row(problem: Problem, seed: int, number: int) -> np.ndarray:
    """[U] int32, a random legal device for each unit; in some placements most units stay on the first device."""
    rng = np.random.default_rng([seed, number])
    row = np.array([rng.choice(np.flatnonzero(allowed)) for allowed in problem.allowed], np.int32)
    stays = rng.random(problem.num_units) < (0.0, 0.0, 0.7)[number % 3]
    return np.where(stays & problem.allowed[:, 0], 0, row).astype(np.int32)


def check_item(subject: Subject, item: Item) -> list[str]:
    """What is wrong with the item, placed or not."""
    return item_complaints(item, subject.built.concrete)


def check_pair(subject: Subject, item: Item, problem: Problem, row: np.ndarray, way: Way) -> Outcome:
    """Places a program and compares everything it does; what it raises is a complaint, too."""
    try:
        return _check(subject, item, problem, row, way)
    except Exception as error:  # noqa: BLE001 - whatever a wrong rewrite raises, the pair has failed
        return Outcome((f"raised {type(error).__name__}: {str(error)[:1000]}",))


def _check(subject: Subject, item: Item, problem: Problem, row: np.ndarray, way: Way) -> Outcome:
    built, placement = subject.built, Placement(problem, row)
    devices = placement.device_names
    before = item.graph_def.SerializeToString(deterministic=True)
    built.state.reset()
    if way.publicly:
        placed = placed_function.placed_function(built.concrete, placement, *built.arguments(0))
    else:
        placed_function.move_variables(built.concrete, item, devices)
        placed = placed_function.placed_concrete_function(built.concrete, item, placement)
    complaints = capture_complaints(built.concrete, built.state.variables)
    complaints += placed_complaints(placed, item, devices)
    graphs: list[graph_pb2.GraphDef] = []
    complaints += differences(subject.expected, observe(collecting(placed, graphs), built))
    lines, used = ran_complaints(graphs, item, devices)
    complaints += lines
    if way.gradients and subject.expected_gradients is not None:
        built.state.reset()
        found = observe_gradients(placed, built)
        # The gradient of a call adds up what its body contributes before the caller does; inlined, all is added at
        # once, in another order; and where nothing flows back through a call, TensorFlow gives zeros for it, not None.
        # The parts of an IdentityN are added up one by one, too. Without either, even the order is the same.
        reordering = ("call", "identity_n")
        exact = not any(step.operation.startswith(reordering) for step in all_steps(built.program.steps))
        complaints += differences(subject.expected_gradients, found, equal=operator.eq if exact else close)
    if way.session and (item.fetches or item.control_outputs):
        graph_def = rewrite.apply_placement(item, placement)
        in_session = observe_session(graph_def, item, built)
        expected = as_session_saw_it(subject.expected)
        complaints += differences({key: expected[key] for key in in_session}, in_session, "in a session, ")
    if item.graph_def.SerializeToString(deterministic=True) != before:
        complaints.append("placing changed the item")
    return Outcome(tuple(complaints), len(used))


def differences(
    expected: Observation,
    found: Observation,
    where: str = "",
    equal: Callable[[Any, Any], bool] = operator.eq,
) -> list[str]:
    """A line for each thing that differs."""
    return [
        f"{where}{key} differs"
        for key in sorted(expected.keys() | found.keys())
        if not equal(expected.get(key), found.get(key))
    ]
