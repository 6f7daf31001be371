"""The installed TensorFlow keeps what the project relies on beside the public API, name by name."""

import ast
import gc
import inspect
import pathlib
import random
import re
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.framework import config as framework_config
from tensorflow.python.framework import function as defun
from tensorflow.python.util import object_identity

from colocation import tensorflow_internals as internals

SPEC = tf.TensorSpec([2], tf.float32)


def concrete_of(function: Callable, *specs: tf.TensorSpec) -> internals.ConcreteFunction:
    return tf.function(function).get_concrete_function(*specs)


def imported(function_def: function_pb2.FunctionDef, name: str) -> function_pb2.FunctionDef:
    renamed = function_pb2.FunctionDef()
    renamed.CopyFrom(function_def)
    renamed.signature.name = name
    return renamed


def test_a_class_is_what_tensorflow_makes():
    variable = tf.Variable(1.0)
    function = tf.function(lambda x: x + variable)
    concrete = function.get_concrete_function(SPEC)
    assert isinstance(variable, internals.BaseResourceVariable)
    assert isinstance(function, internals.Function)
    assert isinstance(concrete, internals.ConcreteFunction)
    assert isinstance(concrete.graph, internals.FuncGraph)


def test_execution_is_eager_where_it_is_off():
    with tf.Graph().as_default():
        assert not tf.executing_eagerly()
        with internals.eager_mode():
            assert tf.executing_eagerly() and int(tf.constant(3).numpy()) == 3
        assert not tf.executing_eagerly()


def test_a_concrete_function_tells_its_parts():
    """What the project reads of a traced function without an underscore, on classes that are private."""
    variable = tf.Variable(1.0)

    def body(x: tf.Tensor) -> dict:
        variable.assign_add(tf.reduce_sum(x))
        return {"y": x * variable}

    concrete = concrete_of(body, SPEC)
    graph = concrete.graph
    assert [tensor.dtype for tensor in concrete.inputs] == [tf.float32, tf.resource]
    assert concrete.captured_inputs[0] is variable.handle
    assert [outer is variable.handle for outer, _ in graph.captures] == [True]
    assert graph.internal_captures[0] is concrete.inputs[1]
    assert [v is variable for v in graph.variables] == [True]
    assert "AssignAddVariableOp" in [op.type for op in graph.control_outputs]
    assert len(concrete.function_type.flat_outputs) == len(concrete.outputs) == 1
    assert list(concrete.structured_outputs) == list(graph.structured_outputs) == ["y"]
    assert concrete.structured_input_signature[0][0].shape == [2]
    assert not variable.handle.is_packed


def test_op_definitions_are_found():
    definition = internals.registered_op("MatMul")
    assert definition is not None
    assert [argument.name for argument in definition.input_arg] == ["a", "b"]
    assert internals.registered_op("NoSuchOp") is None


def test_kernels_are_listed():
    found = {kernel.device_type for kernel in internals.registered_kernels("MatMul")}
    assert {"CPU", "GPU"} <= found  # the CUDA build lists them without a GPU, too
    assert internals.registered_kernels("NoSuchOp") == ()


def test_kernels_of_onednn_are_told_of():
    # Stock kernels of convolutions take channels last only.
    x, weights = tf.ones([1, 2, 4, 4]), tf.ones([3, 3, 2, 2])
    try:
        with tf.device("CPU:0"):
            tf.nn.conv2d(x, weights, 1, "SAME", data_format="NCHW")
        takes_channels_first = True
    except tf.errors.OpError:
        takes_channels_first = False
    assert internals.is_onednn_on() == takes_channels_first


def test_devices_tell_their_memory():
    first = internals.local_devices()[0]
    assert (first.name, first.device_type) == ("/device:CPU:0", "CPU")
    assert first.memory_limit > 0


def test_options_of_the_process_are_read():
    before = internals.process_config().graph_options.rewrite_options.disable_meta_optimizer
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not before})
    after = internals.process_config().graph_options.rewrite_options.disable_meta_optimizer
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})
    assert after is not before


def test_called_ops_are_waited_for():
    done: list[float] = []
    tf.config.experimental.set_synchronous_execution(False)
    try:
        tf.py_function(lambda: (time.sleep(0.05), done.append(1.0))[1] or 1.0, [], tf.float32)
        internals.wait_for_ops()
        assert done == [1.0]
    finally:
        tf.config.experimental.set_synchronous_execution(True)


