"""A search for clusters keeps those that are faster, takes out those that are slower, and says what it did."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tf_placer.base import native
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.evaluation.attempts import Attempt
from tf_placer.evaluation.simulated import Status
from tf_placer.graph.item import Item
from tf_placer.planning import fusing
from tf_placer.planning.forms import Form
from tf_placer.planning.fusing import Fusing, find_clusters, find_clusters_here, fused_here
from tf_placer.planning.outcome import Note
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import NO_CLUSTER, Placement
from tf_placer.transform.fusion import PREFIX
from tf_placer.workers.fork_server import environment

OP_S, CALL_S = 4e-5, 4e-5  # of a kernel, and of a cluster


@pytest.fixture(scope="module")
def item() -> Item:
    """Two chains of cheap ops, with a random op between that is in no cluster."""

    @tf.function
    def f(x):
        for _ in range(12):
            x = tf.tanh(x)
        x = x + tf.random.stateless_uniform([8], [1, 2])
        for _ in range(12):
            x = tf.exp(-x)
        return x

    return Item.from_function(f, tf.ones([8]))


def plan(item: Item) -> Placement:
    problem = analytic_problem(item, Cluster.logical(1))
    return Placement(problem, problem.everything_on(0))


class Fake:
    """Programs whose steps take as long as their ops and clusters; XLA refuses some ops, or is slow at them."""

    def __init__(self, slow: str = "", refused: str = "", compile_s: float = 0.0) -> None:
        self._slow, self._refused, self._compile_s = slow, refused, compile_s
        self.now_s = self._until_s = 0.0

    def found(self, item: Item, placement: Placement, **more) -> Fusing:
        """What a search finds that has these programs and their time."""
        more |= {"rounds": 10, "clock": lambda: self.now_s}
        return find_clusters(item, placement, self.try_programs, 20.0, **more)

    def try_programs(self, function, deadline_s):
        assert deadline_s > 0
        self._until_s = self.now_s + deadline_s
        try:
            return Attempt(Status.OK, "", function(self.opened))
        except TimeoutError:
            return Attempt(Status.TIMEOUT, "not done")

    @contextlib.contextmanager
    def opened(self, program):
        seconds = self._seconds(program.graph_def)
        yield _Loaded(self, seconds, self._compile_s if any(PREFIX in name for name in seconds) else 0.0)

    def spend(self, seconds: float) -> None:
        """Time goes by, but no longer than the workers have."""
        self.now_s = min(self.now_s + seconds, self._until_s)
        if self.now_s == self._until_s:
            raise TimeoutError

    def _seconds(self, graph_def) -> dict[str, float]:
        body = {function.signature.name: function for function in graph_def.library.function}
        found = {}
        for node in graph_def.node:
            if node.name.startswith(PREFIX):
                types = [inner.op for inner in body[node.name].node_def]
                if self._refused in types:
                    raise tf.errors.InvalidArgumentError(None, None, "XLA refuses it\nand more")
                found[node.name] = CALL_S + 50 * OP_S * types.count(self._slow)
            elif node.op in ("Tanh", "Exp", "Neg", "AddV2"):
                found[node.name] = OP_S
        return found


class _Loaded:
    def __init__(self, fake: Fake, seconds: dict[str, float], first_s: float) -> None:
        self._fake, self._seconds, self._first_s = fake, seconds, first_s

    def step(self) -> None:
        self._fake.spend(self._first_s + sum(self._seconds.values()))
        self._first_s = 0.0

    def traced_step(self) -> tf.compat.v1.RunMetadata:
        metadata = tf.compat.v1.RunMetadata()
        device = metadata.step_stats.dev_stats.add()
        for name, seconds in self._seconds.items():
            device.node_stats.add(node_name=name, op_end_rel_nanos=round(1e9 * seconds))
        return metadata


def test_what_is_faster_is_kept(item):
    found = Fake().found(item, plan(item))
    assert found.is_faster and found.placement.cluster_of_op is not None
    assert found.fused_s < 0.7 * found.unfused_s
    assert found.sentence.count("fused in") == 1 and "in turn" in found.sentence
    assert all(one.share is not None and one.compile_s is not None for one in found.tried)


def test_a_cluster_that_loses_is_taken_out(item):
    found = Fake(slow="Exp").found(item, plan(item))
    assert found.is_faster and "refined" in found.name
    types = np.array(item.index.op_types)[found.placement.cluster_of_op != NO_CLUSTER]
    assert "Tanh" in types and "Exp" not in types


def test_nothing_is_kept_that_is_not_faster(item):
    class Slow(Fake):
        def _seconds(self, graph_def):
            found = super()._seconds(graph_def)
            return {name: s * (40 if name.startswith(PREFIX) else 1) for name, s in found.items()}

    found = Slow().found(item, plan(item))
    assert not found.is_faster and found.placement.cluster_of_op is None
    assert found.sentence.startswith("Nothing is fused: ")


def test_what_xla_refuses_is_noted(item):
    found = Fake(refused="Tanh").found(item, plan(item))
    assert not found.is_faster
    assert {one.message for one in found.tried} == {"XLA refuses it"}


def test_the_given_clusters_alone_are_timed(item):
    first = Fake().found(item, plan(item))
    again = Fake().found(item, first.placement, is_given=True)
    assert [one.name for one in again.tried] == ["given"] and again.is_faster
    assert (again.placement.cluster_of_op == first.placement.cluster_of_op).all()


@pytest.mark.parametrize("compile_s", [3.0, 8.0, 13.0, 18.0, 1000.0])
def test_a_search_ends_with_its_time_however_long_xla_takes(item, compile_s):
    fake = Fake(compile_s=compile_s)
    found = fake.found(item, plan(item))
    assert fake.now_s <= 20.0
    assert found.is_faster == (compile_s < 20.0)
    if compile_s > 20.0:
        assert "not compiled in the 20 s that there were" in found.sentence
        assert found.placement.cluster_of_op is None


def test_where_not_even_the_plan_without_clusters_is_timed_it_is_one_line(item):
    fake = Fake()
    with pytest.raises(InputError, match="no clusters could be timed: TIMEOUT: not done"):
        find_clusters(item, plan(item), fake.try_programs, 1e-6, clock=lambda: fake.now_s)


def test_without_xla_it_is_one_line(item, monkeypatch):
    monkeypatch.setattr(fusing, "has_xla", lambda: False)
    with pytest.raises(InputError, match=r"fusion needs XLA, which TensorFlow .* was built without here"):
        find_clusters(item, plan(item), Fake().try_programs, 1.0)


@pytest.mark.slow
def test_what_was_compiled_is_kept_for_a_later_process(item, tmp_path):
    with environment(native.XLA_FLAGS, native.compilation_flags(tmp_path)):
        found = find_clusters_here(item, plan(item), 60.0, rounds=10)
        kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
        assert found.tried and kept
        for one in found.tried:
            assert not one.message
        find_clusters_here(item, plan(item), 60.0, rounds=10)
    assert kept.items() <= {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}.items()


@pytest.mark.slow
def test_a_placed_function_keeps_what_was_compiled(tmp_path):
    program = """
