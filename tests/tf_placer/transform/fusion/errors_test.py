"""Whatever an op raises is raised by a fused plan, too: what can raise where XLA is silent is not fused."""

import pytest

from colocation.op_facts import having
from tests.logical_devices import outcomes_of
from tests.tf_placer.transform.fusion.errors_process import CASES
from tests.tf_placer.transform.split.op_cases import op_types

PROCESS = "tests.tf_placer.transform.fusion.errors_process"
OP_TYPES = sorted(having("xla"))
RAISING = (
    "GatherNd",
    "FloorMod",
    "ReverseSequence",
    "SparseSoftmaxCrossEntropyWithLogits",
    "TensorScatterMax",
)
AT_ONCE = 20


def test_every_op_type_that_xla_is_given_has_a_case():
    assert set(OP_TYPES) - set(op_types()) - set(CASES) == set()


def check(op_types_of_process):
    found = outcomes_of(PROCESS, *op_types_of_process, timeout_s=900)
    assert list(found) == list(op_types_of_process)
    assert {op_type: one["wrong"] for op_type, one in found.items() if one["wrong"]} == {}
    return found


@pytest.mark.medium
def test_what_may_raise_stays_outside():
    found = check(RAISING)
    assert all(one["outside"] for one in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("position", range(0, len(OP_TYPES), AT_ONCE))
def test_bad_numbers_are_errors_both_ways_or_give_the_same(position):
    check(OP_TYPES[position : position + AT_ONCE])