def test_a_function_is_added():
    concrete = concrete_of(lambda x: x + 1.0, SPEC)
    internals.add_function(imported(concrete.function_def, "added_by_the_contract_test"))
    (y,) = tf.raw_ops.PartitionedCall(
        args=[tf.constant([1.0, 2.0])], Tout=[tf.float32], f="added_by_the_contract_test"
    )
    np.testing.assert_array_equal(y, [2.0, 3.0])


def test_a_function_def_becomes_a_graph():
    function_def = concrete_of(lambda x: tf.matmul(x, x), tf.TensorSpec([None, None])).function_def
    function_def.arg_attr.clear()
    with tf.Graph().as_default():
        graph = internals.graph_of_function_def(function_def, [tf.TensorShape([3, 3])])
        unknown = internals.graph_of_function_def(function_def, [None])
    assert graph.outputs[0].shape == [3, 3]
    assert not unknown.outputs[0].shape.is_fully_defined()


def test_constants_are_folded():
    with tf.Graph().as_default():
        folded = internals.folded_constant(tf.cumsum(tf.constant([1, 2, 3])))
        unknown = internals.folded_constant(tf.compat.v1.placeholder(tf.int32, [3]))
    np.testing.assert_array_equal(folded, [1, 3, 6])
    assert unknown is None


def test_handles_tell_their_variables_and_are_told_them():
    variable = tf.Variable(tf.zeros([2, 3]))
    concrete = concrete_of(lambda: variable + 1.0)
    data = internals.get_resource_handle_data(concrete.inputs[0])
    assert data.is_set
    assert [(one.dtype, [d.size for d in one.shape.dim]) for one in data.shape_and_type] == [
        (tf.float32.as_datatype_enum, [2, 3])
    ]
    with tf.Graph().as_default():
        placeholder = tf.compat.v1.placeholder(tf.resource, [])
        assert not internals.get_resource_handle_data(placeholder).is_set
        internals.copy_handle_data(concrete.inputs[0], placeholder)
        assert internals.get_resource_handle_data(placeholder).is_set


def test_a_call_is_traced_as_it_would_run():
    made: list[tf.Variable] = []

    @tf.function
    def function(x: tf.Tensor, scale: int = 2) -> tf.Tensor:
        if not made:
            made.append(tf.Variable(3.0))
        return scale * x + made[0]

    assert internals.first_trace(function, (tf.constant([1.0, 2.0]),), {}) == []
    assert float(made[0]) == 3.0  # it has its first value
    first, tensors = internals.trace(function, (tf.constant([1.0, 2.0]),), {})
    assert len(tensors) == 1
    again, _ = internals.trace(function, (), {"x": tf.constant([5.0, 6.0]), "scale": 2})
    assert again is first
    assert internals.trace(function, (tf.constant([1.0]),), {})[0] is not first
    np.testing.assert_array_equal(function(tf.constant([1.0, 2.0])), [5.0, 7.0])
    assert function.experimental_get_tracing_count() == 3  # one that makes the variable, one for each shape


def test_first_values_that_depend_on_arguments_are_given_by_the_first_run():
    made: list[tf.Variable] = []

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        if not made:
            made.append(tf.Variable(x))
        return made[0].assign_add(x)

    arguments = (tf.constant([1.0, 2.0]),)
    initializers = internals.first_trace(function, arguments, {})
    assert [variable is made[0] for variable, _ in initializers] == [True]
    np.testing.assert_array_equal(internals.first_run(function, arguments, {}, initializers), [2.0, 4.0])
    assert internals.first_trace(function, arguments, {}) == []
    np.testing.assert_array_equal(function(*arguments), [3.0, 6.0])


def test_compilation_is_told():
    inside = []

    @tf.function(jit_compile=True)
    def compiled(x: tf.Tensor) -> tf.Tensor:
        inside.append(internals.is_inside_xla())
        return x + 1.0

    plain = tf.function(lambda x: x + 1.0)
    assert internals.is_compiled(compiled) and not internals.is_compiled(plain)
    compiled(tf.constant(1.0))
    assert inside == [True] and not internals.is_inside_xla()
    assert internals.has_xla()


def test_the_process_is_told():
    assert internals.host_address_space() == "/job:localhost/replica:0/task:0"


class Doubled(internals.WrappingFunction):
    """Runs a function of its own for each that is traced."""

    def _of_concrete(self, concrete: internals.ConcreteFunction) -> internals.ConcreteFunction:
        (spec,) = concrete.structured_input_signature[0]
        return concrete_of(lambda x: 2.0 * concrete(x), tf.TensorSpec(spec.shape, spec.dtype, "x"))


