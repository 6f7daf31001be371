"""Journal of measured placements on disk, and an evaluator that measures no placement twice, even after a kill."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import logging
import math
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.base.files import check_writable, write_atomically
from tf_placer.evaluation.simulated import Evaluator, Measurement, Status
from tf_placer.problem.placement import Decisions, decisions_of

SCHEMA_VERSION = 1
_LOG = logging.getLogger(__name__)
_Content = TypeVar("_Content")


@dataclasses.dataclass(frozen=True)
class Record:
    """One measured placement."""

    placement: str  # hex digest of its decisions (``Decisions.digest``)
    status: str  # name of a ``Status``
    runtime_s: float | None  # as in ``Measurement``, None for nan
    spread_s: float | None
    message: str  # one line

    def __post_init__(self) -> None:
        if self.status not in Status.__members__ or (self.runtime_s is None) == (self.status == "OK"):
            raise ValueError(f"status {self.status!r} with runtime_s {self.runtime_s}")


class Journal(contextlib.AbstractContextManager["Journal"]):
    """A file of JSON lines: a header with the evaluator's identity, then a record for each placement.

        with Journal(path, evaluator.identity) as journal:
            if digest not in journal.records:
                journal.append(Record(digest, ...))

    A record is on the disk when ``append`` returns, so it survives a kill at any moment. A kill during the write leaves
    an incomplete last line, which is cut off when the file is opened again. Every line carries a checksum, and any
    other damage is an error. One process at a time has the file.
    """

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, Any]) -> None:
        """Opens or creates the file.

        Raises:
          InputError: the file is damaged, another evaluator's, in use by another process, or read-only.
        """
        self._path = pathlib.Path(path)
        self.records: dict[str, Record] = {}
        if not self._path.exists():
            check_writable(self._path.parent, str(self._path))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, _line({"schema_version": SCHEMA_VERSION, **identity}))
        try:
            self._file: BinaryIO = open(self._path, "r+b", buffering=0)  # noqa: SIM115 - closed by close
        except OSError as error:
            raise InputError(
                f"{self._path} cannot be written: {error.strerror}; give another file"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process in any case
            self._read(identity)
        except BlockingIOError:
            self.close()
            raise InputError(
                f"{self._path} is in use by another process; wait for it, or give another file"
            ) from None
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets another process have the file."""
        self._file.close()

    def append(self, record: Record) -> None:
        """Adds the record of a new placement, on the disk on return."""
        if record.placement in self.records:
            raise ValueError(f"placement {record.placement} is in {self._path} already")
        self._file.write(_line(dataclasses.asdict(record)))
        os.fsync(self._file.fileno())
        self.records[record.placement] = record

    def _read(self, identity: dict[str, Any]) -> None:
        """Reads all records, and leaves the file at the end of its last complete line."""
        whole, _, torn = self._file.read().rpartition(b"\n")
        header, *lines = whole.split(b"\n")
        content: dict[str, Any] | None = _read_line(header, dict)
        if content is None:
            raise InputError(f"{self._path}, line 1: damaged; delete the file, or give another one")
        expected = json.loads(json.dumps({"schema_version": SCHEMA_VERSION, **identity}))
        for key in {**expected, **content}:
            if expected.get(key) != content.get(key):
                advice = (
                    "; Cluster.local() describes the machine anew each time, Cluster.local(kept_in=FILE) once"
                    if key == "cluster"
                    else ""
                )
                raise InputError(
                    f"{self._path} was measured with {key} {content.get(key)!r}, not {expected.get(key)!r}; give "
                    f"another file{advice}"
                )
        for number, line in enumerate(lines, start=2):
            record = _read_line(line, Record)
            if record is None or record.placement in self.records:
                raise InputError(
                    f"{self._path}, line {number}: damaged; delete the line, and its placement is measured again"
                )
            self.records[record.placement] = record
        record = _read_line(torn, Record)
        if record is not None and record.placement not in self.records:
            self.records[record.placement] = record  # only its line feed is missing
            self._file.write(b"\n")
        elif torn:
            _LOG.warning("%s ends within a line: cutting off its last %d bytes", self._path, len(torn))
            self._file.truncate(len(whole) + 1)
            self._file.seek(0, os.SEEK_END)


