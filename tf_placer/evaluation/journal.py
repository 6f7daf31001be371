"""Journal of measured placements on disk, one line each, and the evaluator that never measures one twice."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import logging
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.base.files import check_writable, write_atomically
from tf_placer.evaluation.measurement import Measurement, Status
from tf_placer.evaluation.simulated import Evaluator
from tf_placer.problem.decisions import Decisions, decisions_of
from tf_placer.problem.problem import Problem

SCHEMA_VERSION = 1
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Record:
    """One measured placement.

    Attributes:
      placement: hex digest of all that it decides (``Decisions.digest``).
      status: name of a ``Status``.
      runtime_s, spread_s: as in ``Measurement``, None for nan.
      message: one line.
    """

    placement: str
    status: str
    runtime_s: float | None
    spread_s: float | None
    message: str

    def __post_init__(self) -> None:
        if self.status not in Status.__members__ or (self.runtime_s is None) == (self.status == "OK"):
            raise ValueError(f"status {self.status!r} with runtime_s {self.runtime_s}")


class Journal:
    """A file of JSON lines: a header that says what measured, then a record for each placement.

        with Journal(path, evaluator.identity) as journal:
            if digest not in journal.records:
                journal.append(Record(digest, ...))

    A record is on the disk when ``append`` returns, so it outlives a kill at any moment. A kill while a record is
    written leaves a last line without its end, which is cut off when the file is opened again; every line carries a
    checksum, and any other damage is an error. One process at a time has the file.
    """

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, Any]) -> None:
        """Opens or creates the file.

        Args:
          path: where it is, or will be.
          identity: of the evaluator whose answers it holds.

        Raises:
          InputError: it is damaged, another evaluator's, in use by another process, or cannot be written.
        """
        self._path = pathlib.Path(path)
        self.records: dict[str, Record] = {}
        if not self._path.exists():
            check_writable(self._path.parent, str(self._path))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, _line({"schema_version": SCHEMA_VERSION, **identity}))
        self._file = self._opened()
        try:
            self._lock()
            self._read(identity)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets another process have the file."""
        self._file.close()

    def append(self, record: Record) -> None:
        """Adds a record of a placement that is not there yet; it is on the disk on return."""
        if record.placement in self.records:
            raise ValueError(f"placement {record.placement} is in {self._path} already")
        self._file.write(_line(dataclasses.asdict(record)))
        os.fsync(self._file.fileno())
        self.records[record.placement] = record

    def _opened(self) -> BinaryIO:
        try:
            return open(self._path, "r+b", buffering=0)
        except OSError as error:
            raise InputError(
                f"{self._path} cannot be written: {error.strerror}; give another file"
            ) from error

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however that ends
        except BlockingIOError:
            raise InputError(
                f"{self._path} is in use by another process; wait for it, or give another file"
            ) from None

    def _read(self, identity: dict[str, Any]) -> None:
        """Reads everything, and leaves the file at its end, which is the end of a line."""
        whole, _, torn = self._file.read().rpartition(b"\n")
        header, *lines = whole.split(b"\n")
        self._check_header(_content(header), identity)
        for number, line in enumerate(lines, start=2):
            record = _record(line)
            if record is None or record.placement in self.records:
                raise InputError(
                    f"{self._path}, line {number}: damaged; delete the line, and its placement is measured again"
                )
            self.records[record.placement] = record
        last = _record(torn) if torn else None
        if last is not None and last.placement not in self.records:
            self.records[last.placement] = last  # all but its line feed was written
            self._file.write(b"\n")
        elif torn:
            _LOG.warning("%s ends within a line: cutting off its last %d bytes", self._path, len(torn))
            self._file.truncate(len(whole) + 1)
            self._file.seek(0, os.SEEK_END)

    def _check_header(self, found: dict[str, Any] | None, identity: dict[str, Any]) -> None:
        if found is None:
            raise InputError(f"{self._path}, line 1: damaged; delete the file, or give another one")
        wanted = json.loads(json.dumps({"schema_version": SCHEMA_VERSION, **identity}))
        for key in {**wanted, **found}:
            if wanted.get(key) != found.get(key):
                advice = (
                    "; Cluster.local() describes the machine anew each time, Cluster.local(kept_in=FILE) once"
                    if key == "cluster"
                    else ""
                )
                raise InputError(
                    f"{self._path} was measured with {key} {found.get(key)!r}, not {wanted.get(key)!r}; give "
                    f"another file{advice}"
                )


