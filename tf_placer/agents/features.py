"""Inputs of policies: features of units, groups and devices, a problem as tensors; and their weights.

``unit_features`` are of one graph alone. ``relative_features`` name no unit and no place, for
policies that are taught on other graphs. A column means the same on every graph and cluster.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.base.files import array_file_bytes, read_array_file
from tf_placer.cluster.device import DEVICE_TYPES, MAX_DEVICES
from tf_placer.grouper.groups import Groups, costliest_ops, expanded, op_levels
from tf_placer.networks.seq2seq import Decoded, DeviceChoices, Seq2SeqPlacer
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import (
    UnitGraph,
    breadth_first_rank,
    landmark_distances,
    local_edges,
    unit_graph,
)

MAX_OUTPUTS = 6
MAX_DIMS = 4
MAX_NEIGHBORS = 6  # incoming, and as many outgoing

LEVEL_COLUMNS = slice(36, 39)  # top, bottom and slack of ``unit_features``
FIXED_WIDTH = 41  # columns before those of landmarks


def unit_features(problem: Problem, graph: UnitGraph, landmarks: int, seed: int) -> np.ndarray:
    """[U, 41 + L] float32, every unit by its costliest op and its place in the graph.

    - sizes: log(1 + dimension) / 10 of the first 4 dimensions of the first 6 outputs, else -1;
    - producers, consumers: breadth-first rank over U of the first 6 of each, else -1;
    - top, bottom, slack: of the costliest op (``Levels``);
    - work: the unit's time on its fastest device, over the critical path;
    - resident: its share of the memory that stays;
    - landmarks: hops to L seeded units, which tell parallel branches apart (``landmark_distances``).

    Where Mirhoseini et al. 2018, section 3, feed raw sizes and ranks, these are of one scale on all
    graphs. Ranks and hops follow edges that are not thin: scalars that every op reads (a learning
    rate) would make all ops neighbors.
    """
    local = local_edges(problem, graph)
    ranks = breadth_first_rank(local) / problem.num_units
    leader = costliest_ops(problem)
    levels = op_levels(problem)
    sizes = np.full((problem.num_units, MAX_OUTPUTS, MAX_DIMS), -1.0, np.float32)
    # Lengths that are bytes, of a graph without shapes, count in what its links notice.
    unit_length = 1 if any(problem.op_types) else problem.cluster.noticeable_bytes() or 1
    for unit, op in enumerate(leader):
        for output, shape in enumerate(problem.output_shapes[op][:MAX_OUTPUTS]):
            dims = np.array([float(dim / unit_length) for dim in shape[:MAX_DIMS]], np.float32)
            sizes[unit, output, : len(dims)] = np.log1p(dims) / 10
    neighbor_ranks = np.full((2, problem.num_units, MAX_NEIGHBORS), -1.0)
    for table, direction in zip(neighbor_ranks, ("in", "out"), strict=True):
        for unit, adjacent in enumerate(graph.neighbors(direction)):
            chosen = ranks[adjacent[:MAX_NEIGHBORS]]
            table[unit, : len(chosen)] = chosen
    columns = [
        sizes.reshape(problem.num_units, MAX_OUTPUTS * MAX_DIMS),
        *neighbor_ranks,
        np.stack([levels.top[leader], levels.bottom[leader], levels.slack[leader]], axis=1),
        (problem.work_ns() / levels.path_ns)[:, np.newaxis],
        (problem.resident_bytes / max(int(problem.resident_bytes.sum()), 1))[:, np.newaxis],
        landmark_distances(local, landmarks, np.random.default_rng(seed)),
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)


FEATURES_VERSION = 1  # raised when a column or a type changes its meaning: others' weights are refused

OP_TYPES = ("", *tomllib.loads(pathlib.Path(__file__).with_name("op_types.toml").read_text("utf8"))["types"])
OTHER_TYPES = 8  # numbers shared by all other types
NUM_TYPES = len(OP_TYPES) + OTHER_TYPES

_NUMBERS = {op_type: number for number, op_type in enumerate(OP_TYPES)}


def type_numbers(op_types: Sequence[str]) -> np.ndarray:
    """[N] int32 in [0, NUM_TYPES): the position in ``OP_TYPES``, or behind them by a checksum of the name."""
    hashed = (len(OP_TYPES) + zlib.crc32(op_type.encode()) % OTHER_TYPES for op_type in op_types)
    numbers = [_NUMBERS.get(op_type, number) for op_type, number in zip(op_types, hashed, strict=True)]
    return np.array(numbers, np.int32)


RELATIVE_VERSION = 1  # as ``FEATURES_VERSION``, for the columns of ``relative_features``

RELATIVE_WIDTH = 16

_DECADES = 6  # shares below a millionth count as a millionth
_MOST_PRESSURE = 4.0


def relative_features(problem: Problem, graph: UnitGraph) -> np.ndarray:
    """[U, 16] float32, every unit relative to its step. From parallelism on columns are the problem's.

    Times are relative to the critical path and bytes to the memory of all devices, so that a column
    means the same on every graph, machine and link. A *share* x here is max(0, 1 + log10(x) / 6).

    - top, bottom, slack: of the costliest op (``Levels``);
    - work: share of the critical path that the unit takes on its fastest device;
    - slowdown: log10 of the mean time on its legal devices over the fastest / 3;
    - resident, held: shares of the memory of all devices (``held_bytes``);
    - in_time, out_time: shares of the critical path that its bytes take, the mean over links;
    - in_degree, out_degree: log2(1 + other units) / 8;
    - choice: its legal devices over all;
    - parallelism: log2(all work over the critical path) / 4;
    - pressure: bytes that all units hold over those of the largest device, at most 4;
    - message: share of the critical path that an empty message takes;
    - devices: log2(D) / 4.
    """
    levels = op_levels(problem)
    leader = costliest_ops(problem)
    work = problem.work_ns().astype(np.float64)
    held = problem.held_bytes()
    capacity = np.array([device.memory_bytes for device in problem.cluster.devices], np.float64)
    unit_ns = np.zeros((problem.num_units, problem.num_devices))
    np.add.at(unit_ns, problem.unit_of_op, problem.compute_ns)
    mean_ns = np.where(problem.allowed, unit_ns, 0.0).sum(axis=1) / problem.allowed.sum(axis=1)
    slowdown = np.log10(np.maximum(mean_ns, 1.0) / np.maximum(work, 1.0)) / 3
    transfer = problem.op_graph.transfer
    edge_time = transfer.mean_ns(graph.edge_bytes) / levels.path_ns
    producer, consumer = graph.edges.reshape(-1, 2).T
    columns = [
        levels.top[leader],
        levels.bottom[leader],
        levels.slack[leader],
        _share(work / levels.path_ns),
        np.maximum(slowdown, 0.0),
        _share(problem.resident_bytes / capacity.sum()),
        _share(held / capacity.sum()),
        *(_share(np.bincount(unit, edge_time, problem.num_units)) for unit in (consumer, producer)),
        *(np.log2(1.0 + np.bincount(unit, minlength=problem.num_units)) / 8 for unit in (consumer, producer)),
        problem.allowed.mean(axis=1),
        np.log2(max(work.sum() / levels.path_ns, 1.0)) / 4,
        min((problem.resident_bytes.sum() + held.sum()) / capacity.max(), _MOST_PRESSURE),
        _share(transfer.mean_ns(np.zeros(1)) / levels.path_ns)[0],
        np.log2(problem.num_devices) / 4,
    ]
    return np.stack([np.broadcast_to(column, problem.num_units) for column in columns], axis=1).astype(
        np.float32
    )


def _share(amounts: np.ndarray) -> np.ndarray:
    """[...] float64 from 0 for a millionth and less to 1 for a whole."""
    return 1 + np.log10(np.maximum(amounts, 10.0**-_DECADES)) / _DECADES


DEVICE_NUMBERS = len(DEVICE_TYPES) * MAX_DEVICES  # 64 for each type

DEVICE_WIDTH = 10


def device_features(problem: Problem) -> np.ndarray:
    """[D, 10] float32, every device relative to the best of its cluster.

    - type: one column for each of ``DEVICE_TYPES``, 1 where it is of that type;
    - flops, memory_speed, capacity: log10 of the share of the cluster's largest;
    - streams: log2 / 4;
    - launch: log10(1 + ns) / 5;
    - newest_first: 1 or 0;
    - latency: log10(1 + ns) / 5, the mean over the links that begin here;
    - bandwidth: log10 of the share of the cluster's widest link, the mean over them, else 0.

    Equal devices have the same features; ``device_numbers`` tells them apart.
    """
    cluster = problem.cluster
    fields = ("peak_flops", "memory_bytes_per_s", "memory_bytes")
    amounts = [[getattr(device, field) for device in cluster.devices] for field in fields]
    amounts.append([link.bytes_per_s for link in cluster.links])
    floored = [np.maximum(np.array(of_each, np.float64), 1.0) for of_each in amounts]  # below 1 counts as 1
    *shares, widths = (np.log10(of_each / of_each.max(initial=1.0)) for of_each in floored)
    rows = []
    for position, device in enumerate(cluster.devices):
        outgoing = [i for i, link in enumerate(cluster.links) if link.source == position]
        latencies = [float(np.log10(1 + cluster.links[i].latency_ns)) / 5 for i in outgoing]
        rows.append(
            [
                *(float(device.type == kind) for kind in DEVICE_TYPES),
                *(share[position] for share in shares),
                np.log2(device.streams) / 4,
                float(np.log10(1 + device.launch_ns)) / 5,
                float(device.newest_first),
                np.mean(latencies) if outgoing else 0.0,
                widths[outgoing].mean() if outgoing else 0.0,
            ]
        )
    return np.array(rows, np.float32)


def device_numbers(problem: Problem) -> np.ndarray:
    """[D] int32 in [0, ``DEVICE_NUMBERS``): 64 times the position in ``DEVICE_TYPES``, plus a count within the type.

    Without them two equal GPUs could not be told apart, and nothing could be split between them.
    """
    types = [device.type for device in problem.cluster.devices]
    numbers = [
        DEVICE_TYPES.index(kind) * MAX_DEVICES + types[:position].count(kind)
        for position, kind in enumerate(types)
    ]
    return np.array(numbers, np.int32)


_SLOWEST = 3.0  # decades, limit on the slowness of a group on a device


def load_and_slowness(groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """Load that a group of units puts on each device, and its slowness there.

    Returns:
      [G, D, 2] float32 load: a group's time there as a share of all work, its bytes as a share of
      the memory.
      [G, D] float32 slowness: log10 of its time there over that on its fastest device.
    """
    problem, time_ns = groups.problem, groups.compute_ns()
    share = time_ns / max(float(problem.work_ns().sum()), 1.0)
    stays = groups.sums(problem.resident_bytes + problem.held_bytes())
    memory = stays[:, np.newaxis] / np.maximum(problem.cluster.capacity_bytes(), 1)
    fastest_ns = np.where(groups.legal, time_ns, np.inf).min(axis=1, keepdims=True)
    slowness = np.clip(np.log10((time_ns + 1) / (fastest_ns + 1)), 0, _SLOWEST)
    load = np.minimum(np.stack([share, memory], axis=2), 10.0**_SLOWEST)
    return load.astype(np.float32), slowness.astype(np.float32)


class GraphInputs(NamedTuple):
    """One problem as tensors: a nest whose sizes N, U, E and D differ from problem to problem; widths do not."""

    unit_features: tf.Tensor  # [U, F] float32, see ``unit_features``
    relative_features: tf.Tensor  # [U, R] float32, see ``relative_features``; for other graphs, too
    type_of_unit: tf.Tensor  # [U] int32, op type of its costliest op, in [0, ``NUM_TYPES``)
    type_of_op: tf.Tensor  # [N] int32
    unit_of_op: tf.Tensor  # [N] int32
    edges: tf.Tensor  # [E, 2] int32 producer unit, consumer unit; distinct
    edge_bytes: tf.Tensor  # [E] float32
    device_features: tf.Tensor  # [D, K] float32, see ``device_features``
    device_numbers: tf.Tensor  # [D] int32 in [0, ``DEVICE_NUMBERS``), which tell equal devices apart


def graph_inputs(problem: Problem, landmarks: int, seed: int) -> GraphInputs:
    """Describes a problem, with a number of seeded landmark columns behind the fixed unit features."""
    graph = unit_graph(problem)
    type_of_op = type_numbers(problem.op_types)
    return GraphInputs(
        unit_features=tf.constant(unit_features(problem, graph, landmarks, seed)),
        relative_features=tf.constant(relative_features(problem, graph)),
        type_of_unit=tf.constant(type_of_op[costliest_ops(problem)]),
        type_of_op=tf.constant(type_of_op),
        unit_of_op=tf.constant(problem.unit_of_op),
        edges=tf.constant(graph.edges.reshape(-1, 2)),
        edge_bytes=tf.constant(graph.edge_bytes, tf.float32),
        device_features=tf.constant(device_features(problem)),
        device_numbers=tf.constant(device_numbers(problem)),
    )


def with_drawn_numbers(graph: GraphInputs, seed: tf.Tensor) -> GraphInputs:
    """A problem with other device numbers, distinct ones of the same types."""
    order = tf.argsort(tf.random.stateless_uniform([MAX_DEVICES], seed), stable=True)
    kind = graph.device_numbers // MAX_DEVICES
    numbers = kind * MAX_DEVICES + tf.gather(order, graph.device_numbers % MAX_DEVICES)
    return graph._replace(device_numbers=numbers)


def one_device(groups: int) -> DeviceChoices:
    """One device for a number of groups, to make layers with: widths are the same for every problem."""
    legal = tf.ones([groups, 1], tf.bool)
    return DeviceChoices(tf.zeros([1, DEVICE_WIDTH]), tf.constant([0]), legal, tf.zeros([groups, 1]))


def build_placer(placer: Seq2SeqPlacer, width: int) -> None:
    """Makes the layers of a placer of group embeddings of a width, which is the same for every problem."""
    no_noise = tf.zeros([1, 1, 1, 1])
    placer.score(tf.zeros([1, 2, width]), one_device(2), tf.zeros([1, 1, 2], tf.int32), no_noise)


def prior_choices(groups: Groups, device_of_group: np.ndarray, config: Any) -> DeviceChoices:
    """The devices for groups that lean to a plan [G]: an untrained policy draws each of its devices with p.

    For the bounded logits C tanh(u / T) that is a difference of log(p / q) between the device and each of the others,
    where q is their share of 1 - p; as near as C allows. p = 0 leans to nothing; the settings have p, C and T.
    """
    probability, most = config.start_probability, 0.99 * config.tanh_constant
    rows = np.zeros(groups.legal.shape, np.float32)
    counts = groups.legal.sum(axis=1)
    for row, device, count in zip(rows, device_of_group, counts, strict=True) if probability else ():
        alternative = (1.0 - probability) / max(count - 1, 1)
        bounded = np.clip(math.log(probability / alternative) / 2, -most, most)
        bias = config.temperature * math.atanh(float(bounded) / config.tanh_constant)
        row[:] = -bias
        row[device] = bias
    return DeviceChoices(
        features=tf.constant(device_features(groups.problem)),
        number=tf.constant(device_numbers(groups.problem)),
        legal=tf.constant(groups.legal),
        prior_logits=tf.constant(rows),
    )


class Mean(NamedTuple):
    """Weighted means over some groups for each of G groups, as a sparse matrix [G, G]."""

    pairs: tf.Tensor  # [P, 2] int64 (group, member of its mean), by group
    weight: tf.Tensor  # [P] float32; the sum is 1 over the members of a group

    @staticmethod
    def of(pairs: np.ndarray, amounts: np.ndarray, groups: int) -> Mean:
        """Weighs members by amounts [P], above 0."""
        total = np.bincount(pairs[:, 0], amounts, groups)
        weight = amounts / total[pairs[:, 0]]
        return Mean(tf.constant(pairs, tf.int64), tf.constant(weight, tf.float32))

    def over(self, values: tf.Tensor) -> tf.Tensor:
        """[G, B, W] -> [G, B, W], linear in the pairs; 0 for a mean over no group."""
        shape = tf.shape(values)
        size = tf.cast(shape[0], tf.int64)
        matrix = tf.SparseTensor(self.pairs, self.weight, tf.stack([size, size]))
        columns = tf.reshape(values, [shape[0], -1])
        means = tf.reshape(tf.sparse.sparse_dense_matmul(matrix, columns), shape)
        means.set_shape(values.shape)
        return means


class SequencePolicy(snt.Module):
    """p(devices | groups) of one sequence of groups, decoded by a ``Seq2SeqPlacer``: M is 1.

    Each group draws a device that is legal for all its units. Inputs have ``choices``, ``group_of_unit`` and
    ``only_device``; ``embed(inputs)`` gives embeddings [G, F] of the groups, all that the placer sees of the graph.
    """

    placer: Seq2SeqPlacer

    def sample(self, inputs: Any, count: int, seed: tf.Tensor, groups: tf.Tensor | None = None) -> Decoded:
        """Draws placements of embedded groups [G, F] (default: ``embed``): actions [1, count, G]."""
        groups = self.embed(inputs) if groups is None else groups
        return self.placer.sample(groups[tf.newaxis], inputs.choices, count, tf.zeros([1, 1, 1, 1]), seed)

    def score(self, inputs: Any, device_of_group: tf.Tensor, groups: tf.Tensor | None = None) -> Decoded:
        """Teacher forcing: the logits under which devices [K, G] would be drawn."""
        groups = self.embed(inputs) if groups is None else groups
        actions, no_noise = device_of_group[tf.newaxis], tf.zeros([1, 1, 1, 1])
        return self.placer.score(groups[tf.newaxis], inputs.choices, actions, no_noise)

    def placements(self, inputs: Any, device_of_group: tf.Tensor) -> tf.Tensor:
        """[K, U] int32: the device of each unit's group [K, G], or its only legal one."""
        return expanded(device_of_group, inputs.group_of_unit, inputs.only_device)