def _line(content: dict[str, Any]) -> bytes:
    """Content with its checksum as one line of JSON."""
    return (json.dumps({**content, "crc32": _checksum(content)}) + "\n").encode()


def _read_line(line: bytes, kind: Callable[..., _Content]) -> _Content | None:
    """Content of a line; None for a damaged one."""
    try:
        content = json.loads(line)
        return kind(**content) if content.pop("crc32") == _checksum(content) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


class JournaledEvaluator(contextlib.AbstractContextManager["JournaledEvaluator"]):
    """Looks a placement up in a ``Journal``, and measures only new ones.

        with RuntimeEvaluator(item, problem) as runtime, JournaledEvaluator(runtime, path) as evaluator:
            measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]

    Each placement is on the disk before the next one is measured, or before the next answer of an evaluator that
    measures several at once. For such an evaluator (``FleetEvaluator``: ``reference``, ``relative_to``,
    ``evaluate_each``) the reference plan is the first record, and its recorded time is the unit of all times, also in
    later processes. A repeated placement gets its first answer again, whether in the same batch, later or in a later
    process: equal samples of a policy cost nothing, and carry no news about noise. So do failures: delete the line of a
    record to have its placement measured again.
    """

    def __init__(self, evaluator: Evaluator, path: str | os.PathLike[str]) -> None:
        """Opens the journal at ``path``, or makes one; ``evaluator`` stays the caller's to close.

        Raises:
          InputError: the file is damaged, another evaluator's, or in use by another process.
        """
        self._evaluator, self.problem = evaluator, evaluator.problem
        self._journal = Journal(path, evaluator.identity)
        self._old = frozenset(self._journal.records)
        self.kept = len(self._old)  # records in the file at the start
        self.measured = 0  # placements measured since then
        self.reused = 0  # answers from the records kept

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the journal."""
        self._journal.close()

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the inner evaluator."""
        return self._evaluator.identity

    def evaluate(self, device_of_unit: np.ndarray | Decisions) -> Measurement:
        """Answers for each placement in turn, from the journal, which keeps no ``peak_bytes``, or anew."""
        decisions = decisions_of(device_of_unit, self.problem)
        digests = [decisions.digest(i, self.problem) for i in range(len(decisions))]
        missing = {d: decisions.row(i) for i, d in enumerate(digests) if d not in self._journal.records}
        if missing:
            self._measure(missing)
        self.reused += sum(digest in self._old for digest in digests)
        records = [self._journal.records[digest] for digest in digests]
        return Measurement(
            # None becomes nan.
            runtime_s=np.array([record.runtime_s for record in records], np.float64),
            peak_bytes=None,
            status=np.array([Status[record.status] for record in records], np.int32),
            messages=tuple(record.message for record in records),
            spread_s=np.array([record.spread_s for record in records], np.float64),
        )

    def _measure(self, missing: dict[str, Decisions]) -> None:
        """Measures and records plans, given by digest; the reference plan, where there is one, comes first."""
        evaluator: Any = self._evaluator
        if not hasattr(evaluator, "evaluate_each"):
            self._record(missing, enumerate(evaluator.evaluate(plan.plain) for plan in missing.values()))
            return
        reference: Decisions = evaluator.reference
        digest = reference.digest(0, self.problem)
        if digest not in self._journal.records:
            self._record({digest: reference}, evaluator.evaluate_each(reference))
        record = self._journal.records[digest]
        if record.runtime_s is not None:
            evaluator.relative_to(record.runtime_s)
        missing = {key: plan for key, plan in missing.items() if key != digest}
        if missing:
            self._record(missing, evaluator.evaluate_each(Decisions.joined(list(missing.values()))))

    def _record(self, plans: dict[str, Decisions], answers: Iterator[tuple[int, Measurement]]) -> None:
        digests = list(plans)
        for position, answer in answers:
            runtime_s = float(answer.runtime_s[0])
            spread_s = math.nan if answer.spread_s is None else float(answer.spread_s[0])
            record = Record(
                placement=digests[position],
                status=Status(int(answer.status[0])).name,
                runtime_s=None if math.isnan(runtime_s) else runtime_s,
                spread_s=None if math.isnan(spread_s) else spread_s,
                message=answer.messages[0],
            )
            self._journal.append(record)
            self.measured += 1
