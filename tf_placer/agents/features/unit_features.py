"""Unit features for policies: closeness to the critical path, op types, costs."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tf_placer.problem.problem import Problem
from tf_placer.problem.unit_graph import (
    UnitGraph,
    breadth_first_rank,
    landmark_distances,
    local_edges,
    noticeable_bytes,
)

# Closeness of each op to the critical path.


class Levels(NamedTuple):
    """[N] float64 each, as a share of the critical path, of ops on their fastest devices with transfers free.

    What waits for little and has little behind it has slack: weight gradients, which only an update waits for.

    Attributes:
      top: the longest chain of ops before this one.
      bottom: the longest chain that begins with this one, itself included.
      slack: what is left of the critical path; 0 for an op on it.
      path_ns: the critical path, at least 1.
    """

    top: np.ndarray
    bottom: np.ndarray
    slack: np.ndarray
    path_ns: int


def op_levels(problem: Problem) -> Levels:
    """Both levels of every op (Kwok & Ahmad 1999); of a step that takes no time, all are 0."""
    cost_ns = problem.fastest_ns()
    producers = problem.tensor_producer.tolist()
    readers_of = np.split(problem.consumer_op, problem.consumer_offset[1:-1])[: len(producers)]
    # Tensors come by ascending producer and ops in topological order: what is read here is final.
    top = np.zeros(problem.num_ops, np.int64)
    for producer, readers in zip(producers, readers_of, strict=True):
        top[readers] = np.maximum(top[readers], top[producer] + cost_ns[producer])
    bottom = cost_ns.copy()
    for producer, readers in zip(reversed(producers), reversed(readers_of), strict=True):
        longest_ns = bottom[readers].max(initial=0) + cost_ns[producer]
        bottom[producer] = max(bottom[producer], longest_ns)
    longest_ns = int(bottom.max())
    path_ns = max(longest_ns, 1)
    return Levels(top / path_ns, bottom / path_ns, (longest_ns - top - bottom) / path_ns, path_ns)


MAX_OUTPUTS = 6
MAX_DIMS = 4
MAX_NEIGHBORS = 6  # incoming, and as many outgoing

# Name -> columns. Landmarks, as many as asked for, follow these.
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


def unit_features(problem: Problem, graph: UnitGraph, landmarks: int, seed: int) -> np.ndarray:
    """Describes every unit by its costliest op and its place in the graph; see ``UNIT_COLUMNS``.

    - sizes: log(1 + dimension) / 10 of the first 4 dimensions of the first 6 outputs, -1 where there is none;
    - producers, consumers: breadth-first rank over U of the first 6 of each, -1 where there are fewer;
    - top, bottom, slack: of the costliest op (``Levels``);
    - work: the unit's time on its fastest device, over the critical path;
    - resident: its share of the memory that stays;
    - landmarks: hops to seeded landmark units, which tell parallel branches apart (``landmark_distances``).

    Where Mirhoseini et al. 2018, section 3, feed raw sizes and ranks, these are of one scale on all graphs. Ranks and
    hops follow edges that are not thin: scalars that every op reads (a learning rate) would make all ops neighbors.

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
    leader = costliest_op(problem)
    levels = op_levels(problem)
    columns = [
        _sizes(problem, leader),
        _neighbor_ranks(graph.neighbors("in"), ranks),
        _neighbor_ranks(graph.neighbors("out"), ranks),
        np.stack([levels.top[leader], levels.bottom[leader], levels.slack[leader]], axis=1),
        (problem.work_ns() / levels.path_ns)[:, np.newaxis],
        (problem.resident_bytes / max(int(problem.resident_bytes.sum()), 1))[:, np.newaxis],
        landmark_distances(local, landmarks, np.random.default_rng(seed)),
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)


def costliest_op(problem: Problem) -> np.ndarray:
    """[U] the op of each unit with most work on its fastest device; the first one of equals."""
    cost = problem.fastest_ns()
    order = np.lexsort((np.arange(problem.num_ops), -cost, problem.unit_of_op))
    first = np.searchsorted(problem.unit_of_op[order], np.arange(problem.num_units))
    return order[first]