def _line(content: dict[str, Any]) -> bytes:
    """Content and its checksum as one line of JSON."""
    return (json.dumps({**content, "crc32": _checksum(content)}) + "\n").encode()


def _content(line: bytes) -> dict[str, Any] | None:
    """Data of a line that ``_line`` made, or None when it is damaged."""
    try:
        content = json.loads(line)
        return content if content.pop("crc32") == _checksum(content) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _record(line: bytes) -> Record | None:
    try:
        return Record(**(_content(line) or {}))
    except (TypeError, ValueError):
        return None


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


# An evaluator that never measures a placement twice, not even after it was killed.


@runtime_checkable
class MeasuresAtOnce(Protocol):
    """An evaluator that has several plans under way, and times of one unit only by what is kept of a reference plan."""

    @property
    def reference(self) -> Decisions:
        """The plan that times are relative to, one row."""

    def relative_to(self, level_s: float) -> None:
        """Says how many seconds the reference plan takes."""

    def evaluate_each(self, plans: Decisions) -> Iterator[tuple[int, Measurement]]:
        """Yields position and measurement of each plan as soon as it is there."""


class JournaledEvaluator:
    """Looks a placement up in a ``Journal``, and measures it only when it is not there.

        with RuntimeEvaluator(item, problem) as runtime, JournaledEvaluator(runtime, path) as evaluator:
            measurement = evaluator.evaluate(device_of_unit)  # [B, U] -> [B]

    Each placement is on the disk before the next one is measured, or, of an evaluator that measures several at once,
    before its next answer is taken; of such a one the reference plan is the first record, and what it took then is the
    unit of all times, also of later processes. A placement that is asked for again, in the same
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
        """The problem that is placed."""
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
        rows = [decisions.row(i) for i in range(len(decisions))]
        digests = [row.digest(0, self.problem) for row in rows]
        missing = {d: row for d, row in zip(digests, rows, strict=True) if d not in self._journal.records}
        if missing:
            self._measure(missing)
        for digest in digests:
            is_first = missing.pop(digest, None) is not None
            self.reused += digest in self._old
            self.repeated += not is_first and digest not in self._old
        records = [self._journal.records[digest] for digest in digests]
        return Measurement(
            runtime_s=np.array([_seconds(record.runtime_s) for record in records]),
            peak_bytes=None,
            status=np.array([Status[record.status] for record in records], np.int32),
            messages=tuple(record.message for record in records),
            spread_s=np.array([_seconds(record.spread_s) for record in records]),
        )

    def _measure(self, missing: dict[str, Decisions]) -> None:
        """Measures and keeps plans, by their digests; of an evaluator that has a reference plan that one first."""
        if isinstance(self._evaluator, MeasuresAtOnce):
            reference = self._evaluator.reference
            digest = reference.digest(0, self.problem)
            if digest not in self._journal.records:
                self._keep({digest: reference}, self._evaluator.evaluate_each(reference))
            record = self._journal.records[digest]
            if record.runtime_s is not None:
                self._evaluator.relative_to(record.runtime_s)
            missing = {one: plan for one, plan in missing.items() if one != digest}
            if missing:
                plans = Decisions.joined(list(missing.values()))
                self._keep(missing, self._evaluator.evaluate_each(plans))
            return
        one_by_one = (self._evaluator.evaluate(plan.plain) for plan in missing.values())
        self._keep(missing, enumerate(one_by_one))

    def _keep(self, plans: dict[str, Decisions], found: Iterator[tuple[int, Measurement]]) -> None:
        digests = list(plans)
        for position, measured in found:
            self._journal.append(_record_of(digests[position], measured))
            self.measured += 1


def _record_of(digest: str, found: Measurement) -> Record:
    return Record(
        placement=digest,
        status=Status(int(found.status[0])).name,
        runtime_s=_finite(found.runtime_s[0]),
        spread_s=None if found.spread_s is None else _finite(found.spread_s[0]),
        message=found.messages[0],
    )


def _seconds(value: float | None) -> float:
    return float("nan") if value is None else value


def _finite(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
