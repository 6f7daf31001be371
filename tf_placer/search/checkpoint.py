"""Checkpoints of a search on disk, from which a killed process resumes."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import time
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.base.files import write_atomically

SCHEMA_VERSION = 1
FILE_NAME = "search.json"
_LEARNER = "learner-"
_REST = "json"  # name of what is no array in a planner's file


class Checkpoint:
    """Checkpoint of a search after its last whole round; without a folder nothing is written.

        checkpoint = Checkpoint(folder, identity, every_s)
        recorder.restore(checkpoint.recorder)
        for batch in rounds:  # of a method that has called context.checkpoint.track(learner)
            recorder.add(batch)
            checkpoint.save(len(recorder.history), recorder.state, last=recorder.exhausted)

    ``search.json`` names the learner's files that go with it and is replaced in one step: a kill at any moment
    leaves the old pair or the new one.
    """

    def __init__(
        self,
        folder: pathlib.Path | None = None,
        identity: Mapping[str, Any] | None = None,
        every_s: float = 0.0,
        state: dict[str, Any] | None = None,
    ) -> None:
        """Reads the folder of one search, which is made if need be; None writes nothing.

        A search with another ``identity``, JSON data, cannot go on here. Saves are ``every_s`` seconds apart or more.
        A method inside a method has no folder, and its planner goes on from a ``state`` of one.

        Raises:
          InputError: the folder holds another search, or is damaged.
        """
        self._folder = folder
        self._identity = json.loads(json.dumps(identity))
        self._every_s = every_s
        self.state = state or {}
        # That is tracked, with ``state`` and ``restore`` of ``planners.planner.Method``.
        self.planner: Any = None
        self._saved_s = float("-inf")
        self._write_learner: Callable[[pathlib.Path], object] | None = None
        self._settings: dict[str, Any] | None = None
        self._document: dict[str, Any] = {}
        path = None if folder is None else folder / FILE_NAME
        try:
            if path is not None and path.exists():
                document = json.loads(path.read_text(encoding="utf8"))
                if document["schema_version"] != SCHEMA_VERSION:
                    raise ValueError(f"schema version {document['schema_version']}")
                self._document = document | {"identity": document["identity"]}  # none without it
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"checkpoint: {path} cannot be read ({type(error).__name__}: {error}); delete it to begin anew, "
                "which keeps what was measured"
            ) from error
        if self._document:
            self._refuse_other(self._document["identity"], self._identity)
        # State of the recorder when last saved; None for a search that begins.
        self.recorder: dict[str, Any] | None = self._document.get("recorder")
        self._saved_rounds = 0 if self.recorder is None else len(self.recorder["history"])
        if folder and not self._document:
            self._write(folder, None, None)

    def settings_are(self, settings: Mapping[str, Any]) -> None:
        """Notes the method's settings, JSON data; raises InputError if the folder holds a search with others."""
        self._settings = json.loads(json.dumps(settings))
        if self._document.get("settings") is not None:
            self._refuse_other(self._document["settings"], self._settings)

    def track(self, learner: tf.Module, settings: Mapping[str, Any] | None = None) -> None:
        """Restores a learner from the last save, and saves its variables from now on; see ``settings_are``.

        Raises InputError where what was saved is damaged, as ``track_state`` does.
        """
        if settings is not None:
            self.settings_are(settings)
        variables = tf.train.Checkpoint(learner=learner)
        self._track(
            lambda prefix: variables.write(str(prefix)),
            lambda prefix: variables.read(str(prefix)).assert_consumed(),
        )

    def track_state(self, planner: Any) -> bool:
        """The same for a planner without variables, by its ``state``; returns whether there was one.

        Its file has arrays as they are, everything else as JSON.
        """

        def write(prefix: pathlib.Path) -> None:
            arrays, rest = dict[str, Any](), dict[str, Any]()
            for name, value in planner.state().items():
                (arrays if isinstance(value, np.ndarray) else rest)[name] = value
            arrays[_REST] = np.array(json.dumps(rest))
            np.savez(f"{prefix}.npz", **arrays)

        def read(prefix: pathlib.Path) -> None:
            try:
                with np.load(f"{prefix}.npz", allow_pickle=False) as file:
                    arrays = dict(file)
            except zipfile.BadZipFile as error:
                raise ValueError(str(error)) from error
            planner.restore({**json.loads(str(arrays.pop(_REST))), **arrays})

        self.planner = planner
        if self.state:
            planner.restore(self.state)
        return self._track(write, read) or bool(self.state)

    def _track(self, write: Callable[[pathlib.Path], object], read: Callable[[pathlib.Path], object]) -> bool:
        self._write_learner = write
        if self._document.get("learner") is None:
            return False
        assert self._folder is not None  # or there would be no document
        prefix = self._folder / self._document["learner"]
        try:
            read(prefix)
        except (tf.errors.OpError, AssertionError, OSError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"{prefix}.* cannot be restored ({type(error).__name__}); delete {self._folder / FILE_NAME} to "
                "begin anew, which keeps what was measured"
            ) from error
        return True

    def save(self, rounds: int, recorder_state: Callable[[], dict[str, Any]], last: bool = False) -> None:
        """Saves after a number of rounds, unless the last save was a moment ago and this may not be the last.

        The recorder's state has a list of rounds called ``history``.
        """
        is_due = last or time.monotonic() - self._saved_s >= self._every_s
        if self._folder is None or rounds == self._saved_rounds or not is_due:
            return
        learner = None
        if self._write_learner is not None:
            learner = f"{_LEARNER}{rounds}"
            self._write_learner(self._folder / learner)
            for file in self._folder.glob(f"{learner}.*"):
                with open(file, "rb") as written:
                    os.fsync(written.fileno())
        self._write(self._folder, recorder_state(), learner)
        for path in self._folder.glob(f"{_LEARNER}*"):
            if path.is_dir():  # a killed save was writing to it
                shutil.rmtree(path, ignore_errors=True)
            elif path.stem != learner:
                path.unlink(missing_ok=True)
        self._saved_s = time.monotonic()
        self._saved_rounds = rounds

    def _write(self, folder: pathlib.Path, recorder: dict[str, Any] | None, learner: str | None) -> None:
        document = {"schema_version": SCHEMA_VERSION, "identity": self._identity, "settings": self._settings}
        document |= {"recorder": recorder, "learner": learner}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            remedy = "give another folder"
            raise InputError(f"checkpoint={folder} cannot be made ({error.strerror}); {remedy}") from error
        write_atomically(folder / FILE_NAME, json.dumps(document))

    def _refuse_other(self, saved: dict[str, Any], current: dict[str, Any]) -> None:
        for key in {**current, **saved}:
            if saved.get(key) != current.get(key):
                raise InputError(
                    f"{self._folder} holds a search with {key} {saved.get(key)!r}, not {current.get(key)!r}; give "
                    "that, or another folder"
                )
