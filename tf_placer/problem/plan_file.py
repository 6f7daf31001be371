"""Plans as data: what a placement.json says, before it is held against a graph."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import pathlib
import reprlib
from collections.abc import Mapping
from typing import Any

import jsonschema
import numpy as np

from tf_placer.errors import InputError
from tf_placer.problem.decisions import NO_CLUSTER
from tf_placer.problem.problem import Problem

DEVICES_ONLY, WITH_SCHEDULE = SCHEMA_VERSIONS = (1, 2)
SCHEMA_PATH = pathlib.Path(__file__).with_name("placement.schema.json")
_LONGEST_MESSAGE = 160


@dataclasses.dataclass(frozen=True)
class PlanFile:
    """A well-formed plan.

    Attributes:
      source: where it is from, for messages.
      fingerprint: of the graph that it was made for.
      devices: op name -> device string.
      made_for: flags that it was made with; empty where that is not known.
      priorities: op name -> priority, of every op; None where the plan decides no order.
      clusters: op name -> fusion cluster, of the ops that are in one; None where the plan fuses nothing.
    """

    source: str
    fingerprint: str
    devices: Mapping[str, str]
    made_for: Mapping[str, Any]
    priorities: Mapping[str, int] | None = None
    clusters: Mapping[str, int] | None = None

    @staticmethod
    def read(path: str | pathlib.Path) -> PlanFile:
        """Reads a placement.json.

        Raises:
          InputError: it is missing, or as ``parse``.
        """
        try:
            text = pathlib.Path(path).read_text(encoding="utf8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot read placement file {path}: {error}; give the placement.json of a run"
            ) from error
        return PlanFile.parse(text, str(path))

    @staticmethod
    def parse(text: str, source: str) -> PlanFile:
        """Reads the text of a plan; ``source`` names it in messages.

        Raises:
          InputError: it is no JSON, does not fit the schema (``SCHEMA_PATH``), or is of another version.
        """
        try:
            plan = json.loads(text, object_pairs_hook=functools.partial(_without_doubles, source))
        except json.JSONDecodeError as error:
            raise InputError(
                f"{source} is not JSON (line {error.lineno}: {error.msg}); give a placement.json"
            ) from error
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets in brackets
            raise InputError(
                f"{source} is not JSON that can be read ({error}); give a placement.json"
            ) from error
        if not isinstance(plan, dict) or not isinstance(plan.get("devices"), dict):
            raise InputError(
                f'{source} is not a placement: it has no object "devices"; give a placement.json'
            )
        if plan.get("schema_version") not in SCHEMA_VERSIONS:
            raise InputError(
                f"{source} has schema version {reprlib.repr(plan.get('schema_version'))}, this program reads "
                f"{' and '.join(map(str, SCHEMA_VERSIONS))}; make the plan again"
            )
        misfit = jsonschema.exceptions.best_match(_validator().iter_errors(plan))
        if misfit is not None:
            raise InputError(
                f"{source} does not fit the schema of plans at {misfit.json_path}: "
                f"{misfit.message[:_LONGEST_MESSAGE]}; mend it there"
            )
        return PlanFile(
            source=source,
            fingerprint=plan["fingerprint"],
            devices=plan["devices"],
            made_for=plan.get("made_for", {}),
            priorities=plan.get("priorities"),
            clusters=plan.get("clusters"),
        )

    @property
    def schedules(self) -> bool:
        """It decides more than devices."""
        return bool(self.priorities or self.clusters)

    def device_of_op(self, problem: Problem) -> dict[int, int]:
        """Op -> device, as positions in ``problem``, of those ops that the plan names and the graph has.

        Raises:
          InputError: an op is on a device that the cluster lacks.
        """
        try:
            return device_positions(problem, self.devices)
        except InputError as error:
            raise InputError(f"{self.source}: {error}") from None

    def priority_of_op(self, problem: Problem) -> np.ndarray | None:
        """[N] int32, or None where the plan has none.

        Raises:
          InputError: the plan has priorities, but not of this op, or of one that the graph lacks.
        """
        if self.priorities is None:
            return None
        missing = next((name for name in problem.op_names if name not in self.priorities), None)
        if missing is not None:
            raise InputError(
                f"{self.source}: no priority for op {missing!r}; give one for every op of the graph, or none at all"
            )
        return self._per_op(problem, "priorities", self.priorities, 0)

    def cluster_of_op(self, problem: Problem) -> np.ndarray | None:
        """[N] int32, -1 for ops in no cluster, or None where the plan has none.

        Raises:
          InputError: it names an op that the graph lacks.
        """
        return None if self.clusters is None else self._per_op(problem, "clusters", self.clusters, NO_CLUSTER)

    def _per_op(
        self, problem: Problem, what: str, value_of_op: Mapping[str, int], otherwise: int
    ) -> np.ndarray:
        stranger = next(iter(value_of_op.keys() - set(problem.op_names)), None)
        if stranger is not None:
            raise InputError(
                f"{self.source} has op {stranger!r} in {what}, which the graph lacks; take it out"
            )
        # A JSON number such as 3.0 is a whole one, too.
        return np.array([int(value_of_op.get(name, otherwise)) for name in problem.op_names], np.int32)

    def check_schedule(self, problem: Problem) -> None:
        """Raises InputError unless priorities, if there are any, are of all ops, and clusters of ops of this graph."""
        self.priority_of_op(problem)
        self.cluster_of_op(problem)

    def check_complete(self, problem: Problem) -> None:
        """Raises InputError unless the plan is for this graph and names all its ops and no other."""
        if self.fingerprint != problem.fingerprint:
            raise InputError(
                f"{self.source} was made for another graph (fingerprint {self.fingerprint[:12]}, this graph has "
                f"{problem.fingerprint[:12]}); run place on this graph"
            )
        missing = next((name for name in problem.op_names if name not in self.devices), None)
        if missing is not None:
            raise InputError(
                f"{self.source}: no device for op {missing!r}; the plan must name every op of the graph"
            )
        if len(self.devices) != problem.num_ops:
            stranger = next(iter(self.devices.keys() - set(problem.op_names)))
            raise InputError(f"{self.source} names op {stranger!r}, which the graph lacks; take it out")


def device_positions(problem: Problem, device_of_op: Mapping[str, str]) -> dict[int, int]:
    """Op -> device, as positions in a problem, of those named ops that it has.

    Raises:
      InputError: one is on a device that the cluster lacks.
    """
    column = {device.name: d for d, device in enumerate(problem.cluster.devices)}
    found = {}
    for op, name in enumerate(problem.op_names):
        device = device_of_op.get(name)
        if device is None:
            continue
        if device not in column:
            raise InputError(
                f"op {name!r} is on {reprlib.repr(device)}, which cluster {problem.cluster.name!r} lacks; "
                f"it has {', '.join(column)}"
            )
        found[op] = column[device]
    return found


def _without_doubles(source: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = collections.Counter(name for name, _ in pairs).most_common(1)
        raise InputError(f"{source} has {twice!r} twice; keep one")
    return found


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text(encoding="utf8")))
