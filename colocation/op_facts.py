"""Facts of TensorFlow's op types beyond their OpDefs: one table, in which each op type stands once.

A row is facts, ``|``, and the op types that have exactly these. ``FACTS`` says what a fact means; one with a value is
written ``fact=value``. Lines of op types alone go on with the row above.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, tensor_pb2

from colocation.tensorflow_internals import registered_op

FACTS: Mapping[str, str] = {
    # Control flow and functions.
    "loop": "runs functions again and again",
    "branch": "runs one of its functions",
    "call": "calls a function, which is placed op by op",
    "enter": "opens a frame of a TensorFlow 1 loop",
    "exit": "hands a tensor out of a frame",
    "merge": "hands on the input that came",
    "next": "leads back to the next iteration",
    "switch": "hands its input to one of its outputs; it runs where its data input is made",
    # State, and what is in this process alone.
    "variable": "keeps a value from step to step",
    "reference_variable": "is a v1 variable, which gives references to its buffer",
    "keeps_reference": "takes a reference, and hands it on or looks at what is behind it; others write there",
    "same_buffer": "gives the buffer that it reads where that is a v1 variable's, not a copy",
    "reads_variable": "takes a variable's handle and leaves the variable as it is",
    "reads_resource": "takes another handle, or only asks whether there is a value, and changes nothing",
    "forwards_resources": "hands a resource to a function that is placed by itself: in TensorFlow 2.21's"
    " InputColocationExemptionRegistry",
    "local_variant": "gives a variant that cannot be sent",
    "python": "runs a Python function of this process",
    "prints": "prints where its process does",
    "table": "is a lookup table that is filled once, before a model is used",
    "fills_table": "fills a lookup table",
    "iterator_read": "takes the next element of an iterator",
    "any_device": "holds a value that the runtime puts there, on whatever device it is given",
    # Memory.
    "view": "its outputs are views of the input of this number; of one with several outputs, all of that input",
    "into": "OUTPUT:INPUTS, may write that output into one of these inputs, the first that fits",
    "held_elsewhere": "its output is there before the step, or belongs to a kernel or to the caller",
    # Shapes.
    "metadata": "reads the shape of its input and not the data",
    "same_shape": "its output has the shape of its first input",
    "size": "rule for outputs whose size depends on data (``tf_placer/graph/size_rules.py``)",
    "makes_array": "makes a TensorFlow 1 array or stack",
    "puts": "keeps the input of this number in an array or on a stack",
    "takes": "takes one element, or several, out of an array or a stack",
    # The batch.
    "split": "RULE or RULE:ARGUMENT, by which its copies work on parts of the batch (``tf_placer/transform/split``)",
    # Fusion.
    "xla": "XLA compiles it in a cluster: no effects, nothing random, and a size that follows from those of its inputs",
    "outside": "RULE or RULE:ARGUMENTS, of what it stays out of a cluster for, because XLA raises no error where its"
    " kernel does, or gives another number (``tf_placer/graph/fusible.py``)",
    # Costs.
    "work": "formula of its FLOPs and bytes (``tf_placer/costs/formulas.py``)",
    "update": "PASSES,OPERATIONS over a gradient-sized buffer (variable, slots and gradient), and per element",
    "additive": "may be done before or after a mean over replicas with the same result",
    # Inputs that CPU kernels refuse when they run (``tf_placer/costs/analytic.py``).
    "channels_last": "other layouts",
    "channels_last_in_inference": "other layouts, unless it is training",
    "undilated": "dilations",
    "ungrouped": "INPUT,FILTER of a convolution with groups: numbers of inputs, or -1 for the output",
    "unpooled_channels": "a window over channels",
    "onednn": "oneDNN has it in every layout and with dilations",
    "onednn_groups": "oneDNN has it with groups",
    "onednn_channels": "oneDNN has it with a window over channels",
    "pool": "gradient of this pool, next to which oneDNN has it channels-first",
}

_TABLE = """
# Element by element.
work=arithmetic split=bias xla | BiasAddV1
work=arithmetic split=elementwise xla | Complex Equal Greater GreaterEqual Invert IsFinite IsInf IsNan Less LessEqual
  NotEqual
