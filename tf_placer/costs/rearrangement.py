"""Work of ops that move data and compute nothing."""

from __future__ import annotations

from tf_placer.costs.formula import serve
from tf_placer.costs.op_view import OpView
from tf_placer.costs.work import Kind, Work


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
    """A list is a variant of 0 bytes, so one side of the copy is all that shows: it counts for both."""
    return Work(Kind.REARRANGEMENT, 0.0, 2 * max(op.input_bytes, op.output_bytes))


FORMULAS = {
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
        "TensorListElementShape TensorListConcatV2 TensorListSplit TensorListGather",
    ),
}
