"""A placement: one device per unit, and the file that keeps it."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np

from tf_placer.errors import InputError
from tf_placer.exact import exact
from tf_placer.files import write_atomically
from tf_placer.problem.problem import Problem

SCHEMA_VERSION = 1


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

    def to_json(self) -> str:
        """The plan as text: schema version, fingerprint of the graph, op name -> device, one op a line."""
        plan = {
            "schema_version": SCHEMA_VERSION,
            "fingerprint": self.problem.fingerprint,
            "cluster": self.problem.cluster.name,
            "devices": self.device_names,
        }
        return json.dumps(plan, indent=1) + "\n"

    def save(self, path: str | pathlib.Path) -> None:
        """Writes ``to_json`` whole or not at all."""
        write_atomically(pathlib.Path(path), self.to_json())

    @staticmethod
    def load(path: str | pathlib.Path, problem: Problem) -> Placement:
        """Reads a plan for ``problem``.

        Raises:
          InputError: the file is missing, not a plan, made for another graph, incomplete,
            or names an unknown device.
        """
        try:
            text = pathlib.Path(path).read_text(encoding="utf8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot read placement file {path}: {error}; give the placement.json of a run"
            ) from error
        return Placement.from_json(text, problem, source=str(path))

    @staticmethod
    def from_json(text: str, problem: Problem, source: str = "placement") -> Placement:
        """The inverse of ``to_json``; ``source`` names the text in error messages."""
        devices = _plan_devices(text, problem, source)
        column = {device.name: d for d, device in enumerate(problem.cluster.devices)}
        device_of_unit = np.full(problem.num_units, -1, np.int32)
        for op, unit in zip(problem.op_names, problem.unit_of_op, strict=True):
            if op not in devices:
                raise InputError(
                    f"{source}: no device for op {op!r}; the plan must name every op of the graph"
                )
            device = column.get(devices[op]) if isinstance(devices[op], str) else None
            if device is None:
                raise InputError(
                    f"{source}: op {op!r} is on {devices[op]!r}, which cluster {problem.cluster.name!r} lacks; "
                    f"it has {', '.join(column)}"
                )
            if device_of_unit[unit] not in (-1, device):
                raise InputError(
                    f"{source}: op {op!r} is on {devices[op]!r}, but op {problem.name_of_unit(int(unit))!r}, which "
                    "must share its device, is elsewhere; give both the same device"
                )
            device_of_unit[unit] = device
        try:
            return Placement(problem, device_of_unit)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None


def _plan_devices(text: str, problem: Problem, source: str) -> dict[str, str]:
    """The op -> device table of a plan that is well formed and belongs to the problem's graph."""
    try:
        plan = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source} is not JSON (line {error.lineno}: {error.msg}); give a placement.json"
        ) from error
    if not isinstance(plan, dict) or not isinstance(plan.get("devices"), dict):
        raise InputError(f'{source} is not a placement: it has no object "devices"; give a placement.json')
    if plan.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"{source} has schema version {plan.get('schema_version')!r}, this program reads {SCHEMA_VERSION}; "
            "make the plan again"
        )
    if plan.get("fingerprint") != problem.fingerprint:
        raise InputError(
            f"{source} was made for another graph (fingerprint {str(plan.get('fingerprint'))[:12]}, this graph has "
            f"{problem.fingerprint[:12]}); run place on this graph"
        )
    return plan["devices"]