work=arithmetic split=elementwise xla outside=shift | LeftShift RightShift
work=arithmetic split=elementwise | CheckNumericsV2
work=arithmetic split=linear xla | Conj Imag Real
work=arithmetic split=linear:moves | Snapshot
work=arithmetic into=0:0 split=bias xla | BiasAdd
work=arithmetic into=0:0 split=elementwise xla | Ceil Floor LogicalNot Rint Round Sign
work=arithmetic into=0:0 split=elementwise | ClipByValue
work=arithmetic into=0:0 same_shape split=elementwise xla | Abs LeakyRelu Relu Relu6 Square
work=arithmetic into=0:0 same_shape additive split=linear xla | Neg
work=arithmetic into=0:0,1 split=elementwise xla | BitwiseAnd BitwiseOr BitwiseXor LeakyReluGrad LogicalAnd LogicalOr
  Maximum Minimum MulNoNan Relu6Grad ReluGrad SquaredDifference
work=arithmetic into=0:0,1 split=scale:both xla | Mul
work=arithmetic into=0:0,1 split=add xla | Sub
work=arithmetic into=0:0,1 additive split=add xla | Add AddV2
work=arithmetic into=0:1,2 split=select xla | Select
work=arithmetic into=0:1,2 split=elementwise xla | SelectV2
work=arithmetic same_shape split=cast xla outside=cast | Cast
work=arithmetic same_shape split=elementwise xla | OnesLike ZerosLike
work=arithmetic same_shape view=0 split=elementwise | CheckNumerics
work=add_n | AccumulateNV2
work=add_n into=0:any additive split=add xla | AddN
work=division into=0:0 split=elementwise xla | Inv Reciprocal Softsign
work=division into=0:0 same_shape split=elementwise xla | Rsqrt Sqrt
work=division into=0:0,1 split=scale:first xla outside=divisor | Div RealDiv
work=division into=0:0,1 split=elementwise xla | DivNoNan ReciprocalGrad RsqrtGrad SoftsignGrad SqrtGrad Xdivy
work=division into=0:0,1 split=elementwise xla outside=divisor | FloorDiv FloorMod Mod TruncateDiv TruncateMod
work=division into=0:0,1 split=elementwise | InvGrad
work=transcendental split=elementwise xla | Ndtri Xlog1py
work=transcendental into=0:0 split=elementwise xla | Acos Acosh Asin Asinh Atan Atanh Cos Cosh Digamma Erf Erfc Erfinv
  Expm1 Lgamma Log1p Sin Sinh Tan
work=transcendental into=0:0 same_shape split=elementwise xla | Elu Exp Log Selu Sigmoid Softplus Tanh
work=transcendental into=0:0,1 split=elementwise xla | Atan2 EluGrad SigmoidGrad SoftplusGrad TanhGrad Xlogy
work=transcendental into=0:0,1 split=elementwise | SeluGrad
work=transcendental into=0:0,1 split=elementwise xla outside=exponent | Pow

