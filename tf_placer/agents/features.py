"""Features of units, groups and devices for every agent; a column means the same on every graph and cluster.

``unit_features`` are of one graph alone. ``relative_features`` name no unit and no place, for
policies that are taught on other graphs.
"""

from __future__ import annotations

import collections
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import DEVICE_TYPES, MAX_DEVICES
from tf_placer.grouper.groups import Groups, costliest_ops
from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import (
    UnitGraph,
    breadth_first_rank,
    held_bytes,
    landmark_distances,
    local_edges,
)


class Levels(NamedTuple):
    """Position of each op around the critical path, with every op on its fastest device and transfers free.

    Ops that little precedes and little follows have slack: weight gradients, which only an update
    waits for.
    """

    # [N] float64, longest chain of ops before this one, as a share of the critical path
    top: np.ndarray
    bottom: np.ndarray  # [N] float64, longest chain that begins with this op, itself included
    slack: np.ndarray  # [N] float64, rest of the critical path; 0 for an op on the path
    path_ns: int  # the critical path, at least 1


def op_levels(problem: Problem) -> Levels:
    """Both levels of every op (Kwok & Ahmad 1999); all are 0 where a step takes no time."""
    top, bottom = problem.op_graph.top_level_ns, problem.op_graph.bottom_level_ns
    longest_ns = int(bottom.max())
    path_ns = max(longest_ns, 1)
    return Levels(top / path_ns, bottom / path_ns, (longest_ns - top - bottom) / path_ns, path_ns)


MAX_OUTPUTS = 6
MAX_DIMS = 4
MAX_NEIGHBORS = 6  # incoming, and as many outgoing

UNIT_COLUMNS = {
    "sizes": slice(0, 24),
    "producers": slice(24, 30),
    "consumers": slice(30, 36),
    "top": slice(36, 37),
    "bottom": slice(37, 38),
    "slack": slice(38, 39),
    "work": slice(39, 40),
    "resident": slice(40, 41),
}
FIXED_WIDTH = 41
"""Columns before those of landmarks."""


