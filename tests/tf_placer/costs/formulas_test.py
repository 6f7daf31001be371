"""Cost formulas: each family against arithmetic done by hand."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tf_placer.costs.formulas import FORMULA_OF_TYPE, OpView, free, work_of
from tf_placer.costs.op_work import FREE, Kind, Work
from tf_placer.graph.sizes.output_specs import OutputSpec, tensor_bytes


def _spec(tensor: tf.Tensor) -> OutputSpec:
    # A batch normalization's reserve space has no static shape; no formula reads it.
    shape = () if tensor.shape.rank is None else tuple(tensor.shape)
    return OutputSpec(shape, tensor.dtype, tensor_bytes(shape, tensor.dtype))


def _view(tensor: tf.Tensor) -> OpView:
    op = tensor.op
    return OpView(op.node_def, tuple(map(_spec, op.inputs)), tuple(map(_spec, op.outputs)))


def _work(make) -> Work:
    """Work of the op whose output ``make`` returns."""
    with tf.Graph().as_default():
        return work_of(_view(make()))


def _x(*shape, dtype=tf.float32):
    return tf.compat.v1.placeholder(dtype, shape)


def test_every_op_type_with_a_formula_exists_in_tensorflow():
    unknown = [op_type for op_type in FORMULA_OF_TYPE if op_def_registry.get(op_type) is None]
    assert unknown == []


def test_no_family_of_formulas_was_lost():
    assert len(FORMULA_OF_TYPE) >= 318


def test_convolution_and_both_gradients_do_the_same_multiply_adds():
    # 8 x 8 outputs, 3 x 3 window, 4 -> 5 channels, batch 2: 2*64*5 outputs * 2 * 36 = 46,080 FLOPs.
    x, f, dy = (2, 8, 8, 4), (3, 3, 4, 5), (2, 8, 8, 5)
    bytes_ = 4 * (2 * 64 * 4 + 3 * 3 * 4 * 5 + 2 * 64 * 5)
    sizes = 4 * 4  # the int32 sizes that a gradient reads
    forward = _work(lambda: tf.raw_ops.Conv2D(input=_x(*x), filter=_x(*f), strides=[1] * 4, padding="SAME"))
    assert forward == Work(Kind.CONVOLUTION, 46_080.0, bytes_)
    to_input = _work(
        lambda: tf.raw_ops.Conv2DBackpropInput(
            input_sizes=list(x), filter=_x(*f), out_backprop=_x(*dy), strides=[1] * 4, padding="SAME"
        )
    )
    assert to_input == Work(Kind.CONVOLUTION, 46_080.0, bytes_ + sizes)
    to_filter = _work(
        lambda: tf.raw_ops.Conv2DBackpropFilter(
            input=_x(*x), filter_sizes=list(f), out_backprop=_x(*dy), strides=[1] * 4, padding="SAME"
        )
    )
    assert to_filter == Work(Kind.CONVOLUTION, 46_080.0, bytes_ + sizes)


def test_depthwise_convolution_has_no_sum_over_channels():
    # 2 * 64 * 4 outputs * 2 * 9 = 9,216 FLOPs.
    work = _work(
        lambda: tf.raw_ops.DepthwiseConv2dNative(
            input=_x(2, 8, 8, 4), filter=_x(3, 3, 4, 1), strides=[1] * 4, padding="SAME"
        )
    )
    assert (work.kind, work.flops) == (Kind.DEPTHWISE_CONVOLUTION, 9_216.0)


@pytest.mark.parametrize(
    ("make", "flops"),
    [
        (lambda: tf.raw_ops.MatMul(a=_x(3, 5), b=_x(5, 7)), 2 * 3 * 7 * 5),
        (lambda: tf.raw_ops.MatMul(a=_x(5, 3), b=_x(5, 7), transpose_a=True), 2 * 3 * 7 * 5),
        (lambda: tf.raw_ops.BatchMatMulV2(x=_x(2, 3, 5), y=_x(5, 7)), 2 * 2 * 3 * 7 * 5),
        (lambda: tf.raw_ops.BatchMatMulV2(x=_x(2, 5, 3), y=_x(2, 5, 7), adj_x=True), 2 * 2 * 3 * 7 * 5),
        (
            lambda: tf.raw_ops.Einsum(inputs=[_x(2, 3, 5), _x(5, 7)], equation="abc,cd->abd"),
            2 * 2 * 3 * 7 * 5,
        ),
        (
            lambda: tf.raw_ops.Einsum(inputs=[_x(2, 3, 5), _x(7, 5)], equation="...c,dc->...d"),
            2 * 2 * 3 * 7 * 5,
        ),
    ],
)
def test_matrix_products_count_two_per_multiply_add(make, flops):
    work = _work(make)
    assert (work.kind, work.flops) == (Kind.MATRIX_PRODUCT, float(flops))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        # [2, 3] + [3]: 6 additions; reads 6 + 3, writes 6 floats.
        (lambda: tf.raw_ops.AddV2(x=_x(2, 3), y=_x(3)), Work(Kind.STREAMING, 6.0, 60)),
        (lambda: tf.raw_ops.Exp(x=_x(6)), Work(Kind.STREAMING, 15.0 * 6, 48)),
        # Three inputs of 6: two additions each; 4 tensors of 24 bytes.
        (lambda: tf.raw_ops.AddN(inputs=[_x(6), _x(6), _x(6)]), Work(Kind.STREAMING, 12.0, 96)),
        # 24 floats in, 4 out, and one int32 axis.
        (lambda: tf.raw_ops.Sum(input=_x(4, 6), axis=1), Work(Kind.REDUCTION, 24.0, 4 * (24 + 4 + 1))),
        # 2 x 2 outputs, window 2 x 2: 16 comparisons; 16 floats in, 4 out.
        (
            lambda: tf.raw_ops.MaxPool(
                input=_x(1, 4, 4, 1), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"
            ),
            Work(Kind.REDUCTION, 16.0, 80),
        ),
        # Only the slice is read: 2 * 3 floats.
        (
            lambda: tf.raw_ops.Slice(input=_x(100), begin=[0], size=[3]),
            Work(Kind.REARRANGEMENT, 0.0, 24),
        ),
        # 3 rows of 5 floats read and written, 3 int32 indices; the table of 1000 rows is not.
        (
            lambda: tf.raw_ops.GatherV2(params=_x(1000, 5), indices=_x(3, dtype=tf.int32), axis=0),
            Work(Kind.IRREGULAR, 0.0, 2 * 60 + 12),
        ),
        # Writes 8 floats; 50 operations for each.
        (
            lambda: tf.raw_ops.RandomUniform(shape=[8], dtype=tf.float32),
            Work(Kind.RANDOM, 400.0, 32),
        ),
    ],
)
def test_memory_bound_families(make, expected):
    assert _work(make) == expected


def test_an_optimizer_update_passes_over_variable_slots_and_gradient():
    with tf.Graph().as_default():
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[6])
        op = tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=_x(), delta=_x(6))
        specs = (
            OutputSpec((), tf.resource, 0),
            OutputSpec((), tf.float32, 4),
            OutputSpec((6,), tf.float32, 24),
        )
        work = work_of(OpView(op.node_def, specs, ()))
    # Reads gradient and variable, writes the variable: 3 x 24 bytes; a product and a difference each.
    assert work == Work(Kind.STREAMING, 12.0, 72)


def test_fused_batch_normalization_reads_twice_when_training():
    def make(is_training):
        scale = [_x(3) for _ in range(4)]
        return tf.raw_ops.FusedBatchNormV3(
            x=_x(2, 4, 4, 3), scale=scale[0], offset=scale[1], mean=scale[2], variance=scale[3],
            is_training=is_training,
        ).y  # fmt: skip

    x_bytes = 4 * 2 * 4 * 4 * 3
    assert _work(lambda: make(True)).num_bytes == 3 * x_bytes
    assert _work(lambda: make(False)).num_bytes == 2 * x_bytes


@pytest.mark.parametrize(
    "op_type", sorted(name for name, formula in FORMULA_OF_TYPE.items() if formula is free)
)
def test_free_ops_are_free(op_type):
    node = tf.compat.v1.NodeDef(name="op", op=op_type)
    spec = OutputSpec((1000,), tf.float32, 4000)
    assert work_of(OpView(node, (spec,), (spec,))) is FREE


def test_an_unknown_op_type_is_a_marked_guess_over_its_bytes():
    node = tf.compat.v1.NodeDef(name="op", op="NobodyKnowsThis")
    view = OpView(node, (OutputSpec((2,), tf.float32, 8),), (OutputSpec((3,), tf.float32, 12),))
    assert work_of(view) == Work(Kind.STREAMING, 0.0, 20, guessed=True)