def draw_weights(module: snt.Module, seed: int) -> None:
    """Draws every weight of a built module anew, but vectors: truncated normal of deviation 1 / sqrt(fan-in).

    As Sonnet draws layers, but not from TensorFlow's global seed. Embeddings, which Sonnet starts at
    deviation 1, start as small as layers. Fan-in is the product of all dimensions but the last.

    Raises:
      ValueError: a weight has no dimension, and so no fan-in.
    """
    for number, variable in enumerate(module.trainable_variables):
        if variable.shape.rank == 0:
            raise ValueError(
                f"weight {variable.name!r} is a number without dimensions; draw it where it is made"
            )
        if variable.shape.rank >= 2:
            deviation = math.prod(variable.shape[:-1]) ** -0.5
            draw = tf.random.stateless_truncated_normal(variable.shape, seed=[seed, number], stddev=deviation)
            variable.assign(draw)


SHIPPED = "shipped"
"""Stands for the file of weights that comes with tf_placer, which ``python -m experiments.pretrain`` makes."""

WEIGHTS_REMEDY = "give the path of a file that `train` wrote"

WEIGHTS_SCHEMA = 1
_FILE_KIND = "weights of a tf_placer policy"
_REMEDY = "give what `train` wrote"


@dataclasses.dataclass(frozen=True)
class PolicyKind:
    """Kind of policy: policies of one kind can take each other's weights."""

    policy: str  # its class
    versions: Mapping[str, int]  # name of a part, such as features -> version of the weights' meaning
    settings: Mapping[str, Any]  # settings that fix the shapes of its weights, such as a width