import tensorflow as tf, tf_placer
from tf_placer.base.native import compilations_folder
f = tf.function(lambda x: tf.tanh(tf.exp(x) + x))
x = tf.ones([8])
item = tf_placer.Item.from_function(f, x)
problem = tf_placer.build_problem(item, tf_placer.Cluster.logical(1))
clusters = [0 if kind in ("Exp", "AddV2", "Tanh") else -1 for kind in item.index.op_types]
placed = tf_placer.placed_function(f, tf_placer.Placement(problem, problem.everything_on(0), None, clusters), x)
placed(x)
print(*(path.name for path in compilations_folder().iterdir()))
"""
    own = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    own.pop(native.XLA_FLAGS, None)
    command, told = [sys.executable, "-c", program], {"capture_output": True, "text": True, "check": True}
    first, second = (subprocess.run(command, env=own, **told).stdout for _ in range(2))
    assert first.strip() and second == first


@pytest.mark.slow
@pytest.mark.alone
def test_a_chain_over_much_data_is_faster_in_one_cluster():
    @tf.function
    def f(x):
        for _ in range(20):
            x = x * 1.01 + 0.5
        return tf.reduce_sum(x)

    item = Item.from_function(f, tf.ones([1 << 20]))
    found = find_clusters_here(item, plan(item), 20.0)
    assert found.is_faster and found.fused_s < 0.5 * found.unfused_s
    outcome = fused_here(Form(plan(item).problem, item), 10.0)
    assert outcome.is_worth_it and outcome.placement.cluster_of_op is not None and outcome.notes[Note.FUSED]