def _sizes(problem: Problem, leader: np.ndarray) -> np.ndarray:
    """[U, 24]."""
    sizes = np.full((problem.num_units, MAX_OUTPUTS, MAX_DIMS), -1.0, np.float32)
    # Lengths that are bytes, of a graph without shapes, count in what its links notice.
    unit_length = 1 if any(problem.op_types) else noticeable_bytes(problem.cluster) or 1
    for unit, op in enumerate(leader):
        for output, shape in enumerate(problem.output_shapes[op][:MAX_OUTPUTS]):
            dims = np.array([float(dim / unit_length) for dim in shape[:MAX_DIMS]], np.float32)
            sizes[unit, output, : len(dims)] = np.log1p(dims) / 10
    return sizes.reshape(problem.num_units, MAX_OUTPUTS * MAX_DIMS)


def _neighbor_ranks(neighbors: list[np.ndarray], ranks: np.ndarray) -> np.ndarray:
    """[U, 6] ranks of the first neighbors, -1 where there are fewer."""
    table = np.full((len(neighbors), MAX_NEIGHBORS), -1.0)
    for unit, others in enumerate(neighbors):
        chosen = ranks[others[:MAX_NEIGHBORS]]
        table[unit, : len(chosen)] = chosen
    return table


# Op types that policies know by name: one list for all problems, so that weights mean the same everywhere.

# Raised when a column or a name of a type is added, moved or means something else: weights that were learned with other
# features must not be used.
FEATURES_VERSION = 1