# Reductions, and random numbers.
work=reduction split=reduction:all xla | All
work=reduction split=reduction:any xla | Any
work=reduction split=along_axis:1,drops | ArgMax ArgMin
work=reduction split=bias_gradient xla | BiasAddGrad
work=reduction split=along_axis:1 xla | Cumprod Cumsum
work=reduction split=reduction:norm | EuclideanNorm
work=reduction split=rows:0,1 | InTopKV2
work=reduction split=sum_of_squares xla | L2Loss
work=reduction split=reduction:max xla | Max
work=reduction split=reduction:mean xla | Mean
work=reduction split=reduction:min xla | Min
work=reduction split=reduction:product xla | Prod
work=reduction split=reduction:add xla | Sum
work=reduction split=inner:1 xla | TopKV2
work=softmax into=0:0 split=inner:1 xla | LogSoftmax Softmax
work=softmax into=1:0 split=rows:0,1 xla | SoftmaxCrossEntropyWithLogits
work=softmax into=1:0 split=rows:0,1 xla outside=index:1,0,last | SparseSoftmaxCrossEntropyWithLogits
work=draw | Multinomial RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt RngReadAndSkip RngSkip
  StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt
  StatelessMultinomial StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg
  StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformFullInt
  StatelessRandomUniformFullIntV2 StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2
  StatelessTruncatedNormal StatelessTruncatedNormalV2 TruncatedNormal

# Layers of networks.
work=matmul split=matmul xla | MatMul
work=batch_matmul split=batch_matmul xla | BatchMatMul BatchMatMulV2 BatchMatMulV3
work=einsum split=einsum xla | Einsum
work=convolution channels_last onednn split=rows:0 xla | Conv2D
work=convolution channels_last undilated ungrouped=0,1 onednn split=rows:0 xla | Conv3D
work=convolution_input_gradient channels_last undilated ungrouped=-1,1 onednn split=sized_rows:2 xla |
  Conv3DBackpropInputV2
work=convolution_input_gradient channels_last undilated ungrouped=-1,1 onednn onednn_groups split=sized_rows:2 xla |
  Conv2DBackpropInput
work=convolution_filter_gradient channels_last undilated ungrouped=0,-1 onednn split=filter_gradient xla |
  Conv3DBackpropFilterV2
work=convolution_filter_gradient channels_last undilated ungrouped=0,-1 onednn onednn_groups split=filter_gradient xla |
  Conv2DBackpropFilter
work=depthwise channels_last undilated onednn split=rows:0 xla | DepthwiseConv2dNative
work=depthwise_input_gradient channels_last onednn split=sized_rows:2 xla | DepthwiseConv2dNativeBackpropInput
work=depthwise_filter_gradient channels_last onednn split=filter_gradient xla | DepthwiseConv2dNativeBackpropFilter
channels_last | Conv MaxPool3DGradGrad MaxPoolGradGradV2
channels_last split=rows:0,1,2 | MaxPoolGradV2
channels_last split=rows:0 | MaxPoolV2
# Of ``MaxPoolGradV2`` and the like the window is an input.
channels_last unpooled_channels split=rows:0,1,2 | MaxPoolGradGrad
work=pool | MaxPoolWithArgmax
work=pool channels_last onednn split=rows:0 xla | MaxPool
work=pool channels_last unpooled_channels onednn split=rows:0 xla | MaxPool3D
work=pool channels_last unpooled_channels onednn onednn_channels split=rows:0 xla | AvgPool AvgPool3D
work=pool_gradient channels_last unpooled_channels onednn split=sized_rows:1 xla | AvgPool3DGrad AvgPoolGrad
work=pool_gradient channels_last unpooled_channels pool=MaxPool split=rows:0,1,2 xla | MaxPoolGrad
work=pool_gradient channels_last unpooled_channels pool=MaxPool3D split=rows:0,1,2 xla | MaxPool3DGrad
work=batch_normalization split=normalization xla | FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3
work=batch_normalization_gradient channels_last_in_inference split=normalization_gradient xla | FusedBatchNormGrad
  FusedBatchNormGradV2 FusedBatchNormGradV3