def unit_features(problem: Problem, graph: UnitGraph, landmarks: int, seed: int) -> np.ndarray:
    """Describes every unit by its costliest op and its place in the graph; see ``UNIT_COLUMNS``.

    - sizes: log(1 + dimension) / 10 of the first 4 dimensions of the first 6 outputs, -1 where
      there is none;
    - producers, consumers: breadth-first rank over U of the first 6 of each, -1 where there are
      fewer;
    - top, bottom, slack: of the costliest op (``Levels``);
    - work: the unit's time on its fastest device, over the critical path;
    - resident: its share of the memory that stays;
    - landmarks: hops to seeded landmark units, which tell parallel branches apart
      (``landmark_distances``).

    Where Mirhoseini et al. 2018, section 3, feed raw sizes and ranks, these are of one scale on all
    graphs. Ranks and hops follow edges that are not thin: scalars that every op reads (a learning
    rate) would make all ops neighbors.

    Args:
      problem: whose units.
      graph: its unit graph.
      landmarks: L.
      seed: of the landmarks.

    Returns:
      [U, 41 + L] float32.
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
    columns = [
        sizes.reshape(problem.num_units, MAX_OUTPUTS * MAX_DIMS),
        _neighbor_ranks(graph.neighbors("in"), ranks),
        _neighbor_ranks(graph.neighbors("out"), ranks),
        np.stack([levels.top[leader], levels.bottom[leader], levels.slack[leader]], axis=1),
        (problem.work_ns() / levels.path_ns)[:, np.newaxis],
        (problem.resident_bytes / max(int(problem.resident_bytes.sum()), 1))[:, np.newaxis],
        landmark_distances(local, landmarks, np.random.default_rng(seed)),
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)


def _neighbor_ranks(neighbors: list[np.ndarray], ranks: np.ndarray) -> np.ndarray:
    """[U, 6] ranks of the first neighbors, -1 where there are fewer."""
    table = np.full((len(neighbors), MAX_NEIGHBORS), -1.0)
    for unit, adjacent in enumerate(neighbors):
        chosen = ranks[adjacent[:MAX_NEIGHBORS]]
        table[unit, : len(chosen)] = chosen
    return table


FEATURES_VERSION = 1
"""Raised when a column or a type is added, moved or redefined, so that no weights of other features are used."""

_NAMED_TYPES = """
    Abs Acos AccumulateNV2 Add AddN AddV2 Angle Asin Atan Atan2 BesselI0e Ceil Cos Cosh Cross
    Cumprod Cumsum Div DivNoNan Digamma Einsum Erf Erfc Erfinv Exp Expm1 Floor FloorDiv FloorMod Inv
    InvGrad Lgamma Log Log1p Maximum Minimum Mod Mul MulNoNan Ndtri Neg Pow RealDiv Reciprocal
    ReciprocalGrad Rint Round Rsqrt RsqrtGrad Sign Sin Sinh Sqrt SqrtGrad Square SquaredDifference
    Sub Tan TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta All Any ArgMax ArgMin Bincount
    DenseBincount Max Mean Min Prod Sum ApproximateEqual Equal Greater GreaterEqual IsFinite IsInf
    IsNan Less LessEqual LogicalAnd LogicalNot LogicalOr NotEqual Select SelectV2 Where BatchMatMul
    BatchMatMulV2 BatchMatMulV3 Cholesky CholeskyGrad MatMul MatrixBandPart MatrixDiagPartV3
    MatrixDiagV3 MatrixInverse MatrixSetDiagV3 MatrixTriangularSolve Qr SelfAdjointEigV2
    SparseTensorDenseMatMul Svd XlaDotV2 _FusedMatMul AvgPool AvgPoolGrad BiasAdd BiasAddGrad
    BiasAddV1 BlockLSTM BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 Conv2D Conv2DBackpropFilter
    Conv2DBackpropInput Conv3D Conv3DBackpropFilterV2 Conv3DBackpropInputV2 CTCLoss CudnnRNN
    CudnnRNNBackprop CudnnRNNBackpropV3 CudnnRNNV3 DepthwiseConv2dNative
    DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Dilation2D Elu EluGrad
    FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2
    FusedBatchNormV3 GRUBlockCell GRUBlockCellGrad InTopKV2 L2Loss LRN LRNGrad LSTMBlockCell
    LSTMBlockCellGrad LeakyRelu LeakyReluGrad LogSoftmax MaxPool MaxPoolGrad MaxPoolGradGrad
    MaxPoolGradWithArgmax MaxPoolWithArgmax Relu Relu6 Relu6Grad ReluGrad Selu SeluGrad Sigmoid
    SigmoidGrad Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad
    SparseSoftmaxCrossEntropyWithLogits Tanh TanhGrad TopK TopKV2 XlaConvV2 _FusedConv2D
    BatchToSpaceND Bitcast BroadcastGradientArgs BroadcastTo Cast CheckNumerics ClipByValue Concat
    ConcatOffset ConcatV2 Const DepthToSpace DynamicPartition DynamicStitch EnsureShape ExpandDims
    Fill Gather GatherNd GatherV2 Identity IdentityN InvertPermutation LinSpace MirrorPad
    MirrorPadGrad OneHot OnesLike Pack Pad PadV2 ParallelDynamicStitch Placeholder
    PlaceholderWithDefault PreventGradient Range Rank Reshape ResizeBilinear ResizeBilinearGrad
    ResizeNearestNeighbor ResizeNearestNeighborGrad Reverse ReverseSequence ReverseV2 Roll ScatterNd
    SegmentMax SegmentMean SegmentSum Shape ShapeN Size Slice Snapshot SpaceToBatchND SpaceToDepth
    SparseSegmentMean SparseSegmentSum Split SplitV Squeeze StopGradient StridedSlice
    StridedSliceGrad TensorScatterAdd TensorScatterUpdate Tile Transpose TruncatedNormal Unique
    UniqueV2 Unpack UnravelIndex UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentSum ZerosLike
    Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp
    DestroyResourceOp ReadVariableOp ResourceApplyAdagradV2 ResourceApplyAdam ResourceApplyFtrlV2
    ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum
    ResourceApplyRMSProp ResourceGather ResourceGatherNd ResourceScatterAdd ResourceScatterSub
    ResourceScatterUpdate ResourceSparseApplyAdagradV2 ResourceSparseApplyKerasMomentum
    ResourceSparseApplyMomentum VarHandleOp VarIsInitializedOp VariableShape VariableV2 Multinomial
    ParameterizedTruncatedNormal RandomGamma RandomShuffle RandomStandardNormal RandomUniform
    RandomUniformInt StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomNormalV2
    StatelessRandomUniformFullIntV2 StatelessRandomUniformIntV2 StatelessRandomUniformV2
    StatelessTruncatedNormalV2 Assert Case Enter Exit If LoopCond Merge NextIteration NoOp
    PartitionedCall Print PrintV2 StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile
    Switch TensorListElementShape TensorListFromTensor TensorListGather TensorListGetItem
    TensorListLength TensorListPopBack TensorListPushBack TensorListReserve TensorListResize
    TensorListSetItem TensorListStack TensorArrayGatherV3 TensorArrayGradV3 TensorArrayReadV3
    TensorArrayScatterV3 TensorArraySizeV3 TensorArrayV3 TensorArrayWriteV3 While CollectiveReduceV2
    NcclAllReduce Recv Send _Arg _Recv _Retval _Send AsString DecodeJpeg EagerPyFunc HashTableV2
    IteratorGetNext IteratorV2 LookupTableFindV2 LookupTableSizeV2 ParseExampleV2 PyFunc ReadFile
    RegexReplace StaticRegexReplace StringJoin StringSplitV2 StringToHashBucketFast StringToNumber
