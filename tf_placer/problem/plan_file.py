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
from tf_placer.problem.layer_lines import NO_LINE, device_of_lines, layer_of_unit
from tf_placer.problem.layers import Layers, layers_of
from tf_placer.problem.problem import Problem

DEVICES_ONLY, WITH_SCHEDULE, WITH_LAYERS = SCHEMA_VERSIONS = (1, 2, 3)
SCHEMA_PATH = pathlib.Path(__file__).with_name("placement.schema.json")
_LONGEST_MESSAGE = 160


@dataclasses.dataclass(frozen=True)
class PlanFile:
    """A well-formed plan.

    Attributes:
      source: where it is from, for messages.
      fingerprint: of the graph that it was made for.
      devices: op name -> device string; with ``layers``, of ops that are not where their layer is.
      made_for: flags that it was made with; empty where that is not known.
      priorities: op name -> priority, of every op; None where the plan decides no order.
      clusters: op name -> fusion cluster, of the ops that are in one; None where the plan fuses nothing.
      layers: layer -> device string, as ``layer_lines`` says; None where the plan says it op by op.
    """

    source: str
    fingerprint: str
    devices: Mapping[str, str]
    made_for: Mapping[str, Any]
    priorities: Mapping[str, int] | None = None
    clusters: Mapping[str, int] | None = None
    layers: Mapping[str, str] | None = None

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
                f"{', '.join(map(str, SCHEMA_VERSIONS))}; make the plan again"
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
            layers=plan.get("layers"),
        )

    @property
    def schedules(self) -> bool:
        """It decides more than devices."""
        return bool(self.priorities or self.clusters)

    def op_by_op(self, problem: Problem, is_part: bool = False) -> PlanFile:
        """The plan with lines of layers put as lines of their ops; as it is where there are none.

        A unit is where one of its ops is listed; else where the layer that most of its ops are of is.

        Args:
          problem: of the graph.
          is_part: leave out layers that are not in this graph, which may be another one than the plan was made for.

        Raises:
          InputError: the plan is for another graph, it has a layer or a device that is not there, or it puts a layer
            where one of its ops cannot be.
        """
        if self.layers is None:
            return self
        if not is_part:
            self._check_graph(problem)
        layers = layers_of(problem)
        of_unit = device_of_lines(problem, layers, self.layers, self.source, is_part)
        names = [device.name for device in problem.cluster.devices]
        listed = [op for op, name in enumerate(problem.op_names) if name in self.devices]
        named = {int(problem.unit_of_op[op]): self.devices[problem.op_names[op]] for op in reversed(listed)}
        self._check_lines(problem, layers, of_unit, named)
        devices = dict(self.devices)
        for name, unit in zip(problem.op_names, problem.unit_of_op.tolist(), strict=True):
            if unit in named:
                devices.setdefault(name, named[unit])
            elif of_unit[unit] != NO_LINE:
                devices[name] = names[of_unit[unit]]
        return dataclasses.replace(self, devices=devices, layers=None)

    def _check_lines(
        self, problem: Problem, layers: Layers, of_unit: np.ndarray, named: Mapping[int, str]
    ) -> None:
        """Raises InputError where a line puts a unit, of which no op is listed, on a device that it may not be on."""
        is_free = np.array([unit not in named for unit in range(problem.num_units)])
        illegal = is_free & (of_unit != NO_LINE) & ~problem.allowed[np.arange(problem.num_units), of_unit]
        if illegal.any():
            unit = int(illegal.argmax())
            names = [device.name for device in problem.cluster.devices]
            may = ", ".join(name for name, ok in zip(names, problem.allowed[unit], strict=True) if ok)
            layer = layers.names[layer_of_unit(problem, layers)[unit]]
            raise InputError(
                f"{self.source}: layer {layer!r} is on {names[of_unit[unit]]!r}, where its op "
                f"{problem.name_of_unit(unit)!r} cannot be; give that op a line in devices, it can be on {may}"
            )

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
        self._check_graph(problem)
        missing = next((name for name in problem.op_names if name not in self.devices), None)
        if missing is not None:
            raise InputError(
                f"{self.source}: no device for op {missing!r}; the plan must name every op of the graph"
            )
        if len(self.devices) != problem.num_ops:
            stranger = next(iter(self.devices.keys() - set(problem.op_names)))
            raise InputError(f"{self.source} names op {stranger!r}, which the graph lacks; take it out")

    def _check_graph(self, problem: Problem) -> None:
        if self.fingerprint != problem.fingerprint:
            raise InputError(
                f"{self.source} was made for another graph (fingerprint {self.fingerprint[:12]}, this graph has "
                f"{problem.fingerprint[:12]}); run place on this graph"
            )


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