# What moves data.
work=copy_all split=batch_to_space xla | BatchToSpaceND
work=copy_all split=concat:first xla | Concat
work=copy_all split=concat:last xla | ConcatV2
work=copy_all split=transpose xla | ConjugateTranspose
work=copy_all xla | Reverse
work=copy_all xla outside=settled:2 | MatrixSetDiagV3
work=copy_all | DeepCopy InplaceUpdate
work=copy_all split=inner:2 xla outside=settled:1,2 | MatrixBandPart
work=copy_all split=diagonals xla outside=settled:1,2,3 | MatrixDiagV3
work=copy_all split=pad xla | MirrorPad Pad PadV2
work=copy_all split=pad xla outside=settled:1 | MirrorPadGrad
work=copy_all split=pack xla | Pack
work=copy_all split=rows:0 xla | ResizeBilinear ResizeNearestNeighbor
work=copy_all split=rows:0 | ResizeNearestNeighborGrad
work=copy_all split=rows:0,1 xla | ResizeBilinearGrad
work=copy_all split=reverse_sequence xla outside=index:1,0,length | ReverseSequence
work=copy_all split=along_axis:1 xla | ReverseV2
work=copy_all split=along_axis:2 xla | Roll
work=copy_all split=space_to_batch xla | SpaceToBatchND
work=copy_all split=divide:1,0 xla | Split
work=copy_all split=divide:0,2 xla | SplitV
work=copy_all split=strided_cut_gradient xla | StridedSliceGrad
work=copy_all split=tile xla | Tile
work=copy_all split=unpack xla | Unpack
work=copy_all additive split=transpose xla | Transpose
work=copy_all channels_last split=rows:0 xla | DepthToSpace SpaceToDepth
work=copy_part split=broadcast xla outside=settled:1 | BroadcastTo
work=copy_part split=inner:2 xla outside=settled:1 | MatrixDiagPartV3
work=copy_part split=cut xla outside=known:1,2 | Slice
work=copy_part split=strided_cut xla outside=known:1,2,3 | StridedSlice
work=fill xla | BroadcastArgs BroadcastGradientArgs ConcatOffset Fill Range
work=fill xla outside=known:0 | InvertPermutation
work=fill | Empty LinSpace
work=fill split=one_hot xla | OneHot
work=gather split=gather xla outside=index:1,0,first | Gather
work=gather split=gather xla outside=index:1,0,axis | GatherV2
work=gather split=gather_nd xla outside=index:1,0,depth | GatherNd
work=scatter_into_new split=scatter xla outside=index:0,,depth | ScatterNd
work=scatter_into_new | SegmentSumV2 UniqueV2
work=scatter_into_new split=segments:max xla outside=index:1,,first | UnsortedSegmentMax
work=scatter_into_new split=segments:min xla outside=index:1,,first | UnsortedSegmentMin
work=scatter_into_new split=segments:product xla outside=index:1,,first | UnsortedSegmentProd
work=scatter_into_new split=segments:add xla outside=index:1,,first | UnsortedSegmentSum
work=scatter_into_new size=bins | Bincount DenseBincount
work=scatter_into_new size=second_elements | DynamicPartition
work=scatter_into_new size=indices | DynamicStitch ParallelDynamicStitch
work=scatter_into_new size=first_rows | SegmentMean SegmentSum
work=scatter_into_new size=first_elements | Unique UniqueWithCounts Where
work=scatter_into_input xla outside=index:1,0,depth | TensorScatterAdd TensorScatterMax TensorScatterSub
  TensorScatterUpdate
size=bins | RaggedBincount
size=first_elements | ListDiff
size=first_rows | SegmentMax SegmentMin SegmentProd
size=second_rows | SparseSegmentMean SparseSegmentSqrtN SparseSegmentSum
size=all_rows | SparseAdd SparseConcat SparseSparseMaximum SparseSparseMinimum
size=boxes | NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5
  NonMaxSuppressionWithOverlaps
size=image | DecodeAndCropJpeg DecodeBmp DecodeGif DecodeImage DecodeJpeg DecodePng DecodeWebP
size=parts | DecodePaddedRaw DecodeRaw StringNGrams StringSplit StringSplitV2 UnicodeDecode UnicodeDecodeWithOffsets

