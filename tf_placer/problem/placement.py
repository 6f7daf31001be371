"""A placement: one device per unit, what else a plan decides, and the file that keeps it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_placer import arguments
from tf_placer.errors import InputError
from tf_placer.exact import exact
from tf_placer.files import write_atomically
from tf_placer.problem.decisions import NO_CLUSTER, Decisions, decisions_of
from tf_placer.problem.layer_lines import layer_lines
from tf_placer.problem.layers import layers_of
from tf_placer.problem.plan_file import DEVICES_ONLY, WITH_LAYERS, WITH_SCHEDULE, PlanFile
from tf_placer.problem.problem import Problem

_MAKE_PROBLEM = "give what tf_placer.build_problem returns"
_FLAGS = "give names of flags and their values, as JSON holds them"


@dataclasses.dataclass(frozen=True, eq=False)
class Placement:
    """One plan: a legal device for every unit of a problem, and what else is decided; its arrays are read-only.

    Attributes:
      problem: what is placed.
      device_of_unit: [U] int32, positions in ``problem.cluster.devices``.
      priority_of_op: [N] int32, as in ``Decisions``; None where the plan decides no order, which 0 for every op means.
      cluster_of_op: [N] int32, as in ``Decisions``; None where it fuses nothing, which -1 for every op means.

    Raises:
      InputError: a wrong length, an unknown device, a device without a kernel, or a cluster below -1.
    """

    problem: Problem
    device_of_unit: np.ndarray
    priority_of_op: np.ndarray | None = None
    cluster_of_op: np.ndarray | None = None

    def __post_init__(self) -> None:
        arguments.instance_of("problem", self.problem, Problem, _MAKE_PROBLEM)
        device_of_unit = exact("device_of_unit", self.device_of_unit, np.int32)
        self.problem.check_legal(device_of_unit)
        given = {name: self._per_op(name) for name in ("priority_of_op", "cluster_of_op")}
        decided = Decisions(device_of_unit[np.newaxis], **given).row(0)
        for name in ("device_of_unit", *given):
            value = getattr(decided, name)
            object.__setattr__(self, name, None if value is None else value[0])

    def _per_op(self, name: str) -> np.ndarray | None:
        """[1, N] of what is given as [N]."""
        value = getattr(self, name)
        if value is None:
            return None
        found = exact(name, value, np.int32)
        if found.shape != (self.problem.num_ops,):
            raise InputError(
                f"{name} has shape {found.shape}, expected ({self.problem.num_ops},): one entry for each op"
            )
        return found[np.newaxis]

    @staticmethod
    def from_decisions(problem: Problem, decisions: Decisions) -> Placement:
        """The one plan of ``decisions``.

        Raises:
          InputError: it is not one plan, or not a legal one of this problem.
        """
        arguments.instance_of("problem", problem, Problem, _MAKE_PROBLEM)
        arguments.instance_of("decisions", decisions, Decisions, "give Decisions.row of some plans")
        if len(decisions) != 1:
            raise InputError(
                f"decisions has {len(decisions)} plans, not one; give Decisions.row of one of them"
            )
        one = decisions_of(decisions.row(0), problem)
        per_op = (None if value is None else value[0] for value in (one.priority_of_op, one.cluster_of_op))
        return Placement(problem, one.device_of_unit[0], *per_op)

    @property
    def decisions(self) -> Decisions:
        """All that is decided, as a batch of one plan: for evaluators."""
        per_op = (
            None if value is None else value[None] for value in (self.priority_of_op, self.cluster_of_op)
        )
        return Decisions(self.device_of_unit[np.newaxis], *per_op)

    @property
    def device_of_op(self) -> np.ndarray:
        """[N] int32, the device of each op."""
        return self.device_of_unit[self.problem.unit_of_op]

    @property
    def device_names(self) -> dict[str, str]:
        """Op name -> TensorFlow device string, for every op."""
        names = [device.name for device in self.problem.cluster.devices]
        return {op: names[d] for op, d in zip(self.problem.op_names, self.device_of_op, strict=True)}

    def to_json(self, made_for: Mapping[str, Any] | None = None, by_layer: bool = False) -> str:
        """The plan as text: schema version, fingerprint of the graph, op name -> device, one op a line.

        A plan that decides devices alone is of version 1, which older programs read; one with priorities or clusters
        of version 2; one with lines of layers of version 3.

        Args:
          made_for: the flags that it was made with, for ``explain``.
          by_layer: say it layer by layer, with a line for an op only where its unit is not where its layer is.

        Raises:
          InputError: ``made_for`` is nothing that JSON can hold.
        """
        arguments.truth("by_layer", by_layer)
        schedule = self._schedule()
        devices: dict[str, Any] = {"devices": self.device_names}
        if by_layer:
            lines, apart = layer_lines(self.problem, layers_of(self.problem), self.device_of_unit)
            devices = {"layers": lines, "devices": apart}
        plan: dict[str, Any] = {
            "schema_version": WITH_LAYERS if by_layer else WITH_SCHEDULE if schedule else DEVICES_ONLY,
            "fingerprint": self.problem.fingerprint,
            "cluster": self.problem.cluster.name,
        }
        if made_for is not None:
            if not isinstance(made_for, Mapping):
                raise InputError(f"made_for is {arguments.shown(made_for)}; {_FLAGS}")
            try:
                plan["made_for"] = json.loads(json.dumps(dict(made_for)))
            except (TypeError, ValueError) as error:
                raise InputError(f"made_for is {arguments.shown(made_for)} ({error}); {_FLAGS}") from error
        return json.dumps({**plan, **devices, **schedule}, indent=1) + "\n"

    def _schedule(self) -> dict[str, dict[str, int]]:
        """What the file has beyond devices: every op's priority, and the cluster of ops that are in one."""
        found, ops = {}, self.problem.op_names
        if self.priority_of_op is not None:
            found["priorities"] = dict(zip(ops, self.priority_of_op.tolist(), strict=True))
        if self.cluster_of_op is not None:
            clusters = zip(ops, self.cluster_of_op.tolist(), strict=True)
            found["clusters"] = {op: cluster for op, cluster in clusters if cluster != NO_CLUSTER}
        return found

    def save(
        self, path: str | pathlib.Path, made_for: Mapping[str, Any] | None = None, by_layer: bool = False
    ) -> None:
        """Writes ``to_json`` whole or not at all.

        Raises:
          InputError: ``path`` cannot be written to.
        """
        file = arguments.path("path", path, "the file to write")
        if file.is_dir() or not file.absolute().parent.is_dir():
            raise InputError(f"path is {arguments.shown(path)}; give a file in a folder that is there")
        write_atomically(file, self.to_json(made_for, by_layer))

    @staticmethod
    def load(path: str | pathlib.Path, problem: Problem) -> Placement:
        """Reads a plan for ``problem``.

        Raises:
          InputError: the file is missing, not a plan, made for another graph, incomplete,
            or names an unknown device.
        """
        return Placement.from_plan(PlanFile.read(arguments.path("path", path)), problem)

    @staticmethod
    def from_json(text: str, problem: Problem, source: str = "placement") -> Placement:
        """The inverse of ``to_json``; ``source`` names the text in error messages.

        Raises:
          InputError: as ``load``.
        """
        arguments.text("text", text, "give the content of a placement.json")
        arguments.text("source", source, "say where the text is from")
        return Placement.from_plan(PlanFile.parse(text, source), problem)

    @staticmethod
    def from_plan(plan: PlanFile, problem: Problem) -> Placement:
        """A plan held against the graph that it was made for.

        Raises:
          InputError: it is for another graph, incomplete in devices or priorities, names an op or device that is not
            there, or parts ops that must share a device.
        """
        arguments.instance_of("plan", plan, PlanFile, "give PlanFile.read of a placement.json")
        arguments.instance_of("problem", problem, Problem, _MAKE_PROBLEM)
        plan = plan.op_by_op(problem)
        plan.check_complete(problem)
        device_of_unit = np.full(problem.num_units, -1, np.int32)
        for op, device in plan.device_of_op(problem).items():
            unit = int(problem.unit_of_op[op])
            if device_of_unit[unit] not in (-1, device):
                name = problem.op_names[op]
                raise InputError(
                    f"{plan.source}: op {name!r} is on {plan.devices[name]!r}, but op {problem.name_of_unit(unit)!r}, "
                    "which must share its device, is elsewhere; give both the same device"
                )
            device_of_unit[unit] = device
        try:
            return Placement(
                problem, device_of_unit, plan.priority_of_op(problem), plan.cluster_of_op(problem)
            )
        except InputError as error:
            raise InputError(f"{plan.source}: {str(error).removeprefix('device_of_unit: ')}") from None
