"""The op types that policies know by name: one list for all problems, so that weights mean the same everywhere."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

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
