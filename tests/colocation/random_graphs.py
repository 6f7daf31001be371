"""Random runnable graphs full of everything that ties ops together, for the agreement test."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
raw = tf.raw_ops

SHAPE = (2,)


@contextlib.contextmanager
def control_flow(*, functional: bool) -> Iterator[None]:
    """Builds loops and conds as ``While``/``If``, or as v1 frames; the process's setting is restored."""
    before = tf1.control_flow_v2_enabled()
    (tf1.enable_control_flow_v2 if functional else tf1.disable_control_flow_v2)()
    try:
        yield
    finally:
        (tf1.enable_control_flow_v2 if before else tf1.disable_control_flow_v2)()


@dataclasses.dataclass(frozen=True)
class RandomGraph:
    """A graph, the ops to run first (initializers), and the ops of the step."""

    graph_def: tf1.GraphDef
    initializers: tuple[str, ...]
    step: tuple[str, ...]


class _Builder:
    """Pool of float tensors of SHAPE that the gadgets draw from and add to."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.pool: list[tf.Tensor] = [tf1.placeholder_with_default([1.0, 2.0], SHAPE, name="seed")]
        self.initializers: list[tf.Operation] = []

    def draw(self) -> tf.Tensor:
        return self.pool[self.rng.integers(len(self.pool))]

    def scalar_bool(self) -> tf.Tensor:
        return raw.Less(x=raw.Sum(input=self.draw(), axis=0), y=tf.constant(0.5))

    def resource_variable(self) -> tf.Tensor:
        handle = raw.VarHandleOp(dtype=tf.float32, shape=SHAPE, shared_name=f"r{self.rng.integers(2**40)}")
        # Initial values are constants: an initializer may not wait for another variable.
        initializer = raw.AssignVariableOp(resource=handle, value=tf.constant([0.5, -1.0]))
        self.initializers.append(initializer)
        return handle

    def ref_variable(self) -> tf.Tensor:
        variable = raw.VariableV2(shape=SHAPE, dtype=tf.float32, shared_name=f"v{self.rng.integers(2**40)}")
        assign = raw.Assign(ref=variable, value=tf.constant([1.5, 0.25]))
        self.initializers.append(assign.op)
        return variable


def _elementwise(b: _Builder) -> None:
    for _ in range(b.rng.integers(1, 5)):
        x, y = b.draw(), b.draw()
        kind = b.rng.integers(5)
        if kind == 0:
            b.pool.append(raw.AddV2(x=x, y=y))
        elif kind == 1:
            b.pool.append(raw.Tanh(x=x))
        elif kind == 2:
            b.pool.append(raw.AddN(inputs=[x, y, b.draw()]))
        elif kind == 3:
            b.pool.extend(raw.IdentityN(input=[x, y]))
        else:
            with tf1.control_dependencies([raw.NoOp() if b.rng.random() < 0.5 else y.op]):
                b.pool.append(raw.Mul(x=x, y=tf.constant([0.5, 0.25])))


def _resource_variable(b: _Builder) -> None:
    handle = b.resource_variable()
    b.pool.append(raw.ReadVariableOp(resource=handle, dtype=tf.float32))
    raw.AssignAddVariableOp(resource=handle, value=b.draw())
    if b.rng.random() < 0.5:
        passed_on = raw.Identity(input=handle)
        b.pool.append(raw.ReadVariableOp(resource=passed_on, dtype=tf.float32))


def _optimizer(b: _Builder) -> None:
    var, slot = b.resource_variable(), b.resource_variable()
    gradient = raw.Mul(x=b.draw(), y=raw.ReadVariableOp(resource=var, dtype=tf.float32))
    rate = tf.constant(0.1)
    if b.rng.random() < 0.5:
        raw.ResourceApplyMomentum(var=var, accum=slot, lr=rate, grad=gradient, momentum=tf.constant(0.9))
    else:
        raw.ResourceApplyGradientDescent(var=var, alpha=rate, delta=gradient)
        b.pool.append(raw.ResourceGather(resource=slot, indices=tf.constant([0, 1]), dtype=tf.float32))


def _forwarded_resource(b: _Builder) -> None:
    handles = [b.resource_variable() for _ in range(b.rng.integers(1, 3))]
    for out in raw.IdentityN(input=handles):
        b.pool.append(raw.ReadVariableOp(resource=out, dtype=tf.float32))


def _ref_variable(b: _Builder) -> None:
    variable = b.ref_variable()
    if b.rng.random() < 0.5:
        with tf1.colocate_with(variable.op):
            b.pool.append(raw.Identity(input=variable))
    else:
        b.pool.append(raw.Identity(input=variable))
    if b.rng.random() < 0.5:
        b.pool.append(raw.Identity(input=raw.AssignAdd(ref=raw.RefIdentity(input=variable), value=b.draw())))
    else:
        raw.ApplyGradientDescent(var=variable, alpha=tf.constant(0.1), delta=b.draw())


def _colocate_with(b: _Builder) -> None:
    target = b.draw().op
    with tf1.colocate_with(target):
        b.pool.append(raw.Neg(x=b.draw()))
        if b.rng.random() < 0.5:
            with tf1.colocate_with(b.draw().op):
                b.pool.append(raw.Abs(x=b.draw()))


def _switch_merge(b: _Builder) -> None:
    on_false, on_true = raw.Switch(data=b.draw(), pred=b.scalar_bool())
    b.pool.append(raw.Merge(inputs=[raw.Neg(x=on_false), raw.Tanh(x=on_true)])[0])


def _switched_resource(b: _Builder) -> None:
    on_false, on_true = raw.Switch(data=b.resource_variable(), pred=b.scalar_bool())
    read = raw.ReadVariableOp(resource=on_true, dtype=tf.float32)
    with tf1.control_dependencies([raw.Identity(input=on_false).op]):
        constant = tf.constant([3.0, 4.0])
    b.pool.append(raw.Merge(inputs=[read, constant])[0])


def _v1_loop(b: _Builder) -> None:
    x, invariant = b.draw(), b.draw()
    handle = b.resource_variable() if b.rng.random() < 0.5 else None
    nested = b.rng.random() < 0.4

    def step(i: tf.Tensor, a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        a = tf.tanh(a + invariant)
        if handle is not None:
            a += raw.ReadVariableOp(resource=handle, dtype=tf.float32)
        if nested:
            a = tf1.while_loop(lambda j, c: j < 2, lambda j, c: (j + 1, c * 0.5), [0, a])[1]
        a.set_shape(SHAPE)  # a queue's or list's element does not tell its shape through Enter
        return i + 1, a

    with control_flow(functional=False):
        b.pool.append(tf1.while_loop(lambda i, a: i < 2, step, [0, x])[1])


def _functional_loop(b: _Builder) -> None:
    handle = b.resource_variable() if b.rng.random() < 0.7 else None

    def step(i: tf.Tensor, a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if handle is not None:
            a += raw.ReadVariableOp(resource=handle, dtype=tf.float32)
        a *= 0.5
        a.set_shape(SHAPE)
        return i + 1, a

    with control_flow(functional=True):
        b.pool.append(tf1.while_loop(lambda i, a: i < 2, step, [0, b.draw()])[1])


def _functional_cond(b: _Builder) -> None:
    handle, x, pred = b.resource_variable(), b.draw(), b.scalar_bool()

    def then() -> tf.Tensor:
        return x + raw.ReadVariableOp(resource=handle, dtype=tf.float32)

    with control_flow(functional=True):
        b.pool.append(tf1.cond(pred, then, lambda: x * 2.0))


def _queue(b: _Builder) -> None:
    queue = raw.FIFOQueueV2(component_types=[tf.float32], shapes=[SHAPE])
    enqueue = raw.QueueEnqueueV2(handle=queue, components=[b.draw()])
    with tf1.control_dependencies([enqueue]):
        (out,) = raw.QueueDequeueV2(handle=queue, component_types=[tf.float32])
    out.set_shape(SHAPE)
    b.pool.append(out)


def _tensor_array(b: _Builder) -> None:
    handle, flow = raw.TensorArrayV3(size=tf.constant(1), dtype=tf.float32)
    flow = raw.TensorArrayWriteV3(handle=handle, index=tf.constant(0), value=b.draw(), flow_in=flow)
    read = raw.TensorArrayReadV3(handle=handle, index=tf.constant(0), flow_in=flow, dtype=tf.float32)
    read.set_shape(SHAPE)
    b.pool.append(read)


def _tensor_list(b: _Builder) -> None:
    """Variants that are no datasets: free to cross devices."""
    shape = tf.constant(SHAPE)
    empty = raw.EmptyTensorList(
        element_shape=shape, max_num_elements=tf.constant(-1), element_dtype=tf.float32
    )
    pushed = raw.TensorListPushBack(input_handle=empty, tensor=b.draw())
    item = raw.TensorListGetItem(
        input_handle=pushed, index=tf.constant(0), element_shape=shape, element_dtype=tf.float32
    )
    item.set_shape(SHAPE)
    b.pool.append(item)


def _dataset(b: _Builder) -> None:
    specs = {"output_types": [tf.float32], "output_shapes": [SHAPE]}
    dataset = raw.TensorDataset(components=[tf.constant([0.5, 0.25])], output_shapes=[SHAPE])
    dataset = raw.RepeatDataset(input_dataset=dataset, count=tf.constant(-1, tf.int64), **specs)
    if b.rng.random() < 0.5:
        dataset = raw.TakeDataset(input_dataset=dataset, count=tf.constant(5, tf.int64), **specs)
    if b.rng.random() < 0.5:
        dataset = raw.ConcatenateDataset(input_dataset=dataset, another_dataset=dataset, **specs)
    iterator = raw.IteratorV2(shared_name="", container="", **specs)
    b.initializers.append(raw.MakeIterator(dataset=dataset, iterator=iterator))
    (out,) = raw.IteratorGetNext(iterator=iterator, **specs)
    b.pool.append(out)


GADGETS: tuple[Callable[[_Builder], None], ...] = (
    _elementwise, _resource_variable, _optimizer, _forwarded_resource, _ref_variable, _colocate_with,
    _switch_merge, _switched_resource, _v1_loop, _functional_loop, _functional_cond, _queue, _tensor_array,
    _tensor_list, _dataset,
)  # fmt: skip


def random_graph(seed: int) -> RandomGraph:
    """Builds a graph of 3 to 6 random gadgets, joined by what they draw from one pool."""
    rng = np.random.default_rng(seed)
    with tf.Graph().as_default() as graph:
        builder = _Builder(rng)
        for gadget in rng.choice(len(GADGETS), size=rng.integers(3, 7)):
            GADGETS[gadget](builder)
        initializers = {op.name for op in builder.initializers}
        # Running the ops that nobody consumes runs all: the rest are their ancestors.
        ends = (op for op in graph.get_operations() if not op._control_outputs)
        leaves = (op.name for op in ends if not any(out.consumers() for out in op.outputs))
        step = tuple(name for name in leaves if name not in initializers)
    graph_def = graph.as_graph_def()
    if rng.random() < 0.5:
        _strip_implied_classes(graph_def)
    return RandomGraph(graph_def, tuple(sorted(initializers)), step)


def _strip_implied_classes(graph_def: tf1.GraphDef) -> None:
    """Removes the ``_class`` that Python adds to users of a ref, so that the ref alone ties them."""
    for node in graph_def.node:
        if node.op in ("Assign", "AssignAdd", "ApplyGradientDescent", "RefIdentity"):
            node.attr.pop("_class", None)
