"""Controllers that are processes: one is plain search, several are late by what the others did, and one may die."""

from __future__ import annotations

import multiprocessing
import os
import struct
from multiprocessing.connection import Connection

import numpy as np
import pytest

from experiments.studies import controllers
from experiments.studies.controllers import Training, train_in_processes
from experiments.studies.controllers_page import by_controllers
from tests.tf_placer.problem.small_problems import branches_problem
from tf_placer.base.arguments import InputError
from tf_placer.search.recorder import Silent
from tf_placer.search.search import search
from tf_placer.workers.local_workers import WorkerError

PROBLEM = branches_problem(3, 4)
CONFIG = by_controllers(4, 50)["hdp"]


class Kills(Silent):
    """Kills so many processes of controllers after the tenth round."""

    def __init__(self, count: int) -> None:
        self._count, self._rounds = count, 0

    def show(self, entry: object) -> None:
        self._rounds += 1
        if self._rounds == 10:
            for process in multiprocessing.active_children()[: self._count]:
                process.kill()
                process.join()


@pytest.mark.slow
def test_one_process_is_plain_search_bit_by_bit() -> None:
    plain = search(PROBLEM, "hdp", budget_evaluations=42, seed=7, config=CONFIG)
    one = train_in_processes(PROBLEM, "hdp", Training(1), CONFIG, budget_evaluations=42, seed=7)
    assert [(e.evaluations, e.best_s, e.mean_s) for e in one.result.history] == [
        (e.evaluations, e.best_s, e.mean_s) for e in plain.history
    ]
    assert set(one.late) == {0} and one.refused == 0
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_of_two_processes_one_may_be_killed() -> None:
    found = train_in_processes(
        PROBLEM, "hdp", Training(2), CONFIG, budget_evaluations=161, seed=7, progress=Kills(1)
    )
    assert found.result.evaluations == 161
    # Then nobody else pushes any more.
    assert set(found.late[-10:]) == {0}
    assert (np.diff(found.seconds) >= 0).all() and found.best_s[-1] == min(found.best_s)
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_without_any_process_it_ends() -> None:
    with pytest.raises(WorkerError, match="all 1 processes of controllers have died"):
        train_in_processes(
            PROBLEM, "hdp", Training(1), CONFIG, budget_evaluations=4001, seed=7, progress=Kills(1)
        )


def dies_within_a_message(connection: Connection, work: object) -> None:
    """A controller that is killed while it pushes: a thousand bytes are announced, four arrive."""
    del work
    connection.recv()
    os.write(connection.fileno(), struct.pack("!i", 1000) + bytes(4))


@pytest.mark.medium
def test_one_that_dies_within_a_message_is_as_dead_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "_control", dies_within_a_message)
    with pytest.raises(WorkerError, match="all 2 processes of controllers have died"):
        train_in_processes(PROBLEM, "hdp", Training(2), CONFIG, budget_evaluations=161, seed=7)


@pytest.mark.parametrize(
    ("method", "training", "told"),
    [("hdp", 2, "training is 2"), ("random", Training(2), "has no policy to train")],
)
def test_what_cannot_be_is_one_line(method: str, training: object, told: str) -> None:
    with pytest.raises(InputError, match=told):
        train_in_processes(PROBLEM, method, training, budget_evaluations=8)  # type: ignore[arg-type]
