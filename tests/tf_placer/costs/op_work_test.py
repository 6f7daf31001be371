"""Work of ops as arrays: sums, multiples, and what is refused."""

import numpy as np
import pytest

from tf_placer.base.arguments import InputError
from tf_placer.costs.formulas import Kind, OpWork, WorkClass


def test_sums_and_multiples():
    classes = [WorkClass.STREAMING, WorkClass.CONVOLUTION_1X1]
    work = OpWork([1, 2], [10, 20], [0, 1], classes)
    assert work.sum().tolist() == [3, 30, 1]
    assert work.times(3).sum().tolist() == [9, 90, 3]
    joined = OpWork.joined([work, work.times(2)])
    assert joined.flops.tolist() == [1, 2, 2, 4]
    assert joined.num_bytes.tolist() == [10, 20, 20, 40]
    assert joined.launches.tolist() == [0, 1, 0, 2]
    assert joined.work_class.tolist() == 2 * classes
    assert (joined.flops.dtype, joined.work_class.dtype) == (np.float64, np.int64)


@pytest.mark.parametrize("name", ["flops", "num_bytes", "launches", "work_class"])
def test_what_is_no_work(name):
    for value in (-1.0, float("nan"), float("inf")) if name != "work_class" else (999,):
        with pytest.raises(InputError, match="work is no number of at least 0 or no WorkClass for some op"):
            OpWork(**{"flops": [1], "num_bytes": [1], "launches": [1], name: [value]})


def test_work_of_before_classes_has_none():
    assert OpWork([1, 0], [10, 0], [1, 0]).work_class.tolist() == [WorkClass.UNCLASSIFIED, WorkClass.FREE]


def test_every_class_is_of_a_kind():
    assert {one.kind for one in WorkClass} == set(Kind)
    assert WorkClass.CONVOLUTION_3X3_WIDE.kind is Kind.CONVOLUTION
    assert WorkClass.BATCHED_PRODUCT_WIDE.kind is Kind.MATRIX_PRODUCT
    assert WorkClass.DEPTHWISE_CONVOLUTION.kind is Kind.DEPTHWISE_CONVOLUTION
    assert WorkClass.SOFTMAX.kind is Kind.REDUCTION