# Lists, arrays and stacks.
work=tensor_list | EmptyTensorList StackCloseV2 TensorArrayCloseV3 TensorArraySizeV3 TensorListConcatV2
  TensorListElementShape TensorListFromTensor TensorListGather TensorListGetItem TensorListLength TensorListPopBack
  TensorListPushBack TensorListReserve TensorListSetItem TensorListSplit TensorListStack
work=tensor_list makes_array | StackV2 TensorArrayGradV3 TensorArrayGradWithShape TensorArrayV3
work=tensor_list puts=1 | StackPushV2 TensorArraySplitV3
work=tensor_list puts=2 | TensorArrayScatterV3 TensorArrayWriteV3
work=tensor_list takes=one | StackPopV2 TensorArrayReadV3
work=tensor_list takes=several | TensorArrayConcatV3 TensorArrayGatherV3

# Variables; an op on a v1 variable does what its twin on a resource variable does.
work=update update=3,1 | AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp
work=update update=3,2 | ApplyGradientDescent ResourceApplyGradientDescent
work=update update=5,4 | ApplyMomentum ResourceApplyKerasMomentum ResourceApplyMomentum
work=update update=5,8 | ApplyAdagrad ApplyAdagradV2 ResourceApplyAdagrad ResourceApplyAdagradV2
work=update update=7,12 | ApplyAdaMax ApplyRMSProp ResourceApplyAdaMax ResourceApplyRMSProp
work=update update=7,14 | ApplyAdam ResourceApplyAdam
work=update update=7,16 | ApplyAdadelta ResourceApplyAdadelta
work=update update=7,20 | ApplyFtrl ApplyFtrlV2 ResourceApplyFtrl ResourceApplyFtrlV2
work=update update=9,14 | ApplyCenteredRMSProp ResourceApplyCenteredRMSProp
work=update update=9,15 | ResourceApplyAdamWithAmsgrad
work=assign | Assign
work=gather reads_variable split=gather_variable outside=index:1,0,batch | ResourceGather
work=gather reads_variable | ResourceGatherNd
work=scatter_into_variable | ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin
  ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin ResourceScatterNdSub
  ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate ScatterAdd ScatterDiv ScatterMax ScatterMin
  ScatterMul ScatterNdAdd ScatterNdMax ScatterNdMin ScatterNdSub ScatterNdUpdate ScatterSub ScatterUpdate
reads_variable | VariableShape
reads_resource | LookupTableFindV2 LookupTableSizeV2

# Free in TensorFlow's executor, because no device kernel starts. The buffer is made when the kernel is constructed, or
# the fed tensor is there before the step.
work=free held_elsewhere | Const
work=free held_elsewhere any_device local_variant | Placeholder
# A handle, or a reference to a buffer, which of a temporary variable is not cleared.
work=free held_elsewhere variable | VarHandleOp
work=free variable reference_variable | Variable VariableV2
work=free | TemporaryVariable
# Looks at a handle or a reference.
work=free reads_resource | VarIsInitializedOp
work=free keeps_reference | IsVariableInitialized
# Hands on the variable's buffer (the copy on a later write is the writer's), or takes over the value's.
work=free held_elsewhere view=0 reads_variable | ReadVariableOp
work=free | AssignVariableOp DestroyTemporaryVariable
# Does nothing.
work=free | ControlTrigger NoOp
# Same buffer, new shape or type.
work=free view=0 xla | Bitcast
work=free view=0 same_buffer split=expand_dims xla | ExpandDims
work=free view=0 same_buffer additive split=reshape xla | Reshape
work=free view=0 same_buffer additive split=squeeze xla | Squeeze
# Static here: a few host integers.
work=free metadata xla | Rank Shape ShapeN Size
# Hands on its input, an argument or a result.
work=free any_device | _Retval
work=free any_device held_elsewhere | _Arg
work=free any_device view=0 | PlaceholderWithDefault
work=free view=0 split=as_identity xla | EnsureShape
work=free view=0 split=linear:moves xla | PreventGradient
work=free view=0 same_buffer same_shape split=linear:moves xla | StopGradient
work=free view=0 same_buffer same_shape additive split=linear:moves xla | Identity
work=free forwards_resources split=each xla | IdentityN
work=free keeps_reference | RefIdentity RefSelect
work=free | LoopCond
work=free enter same_buffer | Enter
work=free enter keeps_reference | RefEnter
work=free exit | Exit
work=free exit keeps_reference | RefExit
work=free merge | Merge
work=free merge keeps_reference | RefMerge
work=free next | NextIteration
work=free next keeps_reference | RefNextIteration
work=free switch same_buffer | Switch
work=free switch keeps_reference | RefSwitch
switch | _SwitchN

