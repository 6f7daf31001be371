"""Fusion: clusters of ops that XLA compiles as one kernel launch each, in programs, in graphs and in problems.

The ops of a legal cluster are compiled by XLA and on one device, and no way leads out of a cluster and back into it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import scipy.sparse
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from colocation.op_facts import (
    NEXT_ITERATIONS,
    GraphIndex,
    alone,
    control_inputs,
    copy_of,
    data_inputs,
    new_node,
    parse_input,
    topological_order,
    values,
)
from tf_placer.base.arguments import InputError
from tf_placer.base.quantities import in_unit
from tf_placer.graph.fusible import why_not_fusible
from tf_placer.graph.item import Item
from tf_placer.graph.program import fresh_name, with_nodes, write_body
from tf_placer.problem.op_graph import tensor_table
from tf_placer.problem.placement import NO_CLUSTER, Placement
from tf_placer.problem.problem import CLUSTER, Problem

PREFIX = "fused_cluster"  # of the names of clusters' calls
_WORK = values("work")
_PRODUCTS = frozenset(["matmul", "batch_matmul", "einsum"])
_WINDOWS = ("convolution", "depthwise", "pool")
LEAST_KERNELS = 4  # in a cluster of a rule
_LEAST_MERGED = 2  # kernels in a cluster of GO: with one there is nothing to save
_MOST_MERGED = 64  # ops in a cluster of greedy merges
_SCOPE = 2  # parts of a name that say the layer
_BACKWARD = "gradient_tape/"

_MUST_COMPILE, _CLASS = "_XlaMustCompile", "_class"
_COPIED_BYTES = 65_536  # larger constants are passed
Tensor = tuple[str, int]


def convex_clusters(
    item: Item, label_of_op: Sequence[object], device_of_op: Mapping[str, str], least: int = 2
) -> np.ndarray:
    """[N] int32, legal clusters of ops with equal labels; -1 for ops in none.

    Ops of one label and device are joined where that makes no cycle (``convex_roots``), so any labels will do.

    Args:
      item: the program, N ops.
      label_of_op: [N], None for ops that stay outside; so do ops that cannot be fused.
      device_of_op: op name -> device; a cluster is on one.
      least: fewest kernels in a cluster, which costs a launch of its own.
    """
    index = item.index
    keys: list[object] = [
        None if why or label is None else (label, device_of_op[name])
        for name, label, why in zip(index.names, label_of_op, why_not_fusible(item), strict=True)
    ]
    roots = convex_roots(_forward_edges(index), index.data_edges[:, [0, 2]], keys)
    return large_enough(roots, starts_kernel(item), least)


def convex_roots(edges: np.ndarray, joins: np.ndarray, keys: Sequence[object]) -> np.ndarray:
    """[N] an op of the cluster that each op is in; -1 for ops in none.

    An op's level is the largest number of clusters that a way to the op has left. Ops of one key and level that are
    joined are a cluster. A way that leaves a cluster reaches higher levels alone, so it never leads back, and the
    clusters together have no cycle either: every edge between two leads to a higher level.

    Args:
      edges: [E, 2] producer and consumer, which has the larger number.
      joins: [E', 2] edges whose ends are one cluster where they can be.
      keys: [N], ops of different keys are in different clusters; None for ops that stay outside.
    """
    number: dict[object, int] = {None: NO_CLUSTER}
    key = [number.setdefault(entry, len(number) - 1) for entry in keys]
    levels = [0] * len(key)
    for producer, consumer in edges[np.argsort(edges[:, 1], kind="stable")].tolist():
        leaves = key[producer] != NO_CLUSTER and key[producer] != key[consumer]
        levels[consumer] = max(levels[consumer], levels[producer] + leaves)
    key_of_op, level = np.array(key, int), np.array(levels, int)
    is_fused, ends = key_of_op != NO_CLUSTER, joins.T
    joined = (
        is_fused[ends[0]] & (key_of_op[ends[0]] == key_of_op[ends[1]]) & (level[ends[0]] == level[ends[1]])
    )
    links = np.ones(joined.sum(), bool), tuple(ends[:, joined])
    graph = scipy.sparse.coo_matrix(links, shape=(len(key), len(key)))
    _, component = scipy.sparse.csgraph.connected_components(graph, directed=False)
    _, first_op = np.unique(component, return_index=True)
    return np.where(is_fused, first_op[component], NO_CLUSTER)


def large_enough(roots: np.ndarray, starts: np.ndarray, least: int) -> np.ndarray:
    """[N] int32, the clusters with ``least`` kernels or more, numbered from 0.

    ``roots`` [N] has a number below N for the cluster of each op, -1 for ops in none; ``starts`` [N] is true for ops
    that start a kernel.
    """
    counts = np.zeros(len(roots) + 1, np.int64)  # the last is of ops in none
    np.add.at(counts, roots, starts)
    # Numbers from 0 in the order of the clusters' first ops.
    number: dict[int, int] = {NO_CLUSTER: NO_CLUSTER}
    large = np.where(counts[roots] >= least, roots, NO_CLUSTER).tolist()
    return np.array([number.setdefault(cluster, len(number) - 1) for cluster in large], np.int32)


def starts_kernel(item: Item) -> np.ndarray:
    """[N] bool, ops that start a kernel; reshapes and the like do not."""
    return np.array([_WORK.get(op_type) != "free" for op_type in item.index.op_types])


def check_clusters(item: Item, cluster_of_op: np.ndarray | None, device_of_op: Mapping[str, str]) -> None:
    """Raises InputError where an op cannot be fused, or a cluster is on two devices or in a cycle.

    ``cluster_of_op`` [N] is as in a plan, None without clusters, ``device_of_op`` op name -> device.
    """
    if cluster_of_op is None:
        return
    index, device_of_cluster = item.index, dict[int, tuple[str, str]]()
    why_not = why_not_fusible(item)
    fused = np.flatnonzero(cluster_of_op != NO_CLUSTER).tolist()
    for op in fused:
        name, cluster = index.names[op], int(cluster_of_op[op])
        if why_not[op]:
            raise InputError(f"op {name!r} cannot be in cluster {cluster}: {why_not[op]}; take it out")
        member, device = device_of_cluster.setdefault(cluster, (name, device_of_op[name]))
        if device != device_of_op[name]:
            raise InputError(
                f"cluster {cluster} has {member!r} on {device} and {name!r} on {device_of_op[name]}; give all of a "
                "cluster the same device, or make it two"
            )
    number, edges = contracted(_forward_edges(index), cluster_of_op)
    sorted_nodes = np.zeros(index.num_ops, bool)
    sorted_nodes[topological_order(index.num_ops, edges)] = True
    stuck = next((op for op in fused if not sorted_nodes[number[op]]), None)
    if stuck is not None:
        raise InputError(
            f"cluster {int(cluster_of_op[stuck])} makes a cycle: something outside needs it and it needs that, by way "
            f"of {index.names[stuck]!r}; take that op out, or what is between in"
        )


def contracted(edges: np.ndarray, cluster_of_op: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First op of the cluster of each op [N], itself outside of clusters, and the edges [E', 2] between these."""
    number, fused = np.arange(len(cluster_of_op)), np.flatnonzero(cluster_of_op != NO_CLUSTER)
    _, first, cluster = np.unique(cluster_of_op[fused], return_index=True, return_inverse=True)
    number[fused] = fused[first][cluster]
    edges = number[edges]
    return number, edges[edges[:, 0] != edges[:, 1]]


def _forward_edges(index: GraphIndex) -> np.ndarray:
    """[E, 2] data and control edges, without back edges of loops."""
    back = np.array([op_type in NEXT_ITERATIONS for op_type in index.op_types], bool)
    return index.edges[~back[index.edges[:, 0]]] if len(index.edges) else index.edges


@dataclasses.dataclass(frozen=True)
class Rule:
    """A way to cluster a program."""

    what: str  # one clause for reports
    labels: Callable[[Item], Sequence[object]]  # [N] of a program's ops; None for ops that stay outside

    def clusters(self, item: Item, device_of_op: Mapping[str, str]) -> np.ndarray:
        """[N] int32, clusters of a program; -1 for ops in none."""
        return convex_clusters(item, self.labels(item), device_of_op, LEAST_KERNELS)


def _is_heavy(item: Item) -> list[bool]:
    """[N] products, convolutions and pools."""
    works = [_WORK.get(op_type, "") for op_type in item.index.op_types]
    return [work in _PRODUCTS or work.startswith(_WINDOWS) for work in works]


def _chain(item: Item) -> Sequence[object]:
    """None for the last products of each way, mostly gradients of weights: other threads run them side by side."""
    is_heavy = _is_heavy(item)
    leads_to_heavy = [False] * len(is_heavy)
    for op in reversed(range(len(is_heavy))):  # an item's ops are in topological order
        consumers = item.index.consumers[op]
        leads_to_heavy[op] = any(is_heavy[reader] or leads_to_heavy[reader] for reader in consumers)
    return [0 if leads or not heavy else None for leads, heavy in zip(leads_to_heavy, is_heavy, strict=True)]


def _greedy(item: Item) -> Sequence[object]:
    """Merges of producers with consumers, the most bytes between two first, as GO merges by priority (2020)."""
    index = item.index
    is_fusible = [not why for why in why_not_fusible(item)]
    group, members = list(range(index.num_ops)), {op: [op] for op in range(index.num_ops)}
    num_bytes: dict[tuple[int, int], int] = collections.defaultdict(int)
    for producer, output, consumer, _ in index.data_edges.tolist():
        if is_fusible[producer] and is_fusible[consumer]:
            num_bytes[producer, consumer] += item.outputs[producer][output].num_bytes
    for producer, consumer in sorted(num_bytes, key=lambda edge: (-num_bytes[edge], edge)):
        a, b = group[producer], group[consumer]
        if a != b and len(members[a]) + len(members[b]) <= _MOST_MERGED:
            for op in members[b]:
                group[op] = a
            members[a] += members.pop(b)
    return group


# In the order in which a search tries them.
RULES: Mapping[str, Rule] = {
    "everything": Rule(
        "all that XLA compiles, as its own clustering does", lambda item: [0] * item.index.num_ops
    ),
    "chain": Rule("all but products that lead to no other product, which run side by side", _chain),
    "layers": Rule(
        "each layer's ops, forward and backward apart",
        lambda item: [
            (name.startswith(_BACKWARD), tuple(name.removeprefix(_BACKWARD).split("/")[:_SCOPE]))
            for name in item.index.names
        ],
    ),
    "greedy": Rule("producers merged with consumers, the most bytes first", _greedy),
    "regions": Rule(
        "what is between products, convolutions and pools",
        lambda item: [None if heavy else 0 for heavy in _is_heavy(item)],
    ),
    "without_windows": Rule(
        "all but convolutions and pools",
        lambda item: [
            None if _WORK.get(op_type, "").startswith(_WINDOWS) else 0 for op_type in item.index.op_types
        ],
    ),
}


def fused_graph(
    item: Item, graph_def: tf.compat.v1.GraphDef, cluster_of_op: np.ndarray
) -> tf.compat.v1.GraphDef:
    """Writes clusters, [N] as in ``Decisions``, into a copy of an item's graph with a device on every node.

    Results of the program that come from a cluster are outputs of ops with the original names.

    Each becomes a call of a function that XLA has to compile. TensorFlow has two ways to mark ops for compilation.
    Attributes on nodes (``_XlaCompile``, ``_XlaScope``) leave names alone, but then a pass of the runtime decides:
    Grappler rewrites marked nodes before that pass sees them, neighbours can be dragged in, and a cluster that XLA
    gives up on runs op by op silently. A call with ``_XlaMustCompile``, as written by ``jit_compile=True``, is
    compiled as it stands or fails. Grappler leaves its body alone, a trace shows its time, and SavedModels keep it.
    On an LSTM language model calls are also faster: 0.81 of the unfused step against 0.86 with attributes.

    Raises InputError where the clusters are not legal (``check_clusters``).
    """
    check_clusters(item, cluster_of_op, {node.name: node.device for node in graph_def.node})
    return _Writer(item, graph_def, cluster_of_op).written()


class _Writer:
    def __init__(self, item: Item, graph_def: tf.compat.v1.GraphDef, cluster_of_op: np.ndarray) -> None:
        self._item, self._graph_def = item, graph_def
        self._node_of_name = {node.name: node for node in graph_def.node}
        names = item.index.names
        self._cluster_of = {names[op]: int(cluster_of_op[op]) for op in np.flatnonzero(cluster_of_op >= 0)}
        self._members: dict[int, list[str]] = collections.defaultdict(list)
        for name, cluster in self._cluster_of.items():
            self._members[cluster].append(name)
        in_use = {*names, *(function.signature.name for function in graph_def.library.function)}
        self._call_of = {cluster: fresh_name(f"{PREFIX}_{cluster}", in_use) for cluster in self._members}
        # Cluster -> tensors that others read or the program returns, each with its number among the results.
        self._results: dict[int, dict[Tensor, int]] = {cluster: {} for cluster in self._members}
        tensors: set[Tensor] = {parse_input(text)[1:] for text in item.fetches}
        for node in graph_def.node:
            for text in data_inputs(node):
                _, name, output = parse_input(text)
                if self._cluster_of.get(name) != self._cluster_of.get(node.name):
                    tensors.add((name, output))
        for name, output in sorted(tensors):
            if name in self._cluster_of:
                results = self._results[self._cluster_of[name]]
                results[name, output] = len(results)
        self._functions: list[function_pb2.FunctionDef] = []

    def written(self) -> tf.compat.v1.GraphDef:
        nodes = []
        for node in self._graph_def.node:
            if node.name not in self._cluster_of:
                controls = dict.fromkeys(map(self._text, control_inputs(node)))
                nodes.append(copy_of(node, [*map(self._text, data_inputs(node)), *controls]))
                # Devices are written out, and the class may name an op that is gone.
                nodes[-1].attr.pop(_CLASS, None)
        nodes += [self._call(cluster) for cluster in self._members]
        # An ``IdentityN`` for each op in a cluster that the program fetches, since fetches know its name.
        for name in dict.fromkeys(parse_input(text)[1] for text in self._item.fetches):
            if name in self._cluster_of:
                read = sorted(output for op, output in self._results[self._cluster_of[name]] if op == name)
                # Outputs up to the last that is read; unread ones are filled with the first.
                outputs = [output if output in read else read[0] for output in range(read[-1] + 1)]
                inputs = [self._text(f"{name}:{output}") for output in outputs]
                types = [self._type((name, output)) for output in outputs]
                device = self._node_of_name[name].device
                nodes.append(new_node("IdentityN", name, inputs, device, T=types))
        graph_def = with_nodes(self._graph_def, nodes)
        graph_def.library.function.extend(self._functions)
        return graph_def

    def _text(self, text: str) -> str:
        """An input's name for an op outside of the producer's cluster."""
        is_control, name, output = parse_input(text)
        if name not in self._cluster_of:
            return text
        cluster = self._cluster_of[name]
        call = self._call_of[cluster]
        return f"^{call}" if is_control else f"{call}:{self._results[cluster][name, output]}"

    def _call(self, cluster: int) -> node_def_pb2.NodeDef:
        """Writes the function of a cluster; returns the call."""
        body = tf.compat.v1.GraphDef(versions=self._graph_def.versions)
        body.library.CopyFrom(self._graph_def.library)
        arguments: dict[Tensor, str] = {}
        waited: dict[str, None] = {}
        copied: set[str] = set()
        for name in self._members[cluster]:
            node = self._node_of_name[name]
            inputs = []
            for text in node.input:
                is_control, producer, output = parse_input(text)
                if self._cluster_of.get(producer) == cluster:
                    inputs.append(text)
                elif is_control:
                    waited[self._text(text)] = None
                elif self._node_of_name[producer].op == "Const" and (
                    self._node_of_name[producer].ByteSize() <= _COPIED_BYTES
                ):
                    copied.add(producer)
                    inputs.append(text)
                else:
                    inputs.append(arguments.setdefault((producer, output), f"argument_{len(arguments)}"))
            body.node.append(alone(node, inputs))  # the device is the call's
        body.node.extend(alone(self._node_of_name[name], []) for name in sorted(copied))
        results = {f"result_{number}": tensor for tensor, number in self._results[cluster].items()}
        function = function_pb2.FunctionDef()
        function.signature.name = self._call_of[cluster]
        types_in, types_out = list(map(self._type, arguments)), list(map(self._type, results.values()))
        for name, dtype in zip(arguments.values(), types_in, strict=True):
            function.signature.input_arg.add(name=name, type=dtype.as_datatype_enum)
        for name, dtype in zip(results, types_out, strict=True):
            function.signature.output_arg.add(name=name, type=dtype.as_datatype_enum)
        write_body(function, body, {}, {name: f"{op}:{output}" for name, (op, output) in results.items()}, ())
        function.attr[_MUST_COMPILE].b = True
        self._functions.append(function)
        name, device = self._call_of[cluster], self._node_of_name[self._members[cluster][0]].device
        inputs = [*(self._text(f"{op}:{output}") for op, output in arguments), *waited]
        attributes = {"f": name, "Tin": types_in, "Tout": types_out, _MUST_COMPILE: True}
        return new_node("PartitionedCall", name, inputs, device, **attributes)

    def _type(self, tensor: Tensor) -> tf.DType:
        name, output = tensor
        return self._item.outputs[self._item.index.id_of_name[name]][output].dtype


def merged_by_priority(problem: Problem, device_of_op: np.ndarray, priority_of_op: np.ndarray) -> np.ndarray:
    """[N] int32, legal clusters as in ``Decisions``; -1 for ops in none.

    GO merges ops with their neighbors in the order of a priority of each (Zhou et al. 2020). Priorities have few
    values, so all ops of one value are merged at once, with those of higher values. A merged cluster stays together;
    later ops that would close a cycle through the cluster stay outside (``convex_roots``).

    Args:
      problem: N ops, of which some may be fused (``Problem.fusible_of_op``).
      device_of_op: [N]; a cluster is on one device.
      priority_of_op: [N] whole numbers, higher is merged first; 0 is not merged at all.
    """
    is_data = problem.op_graph.edge_bytes > 0
    may = problem.fusible_of_op & (priority_of_op > 0)
    node = np.arange(problem.num_ops)  # an op of the cluster that each op is in
    for least in np.unique(priority_of_op[may])[::-1]:
        between = node[problem.op_graph.edges]
        leaves = between[:, 0] != between[:, 1]
        order = topological_order(problem.num_ops, between[leaves])
        place = np.argsort(order)
        merges = (may & (priority_of_op >= least))[order].tolist()
        devices = device_of_op[order].tolist()
        keys = [device if merged else None for device, merged in zip(devices, merges, strict=True)]
        roots = convex_roots(place[between[leaves]], place[between[leaves & is_data]], keys)
        node = np.where(roots == NO_CLUSTER, order, order[roots])[place][node]
    return large_enough(np.where(may, node, NO_CLUSTER), launches(problem) > 0, _LEAST_MERGED)


@dataclasses.dataclass(frozen=True)
class Savings:
    """Savings of clusters in a step."""

    clusters: int
    ops: int  # in clusters
    kernels: int  # that are not started
    num_bytes: int  # of tensors that never leave a cluster

    def sentence(self, by: str = "") -> str:
        """Clusters and savings, without a full stop; ``by`` is what made the clusters."""
        origin = f" ({by})" if by else ""
        return (
            f"{self.ops} ops are fused in {self.clusters} {'cluster' if self.clusters == 1 else 'clusters'}{origin}, "
            f"which saves {self.kernels} kernels and {in_unit(self.num_bytes, 'MB')} of memory traffic a step"
        )


def savings(problem: Problem, cluster_of_op: np.ndarray | None) -> Savings:
    """Savings of a plan's clusters [N]; zeros without clusters."""
    if cluster_of_op is None:
        return Savings(0, 0, 0, 0)
    fused = cluster_of_op != NO_CLUSTER
    clusters = len(np.unique(cluster_of_op[fused]))
    kernels = int((launches(problem)[fused] > 0).sum())
    num_bytes = int(_inner_bytes(problem, cluster_of_op).sum())
    return Savings(clusters, int(fused.sum()), max(kernels - clusters, 0), num_bytes)


def node_ns(problem: Problem, cluster_of_op: np.ndarray, node_of_op: np.ndarray) -> np.ndarray:
    """[N', D] int64, time on each device of each node, which is an op or a cluster.

    The sum over its ops, less a launch for every kernel but one and less the time for writing and reading the tensors
    that stay inside to and from the device's memory; at least one launch.

    ``cluster_of_op`` [N] is as in ``Decisions``; nodes ``node_of_op`` [N] are numbered from 0 without gaps.
    """
    devices, count = problem.cluster.devices, int(node_of_op.max(initial=-1)) + 1
    total, (kernels, inner) = np.zeros((count, len(devices)), np.int64), np.zeros((2, count), np.int64)
    np.add.at(total, node_of_op, problem.compute_ns)
    np.add.at(kernels, node_of_op, launches(problem) > 0)
    np.add.at(inner, node_of_op, _inner_bytes(problem, cluster_of_op))
    launch_ns = np.array([device.launch_ns for device in devices], np.float64)
    rate = np.array([device.memory_bytes_per_s / device.streams for device in devices], np.float64)
    saved_ns = np.maximum(kernels - 1, 0)[:, np.newaxis] * launch_ns + 2e9 * inner[:, np.newaxis] / rate
    return np.rint(np.maximum(total - saved_ns, np.minimum(launch_ns, total))).astype(np.int64)


def fused_plan(placement: Placement) -> tuple[Placement, np.ndarray]:
    """The plan with each cluster as one op and every op as a unit, and the first op [N'] of each node.

    A cluster has the priority of its op that comes first. Its name is that of its call in the written graph, in the
    scope of its first op; its type is the number of its ops. A plan without clusters is returned as it is.

    Raises:
      InputError: clusters make a cycle, or one is on two devices.
    """
    problem, cluster_of_op = placement.problem, placement.cluster_of_op
    if cluster_of_op is None:
        return placement, np.arange(problem.num_ops, dtype=np.int32)
    number, first_op = _contracted(problem, cluster_of_op)
    count = len(first_op)
    device_of_op, first_of_op = placement.device_of_op, first_op[number]
    for op in np.flatnonzero(device_of_op != device_of_op[first_of_op])[:1].tolist():
        member = int(first_of_op[op])
        on = [problem.cluster.devices[device_of_op[o]].name for o in (member, op)]
        raise InputError(
            f"cluster {int(cluster_of_op[op])} has {problem.op_names[member]!r} on {on[0]} and "
            f"{problem.op_names[op]!r} on {on[1]}; give all of a cluster the same device, or make it two"
        )
    resident_bytes = np.zeros(count, np.int64)
    first_of_unit = np.full(problem.num_units, problem.num_ops)
    np.minimum.at(first_of_unit, problem.unit_of_op, np.arange(problem.num_ops))
    np.add.at(resident_bytes, number[first_of_unit], problem.resident_bytes)
    edges = number[problem.op_graph.edges]
    leaves = edges[:, 0] != edges[:, 1]
    tensor = problem.op_graph.tensor[leaves]
    table = tensor_table(edges[leaves], tensor, problem.tensor_bytes[tensor])
    ops_of_node = np.bincount(number, minlength=count).tolist()
    names, types = [], []
    for op, ops in zip(first_op.tolist(), ops_of_node, strict=True):
        scope, slash, _ = problem.op_names[op].rpartition("/")
        call = f"{scope}{slash}{PREFIX}_{int(cluster_of_op[op])}"
        is_op = cluster_of_op[op] == NO_CLUSTER
        names.append(problem.op_names[op] if is_op else call)
        types.append(problem.op_types[op] if is_op else f"{CLUSTER}{ops} ops")
    fused = dataclasses.replace(
        problem,
        unit_of_op=np.arange(count, dtype=np.int32),
        compute_ns=node_ns(problem, cluster_of_op, number),
        tensor_producer=table.producer,
        tensor_bytes=table.num_bytes,
        consumer_offset=table.consumer_offset,
        consumer_op=table.consumer_op,
        resident_bytes=resident_bytes,
        allowed=np.ones((count, problem.num_devices), bool),
        priority=problem.priority[first_op],
        op_names=tuple(names),
        op_types=tuple(types),
        output_shapes=tuple(problem.output_shapes[op] for op in first_op),
        work=None,
        alias_of_tensor=np.zeros(0, np.int32),
        stage_of_op=np.zeros(0, np.int32),
        fusible_of_op=np.zeros(0, bool),
    )
    priority_of_op = None
    if placement.priority_of_op is not None:
        priority_of_op = placement.priority_of_op[first_op]
        np.minimum.at(priority_of_op, number, placement.priority_of_op)
    return Placement(fused, device_of_op[first_op], priority_of_op), first_op


def _contracted(problem: Problem, cluster_of_op: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of each op [N] among the N' nodes in topological order, and the first op [N'] of each node."""
    node, edges = contracted(problem.op_graph.edges, cluster_of_op)
    order = topological_order(problem.num_ops, edges)
    if len(order) < problem.num_ops:
        stuck = np.setdiff1d(np.arange(problem.num_ops), order)
        inside = int(stuck[np.bincount(node)[stuck] > 1][0])
        raise InputError(
            f"cluster {int(cluster_of_op[inside])}, of {problem.op_names[inside]!r} and others, is in a cycle: "
            "something outside needs it and it needs that; make it two"
        )
    first_op = order[node[order] == order]
    position = np.zeros(problem.num_ops, np.int64)
    position[first_op] = np.arange(len(first_op))
    return position[node], first_op


def launches(problem: Problem) -> np.ndarray:
    """[N] kernels of each op; in a profiled graph one for each op that takes time."""
    return (problem.fastest_ns() > 0) if problem.work is None else problem.work.launches


def _inner_bytes(problem: Problem, cluster_of_op: np.ndarray) -> np.ndarray:
    """[N] bytes of each op's tensors with memory of their own that only ops of its cluster read."""
    producer, graph = problem.tensor_producer, problem.op_graph
    is_inner = (cluster_of_op[producer] != NO_CLUSTER) & (np.diff(problem.consumer_offset) > 0)
    clusters = cluster_of_op[graph.edges]
    is_inner[graph.tensor[clusters[:, 0] != clusters[:, 1]]] = False
    num_bytes = np.zeros(problem.num_ops, np.int64)
    np.add.at(num_bytes, producer[is_inner], problem.own_bytes()[is_inner])
    return num_bytes