def test_a_function_is_wrapped_and_saved():
    class Scale:
        """A model, as far as TensorFlow asks."""

        factor = 3.0

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return self.factor * x

    scale = Scale()
    wrapped = Doubled(tf.function(scale, input_signature=[SPEC]))
    assert isinstance(wrapped, internals.Function)
    assert wrapped.input_signature is not None and wrapped.factor == 3.0
    wrapped.factor = 4.0  # the model's
    assert scale.factor == 4.0 and "factor" not in vars(wrapped)
    module = tf.Module()
    module.f = wrapped
    tf.saved_model.save(module, "ram://wrapped", signatures=wrapped)
    loaded = tf.saved_model.load("ram://wrapped")
    np.testing.assert_array_equal(loaded.f(tf.constant([1.0, 2.0])), [8.0, 16.0])
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = wrapped.no_such_name


def test_a_call_is_flat():
    variable = tf.Variable(3.0)
    concrete = concrete_of(lambda x: {"sum": x + variable}, SPEC)
    np.testing.assert_array_equal(internals.call_flat(concrete, [tf.constant([1.0, 2.0])])["sum"], [4.0, 5.0])


def test_a_graph_becomes_a_concrete_function():
    variable = tf.Variable(3.0)
    concrete = concrete_of(lambda x: {"sum": x + variable}, SPEC)
    graph = internals.FuncGraph(
        "rebuilt",
        structured_input_signature=concrete.structured_input_signature,
        structured_outputs=concrete.graph.structured_outputs,
    )
    with graph.as_default():
        tf.import_graph_def(concrete.graph.as_graph_def(), name="")
    graph.inputs = [graph.get_tensor_by_name(tensor.name) for tensor in concrete.inputs]
    graph.replace_capture(variable.handle, graph.inputs[1])
    internals.copy_handle_data(concrete.inputs[1], graph.inputs[1])
    graph.outputs = [graph.get_tensor_by_name(tensor.name) for tensor in concrete.outputs]
    graph.structured_outputs = {"sum": graph.outputs[0]}
    rebuilt = internals.concrete_function_like(concrete, graph)
    with tf.GradientTape() as tape:
        result = rebuilt(tf.constant([1.0, 2.0]))["sum"]
    np.testing.assert_array_equal(result, [4.0, 5.0])
    assert tape.gradient(result, variable) == 2.0
    module = tf.Module()
    module.variable = variable
    folder = f"ram://{graph.name}"
    tf.saved_model.save(module, folder, signatures=rebuilt)  # asks for its keywords


def test_a_called_function_is_found():
    inner = tf.function(lambda x: x + 1.0)
    concrete = concrete_of(lambda x: inner(x), SPEC)
    (call,) = (node for node in concrete.graph.as_graph_def().node if "f" in node.attr)
    found = internals.called_graph(concrete.graph, call.attr["f"].func.name)
    assert found is not None
    assert [tensor.shape.as_list() for tensor in found.inputs] == [[2]]
    assert internals.called_graph(concrete.graph, "no_such_function") is None


def test_storage_is_replaced():
    variable, other = tf.Variable(1.0), tf.Variable(2.0)
    assert internals.storage(variable) is variable.handle
    internals.set_storage(variable, other.handle)
    assert variable.numpy() == 2.0
    assert internals.storage(object.__new__(internals.BaseResourceVariable)) is None


def test_storage_is_made():
    variable = tf.Variable([1.0, 2.0])
    with tf.variable_creator_scope(lambda *_, **__: pytest.fail("no variable is made")):
        handle = internals.new_storage(variable, tf.constant([3.0, 4.0]))
    internals.set_storage(variable, handle)
    np.testing.assert_array_equal(variable, [3.0, 4.0])
    variable.assign_add([1.0, 1.0])
    np.testing.assert_array_equal(tf.function(lambda: variable * 2.0)(), [8.0, 10.0])


def test_captures_are_in_known_containers():
    variable = tf.Variable(1.0)
    concrete = concrete_of(lambda x: x + variable, SPEC)
    known = {
        id(one) for function in (concrete, concrete.graph) for one in internals.capture_containers(function)
    }
    holders = [
        one for one in gc.get_referrers(variable.handle) if one is not variable and one is not vars(variable)
    ]
    assert holders and {id(one) for one in holders} <= known


def test_resources_that_live_are_found():
    variable, table = tf.Variable(1.0), tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    number = tf.constant(1.0)
    found = {id(handle) for handle in internals.live_resources()}
    assert {id(variable.handle), id(table.resource_handle)} <= found
    assert id(number) not in found


