"""Plans: decisions of a batch of them, one as a placement with a device for each unit, and the file that keeps it."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jsonschema
import numpy as np
import tensorflow as tf

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, exact
from tf_placer.base.files import write_atomically
from tf_placer.base.quantities import html_table, size
from tf_placer.graph.program import Splitting
from tf_placer.problem.layers import NO_LINE, device_of_lines, layer_lines, layer_of_unit, layers_of
from tf_placer.problem.problem import Problem

NO_CLUSTER = -1
# Values for an op about which a plan decides nothing.
UNDECIDED = {"priority_of_op": 0, "cluster_of_op": NO_CLUSTER}
_FIELDS = ("device_of_unit", *UNDECIDED)

DEVICES_ONLY, WITH_SCHEDULE, WITH_LAYERS = SCHEMA_VERSIONS = (1, 2, 3)
SCHEMA_PATH = pathlib.Path(__file__).with_name("placement.schema.json")
_LONGEST_MESSAGE = 160
_COUNTS = re.compile(r"(_\d+)+(?=/|\Z)")

_MAKE_PROBLEM = "give what tf_placer.build_problem returns"
_FLAGS = "give names of flags and their values, as JSON holds them"


@dataclasses.dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions of B plans of one problem; their legality is checked by the problem.

    Arrays are kept as read-only copies. Tensors stay tensors, so that only the rows that are wanted are copied out.
    """

    device_of_unit: np.ndarray | tf.Tensor  # [B, U] int32, positions in ``problem.cluster.devices``
    # [B, N] int32, lower runs first among the ready ops of a device, and below 0 the device waits for it; None where
    # no order is decided. So 0 for every op decides nothing.
    priority_of_op: np.ndarray | tf.Tensor | None = None
    # [B, N] int32, ops of one number are to be fused, -1 is with none; None where none is decided
    cluster_of_op: np.ndarray | tf.Tensor | None = None

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = getattr(self, name)
            if value is None and name != "device_of_unit":
                continue
            if tf.is_tensor(value) and value.dtype != tf.int32 and tf.is_symbolic_tensor(value):
                raise InputError(f"{name} is a tensor of {value.dtype.name}; cast it to int32")
            is_kept = isinstance(value, tf.Tensor) and value.dtype == tf.int32
            rows: Any = value if is_kept else exact(name, value, np.int32)
            if (rows.shape.rank if is_kept else rows.ndim) != 2:
                raise InputError(f"{name} has shape {rows.shape}, expected [B, ...]: one row for each plan")
            if not is_kept:
                rows.setflags(write=False)  # ``exact`` has made a copy
            object.__setattr__(self, name, rows)
        shapes = {name: tuple(value.shape) for name in _FIELDS if (value := getattr(self, name)) is not None}
        plans = {shape[0] for shape in shapes.values()} - {None}
        ops = {shape[1] for name, shape in shapes.items() if name in UNDECIDED} - {None}
        if len(plans) > 1 or len(ops) > 1:
            listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise InputError(
                f"{listed} are not of the same plans; give as many rows of each, and one entry for each op"
            )
        clusters = self.cluster_of_op
        if isinstance(clusters, np.ndarray) and clusters.size and clusters.min() < NO_CLUSTER:
            raise InputError(
                f"cluster_of_op has the entry {clusters.min()}; give {NO_CLUSTER} for no cluster, or a number from 0"
            )

    def __repr__(self) -> str:
        arrays = {name: getattr(self, name) for name in _FIELDS}
        decided = ", ".join(
            f"{name} {tuple(value.shape)}" for name, value in arrays.items() if value is not None
        )
        return f"<Decisions of {len(self)} plans: {decided}>"

    def __len__(self) -> int:
        return int(self.device_of_unit.shape[0])

    @property
    def plain(self) -> np.ndarray | tf.Tensor | Decisions:
        """[B, U] where only devices are decided, else the decisions: for evaluators of devices alone."""
        is_plain = self.priority_of_op is None and self.cluster_of_op is None
        return self.device_of_unit if is_plain else self

    def row(self, index: int) -> Decisions:
        """One plan as arrays of one row; undecided fields are None."""
        index = arguments.whole_number("index", index, 0, len(self) - 1)
        values = {}
        for name in _FIELDS:
            value = getattr(self, name)
            row = None if value is None else np.asarray(value[index : index + 1])
            is_decided = row is not None and not (name in UNDECIDED and (row == UNDECIDED[name]).all())
            values[name] = row if is_decided else None
        return Decisions(**values)

    def digest(self, index: int, problem: Problem) -> str:
        """Hex digest of all that one plan decides; equal for plans that decide the same.

        Of the devices of ops, not of units: how ops are joined to units may change, what runs does not. A plan that
        decides devices alone has the digest that it had before anything else could be decided: journals hold it.
        """
        plan = decisions_of(
            self.row(index), arguments.instance_of("problem", problem, Problem, _MAKE_PROBLEM)
        )
        digest = hashlib.sha256(plan.device_of_unit[0][problem.unit_of_op].astype("<i4").tobytes())
        for name in UNDECIDED:
            value = getattr(plan, name)
            if value is not None:
                digest.update(name.encode() + value.astype("<i4").tobytes())
        return digest.hexdigest()[:32]

    @staticmethod
    def joined(parts: Sequence[Decisions]) -> Decisions:
        """The plans of several, in order, as arrays."""
        remedy = "give at least one Decisions, all of one problem"
        decided = arguments.items_of("parts", parts, Decisions, remedy)
        if not decided:
            raise InputError(f"parts is empty; {remedy}")
        values: dict[str, Any] = {}
        for name in _FIELDS:
            rows = [getattr(part, name) for part in decided]
            width = next((value.shape[1] for value in rows if value is not None), None)
            if width is None:
                continue
            for i, part in enumerate(decided):
                if rows[i] is None:  # another part decides it
                    rows[i] = np.full((len(part), width), UNDECIDED[name], np.int32)
            try:
                values[name] = np.concatenate([np.asarray(value) for value in rows])
            except ValueError as error:
                raise InputError(f"parts are of different widths ({error}); {remedy}") from error
        return Decisions(**values)