def weights_path(name: str, beside: str) -> pathlib.Path:
    """The file of a setting: a path, or ``SHIPPED``, for ``weights.npz`` in the folder of the module ``beside``."""
    return pathlib.Path(beside).with_name("weights.npz") if name == SHIPPED else pathlib.Path(name)


def weights_bytes(kind: PolicyKind, policy: snt.Module, history: Mapping[str, Any]) -> bytes:
    """The content of a file: the trainable variables of a built policy, its kind, and their history.

    The history is JSON data for readers of the file: command, seed, problems.
    """
    header = {**dataclasses.asdict(kind), "history": dict(history)}
    arrays = {name: variable.numpy() for name, variable in _named(policy).items()}
    return array_file_bytes(_FILE_KIND, WEIGHTS_SCHEMA, header, arrays)


def weights_header(path: pathlib.Path) -> dict[str, Any]:
    """Kind and history of a file of weights; raises InputError for other files."""
    header, _ = read_array_file(path, _FILE_KIND, WEIGHTS_SCHEMA, _REMEDY)
    return header


def restore_weights(path: pathlib.Path, kind: PolicyKind, policy: snt.Module) -> Mapping[str, Any]:
    """Gives a built policy the weights of a file, all of them or none; returns the file's history.

    Raises:
      InputError: the file is missing, damaged or of another type, or its weights are of another
        policy, of other features or of other sizes.
    """
    header, arrays = read_array_file(path, _FILE_KIND, WEIGHTS_SCHEMA, _REMEDY)
    if header.get("policy") != kind.policy:
        tasks = _header_entry(header, "settings", "tasks")
        also = "" if tasks == "None" or "tasks" in kind.settings else f", or set tasks={tasks}"
        raise InputError(
            f"{path} has weights of a {str(header.get('policy'))[:60]}; give some of a {kind.policy}{also}"
        )
    for name, version in kind.versions.items():
        taught = _header_entry(header, "versions", name)
        if taught != version:
            raise InputError(
                f"{path} was taught with version {taught} of {name}, this program has {version}; teach it anew"
            )
    for name, value in kind.settings.items():
        taught = _header_entry(header, "settings", name)
        if taught != value:
            raise InputError(
                f"{path} was taught with {name}={taught}, this policy has {value}; set {name}={taught}, or "
                'weights="" to begin without'
            )
    variables = _named(policy)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    if {name: array.shape for name, array in arrays.items()} != shapes:
        raise InputError(f"{path} has other weights than a {kind.policy}; {_REMEDY}")
    if not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in arrays.values()):
        raise InputError(f"{path} has weights that are no finite numbers; {_REMEDY}")
    for name, variable in variables.items():
        variable.assign(arrays[name])
    history = header.get("history")
    return history if isinstance(history, dict) else {}


def _named(policy: snt.Module) -> dict[str, Any]:
    """Position, layer and name -> variable: names alone are not distinct, and begin with the name of the learner."""
    return {
        f"{position} {'/'.join(variable.name.split('/')[-2:])}": variable
        for position, variable in enumerate(policy.trainable_variables)
    }


def _header_entry(header: Mapping[str, Any], part: str, name: str) -> Any:
    """Entry of a file's header, in a form that is short enough to show."""
    entries = header.get(part)
    value = entries.get(name) if isinstance(entries, dict) else None
    return value if isinstance(value, (int, float, bool)) else str(value)[:60]
