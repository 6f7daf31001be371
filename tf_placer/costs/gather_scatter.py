"""Work of gathers, scatters and segment sums: addresses that come from data."""

from __future__ import annotations

from tf_placer.costs.formula import serve
from tf_placer.costs.op_view import OpView
from tf_placer.costs.work import Kind, Work


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


def scatter_into_variable(op: OpView) -> Work:
    """Reads updates (the last input) and the variable's rows, writes the rows."""
    return Work(Kind.IRREGULAR, float(op.inputs[-1].num_bytes // 4), 3 * op.inputs[-1].num_bytes)


FORMULAS = {
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
        "ResourceScatterAdd ResourceScatterSub ResourceScatterUpdate ResourceScatterNdAdd "
        "ResourceScatterNdUpdate",
    ),
}
