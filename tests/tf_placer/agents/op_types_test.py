"""A fixed list of names: numbers mean the same in every process and on every graph."""

import numpy as np

from tf_placer import workloads
from tf_placer.agents.features import NUM_TYPES, OP_TYPES, OTHER_TYPES, type_numbers


def test_every_name_is_there_once():
    assert len(set(OP_TYPES)) == len(OP_TYPES) == NUM_TYPES - OTHER_TYPES
    assert OP_TYPES[0] == ""


def test_known_types_have_their_own_numbers():
    numbers = type_numbers(["", "MatMul", "Conv2DBackpropFilter", "MatMul"])
    assert numbers.dtype == np.int32 and numbers[0] == 0 and numbers[1] == numbers[3]
    assert [OP_TYPES[n] for n in numbers] == ["", "MatMul", "Conv2DBackpropFilter", "MatMul"]


def test_unknown_types_share_the_last_numbers():
    numbers = type_numbers([f"MyOp{i}" for i in range(200)])
    assert set(numbers) == set(range(len(OP_TYPES), NUM_TYPES))
    # zlib.crc32(b"MyOp0") = 39192404 = 8 * 4899050 + 4: of the name alone, not of the process.
    assert numbers[0] == len(OP_TYPES) + 4


def test_the_list_is_that_of_this_version():
    # Weights are saved with the version and not with the list: whoever changes the list raises FEATURES_VERSION, and
    # then these numbers.
    assert (NUM_TYPES, OP_TYPES.index("AddV2"), OP_TYPES.index("_Send")) == EXPECTED_OF_VERSION_1


EXPECTED_OF_VERSION_1 = (367, 6, 341)


def test_a_training_step_has_no_type_without_a_name():
    types = {node.op for node in workloads.build("transformer_small").graph_def.node}
    assert len(types) > 40 and types <= set(OP_TYPES), types - set(OP_TYPES)