"""
OP_TYPES = ("", *_NAMED_TYPES.split())
"""By number, one list for all problems, so that weights mean the same everywhere; 0 is for unknown types."""
OTHER_TYPES = 8  # numbers shared by all other types
NUM_TYPES = len(OP_TYPES) + OTHER_TYPES

_NUMBERS = {op_type: number for number, op_type in enumerate(OP_TYPES)}


def type_numbers(op_types: Sequence[str]) -> np.ndarray:
    """[N] int32 in [0, NUM_TYPES): the position in ``OP_TYPES``, or behind them by a checksum of the name."""
    hashed = (len(OP_TYPES) + zlib.crc32(op_type.encode()) % OTHER_TYPES for op_type in op_types)
    numbers = [_NUMBERS.get(op_type, number) for op_type, number in zip(op_types, hashed, strict=True)]
    return np.array(numbers, np.int32)


RELATIVE_VERSION = 1
"""As ``FEATURES_VERSION``, for the columns of ``relative_features``."""

_RELATIVE_NAMES = """
    top bottom slack work slowdown resident held in_time out_time in_degree out_degree choice
    parallelism pressure message devices
"""
RELATIVE_COLUMNS = {name: column for column, name in enumerate(_RELATIVE_NAMES.split())}
"""Name -> column. From "parallelism" on they are of the problem, the same for all units."""
RELATIVE_WIDTH = len(RELATIVE_COLUMNS)

_DECADES = 6  # shares below a millionth count as a millionth
_MOST_PRESSURE = 4.0


def relative_features(problem: Problem, graph: UnitGraph) -> np.ndarray:
    """Describes every unit relative to its step; see ``RELATIVE_COLUMNS``.

    Times are relative to the critical path and bytes to the memory of all devices, so that a column
    means the same on every graph, machine and link. A *share* x here is 1 + log10(x) / 6, at least
    0.

    - top, bottom, slack: of the costliest op (``Levels``);
    - work: share of the critical path that the unit takes on its fastest device;
    - slowdown: log10 of the mean time on its legal devices over the fastest / 3;
    - resident, held: shares of the memory of all devices (``held_bytes``);
    - in_time, out_time: shares of the critical path that its bytes take on a link, the mean over
      links;
    - in_degree, out_degree: log2(1 + other units) / 8;
    - choice: its legal devices over all;
    - parallelism: log2(all work over the critical path) / 4;
    - pressure: bytes that all units hold over those of the largest device, at most 4;
    - message: share of the critical path that an empty message takes;
    - devices: log2(D) / 4.

    Args:
      problem: whose units.
      graph: its unit graph.

    Returns:
      [U, 16] float32.
    """
    levels = op_levels(problem)
    leader = costliest_ops(problem)
    work = problem.work_ns().astype(np.float64)
    held = held_bytes(problem)
    capacity = np.array([device.memory_bytes for device in problem.cluster.devices], np.float64)
    unit_ns = np.zeros((problem.num_units, problem.num_devices))
    np.add.at(unit_ns, problem.unit_of_op, problem.compute_ns)
    mean_ns = np.where(problem.allowed, unit_ns, 0.0).sum(axis=1) / problem.allowed.sum(axis=1)
    slowdown = np.log10(np.maximum(mean_ns, 1.0) / np.maximum(work, 1.0)) / 3
    transfer = problem.op_graph.transfer
    moved = _share(transfer.mean_ns(np.zeros(1)) / levels.path_ns)[0]
    columns = {
        "top": levels.top[leader],
        "bottom": levels.bottom[leader],
        "slack": levels.slack[leader],
        "work": _share(work / levels.path_ns),
        "slowdown": np.maximum(slowdown, 0.0),
        "resident": _share(problem.resident_bytes / capacity.sum()),
        "held": _share(held / capacity.sum()),
        "choice": problem.allowed.mean(axis=1),
        "parallelism": np.log2(max(work.sum() / levels.path_ns, 1.0)) / 4,
        "pressure": min((problem.resident_bytes.sum() + held.sum()) / capacity.max(), _MOST_PRESSURE),
        "message": moved,
        "devices": np.log2(problem.num_devices) / 4,
    }
    edge_time = transfer.mean_ns(graph.edge_bytes) / levels.path_ns
    for side, end in (("out", 0), ("in", 1)):
        unit = graph.edges.reshape(-1, 2)[:, end]
        columns[f"{side}_time"] = _share(np.bincount(unit, edge_time, problem.num_units))
        columns[f"{side}_degree"] = np.log2(1.0 + np.bincount(unit, minlength=problem.num_units)) / 8
    features = np.empty((problem.num_units, RELATIVE_WIDTH), np.float32)
    for name, column in RELATIVE_COLUMNS.items():
        features[:, column] = columns[name]
    return features


def _share(amounts: np.ndarray) -> np.ndarray:
    """[...] float64 from 0 for a millionth and less to 1 for a whole."""
    shares: np.ndarray = 1 + np.log10(np.maximum(amounts, 10.0**-_DECADES)) / _DECADES
    return shares


DEVICE_NUMBERS = len(DEVICE_TYPES) * MAX_DEVICES  # 64 for each type

DEVICE_COLUMNS = {
    "type": slice(0, 2),
    "flops": slice(2, 3),
    "memory_speed": slice(3, 4),
    "capacity": slice(4, 5),
    "streams": slice(5, 6),
    "launch": slice(6, 7),
    "newest_first": slice(7, 8),
    "latency": slice(8, 9),
    "bandwidth": slice(9, 10),
}
DEVICE_WIDTH = 10


def device_features(cluster: Cluster) -> np.ndarray:
    """Describes every device relative to the best of its cluster; see ``DEVICE_COLUMNS``.

    - type: one column for each of ``DEVICE_TYPES``, 1 where it is of that type;
    - flops, memory_speed, capacity: log10 of the share of the cluster's largest;
    - streams: log2 / 4;
    - launch: log10(1 + ns) / 5;
    - newest_first: 1 or 0;
    - latency: log10(1 + ns) / 5, the mean over the links that begin here;
    - bandwidth: log10 of the share of the cluster's widest link, the mean over them; 0 where there
      is none.

    Equal devices have the same features; ``device_numbers`` tells them apart.

    Returns:
      [D, 10] float32.
    """
    shares = [
        _log_share(np.array([getattr(device, field) for device in cluster.devices], np.float64))
        for field in ("peak_flops", "memory_bytes_per_s", "memory_bytes")
    ]
    widths = _log_share(np.array([link.bytes_per_s for link in cluster.links], np.float64))
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


def device_numbers(cluster: Cluster) -> np.ndarray:
    """[D] int32 in [0, ``DEVICE_NUMBERS``): 64 times the position in ``DEVICE_TYPES``, plus a count within the type.

    Without them two equal GPUs could not be told apart, and nothing could be split between them.
    """
    seen: collections.Counter[str] = collections.Counter()
    numbers = []
    for device in cluster.devices:
        numbers.append(DEVICE_TYPES.index(device.type) * MAX_DEVICES + seen[device.type])
        seen[device.type] += 1
    return np.array(numbers, np.int32)


def _log_share(amounts: np.ndarray) -> np.ndarray:
    """log10 of each amount over the largest; amounts below 1 count as 1."""
    amounts = np.maximum(amounts, 1.0)
    return np.log10(amounts / amounts.max(initial=1.0))


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
    stays = groups.sums(problem.resident_bytes + held_bytes(problem))
    memory = stays[:, np.newaxis] / np.maximum(problem.cluster.capacity_bytes(), 1)
    fastest_ns = np.where(groups.legal, time_ns, np.inf).min(axis=1, keepdims=True)
    slowness = np.clip(np.log10((time_ns + 1) / (fastest_ns + 1)), 0, _SLOWEST)
    load = np.minimum(np.stack([share, memory], axis=2), 10.0**_SLOWEST)
    return load.astype(np.float32), slowness.astype(np.float32)