# Functions, and what is in this process alone.
loop | StatelessWhile While
branch | Case If StatelessCase StatelessIf
call forwards_resources | PartitionedCall StatefulPartitionedCall
forwards_resources | DeleteMultiDeviceIterator ExperimentalGroupByReducerDataset ExperimentalGroupByWindowDataset
  ExperimentalMapAndBatchDataset ExperimentalParallelInterleaveDataset ExperimentalScanDataset
  ExperimentalTakeWhileDataset FilterDataset FlatMapDataset GeneratorDataset GroupByReducerDataset
  GroupByWindowDataset InterleaveDataset LegacyParallelInterleaveDatasetV2 MapAndBatchDataset MapDataset
  ParallelFilterDataset ParallelInterleaveDataset ParallelInterleaveDatasetV2 ParallelInterleaveDatasetV3
  ParallelInterleaveDatasetV4 ParallelMapDataset ParallelMapDatasetV2 ReduceDataset RpcServerRegister ScanDataset
  TakeWhileDataset
local_variant | IteratorGetNextAsOptional OptionalFromValue OptionalNone
python | EagerPyFunc PyFunc PyFuncStateless
prints | Print PrintV2
table | HashTable HashTableV2
fills_table | InitializeTable InitializeTableFromTextFile InitializeTableFromTextFileV2 InitializeTableV2
  LookupTableImport LookupTableImportV2
iterator_read | IteratorGetNext IteratorGetNextSync

# What moves all that it reads and makes, as far as is known of its cost.
split=elementwise | Angle ApproximateEqual AsString BesselI0e BesselI1e Betainc Bucketize ComplexAbs Igamma
  IgammaGradA Igammac NextAfter Polygamma PopulationCount RegexReplace StaticRegexFullMatch StaticRegexReplace
  StringJoin StringLength StringLower StringStrip StringToHashBucketFast StringToNumber StringUpper Substr Zeta