def test_variables_that_live_are_found():
    variables = [tf.Variable(1.0), tf.Variable(2.0)]
    concrete = concrete_of(lambda x: x + variables[0] + variables[1], SPEC)
    assert len(internals.live_variables(concrete.graph)) == 2
    variables.pop()
    gc.collect()
    assert [one is variables[0] for one in internals.live_variables(concrete.graph)] == [True]


def test_keys_of_identity_sets_are_told():
    tensor = tf.constant(1.0)
    keys = object_identity.ObjectIdentitySet([tensor])
    assert all(internals.is_identity_key(key) for key in keys._storage)
    assert not internals.is_identity_key(tensor.ref())  # which gives the tensor back


def test_functions_of_datasets_are_told():
    dataset = tf.data.Dataset.range(3).map(lambda i: i + 1)
    assert internals.is_dataset_function(dataset._map_func.function)
    assert not internals.is_dataset_function(concrete_of(lambda x: x + 1.0, SPEC))


def test_tapes_tell_what_they_watch():
    variable, other = tf.Variable(1.0), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        assert internals.watched_variables(tape) == ()
        result = variable * 2.0
    assert [one is variable for one in internals.watched_variables(tape)] == [True]
    tape.gradient(result, [variable, other])
    assert internals.watched_variables(tape) == ()
    with tf.autodiff.ForwardAccumulator(variable, tf.constant(1.0)) as accumulator:
        assert internals.is_recording_forward(accumulator)
    assert not internals.is_recording_forward(accumulator)


def test_captures_are_replaced():
    variable, other = tf.Variable(1.0), tf.Variable(2.0)

    def replaced(tensor: tf.Tensor) -> tf.Tensor:
        return other.handle if tensor is variable.handle else tensor

    concrete = concrete_of(lambda x: x + variable, SPEC)
    internals.replace_captures(concrete, replaced)
    np.testing.assert_array_equal(concrete(tf.constant([0.0, 0.0])), [2.0, 2.0])

    def being_traced(x: tf.Tensor) -> tf.Tensor:
        result = x + variable
        internals.replace_captures(tf.compat.v1.get_default_graph(), replaced)
        return result

    np.testing.assert_array_equal(tf.function(being_traced)(tf.constant([0.0, 0.0])), [2.0, 2.0])


def test_determinism_is_told():
    assert not internals.is_deterministic()
    tf.config.experimental.enable_op_determinism()
    try:
        assert internals.is_deterministic()
    finally:
        framework_config.disable_op_determinism()


def test_traces_of_an_untraced_one_are_its_own():
    @tf.function(autograph=False)
    def function(x: tf.Tensor) -> tf.Tensor:
        return x + 1.0

    function.get_concrete_function(SPEC)
    other = internals.untraced(function)
    other.get_concrete_function(tf.TensorSpec([3], tf.float32))
    assert (function.experimental_get_tracing_count(), other.experimental_get_tracing_count()) == (1, 1)
    assert other.python_function is function.python_function


def test_calls_can_be_watched():
    seen = []

    def hook(function, as_it_is, args, kwargs):
        seen.append(function)
        return as_it_is(*args, **kwargs)

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        return x + 1.0

    end = internals.watch_calls(hook)
    try:
        assert function(tf.constant(1.0)).numpy() == 2.0
    finally:
        end()
    function(tf.constant(1.0))
    assert len(seen) == 1 and seen[0] is function


def test_seeds_that_are_set_have_another_source():
    tf.random.set_seed(3)
    source = internals.seed_source()
    tf.random.uniform([])
    with internals.random_state_kept():
        assert internals.seed_source() is source
    assert internals.seed_source() is source
    tf.random.set_seed(3)
    assert internals.seed_source() is not source


def test_custom_gradients_are_forgotten():
    @tf.custom_gradient
    def doubled(x: tf.Tensor) -> Any:
        return 2 * x, lambda upstream: 2 * upstream

    def graph() -> weakref.ref:
        traced = tf.function(lambda x: doubled(x)).get_concrete_function(tf.TensorSpec([3]))
        return weakref.ref(traced.graph)

    kept = graph()
    with internals.gradients_forgotten():
        forgotten = graph()
    gc.collect()
    assert kept() is not None  # else TensorFlow does it by itself, and nothing is to be done
    assert forgotten() is None


def test_seeds_are_kept():
    def drawn() -> tuple[float, float, float]:
        return random.random(), np.random.uniform(), float(tf.random.uniform([]).numpy())

    def seeded() -> None:
        tf.random.set_seed(3)
        random.seed(3)
        np.random.seed(3)

    seeded()
    expected = drawn()
    seeded()
    with internals.random_state_kept():
        drawn()
    assert drawn() == expected


