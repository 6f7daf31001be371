"""A placed function is the same callable: arguments, results, gradients, variables, side effects."""

import pytest
import tensorflow as tf

from tests.tf_placer.rewrite.placing import place, place_some
from tf_placer.base.arguments import InputError

pytestmark = pytest.mark.own_process(exact=True)


def outcomes(function, x: tf.Tensor, *variables: tf.Variable) -> list:
    """Results of a function, and the gradients of their sum by its argument and variables, from outside."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        results = tf.nest.flatten(function(x))
        loss = tf.add_n([tf.reduce_sum(result) for result in results])
    gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, [x, *variables])]
    return [tensor.numpy().tobytes() for tensor in (*results, *gradients)]


def gradient_in_a_loop() -> tuple:
    weights = tf.Variable(tf.reshape(tf.range(6.0), [2, 3]))

    @tf.function
    def f(x):
        body = lambda i, h: (i + 1, tf.tanh(h * 1.5))  # noqa: E731
        hidden = tf.while_loop(lambda i, _: i < 3, body, [0, x @ weights])[1]
        return tf.reduce_sum(tf.cond(tf.reduce_sum(hidden) > 0.0, lambda: hidden * 2.0, lambda: hidden))

    return f, tf.constant([[0.1, -0.2]]), weights


def a_loop_that_is_called_twice() -> tuple:
    @tf.function
    def looped(x):
        body = lambda i, y, z: (i + 1, tf.sin(y), tf.exp(z))  # noqa: E731
        return tf.while_loop(lambda i, *_: i < 3, body, [0, x, x])[1:]

    # The gradient needs other values of each.
    return tf.function(lambda x: looped(x)[0] * looped(x * 0.5)[1]), tf.constant([0.5, 1.0])


def branches_in_a_loop_that_take_elements() -> tuple:
    table = tf.Variable(tf.reshape(tf.range(12.0), [4, 3]))

    @tf.function
    def f(x):
        def body(i, y):
            taken = tf.reduce_sum(table.gather_nd([[0, 1], [i, 2]]))
            chosen = tf.switch_case(
                i % 2, [lambda: tf.reduce_sum(tf.gather(table, i)), lambda: table[i, 0] * y]
            )
            return i + 1, y * taken + x * chosen

        return tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]

    return f, tf.constant(2.0), table


def calls_in_a_branch_and_a_loop() -> tuple:
    called = tf.function(lambda x, y: (tf.sin(x) * y, tf.exp(y)))

    @tf.function
    def f(x):
        def body(i, y):
            first, second = called(y, x)
            return i + 1, first + second

        looped = tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: called(called(x, looped)[1], x)[0], lambda: looped)

    return f, tf.constant([0.5, 0.25])


def elements_taken_in_a_branch_of_a_branch() -> tuple:
    table = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @tf.function
    def f(x):
        def branch():
            taken = lambda: table.gather_nd([[1, 0], [0, 1]]) * x  # noqa: E731
            return tf.cond(x < 9.0, taken, lambda: tf.stack([x, x]))

        return tf.cond(x > 0.0, branch, lambda: tf.stack([x, -x]))

    return f, tf.constant(2.0), table


@pytest.mark.parametrize("is_differentiated", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        gradient_in_a_loop,
        a_loop_that_is_called_twice,
        branches_in_a_loop_that_take_elements,
        calls_in_a_branch_and_a_loop,
        elements_taken_in_a_branch_of_a_branch,
    ],
)
def test_gradients_from_outside(make, is_differentiated):
    function, x, *variables = make()
    if is_differentiated:  # that gives loops bodies of their own
        outcomes(function, x, *variables)
    assert outcomes(place(function, x), x, *variables) == outcomes(function, x, *variables)


def test_variable_known_by_its_handle_only():
    generator, weights = tf.random.Generator.from_seed(1), tf.Variable([1.0, 2.0])

    @tf.function
    def f(x):
        tf.raw_ops.ResourceApplyGradientDescent(var=weights.handle, alpha=1.0, delta=x)
        return generator.normal([2])

    expected = tf.random.Generator.from_seed(1).normal([2])
    found = place(f, tf.constant([1.0, 1.0]), seed=2)(tf.constant([1.0, 1.0]))
    assert {variable.device[-1] for variable in (generator.state, weights)} != {"0"}
    assert tf.reduce_all(found == expected)
    assert weights.numpy().tolist() == [0.0, 1.0]


def test_captured_value_that_nothing_needs():
    offset = tf.constant([1.0, 2.0])

    @tf.function
    def f(x):
        @tf.function
        def nested(y):
            return x, y + offset  # the sum is not used

        return nested(x)[0] * 2.0

    x = tf.constant([3.0, 4.0])
    assert tf.reduce_all(place(f, x)(x) == [6.0, 8.0])


def test_variables_and_older_functions():
    count, state = tf.Variable(1.0), tf.Variable([1.0, 2.0])

    @tf.function
    def older(x):
        state.assign_add([x, x])
        return state.read_value()

    @tf.function
    def f(x):
        count.assign_add(1.0)
        state.assign(state * x + count)
        return tf.reduce_sum(state)

    older(tf.constant(1.0))
    devices = set()
    for seed in range(4):  # moved again and again; the last placement counts
        placed = place(f, tf.constant(2.0), seed=seed)
        devices |= {count.device, state.device}
    placed(tf.constant(2.0))  # count 2, state [6, 8]
    older(tf.constant(1.0))  # [7, 9]
    f(tf.constant(1.0))  # the unplaced one, on the same storage: count 3, [10, 12]
    count.assign_add(1.0)
    values = [float(placed(tf.constant(0.0))), count.numpy(), *state.numpy()]  # count 5
    assert values == [10.0, 5.0, 5.0, 5.0]
    assert len(devices) > 2


def test_result_of_a_branch_named_as_its_input():
    @tf.function
    def f(x):
        read = tf.identity(x)  # Identity, of which the branches' copy is cond/Identity/_6
        y = tf.cond(x > 0.0, lambda: x * read, lambda: -read)  # cond/Identity, received as cond/Identity/_6
        return y * 3.0, y * 5.0

    x = tf.constant(0.5)
    assert [float(value) for value in place_some(f, {"cond/Identity": 1, "mul": 2}, x)(x)] == [0.75, 1.25]


def test_variable_passed_as_an_argument_is_refused():
    f = tf.function(lambda state, x: state.assign_add(x))
    with pytest.raises(InputError, match="as an argument"):
        place(f, tf.Variable([1.0, 2.0]), tf.constant([1.0, 1.0]))
