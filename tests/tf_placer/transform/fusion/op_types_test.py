"""XLA compiles each op type that it is said to, and gives what the op's own kernel gives."""

import numpy as np
import pytest

from colocation.op_facts import having
from tests.oracles.split_equality import relative_difference
from tests.tf_placer.transform.split.op_cases import NEEDS_STATISTICS, arguments_of, item_of, op_types
from tf_placer.rewrite.rewrite import place_graph
from tf_placer.runtime.graph_program import build_program, open_program
from tf_placer.transform.fusion.clusters import PREFIX, convex_clusters, fused_graph

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
CLOSE = 1e-4  # of the largest number, in float32
OWN_GRADIENT = "IdentityN"  # its case is a custom gradient's
# With numbers that are known in a step only, which here are right: they are in no cluster that a search makes.
MAY_RAISE = {f"UnsortedSegment{of}" for of in ("Max", "Min", "Prod", "Sum")} | {
    *("Gather", "GatherNd", "GatherV2", "LeftShift", "RightShift", "ReverseSequence", "ScatterNd"),
    "SparseSoftmaxCrossEntropyWithLogits",
}
# Outputs that nothing reads: empty here, a number there.
MEANINGFUL = dict.fromkeys(NEEDS_STATISTICS, 3)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", sorted(having("xla") & set(op_types()) - {OWN_GRADIENT}))
def test_it_is_compiled_and_gives_the_same(op_type):
    batch, arguments = arguments_of(op_type, 0)
    item = item_of(op_type, batch, arguments)
    devices = dict.fromkeys(item.index.names, DEVICE)
    labels = [0 if other == op_type else None for other in item.index.op_types]
    clusters = convex_clusters(item, labels, devices, least=0)
    placed = place_graph(item.graph_def, devices)
    fused = fused_graph(item, placed, clusters).graph_def
    assert any(node.name.startswith(PREFIX) for node in fused.node) == (op_type not in MAY_RAISE)
    found = []
    for graph_def in (placed, fused):
        with open_program("", build_program(item, graph_def, is_call=True), 60.0) as program:
            found.append(program.outputs())
    for expected, given in list(zip(*found, strict=True))[: MEANINGFUL.get(op_type)]:
        assert relative_difference(np.asarray(expected), np.asarray(given)) <= CLOSE
