"""An evaluator that never measures a placement twice, not even after it was killed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tf_placer.evaluation.evaluator import Evaluator
from tf_placer.evaluation.journal import Journal, Record
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.problem.decisions import Decisions, decisions_of
from tf_placer.problem.problem import Problem


class JournaledEvaluator:
    """Looks a placement up in a ``Journal``, and measures it only when it is not there.

        with RuntimeEvaluator(item, problem) as runtime, JournaledEvaluator(runtime, path) as evaluator:
            measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]

    Each placement is on the disk before the next one is measured. One that is asked for again, in the same
    batch, later or by a later process, gets its first answer again: equal samples of a policy cost nothing, and carry
    no news about noise. So do failures: delete a record's line to have the placement measured again.

    Attributes:
      measured: placements measured since then.
      reused: answers that were one of the records kept.
      repeated: answers for a placement measured since then.
    """

    def __init__(self, evaluator: Evaluator, path: str | os.PathLike[str]) -> None:
        """Opens the journal at ``path``, or makes one; ``evaluator`` stays the caller's to close.

        Raises:
          InputError: the file is damaged, another evaluator's, or in use by another process.
        """
        self._evaluator = evaluator
        self._journal = Journal(path, evaluator.identity)
        self._old = frozenset(self._journal.records)
        self.measured = 0
        self.reused = 0
        self.repeated = 0

    def __enter__(self) -> JournaledEvaluator:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the journal."""
        self._journal.close()

    @property
    def kept(self) -> int:
        """Records that were in the file at the start."""
        return len(self._old)

    @property
    def problem(self) -> Problem:
        """What is placed."""
        return self._evaluator.problem

    @property
    def identity(self) -> dict[str, Any]:
        """That of the evaluator inside."""
        return self._evaluator.identity

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Answers for each placement in turn, from the journal or from the evaluator inside.

        Args:
          device_of_unit: [B, U] device positions, or all that B plans decide.

        Returns:
          ``peak_bytes`` is None: the journal does not keep it.

        Raises:
          InputError: wrong shape.
        """
        decisions = decisions_of(device_of_unit, self.problem)
        records = [self._record_of(decisions.row(i)) for i in range(len(decisions))]
        return Measurement(
            runtime_s=np.array([_seconds(record.runtime_s) for record in records]),
            peak_bytes=None,
            status=np.array([Status[record.status] for record in records], np.int32),
            messages=tuple(record.message for record in records),
            spread_s=np.array([_seconds(record.spread_s) for record in records]),
        )

    def _record_of(self, plan: Decisions) -> Record:
        digest = plan.digest(0, self.problem)
        if digest in self._journal.records:
            self.reused += digest in self._old
            self.repeated += digest not in self._old
            return self._journal.records[digest]
        found = self._evaluator.evaluate(plan.plain)
        record = Record(
            placement=digest,
            status=Status(int(found.status[0])).name,
            runtime_s=_finite(found.runtime_s[0]),
            spread_s=None if found.spread_s is None else _finite(found.spread_s[0]),
            message=found.messages[0],
        )
        self._journal.append(record)
        self.measured += 1
        return record


def _seconds(value: float | None) -> float:
    return float("nan") if value is None else value


def _finite(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
