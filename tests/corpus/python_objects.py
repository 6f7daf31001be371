"""What is decorated, and what becomes of it: methods, partials, signatures, copies, modules that are saved."""

import copy
import functools
from typing import Any

import sonnet as snt
import tensorflow as tf

from tests.corpus.program import Make, runs_as_it_is


def arguments_of_every_kind(make: Make) -> Any:
    """Defaults, keywords, Python values that are part of the signature, nested structures, None."""

    @make.traced
    def f(x, scale=2.0, *rest, flag: bool = False, extra: Any = None, **more):
        y = tf.convert_to_tensor(x) * scale + sum(rest)
        if flag:
            y = -y
        if extra is not None:
            y = y + extra["a"][0]
        return {"y": y, "more": tuple(more.values()), "nothing": None}

    x = tf.constant([1.0, 2.0])
    results = [f(x), f(x, 3.0), f(x, tf.constant(4.0), 1.0, flag=True)]
    results += [f(x, extra={"a": [tf.constant(1.0), None]}, z=tf.constant(9))]
    return results, f(x.numpy().tolist()), f(x.numpy())


def an_input_signature(make: Make) -> Any:
    """A signature that is given: one trace for all sizes, and a concrete function without arguments."""
    spec = {"x": tf.TensorSpec([None], tf.float32, "x"), "n": tf.TensorSpec([], tf.int32, "n")}
    f = make(lambda inputs: inputs["x"] * tf.cast(inputs["n"], tf.float32), input_signature=[spec])
    concrete = f.get_concrete_function()
    x, n = tf.constant([1.0, 2.0, 3.0]), tf.constant(2)
    return f({"x": x, "n": n}), concrete({"x": x, "n": n}), len(concrete.structured_input_signature[0])


def bound_methods_and_partials(make: Make) -> Any:
    """What is wrapped is a bound method, a partial, a callable object."""

    class Counter:
        def __init__(self) -> None:
            self.v = tf.Variable(1.0)

        def add(self, x, factor=1.0):
            return self.v.assign_add(x * factor)

        def __call__(self, x):
            return self.v * x

    counter, x = Counter(), tf.constant(2.0)
    functions = (counter.add, functools.partial(counter.add, factor=3.0), counter)
    return [make(function)(x) for function in functions], counter.v.numpy()


def variables_made_at_the_first_call(make: Make) -> Any:
    """Variables that the first trace makes, with first values that do and do not depend on the argument."""
    made: dict[str, tf.Variable] = {}

    @make.traced
    def plain(x):
        if "plain" not in made:
            made["plain"] = tf.Variable(tf.ones([2]))
        return made["plain"].assign_add(x)

    @make.traced
    def dependent(x):
        if "dependent" not in made:
            made["dependent"] = tf.Variable(x * 2.0)
        return made["dependent"].assign_add(x)

    x = tf.constant([1.0, 2.0])
    return [plain(x), plain(x)], [dependent(x), dependent(x)], [v.numpy() for v in made.values()]


def copies(make: Make) -> Any:
    """Copied, deep before the first call, shallow before and after it."""
    f = make.traced(lambda x: tf.tanh(x) * 2.0)
    shallow, deep = copy.copy(f), copy.deepcopy(f)
    x = tf.constant([1.0, 2.0])
    return f(x), shallow(x), deep(x), copy.copy(f)(x)


def documentation_and_names(make: Make) -> Any:
    """The wrapper tells the name, docstring and signature of what it wraps."""

    @make.traced
    def area(width, height=2.0):
        """Says how large."""
        return width * height

    area(tf.constant(1.0))
    return area.__name__, area.__doc__, area.python_function.__name__, area.experimental_get_tracing_count()


def several_signatures_of_a_saved_module(make: Make) -> Any:
    """Signatures by name, one of them a concrete function."""
    module = tf.Module()
    module.v = tf.Variable(2.0)
    f = make(lambda x: x * module.v, input_signature=[tf.TensorSpec([None], name="x")])
    g = make.traced(lambda x: x + module.v)
    folder = str(make.folder / "model")
    concrete = g.get_concrete_function(tf.TensorSpec([2], name="x"))
    tf.saved_model.save(module, folder, signatures={"times": f, "plus": concrete})
    loaded, x = tf.saved_model.load(folder), tf.constant([1.0, 2.0])
    return sorted(loaded.signatures), loaded.signatures["times"](x=x), loaded.signatures["plus"](x=x)


def a_loaded_function_is_placed(make: Make) -> Any:
    """A function from a SavedModel, and its gradients."""
    module = tf.Module()
    module.w = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    module.f = tf.function(lambda x: tf.tanh(x @ module.w), input_signature=[tf.TensorSpec([None, 2])])
    tf.saved_model.save(module, str(make.folder / "model"))
    loaded = tf.saved_model.load(str(make.folder / "model"))
    f = make(loaded.f)
    with tf.GradientTape() as tape:
        y = f(tf.constant([[1.0, 2.0]]))
    return y, tape.gradient(y, loaded.w)


def sonnet_modules(make: Make) -> Any:
    """A Sonnet network with its optimizer and batch normalization."""
    network = snt.Sequential([snt.Linear(6), tf.nn.relu, snt.Linear(1)])
    norm, optimizer = snt.BatchNorm(True, True), snt.optimizers.Adam(0.1)
    x = tf.reshape(tf.range(12.0) / 7.0, [4, 3])
    network(norm(x, is_training=True))

    @make.traced
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(network(norm(x, is_training=True)) ** 2)
        variables = (*network.trainable_variables, *norm.trainable_variables)
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return [step(x) for _ in range(3)], [v.numpy() for v in (*network.variables, *norm.variables)]


@runs_as_it_is("is passed to 'f' as an argument")
def a_variable_as_argument(make: Make) -> Any:
    """The function takes variables and updates them."""

    @make.traced
    def f(v, x):
        v.assign_add(x)
        return v * 2.0

    one, other = tf.Variable(1.0), tf.Variable(10.0)
    return f(one, tf.constant(1.0)), f(other, tf.constant(1.0)), one.numpy(), other.numpy()


def results_of_every_kind(make: Make) -> Any:
    """Python values, None, variables, tuples with names, lists and the argument itself."""
    v = tf.Variable(3.0)
    f = make.traced(lambda x: [x, (x + 1.0, None, 5, "text"), {"v": v.read_value(), "true": True}])
    return f(tf.constant([1.0]))


def types_of_every_kind(make: Make) -> Any:
    """Integers, halves, doubles, booleans, strings and quantized numbers through one function."""

    @make.traced
    def f(i, h, d, b, s):
        numbers = tf.bitwise.bitwise_xor(i, i + 1), tf.cast(h * 2, tf.float64) + d
        halves = tf.cast(h, tf.bfloat16) * tf.cast(2.0, tf.bfloat16)
        return numbers, tf.logical_not(b), tf.strings.join([s, s]), halves

    floats = tf.constant([1.5, 2.5], tf.float16), tf.constant([1.0, 2.0], tf.float64)
    return f(tf.constant([1, 2], tf.uint8), *floats, tf.constant([True, False]), tf.constant(["a", "b"]))


def large_constants_and_captured_tensors(make: Make) -> Any:
    """Tensors that are closures, some large, some strings."""
    table = tf.reshape(tf.range(4096.0), [64, 64])
    words = tf.constant(["x", "y"])
    f = make.traced(lambda i: (tf.gather(table, i), tf.gather(words, i), tf.constant(table.numpy())[i]))
    return f(tf.constant(1))
