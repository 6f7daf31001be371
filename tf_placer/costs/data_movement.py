"""Work of what moves data and computes next to nothing: copies, gathers and scatters, and what is free."""

from __future__ import annotations

from tf_placer.costs.op_view import Formula, OpView, serve
from tf_placer.costs.work import FREE, Kind, Work


def copy_all(op: OpView) -> Work:
    """Every input is read and every output written."""
    return Work(Kind.REARRANGEMENT, 0.0, op.moved_bytes)


def copy_part(op: OpView) -> Work:
    """Only what lands in the output is read, then written."""
    return Work(Kind.REARRANGEMENT, 0.0, 2 * op.output_bytes)


def fill(op: OpView) -> Work:
    """The output is written."""
    return Work(Kind.STREAMING, 0.0, op.output_bytes)


def tensor_list(op: OpView) -> Work:
    """A list, array or stack is a handle of 0 bytes, so one side of the copy is all that shows: it counts for both."""
    return Work(Kind.REARRANGEMENT, 0.0, 2 * max(op.input_bytes, op.output_bytes))


def gather(op: OpView) -> Work:
    """Reads the gathered rows and writes them; the rest of the table is not touched."""
    return Work(Kind.IRREGULAR, 0.0, 2 * op.output_bytes + op.inputs[1].num_bytes)


def scatter_into_new(op: OpView) -> Work:
    """Clears the output, then reads, adds and writes the inputs' rows."""
    return Work(Kind.IRREGULAR, float(op.input_elements), op.output_bytes + 3 * op.input_bytes)


def scatter_into_input(op: OpView) -> Work:
    """Copies the first input, then reads, adds and writes the updates' rows (the last input)."""
    updates = op.inputs[-1].num_bytes
    return Work(Kind.IRREGULAR, float(op.inputs[-1].num_bytes // 4), 2 * op.output_bytes + 3 * updates)


def assign(op: OpView) -> Work:
    """The value (the last input) is copied into the buffer of a v1 variable."""
    return Work(Kind.STREAMING, 0.0, 2 * op.inputs[-1].num_bytes)


def scatter_into_variable(op: OpView) -> Work:
    """Reads updates (the last input) and the variable's rows, writes the rows."""
    return Work(Kind.IRREGULAR, float(op.inputs[-1].num_bytes // 4), 3 * op.inputs[-1].num_bytes)


# Reasons hold for TensorFlow's executor: these ops hand on a reference to a buffer or a handle, or write a
# few host integers that shape inference already knows; none starts a device kernel.
WHY_FREE: dict[str, str] = {
    "Const": "the buffer is made when the kernel is constructed, before the first step",
    "Placeholder": "the fed tensor is there before the step",
    "PlaceholderWithDefault": "hands on its input",
    "_Arg": "hands on an argument",
    "_Retval": "hands on a result",
    "NoOp": "does nothing",
    "ControlTrigger": "does nothing",
    "VarHandleOp": "a handle",
    "ReadVariableOp": "hands on the variable's buffer; the copy on a later write is the writer's",
    "AssignVariableOp": "the variable takes over the value's buffer",
    "VarIsInitializedOp": "looks at a handle",
    "Identity": "hands on its input",
    "IdentityN": "hands on its inputs",
    "StopGradient": "hands on its input",
    "PreventGradient": "hands on its input",
    "EnsureShape": "looks at a shape and hands on its input",
    "Reshape": "same buffer, new shape",
    "Squeeze": "same buffer, new shape",
    "ExpandDims": "same buffer, new shape",
    "Bitcast": "same buffer, new type",
    "Shape": "static here: a few host integers",
    "ShapeN": "static here: a few host integers",
    "Size": "static here: one host integer",
    "Rank": "static here: one host integer",
    "Enter": "hands on its input",
    "Exit": "hands on its input",
    "NextIteration": "hands on its input",
    "Switch": "hands on its input",
    "Merge": "hands on the input that came",
    "LoopCond": "hands on one host bool",
    "Variable": "a reference",
    "VariableV2": "a reference",
    "TemporaryVariable": "a reference to a buffer that is not cleared",
    "DestroyTemporaryVariable": "hands on the buffer",
    "IsVariableInitialized": "looks at a reference",
    "RefEnter": "hands on its input",
    "RefExit": "hands on its input",
    "RefIdentity": "hands on its input",
    "RefMerge": "hands on the input that came",
    "RefNextIteration": "hands on its input",
    "RefSelect": "hands on one of its inputs",
    "RefSwitch": "hands on its input",
}


def free(op: OpView) -> Work:
    """0 ns on every device: see ``WHY_FREE``."""
    del op
    return FREE


FORMULAS: dict[str, Formula] = {
    **serve(
        copy_all,
        "Concat ConcatV2 Split SplitV Pad PadV2 MirrorPad MirrorPadGrad Transpose ConjugateTranspose "
        "Tile Pack Unpack Reverse ReverseV2 ReverseSequence Roll StridedSliceGrad SpaceToBatchND "
        "BatchToSpaceND SpaceToDepth DepthToSpace MatrixDiagV3 MatrixSetDiagV3 MatrixBandPart "
        "ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad DeepCopy "
        "InplaceUpdate",
    ),
    **serve(
        copy_part,
        "Slice StridedSlice BroadcastTo MatrixDiagPartV3",
    ),
    **serve(
        fill,
        "Fill Range LinSpace OneHot Empty ConcatOffset BroadcastArgs BroadcastGradientArgs InvertPermutation",
    ),
    **serve(
        tensor_list,
        "TensorListReserve EmptyTensorList TensorListFromTensor TensorListStack TensorListGetItem "
        "TensorListSetItem TensorListPushBack TensorListPopBack TensorListLength "
        "TensorListElementShape TensorListConcatV2 TensorListSplit TensorListGather "
        "TensorArrayV3 TensorArrayGradV3 TensorArrayGradWithShape TensorArrayReadV3 TensorArrayWriteV3 "
        "TensorArrayGatherV3 TensorArrayScatterV3 TensorArrayConcatV3 TensorArraySplitV3 TensorArraySizeV3 "
        "TensorArrayCloseV3 StackV2 StackPushV2 StackPopV2 StackCloseV2",
    ),
    **serve(
        gather,
        "Gather GatherV2 GatherNd ResourceGather ResourceGatherNd",
    ),
    **serve(
        scatter_into_new,
        "ScatterNd UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentProd UnsortedSegmentMin "
        "SegmentSum SegmentMean SegmentSumV2 DynamicStitch ParallelDynamicStitch DynamicPartition "
        "Unique UniqueV2 UniqueWithCounts Where Bincount DenseBincount",
    ),
    **serve(
        scatter_into_input,
        "TensorScatterAdd TensorScatterUpdate TensorScatterSub TensorScatterMax",
    ),
    **serve(
        scatter_into_variable,
        "ResourceScatterAdd ResourceScatterSub ResourceScatterUpdate ResourceScatterMul ResourceScatterDiv "
        "ResourceScatterMax ResourceScatterMin ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdUpdate "
        "ResourceScatterNdMax ResourceScatterNdMin "
        "ScatterAdd ScatterSub ScatterUpdate ScatterMul ScatterDiv ScatterMax ScatterMin ScatterNdAdd ScatterNdSub "
        "ScatterNdUpdate ScatterNdMax ScatterNdMin",
    ),
    **serve(assign, "Assign"),
    **dict.fromkeys(WHY_FREE, free),
}