def ranked(*keys: np.ndarray) -> np.ndarray:
    """[N] int32 priorities that put the least first: by the first key [N], of equal ones by the second, and so on."""
    order = np.lexsort(keys[::-1])
    rises = np.zeros(len(order), bool)
    for key in keys:
        rises[1:] |= key[order][1:] != key[order][:-1]
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.cumsum(rises)
    return ranks


def decisions_of(value: object, problem: Problem) -> Decisions:
    """Decisions from plans of a problem: an array [B, U], a list of rows, a tensor, or ``Decisions``."""
    if not isinstance(value, Decisions):
        value = Decisions(value)
    for name in _FIELDS:
        rows = getattr(value, name)
        letter, width = ("U", problem.num_units) if name == "device_of_unit" else ("N", problem.num_ops)
        if rows is not None and rows.shape[1] not in (width, None):
            raise InputError(
                f"{name} has shape {tuple(rows.shape)}, expected [B, {width}]: {letter} of {problem.name!r}"
            )
    return value


@dataclasses.dataclass(frozen=True)
class PlanFile:
    """A well-formed plan."""

    source: str  # where it is from, for messages
    fingerprint: str  # of the graph that it was made for
    # op name -> device string; with ``layers``, of ops that are not where their layer is
    devices: Mapping[str, str]
    # flags that it was made with; empty where that is not known
    made_for: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # op name -> priority, of every op; None where the plan decides no order
    priorities: Mapping[str, int] | None = None
    # op name -> fusion cluster, of the ops that are in one; None where the plan fuses nothing
    clusters: Mapping[str, int] | None = None
    # layer -> device string, as ``layer_lines`` says; None where the plan says it op by op
    layers: Mapping[str, str] | None = None
    splitting: Splitting | None = None  # how the batch of its program is in parts; None where it is whole
    cluster: str = ""  # name of the cluster; empty where that is not known

    @staticmethod
    def read(path: str | os.PathLike[str]) -> PlanFile:
        """Reads a placement.json."""
        try:
            text = pathlib.Path(path).read_text(encoding="utf8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot read placement file {path}: {error}; give the placement.json of a run"
            ) from error
        return PlanFile.parse(text, str(path))

    @staticmethod
    def parse(text: str, source: str) -> PlanFile:
        """Parses the text of a plan; ``source`` names the text in messages."""
        try:
            plan = json.loads(text, object_pairs_hook=functools.partial(_without_doubles, source))
        except (ValueError, RecursionError) as error:  # also of thousands of digits, or brackets in brackets
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
        schema = jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text(encoding="utf8")))
        misfit = jsonschema.exceptions.best_match(schema.iter_errors(plan))
        if misfit is not None:
            raise InputError(
                f"{source} does not fit the schema of plans at {misfit.json_path}: "
                f"{misfit.message[:_LONGEST_MESSAGE]}; mend it there"
            )
        split = plan.pop("split", None)
        del plan["schema_version"]
        return PlanFile(source=source, splitting=Splitting(**split) if split else None, **plan)

    def _named_as(self, problem: Problem) -> PlanFile:
        """The plan renamed for a program of equal structure; unchanged for equal names or another program.

        Keras and TensorFlow number layers and ops, so that a program that is built again has other names, in the same
        order.
        """
        names: Sequence[str] = problem.op_names
        if self.fingerprint != problem.fingerprint or self.devices.keys() == set(names):
            return self
        new_layer: dict[str, str] = {}
        if self.layers is not None:
            layers = layers_of(problem).names
            if self.layers.keys() <= set(layers) and self.devices.keys() <= set(names):
                return self
            new_name, new_layer = _new_names(self.devices, names), _new_names(self.layers, layers)
        elif without_counts(self.devices) == without_counts(names):
            new_name = dict(zip(self.devices, names, strict=True))
        else:
            return self

        def with_names(values: Mapping[str, Any] | None, new: Mapping[str, str]) -> Any:
            return None if values is None else {new.get(name, name): value for name, value in values.items()}

        return dataclasses.replace(
            self,
            devices=with_names(self.devices, new_name),
            priorities=with_names(self.priorities, new_name),
            clusters=with_names(self.clusters, new_name),
            layers=with_names(self.layers, new_layer),
        )

    def op_by_op(self, problem: Problem, is_part: bool = False) -> PlanFile:
        """The plan in the names of a graph, with lines of layers put as lines of their ops.

        A unit is where one of its ops is listed; else where the layer that most of its ops are of is. If ``is_part``,
        the plan may be for another graph, and layers that this one lacks are left out.
        """
        plan = self._named_as(problem)
        if plan.layers is None:
            return plan
        if not is_part:
            plan._check_graph(problem)
        layers = layers_of(problem)
        of_unit = device_of_lines(problem, layers, plan.layers, plan.source, is_part)
        names = [device.name for device in problem.cluster.devices]
        device_of_unit: dict[int, str] = {}
        for name, unit in zip(problem.op_names, problem.unit_of_op.tolist(), strict=True):
            if name in plan.devices:
                device_of_unit.setdefault(unit, plan.devices[name])
        for unit in np.flatnonzero(of_unit != NO_LINE).tolist():
            if unit in device_of_unit:
                continue
            if not problem.allowed[unit, of_unit[unit]]:
                may = ", ".join(name for name, ok in zip(names, problem.allowed[unit], strict=True) if ok)
                layer = layers.names[layer_of_unit(problem, layers)[unit]]
                raise InputError(
                    f"{plan.source}: layer {layer!r} is on {names[of_unit[unit]]!r}, where its op "
                    f"{problem.name_of_unit(unit)!r} cannot be; give that op a line in devices, it can be on {may}"
                )
            device_of_unit[unit] = names[of_unit[unit]]
        units = zip(problem.op_names, problem.unit_of_op.tolist(), strict=True)
        devices = {name: device_of_unit[unit] for name, unit in units if unit in device_of_unit}
        return dataclasses.replace(plan, devices={**devices, **plan.devices}, layers=None)

    def device_of_op(self, problem: Problem) -> dict[int, int]:
        """Op -> device, as positions in ``problem``, of the plan's ops that the graph has."""
        with arguments.named(self.source):
            return device_positions(problem, self.devices)

    def per_op(self, problem: Problem) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Priorities and clusters as ``Decisions`` has them, [N] int32; None where the plan lacks them."""
        arrays: list[np.ndarray | None] = []
        for key, value_of_op, otherwise in (
            ("priorities", self.priorities, 0),
            ("clusters", self.clusters, NO_CLUSTER),
        ):
            if value_of_op is None:
                arrays.append(None)
                continue
            missing = next((name for name in problem.op_names if name not in value_of_op), None)
            if missing is not None and key == "priorities":
                raise InputError(
                    f"{self.source}: no priority for op {missing!r}; give one for every op of the graph, or none at all"
                )
            stranger = next(iter(value_of_op.keys() - set(problem.op_names)), None)
            if stranger is not None:
                raise InputError(
                    f"{self.source} has op {stranger!r} in {key}, which the graph lacks; take it out"
                )
            # A JSON number such as 3.0 is a whole one, too.
            values = [int(value_of_op.get(name, otherwise)) for name in problem.op_names]
            arrays.append(np.array(values, np.int32))
        return arrays[0], arrays[1]

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
            if self.splitting is not None and self.splitting.fingerprint == problem.fingerprint:
                how = f"tf_placer.split(item, {self.splitting.parts}, {self.splitting.batch_statistics!r}"
                remedy = f"{how}), or place with --parts={self.splitting.parts}"
                if self.splitting.kept_whole or self.splitting.recomputed or self.splitting.parked:
                    remedy = f'{how}, kept_whole, recomputed, parked) with the ops that its "split" has'
                raise InputError(
                    f"{self.source} is for this graph with {self.splitting}; build the problem of {remedy}"
                )
            raise InputError(
                f"{self.source} was made for another graph (fingerprint {self.fingerprint[:12]}, this graph has "
                f"{problem.fingerprint[:12]}); run place on this graph"
            )


def without_counts(names: Iterable[str]) -> list[str]:
    """Names without the counts that Keras and TensorFlow append to repeated names."""
    return [_COUNTS.sub("", name) for name in names]


def _new_names(old: Iterable[str], new: Sequence[str]) -> dict[str, str]:
    """Old name -> new name, where as many are alike but for counts: these have one order in both programs."""
    sides_of_name: dict[str, tuple[list[str], list[str]]] = collections.defaultdict(lambda: ([], []))
    for side, names in enumerate((list(old), new)):
        for name, bare in zip(names, without_counts(names), strict=True):
            sides_of_name[bare][side].append(name)
    pairs = [zip(*sides, strict=True) for sides in sides_of_name.values() if len(sides[0]) == len(sides[1])]
    return dict(itertools.chain.from_iterable(pairs))


def device_positions(problem: Problem, device_of_op: Mapping[str, str]) -> dict[int, int]:
    """Op -> device, as positions in a problem, of the named ops in the problem."""
    column = {device.name: d for d, device in enumerate(problem.cluster.devices)}
    positions = {}
    for op, name in enumerate(problem.op_names):
        device = device_of_op.get(name)
        if device is None:
            continue
        if device not in column:
            raise InputError(
                f"op {name!r} is on {reprlib.repr(device)}, which cluster {problem.cluster.name!r} lacks; "
                f"it has {', '.join(column)}"
            )
        positions[op] = column[device]
    return positions


def _without_doubles(source: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        (twice, _), *_ = collections.Counter(name for name, _ in pairs).most_common(1)
        raise InputError(f"{source} has {twice!r} twice; keep one")
    return entries


@dataclasses.dataclass(frozen=True, eq=False)
class Placement:
    """One plan: a legal device for every unit of a problem, and what else is decided; its arrays are read-only."""

    problem: Problem  # what is placed
    device_of_unit: np.ndarray  # [U] int32, positions in ``problem.cluster.devices``
    # [N] int32, as in ``Decisions``; None where the plan decides no order, which 0 for every op means
    priority_of_op: np.ndarray | None = None
    # [N] int32, as in ``Decisions``; None where it fuses nothing, which -1 for every op means
    cluster_of_op: np.ndarray | None = None

    def __post_init__(self) -> None:
        arguments.instance_of("problem", self.problem, Problem, _MAKE_PROBLEM)
        device_of_unit = exact("device_of_unit", self.device_of_unit, np.int32)
        self.problem.check_legal(device_of_unit)
        rows: dict[str, Any] = {"device_of_unit": device_of_unit[np.newaxis]}
        for name in ("priority_of_op", "cluster_of_op"):
            value = getattr(self, name)
            rows[name] = None if value is None else [value]
        decided = decisions_of(Decisions(**rows), self.problem).row(0)
        for name in rows:
            value = getattr(decided, name)
            object.__setattr__(self, name, None if value is None else value[0])

    def __repr__(self) -> str:
        used = ", ".join(f"{ops} on {label}" for label, ops, _ in self._devices() if ops != "0")
        decided = {"an order": self.priority_of_op, "fusion clusters": self.cluster_of_op}
        extras = "".join(f"; {extra}" for extra, value in decided.items() if value is not None)
        return f"<Placement of {self.problem.name!r}: ops {used}{extras}>"

    def _repr_html_(self) -> str:
        return html_table(("device", "ops", "state"), self._devices())

    def _devices(self) -> list[tuple[str, str, str]]:
        """A row for each device: its label, the number of ops there, and the memory that stays there."""
        labels = self.problem.cluster.labels
        ops = np.bincount(self.device_of_op, minlength=len(labels))
        state = np.bincount(self.device_of_unit, self.problem.resident_bytes, len(labels))
        return [(label, str(ops[d]), size(float(state[d]))) for d, label in enumerate(labels)]

    @staticmethod
    def from_decisions(problem: Problem, decisions: Decisions) -> Placement:
        """The one plan of ``decisions``."""
        arguments.instance_of("problem", problem, Problem, _MAKE_PROBLEM)
        arguments.instance_of("decisions", decisions, Decisions, "give Decisions.row of some plans")
        if len(decisions) != 1:
            raise InputError(
                f"decisions has {len(decisions)} plans, not one; give Decisions.row of one of them"
            )
        plan = decisions_of(decisions.row(0), problem)
        per_op = (None if value is None else value[0] for value in (plan.priority_of_op, plan.cluster_of_op))
        return Placement(problem, plan.device_of_unit[0], *per_op)

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

    def for_program(self, op_names: Sequence[str]) -> Placement:
        """The plan for a program of the same structure, built again: its names [N] may have other counts."""
        names = arguments.items_of("op_names", op_names, str, "give the names of the program's ops")
        if self.problem.op_names == names:
            return self
        if len(names) != self.problem.num_ops:
            raise InputError(
                f"op_names has {len(names)} names, and the plan is of {self.problem.num_ops} ops; give all of them"
            )
        pairs = zip(self.problem.op_names, names, strict=True)
        for planned, built in pairs:
            if len(set(without_counts((planned, built)))) > 1:
                raise InputError(
                    f"op_names: the placement is for a program with op {planned!r}, which is called {built!r} here; "
                    "search a placement for this item"
                )
        return dataclasses.replace(self, problem=dataclasses.replace(self.problem, op_names=names))

    def to_json(self, made_for: Mapping[str, Any] | None = None, by_layer: bool = False) -> str:
        """The plan as text: schema version, fingerprint of the graph, op name -> device, one op a line.

        A plan that decides devices alone is of version 1, which older programs read; one with priorities or clusters
        of version 2; one with lines of layers of version 3.

        Args:
          made_for: the flags that it was made with, for ``explain``.
          by_layer: say it layer by layer, with a line for an op only where its unit is not where its layer is.
        """
        arguments.truth("by_layer", by_layer)
        schedule: dict[str, dict[str, int]] = {}
        ops = self.problem.op_names
        if self.priority_of_op is not None:
            schedule["priorities"] = dict(zip(ops, self.priority_of_op.tolist(), strict=True))
        if self.cluster_of_op is not None:
            clusters = zip(ops, self.cluster_of_op.tolist(), strict=True)
            schedule["clusters"] = {op: cluster for op, cluster in clusters if cluster != NO_CLUSTER}
        devices: dict[str, Any] = {"devices": self.device_names}
        if by_layer:
            lines, exceptions = layer_lines(self.problem, layers_of(self.problem), self.device_of_unit)
            devices = {"layers": lines, "devices": exceptions}
        plan: dict[str, Any] = {
            "schema_version": WITH_LAYERS if by_layer else WITH_SCHEDULE if schedule else DEVICES_ONLY,
            "fingerprint": self.problem.fingerprint,
            "cluster": self.problem.cluster.name,
        }
        if self.problem.splitting is not None:
            split = dataclasses.asdict(self.problem.splitting)
            plan["split"] = {name: value for name, value in split.items() if value != ()}
        if made_for is not None:
            if not isinstance(made_for, Mapping):
                raise InputError(f"made_for is {arguments.shown(made_for)}; {_FLAGS}")
            try:
                plan["made_for"] = json.loads(json.dumps(dict(made_for)))
            except (TypeError, ValueError) as error:
                raise InputError(f"made_for is {arguments.shown(made_for)} ({error}); {_FLAGS}") from error
        return json.dumps({**plan, **devices, **schedule}, indent=1) + "\n"

    def save(
        self, path: str | pathlib.Path, made_for: Mapping[str, Any] | None = None, by_layer: bool = False
    ) -> None:
        """Writes ``to_json`` whole or not at all."""
        file = arguments.file_to_write("path", path)
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
        """The inverse of ``to_json``; ``source`` names the text in error messages."""
        arguments.text("text", text, "give the content of a placement.json")
        arguments.text("source", source, "say where the text is from")
        return Placement.from_plan(PlanFile.parse(text, source), problem)

    @staticmethod
    def from_plan(plan: PlanFile, problem: Problem) -> Placement:
        """Checks a plan against the graph of ``problem``.

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
            return Placement(problem, device_of_unit, *plan.per_op(problem))
        except InputError as error:
            raise InputError(f"{plan.source}: {str(error).removeprefix('device_of_unit: ')}") from None