split=along_axis:1 | CumulativeLogsumexp
split=inner:1 | AdjustHue AdjustSaturation FFT HSVToRGB IFFT IRFFT NthElement RFFT RGBToHSV
split=inner:2 | Cholesky FFT2D IFFT2D LogMatrixDeterminant MatrixDeterminant MatrixInverse Qr SelfAdjointEigV2 Svd
split=inner:2,2 | CholeskyGrad MatrixSolve
split=inner:3 | AdjustContrastv2
split=rows:0 | Dilation2D ExtractImagePatches LRN ResizeArea ResizeBicubic
split=rows:0,1 | LowerBound UpperBound
split=rows:0,1,2 | LRNGrad
"""

_Node = TypeVar("_Node", bound=Hashable)


def _parsed(table: str) -> dict[str, dict[str, str]]:
    """Fact -> op type -> value ("" for one without) of all rows."""
    value_of_type: dict[str, dict[str, str]] = {fact: {} for fact in FACTS}
    seen: set[str] = set()
    facts: list[str] = []
    for line in filter(lambda line: not line.startswith("#"), table.splitlines()):
        of_row, bar, op_types = line.rpartition("|")
        facts = of_row.split() if bar else facts
        for op_type in op_types.split():
            if op_type in seen:
                raise ValueError(f"op type {op_type!r} has two rows in the table of op facts; join them")
            seen.add(op_type)
            for fact in facts:
                name, _, value = fact.partition("=")
                value_of_type[name][op_type] = value
    return value_of_type


_OF_FACT = _parsed(_TABLE)


def values(fact: str) -> Mapping[str, str]:
    """Op type -> value of a fact, "" for a fact without values."""
    return _OF_FACT[fact]


def having(fact: str) -> frozenset[str]:
    """The op types that have a fact."""
    return frozenset(_OF_FACT[fact])


op_definition = functools.cache(registered_op)


LOOPS, BRANCHES, CALLS = having("loop"), having("branch"), having("call")
ENTERS, EXITS, MERGES, NEXT_ITERATIONS = having("enter"), having("exit"), having("merge"), having("next")
VARIABLES, REFERENCE_VARIABLES = having("variable"), having("reference_variable")


@dataclasses.dataclass(frozen=True)
class GraphIndex:
    """A GraphDef's structure with op i standing for ``graph_def.node[i]``."""

    graph_def: tf.compat.v1.GraphDef  # the graph; treated as read-only
    names: tuple[str, ...]  # [N] node names, in GraphDef order
    op_types: tuple[str, ...]  # [N] op type of each node
    id_of_name: dict[str, int]  # node name -> op id
    # [E, 4] int32, one row per data input: producer op, producer output index, consumer op, consumer input
    # position; sorted by consumer, then position
    data_edges: np.ndarray  # [E, 4]
    # [C, 2] int32: producer op, consumer op
    control_edges: np.ndarray  # [C, 2]

    @property
    def num_ops(self) -> int:
        return len(self.names)

    @functools.cached_property
    def edges(self) -> np.ndarray:
        """[E + C, 2] int32: producer and consumer of every data edge, then of every control edge."""
        return np.concatenate([self.data_edges[:, [0, 2]], self.control_edges])

    @functools.cached_property
    def consumers(self) -> list[list[int]]:
        """[N] ops that read an output of each op or wait for the op, data before control."""
        consumers: list[list[int]] = [[] for _ in self.names]
        for producer, consumer in self.edges.tolist():
            consumers[producer].append(consumer)
        return consumers


