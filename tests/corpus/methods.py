"""Functions that are decorated where a class defines them."""

import abc
import dataclasses
import functools
import gc
import weakref
from typing import Any

import keras
import sonnet as snt
import tensorflow as tf

from tests.corpus.program import Make

X = tf.constant([[3.0, 4.0], [0.5, -1.0]])


def of_a_module(make: Make) -> Any:
    """A ``tf.Module`` whose methods are decorated, with two objects, one of which is made after the first call."""

    class Linear(tf.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale, self.w = scale, tf.Variable([[1.0, 2.0], [-0.5, 0.25]])

        @make.traced
        def __call__(self, x):
            return x @ self.w * self.scale

        @make.traced
        def update(self, x):
            self.w.assign_sub(0.1 * self(x))
            return tf.reduce_sum(self.w)

    one = Linear(1.0)
    results = [one(X), one.update(X)]
    other = Linear(3.0)
    return results, other(X), other.update(X), one.update(X), one.w.numpy(), other.w.numpy()


def of_a_class_that_calls_its_own(make: Make) -> Any:
    """Decorated and plain methods, private names and properties call each other."""

    class Counter:
        step = 2.0

        def __init__(self) -> None:
            self.__total = tf.Variable(0.0)

        def _grown(self, x):
            return self.__total.assign_add(x * self.step)

        @property
        def total(self):
            return self.__total * 1.0

        @make.traced
        def add(self, x):
            self._grown(x)
            return self.total

        @make.traced
        def twice(self, x):
            return self.add(x) + self.add(x * 10.0)

    one, other = Counter(), Counter()
    other.step = 5.0
    x = tf.constant(1.0)
    return one.add(x), other.twice(x), one.twice(x), one.total, other.total


def inherited(make: Make) -> Any:
    """Subclasses call the decorated method of their base, override what it calls, or override it, decorated."""

    class Base:
        def __init__(self) -> None:
            self.v = tf.Variable(1.0)

        def factor(self):
            return 2.0

        @make.traced
        def step(self, x):
            return self.v.assign_add(x * self.factor())

    class Helper(Base):
        def factor(self):
            return 7.0

    class Around(Base):
        def step(self, x):
            return super().step(x) * 10.0

    class Both(Base):
        @make.traced
        def step(self, x):
            return super().step(x) - 1.0

    x = tf.constant(1.0)
    objects = [Base(), Helper(), Around(), Both()]
    return [(one.step(x), one.step(x), one.v.numpy()) for one in objects], Base.step(objects[1], x)


def of_the_class(make: Make) -> Any:
    """A class method, a static one, and a property that gives a decorated method."""

    class Scale:
        factor = tf.Variable(3.0)

        @classmethod
        @make.traced
        def scaled(cls, x):
            return x * cls.factor

        @staticmethod
        @make.traced
        def shifted(x):
            return x + 1.0

        @property
        def both(self):
            return lambda x: self.scaled(self.shifted(x))

    class Larger(Scale):
        factor = tf.Variable(5.0)

    x = tf.constant(2.0)
    return Scale.scaled(x), Scale().scaled(x), Larger.scaled(x), Scale.shifted(x), Larger().both(x)


def of_abstract_and_generic_classes(make: Make) -> Any:
    """An abstract method is decorated where it is implemented; a mixin brings a decorated one."""

    class Layer(abc.ABC):
        @abc.abstractmethod
        def call(self, x): ...

    class Trains:
        @make.traced
        def train(self, x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(self.call(x) ** 2)
            self.w.assign_sub(0.1 * tape.gradient(loss, self.w))
            return loss

    class Scaled(Trains, Layer):
        def __init__(self) -> None:
            self.w = tf.Variable(2.0)

        @make.traced
        def call(self, x):
            return x * self.w

    scaled = Scaled()
    return scaled.call(X), scaled.train(X), scaled.train(X), scaled.w.numpy()


def of_objects_that_compare(make: Make) -> Any:
    """Frozen dataclasses are equal where their fields are; each object's method works on its own."""

    @dataclasses.dataclass(frozen=True, eq=False)
    class Loss:
        weight: float

        @make.traced
        def of(self, x):
            return tf.reduce_sum(x) * self.weight

    class Unhashable:
        def __eq__(self, other: object) -> bool:
            return True

        @make.traced
        def of(self, x):
            return x * 2.0

    one, other, unhashable = Loss(2.0), Loss(3.0), Unhashable()  # TensorFlow keeps no object for its methods
    try:
        outcome = unhashable.of(X)
    except TypeError:
        outcome = "TypeError"
    return one.of(X), other.of(X), outcome


def of_objects_that_delegate(make: Make) -> Any:
    """An object answers for attributes that it does not have."""

    class Wrapped:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            if name == "inner":
                raise AttributeError(name)
            return getattr(self.inner, name)

        @make.traced
        def apply(self, x):
            return x * self.w

    module = tf.Module()
    module.w = tf.Variable(3.0)
    one = Wrapped(module)
    other = Wrapped(one)
    return one.apply(X), other.apply(X)


def partial_and_wrapped(make: Make) -> Any:
    """A partial method, and a decorator of one's own around and inside of the placed one."""

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            calls.append(function.__name__)
            return function(*args, **kwargs)

        return wrapper

    calls: list[str] = []

    class Scale:
        def __init__(self) -> None:
            self.w = tf.Variable(2.0)

        @make.traced
        def scale(self, x, by):
            return x * self.w * by

        doubled = functools.partialmethod(scale, by=2.0)

        @logged
        @make.traced
        def outside(self, x):
            return x + self.w

        @make.traced
        @logged
        def inside(self, x):
            return x - self.w

    one, other = Scale(), Scale()
    results = [f(X) for f in (one.doubled, one.outside, other.outside, one.inside, one.inside, other.inside)]
    return results, calls


def with_a_signature_and_saved(make: Make) -> Any:
    """Decorated methods with a given signature are saved with the module, and loaded."""

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable([[1.0, 2.0], [-0.5, 0.25]])

        @make
        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
        def serve(self, x):
            return {"y": x @ self.w}

        @make
        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
        def update(self, x):
            self.w.assign_add(tf.matmul(x, x, transpose_a=True))
            return {"sum": tf.reduce_sum(self.w)}

    model = Model()
    results = [model.serve(X), model.update(X), model.serve(X[:1])]
    folder = str(make.folder / "model")
    tf.saved_model.save(model, folder, signatures={"serving_default": model.serve})
    loaded = tf.saved_model.load(folder)
    return results, loaded.signatures["serving_default"](X), loaded.update(X), loaded.serve(X), model.serve(X)


def called_by_an_outer_function(make: Make) -> Any:
    """An undecorated method in a tf.function, a loop and a tape calls decorated ones of two objects."""

    class Cell(tf.Module):
        def __init__(self, start: float) -> None:
            super().__init__()
            self.w = tf.Variable(start)

        @make.traced
        def step(self, state, x):
            return tf.tanh(state * self.w + x)

    class Chain(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = [Cell(0.5), Cell(-0.5)]

        @tf.function
        def run(self, x, n):
            with tf.GradientTape() as tape:
                state = tf.zeros_like(x)
                for _ in tf.range(n):
                    for cell in self.cells:
                        state = cell.step(state, x)
                loss = tf.reduce_sum(state)
            return loss, tape.gradient(loss, [cell.w for cell in self.cells])

    chain = Chain()
    return chain.run(X, tf.constant(3)), chain.run(X, tf.constant(1))


def of_a_sonnet_module(make: Make) -> Any:
    """A Sonnet module makes its variables in a decorated call, once."""

    class Net(snt.Module):
        def __init__(self) -> None:
            super().__init__()
            ones = snt.initializers.Ones()
            self.linear, self.out = snt.Linear(3, w_init=ones), snt.Linear(1, w_init=ones)

        @make.traced
        def __call__(self, x):
            return self.out(tf.tanh(self.linear(x)))

    one, other = Net(), Net()
    return one(X), other(X[:1]), one(X), len(one.trainable_variables), other(X)


def of_a_keras_layer(make: Make) -> Any:
    """Extra methods of a layer and a model are decorated; weights are those of the layer."""

    class Tied(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], 3), initializer="ones")

        def call(self, x):
            return x @ self.kernel

        @make.traced
        def transposed(self, y):
            return tf.matmul(y, tf.convert_to_tensor(self.kernel), transpose_b=True)

    layer = Tied()
    model = keras.Sequential([keras.Input((2,)), layer])
    y = model(X)
    before = layer.transposed(y)
    layer.kernel.assign(layer.kernel * 2.0)
    return before, layer.transposed(y), model.predict(X, verbose=0), layer.transposed(tf.ones([1, 3]))


def objects_that_are_let_go(make: Make) -> Any:
    """An object whose decorated method was called is freed with its variables."""

    class Holder:
        def __init__(self) -> None:
            self.w = tf.Variable(tf.ones([100]))

        @make.traced
        def f(self, x):
            return self.w * x

    def used() -> Any:
        holder = Holder()
        return holder.f(tf.constant(2.0)), weakref.ref(holder), weakref.ref(holder.w)

    results = [used() for _ in range(2)]
    gc.collect()
    return [result[0] for result in results], [held() is None for result in results for held in result[1:]]