_ARITHMETIC = """
    Abs Acos AccumulateNV2 Add AddN AddV2 Angle Asin Atan Atan2 BesselI0e Ceil Cos Cosh Cross Cumprod Cumsum Div
    DivNoNan Digamma Einsum Erf Erfc Erfinv Exp Expm1 Floor FloorDiv FloorMod Inv InvGrad Lgamma Log Log1p Maximum
    Minimum Mod Mul MulNoNan Ndtri Neg Pow RealDiv Reciprocal ReciprocalGrad Rint Round Rsqrt RsqrtGrad Sign Sin
    Sinh Sqrt SqrtGrad Square SquaredDifference Sub Tan TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta
"""
_REDUCTIONS = "All Any ArgMax ArgMin Bincount DenseBincount Max Mean Min Prod Sum"
_COMPARISONS = """
    ApproximateEqual Equal Greater GreaterEqual IsFinite IsInf IsNan Less LessEqual LogicalAnd LogicalNot LogicalOr
    NotEqual Select SelectV2 Where
"""
_MATRICES = """
    BatchMatMul BatchMatMulV2 BatchMatMulV3 Cholesky CholeskyGrad MatMul MatrixBandPart MatrixDiagPartV3
    MatrixDiagV3 MatrixInverse MatrixSetDiagV3 MatrixTriangularSolve Qr SelfAdjointEigV2 SparseTensorDenseMatMul Svd
    XlaDotV2 _FusedMatMul
"""
_LAYERS = """
    AvgPool AvgPoolGrad BiasAdd BiasAddGrad BiasAddV1 BlockLSTM BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 Conv2D
    Conv2DBackpropFilter Conv2DBackpropInput Conv3D Conv3DBackpropFilterV2 Conv3DBackpropInputV2 CTCLoss CudnnRNN
    CudnnRNNBackprop CudnnRNNBackpropV3 CudnnRNNV3 DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
    DepthwiseConv2dNativeBackpropInput Dilation2D Elu EluGrad FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2
    FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 GRUBlockCell GRUBlockCellGrad InTopKV2 L2Loss LRN LRNGrad
    LSTMBlockCell LSTMBlockCellGrad LeakyRelu LeakyReluGrad LogSoftmax MaxPool MaxPoolGrad MaxPoolGradGrad
    MaxPoolGradWithArgmax MaxPoolWithArgmax Relu Relu6 Relu6Grad ReluGrad Selu SeluGrad Sigmoid SigmoidGrad Softmax
    SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad SparseSoftmaxCrossEntropyWithLogits
    Tanh TanhGrad TopK TopKV2 XlaConvV2 _FusedConv2D
"""
_SHAPES = """
    BatchToSpaceND Bitcast BroadcastGradientArgs BroadcastTo Cast CheckNumerics ClipByValue Concat ConcatOffset
    ConcatV2 Const DepthToSpace DynamicPartition DynamicStitch EnsureShape ExpandDims Fill Gather GatherNd GatherV2
    Identity IdentityN InvertPermutation LinSpace MirrorPad MirrorPadGrad OneHot OnesLike Pack Pad PadV2
    ParallelDynamicStitch Placeholder PlaceholderWithDefault PreventGradient Range Rank Reshape ResizeBilinear
    ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad Reverse ReverseSequence ReverseV2 Roll
    ScatterNd SegmentMax SegmentMean SegmentSum Shape ShapeN Size Slice Snapshot SpaceToBatchND SpaceToDepth
    SparseSegmentMean SparseSegmentSum Split SplitV Squeeze StopGradient StridedSlice StridedSliceGrad
    TensorScatterAdd TensorScatterUpdate Tile Transpose TruncatedNormal Unique UniqueV2 Unpack UnravelIndex
    UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentSum ZerosLike
"""
_VARIABLES = """
    Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp DestroyResourceOp
    ReadVariableOp ResourceApplyAdagradV2 ResourceApplyAdam ResourceApplyFtrlV2 ResourceApplyGradientDescent
    ResourceApplyKerasMomentum ResourceApplyMomentum ResourceApplyRMSProp ResourceGather ResourceGatherNd
    ResourceScatterAdd ResourceScatterSub ResourceScatterUpdate ResourceSparseApplyAdagradV2
    ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum VarHandleOp VarIsInitializedOp VariableShape
    VariableV2
"""
_RANDOMNESS = """
    Multinomial ParameterizedTruncatedNormal RandomGamma RandomShuffle RandomStandardNormal RandomUniform
    RandomUniformInt StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomNormalV2
    StatelessRandomUniformFullIntV2 StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormalV2
"""
_CONTROL = """
    Assert Case Enter Exit If LoopCond Merge NextIteration NoOp PartitionedCall Print PrintV2
    StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile Switch TensorListElementShape
    TensorListFromTensor TensorListGather TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack
    TensorListReserve TensorListResize TensorListSetItem TensorListStack TensorArrayGatherV3 TensorArrayGradV3
    TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArrayV3 TensorArrayWriteV3 While
"""
_COMMUNICATION = "CollectiveReduceV2 NcclAllReduce Recv Send _Arg _Recv _Retval _Send"
_HOST = """
    AsString DecodeJpeg EagerPyFunc HashTableV2 IteratorGetNext IteratorV2 LookupTableFindV2 LookupTableSizeV2
    ParseExampleV2 PyFunc ReadFile RegexReplace StaticRegexReplace StringJoin StringSplitV2 StringToHashBucketFast
    StringToNumber
"""

# By number; the first is the type of an op of which nothing is known.
OP_TYPES = (
    "",
    *" ".join(
        (
            _ARITHMETIC,
            _REDUCTIONS,
            _COMPARISONS,
            _MATRICES,
            _LAYERS,
            _SHAPES,
            _VARIABLES,
            _RANDOMNESS,
            _CONTROL,
            _COMMUNICATION,
            _HOST,
        )
    ).split(),
)
OTHER_TYPES = 8  # numbers that all other types share
NUM_TYPES = len(OP_TYPES) + OTHER_TYPES

_NUMBERS = {op_type: number for number, op_type in enumerate(OP_TYPES)}


def type_numbers(op_types: Sequence[str]) -> np.ndarray:
    """[N] int32 in [0, NUM_TYPES): the position in ``OP_TYPES``, or behind them by a checksum of the name."""
    return np.array([_number(op_type) for op_type in op_types], np.int32)


def _number(op_type: str) -> int:
    known = _NUMBERS.get(op_type)
    return len(OP_TYPES) + zlib.crc32(op_type.encode()) % OTHER_TYPES if known is None else known