def index_graph(graph_def: tf.compat.v1.GraphDef) -> GraphIndex:
    """Indexes a GraphDef in linear time.

    Raises:
      ValueError: two nodes share a name, or an input names a node that is not there.
    """
    names = tuple(node.name for node in graph_def.node)
    id_of_name = {name: i for i, name in enumerate(names)}
    if len(id_of_name) != len(names):
        seen: set[str] = set()
        duplicate = next(n for n in names if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise ValueError(f"two nodes of the graph are named {duplicate!r}; names must be unique")
    data, control = [], []
    for consumer, node in enumerate(graph_def.node):
        for position, text in enumerate(node.input):
            is_control, producer_name, output = parse_input(text)
            producer = id_of_name.get(producer_name)
            if producer is None:
                raise ValueError(
                    f"node {node.name!r} has input {text!r}, but the graph has no node "
                    f"{producer_name!r}; the GraphDef is truncated or was pruned wrongly"
                )
            if is_control:
                control.append((producer, consumer))
            else:
                data.append((producer, output, consumer, position))
    return GraphIndex(
        graph_def=graph_def,
        names=names,
        op_types=tuple(node.op for node in graph_def.node),
        id_of_name=id_of_name,
        data_edges=np.array(data, np.int32).reshape(-1, 4),
        control_edges=np.array(control, np.int32).reshape(-1, 2),
    )


def parse_input(text: str) -> tuple[bool, str, int]:
    """Splits a NodeDef input into (is control, node name, output index)."""
    if text.startswith("^"):
        return True, text[1:], -1
    name, _, output = text.partition(":")
    return False, name, int(output) if output else 0


def data_inputs(node: node_def_pb2.NodeDef) -> list[str]:
    """The tensors that a node reads, in order."""
    return [text for text in node.input if not text.startswith("^")]


def control_inputs(node: node_def_pb2.NodeDef) -> list[str]:
    """The ops that a node waits for and reads nothing of, each as ``^name``."""
    return [text for text in node.input if text.startswith("^")]


def new_node(
    op_type: str, name: str, inputs: Iterable[str] = (), device: str = "", **attributes: Any
) -> node_def_pb2.NodeDef:
    """A node; ``attributes`` as in ``set_attributes``."""
    node = node_def_pb2.NodeDef(op=op_type, name=name, input=inputs, device=device)
    set_attributes(node, attributes)
    return node


def set_attributes(node: node_def_pb2.NodeDef, attributes: Mapping[str, Any]) -> None:
    """Sets attributes: types, shapes, numbers, bytes, arrays, lists of types, messages; a text is a function's name."""
    for name, value in attributes.items():
        attribute = node.attr[name]
        match value:
            case tf.DType():
                attribute.type = value.as_datatype_enum
            case tf.TensorShape():
                attribute.shape.CopyFrom(value.as_proto())
            case bool():
                attribute.b = value
            case int():
                attribute.i = value
            case float():
                attribute.f = value
            case bytes():
                attribute.s = value
            case str():
                attribute.func.name = value
            case list():
                attribute.list.type[:] = [dtype.as_datatype_enum for dtype in value]
            case np.ndarray():
                attribute.tensor.CopyFrom(tf.make_tensor_proto(value))
            case tensor_pb2.TensorProto():
                attribute.tensor.CopyFrom(value)
            case _:
                attribute.CopyFrom(value)


def copy_of(
    node: node_def_pb2.NodeDef, inputs: Iterable[str] | None = None, name: str = ""
) -> node_def_pb2.NodeDef:
    """A copy of a node, with other inputs and another name where these are given."""
    copy = node_def_pb2.NodeDef()
    copy.CopyFrom(node)
    if inputs is not None:
        copy.input[:] = list(inputs)
    if name:
        copy.name = name
    return copy


def alone(node: node_def_pb2.NodeDef, inputs: Iterable[str]) -> node_def_pb2.NodeDef:
    """A copy with other inputs and without ``_class``, which names nodes that the new graph may lack."""
    copy = copy_of(node, inputs)
    copy.attr.pop("_class", None)
    return copy


def reached(start: Iterable[_Node], following: Callable[[_Node], Iterable[_Node]]) -> set[_Node]:
    """All nodes that some nodes lead to, the latter included, by the nodes that ``following`` gives for each."""
    visited: set[_Node] = set()
    pending = list(start)
    while pending:
        node = pending.pop()
        if node not in visited:
            visited.add(node)
            pending.extend(following(node))
    return visited


def topological_order(num_nodes: int, edges: np.ndarray) -> np.ndarray:
    """Orders nodes so that every edge points forward; ties go to the smaller number.

    Args:
      num_nodes: U.
      edges: [E, 2] producer, consumer.

    Returns:
      [U'] int64 nodes in order; U' < U when the graph has a cycle (the nodes on it or behind it are missing).
    """
    by_producer = edges[np.argsort(edges[:, 0], kind="stable")]
    # Plain lists, because NumPy's calls take longer than the sums.
    offset = np.searchsorted(by_producer[:, 0], np.arange(num_nodes + 1)).tolist()
    waiting = np.bincount(edges[:, 1], minlength=num_nodes).tolist()
    consumers = by_producer[:, 1].tolist()
    ready = [node for node, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for consumer in consumers[offset[node] : offset[node + 1]]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                heapq.heappush(ready, consumer)
    return np.array(order, np.int64)
