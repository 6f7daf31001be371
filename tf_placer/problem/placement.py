"""A placement: one device per unit, and the file that keeps it."""

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
from tf_placer.problem.plan_file import SCHEMA_VERSION, PlanFile
from tf_placer.problem.problem import Problem

_MAKE_PROBLEM = "give what tf_placer.build_problem returns"
_FLAGS = "give names of flags and their values, as JSON holds them"


@dataclasses.dataclass(frozen=True, eq=False)
class Placement:
    """A legal device for every unit of a problem.

    Attributes:
      problem: what is placed.
      device_of_unit: [U] int32, positions in ``problem.cluster.devices``.

    Raises:
      InputError: a wrong length, an unknown device, or a device without a kernel.
    """

    problem: Problem
    device_of_unit: np.ndarray

    def __post_init__(self) -> None:
        arguments.instance_of("problem", self.problem, Problem, _MAKE_PROBLEM)
        device_of_unit = exact("device_of_unit", self.device_of_unit, np.int32).copy()
        self.problem.check_legal(device_of_unit)
        device_of_unit.setflags(write=False)
        object.__setattr__(self, "device_of_unit", device_of_unit)

    @property
    def device_of_op(self) -> np.ndarray:
        """[N] int32, the device of each op."""
        return self.device_of_unit[self.problem.unit_of_op]

    @property
    def device_names(self) -> dict[str, str]:
        """Op name -> TensorFlow device string, for every op."""
        names = [device.name for device in self.problem.cluster.devices]
        return {op: names[d] for op, d in zip(self.problem.op_names, self.device_of_op, strict=True)}

    def to_json(self, made_for: Mapping[str, Any] | None = None) -> str:
        """The plan as text: schema version, fingerprint of the graph, op name -> device, one op a line.

        Args:
          made_for: the flags that it was made with, for ``explain``.

        Raises:
          InputError: ``made_for`` is nothing that JSON can hold.
        """
        plan: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
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
        return json.dumps({**plan, "devices": self.device_names}, indent=1) + "\n"

    def save(self, path: str | pathlib.Path, made_for: Mapping[str, Any] | None = None) -> None:
        """Writes ``to_json`` whole or not at all.

        Raises:
          InputError: ``path`` cannot be written to.
        """
        file = arguments.path("path", path, "the file to write")
        if file.is_dir() or not file.absolute().parent.is_dir():
            raise InputError(f"path is {arguments.shown(path)}; give a file in a folder that is there")
        write_atomically(file, self.to_json(made_for))

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
          InputError: it is for another graph, incomplete, names an op or device that is not there, or parts ops that
            must share a device.
        """
        arguments.instance_of("plan", plan, PlanFile, "give PlanFile.read of a placement.json")
        arguments.instance_of("problem", problem, Problem, _MAKE_PROBLEM)
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
            return Placement(problem, device_of_unit)
        except InputError as error:
            raise InputError(f"{plan.source}: {str(error).removeprefix('device_of_unit: ')}") from None