def test_functions_of_every_kind_are_found():
    @defun.Defun(tf.float32, python_grad_func=lambda op, upstream: upstream)
    def gradients(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x)

    inner = tf.function(lambda x: x * 2.0)
    called = tf.function(lambda x: inner(x) + 1.0)
    graph = concrete_of(lambda x: called(gradients(x)), SPEC).graph
    found = internals.functions_of(graph)
    inner_name = inner.get_concrete_function(SPEC).function_def.signature.name
    assert sorted(map(internals.has_python_gradient, found.values())) == [False, False, True]
    assert inner_name in found
    assert internals.graphs_of(graph)[0] is graph and len(internals.graphs_of(graph)) > 1
    assert internals.called_graph(graph, gradients.name) is None


def test_calls_are_differentiated():
    called = tf.function(lambda x: x * x)
    graph = concrete_of(lambda x: called(x), SPEC).graph
    ((name, gradient),) = internals.call_gradients(graph).items()
    assert name in internals.functions_of(graph)
    copy = internals.FuncGraph("copy")
    with copy.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2])
        tf.import_graph_def(graph.as_graph_def(), {"x": x}, name="")
        call = next(op for op in copy.get_operations() if "PartitionedCall" in op.type)
        internals.set_call_gradient(call, gradient)
        assert tf.gradients(call.outputs[0], x)[0].op.type == "PartitionedCall"


def test_gradients_are_registered_by_name():
    tf.RegisterGradient("OfThisTest")(lambda op, upstream: upstream)
    assert internals.registered_gradient("OfThisTest")(None, 1) == 1
    assert internals.registered_gradient("NobodyRegisters") is None


def test_errors_name_lines():
    def culprit(x: tf.Tensor) -> tf.Tensor:
        return tf.debugging.check_numerics(x, "here")

    traced = concrete_of(culprit, SPEC)
    (origin,) = (op for op in traced.graph.get_operations() if op.type == "CheckNumerics")
    graph = internals.FuncGraph("copy")
    with graph.as_default():
        tf.import_graph_def(traced.graph.as_graph_def(), name="")
    graph.inputs, graph.outputs = [graph.get_tensor_by_name("x:0")], [graph.get_tensor_by_name("Identity:0")]
    internals.copy_stack_trace(origin, graph.get_operation_by_name(origin.name))
    copy = internals.concrete_function_like(traced, graph)
    with pytest.raises(tf.errors.InvalidArgumentError, match="in culprit"):
        copy(tf.constant([1.0, np.nan]))
    internals.tell_stack_traces(copy, {"in_a_loop": origin})
    told = copy._inference_function.graph_debug_info.name_to_trace_id
    assert {"in_a_loop", origin.name} <= set(told)
    assert copy(tf.constant([1.0, 2.0])).shape == [2]


def test_servers_know_older_functions():
    """In a process of its own, which stays connected: TensorFlow prints what a server lacks when it is removed."""
    program = """
import tensorflow as tf
from colocation.tensorflow_internals import connect_to_servers
older = tf.function(lambda x: x + 1.0)
older(tf.ones([2]))
server = tf.distribute.Server.create_local_server()
connect_to_servers({"worker": {0: server.target.removeprefix("grpc://")}})
with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
    print(tf.function(lambda x: x * 2.0)(tf.ones([2])).device)
del older
tf.ones([2]).numpy()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "/job:worker/replica:0/task:0/device:CPU:0\n", done.stderr
    assert "non-existent function" not in done.stderr


def test_every_name_is_tested():
    module, root = internals.__name__, pathlib.Path(internals.__file__).parents[1]
    defined = {
        name
        for name, value in vars(internals).items()
        if inspect.isfunction(value) and value.__module__ == module and not name.startswith("_")
    }
    files = [*root.glob("colocation/*.py"), *root.glob("tf_placer/**/*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == module]
    needed = defined | {alias.name for node in imports for alias in node.names}
    needed |= {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "internals"
    }
    assert needed == set(
        re.findall(r"internals(?: import |\.)([a-zA-Z]\w+)", pathlib.Path(__file__).read_text())
    )


@pytest.mark.medium
def test_importing_it_loads_nothing_more_of_tensorflow():
    # The command line's --help imports it; what TensorFlow loads lazily would make that slower.
    program = (
        "import sys, tensorflow\n"
        "before = set(sys.modules)\n"
        "import colocation.tensorflow_internals\n"
        "print([name for name in set(sys.modules) - before if name.startswith('tensorflow')])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
