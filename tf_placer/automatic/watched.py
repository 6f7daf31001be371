"""Functions of a script: watched while they run, and placed by the native plug-in without a change of the script."""

from __future__ import annotations

import dataclasses
import functools
import statistics
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from colocation import tensorflow_internals as internals
from colocation.tensorflow_internals import ConcreteFunction, Function
from tf_placer.automatic.auto_placed import is_from_the_program, one_line, why_a_strategy_decides
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.signature import Signature, Writing, example, placed_signature, wait_for
from tf_placer.base.arguments import InputError
from tf_placer.base.eager import outside_functions
from tf_placer.base.quantities import milliseconds
from tf_placer.graph.item import Item
from tf_placer.graph.read_function import function_name
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.placement import NO_CLUSTER, Placement, PlanFile
from tf_placer.report.sentences import why_not
from tf_placer.rewrite.placed_function import (
    captured_handles,
    copied_function,
    run_by_plan,
    with_host_ops_here,
)
from tf_placer.rewrite.plug_in import FunctionPlan, PlugIn
from tf_placer.rewrite.variables import RandomState, SeededDraws, why_variables_stay
from tf_placer.transform.order import order_edges

WATCHED_STEPS = 3  # behind the first, which traces
COSTLY_S = 0.005  # a shorter step is not worth a search
_SHOWN = 3  # functions, at the end
_LOOKS = 3  # calls of a function that may trace another signature


class Watcher:
    """Watches the functions that a script calls eagerly, and places them.

    Without a plan, a function that takes ``COSTLY_S`` a step is placed as ``auto_place`` would, where its first calls
    have shown that; with one, the function that the plan was made for, from its first call on. The function stays the
    script's own: variables move, and the plug-in writes the plan into the graphs that TensorFlow makes of it.
    """

    def __init__(
        self, plug_in: PlugIn, config: AutoPlaceConfig, plan: PlanFile | None, say: Callable[[str], None]
    ) -> None:
        """Begins; ``watch_calls`` gives it the calls.

        ``plan`` is run by instead of searching; ``say`` is given a line for each thing that a user wants to know.
        """
        self.plug_in, self.config, self.plan, self._say = plug_in, config, plan, say
        self._said: set[str] = set()
        self.why_not = ""  # the plan fits a function and cannot be used
        self.placed: list[str] = []
        self._functions: weakref.WeakKeyDictionary[Function, _Watched] = weakref.WeakKeyDictionary()
        self._traced: list[_Watched] = []  # those whose calls run now
        self._is_placing = False
        # Name of a function of which nothing is told -> why it runs as it is.
        self.runs_as_it_is: dict[str, str] = {}

    def say(self, line: str) -> None:
        """Tells a line once."""
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    def nothing_placed(self) -> str:
        """One line where no function ran by the plan that was given, or all ran as it is untold; empty otherwise."""
        if self.plan is not None:
            other = f"it is a plan for another program (fingerprint {self.plan.fingerprint[:12]}), or for another batch"
            remedy = "make one with tf-placer place SCRIPT.py:NAME, or give --batch_size as there"
            why_not = self.why_not or f"{other}; {remedy}"
            return "" if self.placed else f"no function ran by {self.plan.source}: {why_not}"
        reasons = [f"{name} {why}" for name, why in self.runs_as_it_is.items()]
        rest = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        return "" if self._said else f"nothing is placed: {'; '.join(reasons[:_SHOWN])}{rest}"

    def call(
        self, function: Function, as_it_is: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Stands in for a call of a function."""
        if self._is_placing:
            return as_it_is(*args, **kwargs)
        if threading.current_thread() is not threading.main_thread():
            self.runs_as_it_is[str(function.name)] = "is called by another thread than the main one"
            return as_it_is(*args, **kwargs)
        if not tf.executing_eagerly():
            self.runs_as_it_is.setdefault(str(function.name), "is called in a graph")
            outputs = as_it_is(*args, **kwargs)
            for outer in self._traced[-1:]:
                if not internals.is_compiled(function):
                    try:
                        outer.inner.append(internals.trace(function, args, kwargs)[0])
                    except Exception as error:  # noqa: BLE001 - the script's own call of it has worked
                        self.say(f"{function.name} is not looked into: {one_line(error)}")
            return outputs
        watched = self._functions.get(function)
        if watched is None:
            watched = self._functions[function] = _Watched(self, function)
        if tf.config.functions_run_eagerly():
            self.runs_as_it_is[str(function.name)] = "runs op by op (tf.config.run_functions_eagerly)"
            return as_it_is(*args, **kwargs)
        as_it_is = functools.partial(watched.run, function, as_it_is)
        if watched.is_settled:
            return as_it_is(*args, **kwargs)
        self._traced.append(watched)
        try:
            return watched.call(function, as_it_is, args, kwargs)
        finally:
            self._traced.pop()

    def place(self, name: str, place: Callable[[], Any]) -> Any:
        """What ``place`` returns, or None where it fails, which is told; the script's seeds stay as they are."""
        self._is_placing = True
        try:
            with internals.random_state_kept(), outside_functions():
                return place()
        except Exception as error:  # noqa: BLE001 - whatever it is, the script runs on
            self.why_not = one_line(error)
            self.say(f"{name} runs as it is: {self.why_not}")
            return None
        finally:
            self._is_placing = False


class _Watched:
    """One function of a script."""

    def __init__(self, watcher: Watcher, function: Function) -> None:
        self._watcher = watcher
        reason = why_a_strategy_decides()
        why = f"runs as it is: {reason}" if reason else f"is called fewer than {WATCHED_STEPS + 1} times"
        watcher.runs_as_it_is[str(function.name)] = why
        self.is_settled = internals.is_compiled(function) or bool(reason)
        if internals.is_compiled(function):
            watcher.say(f"{function.name} runs as it is: jit_compile=True has XLA compile it as one program")
        self.inner: list[ConcreteFunction] = []  # traced functions that this one calls
        self._is_left = self.is_settled
        self._copies: dict[int, _Copy | None] = {}  # id of a traced function -> what runs in its place
        self._num_traces = -1
        self._looked_at: set[int] = set()
        self._calls = 0
        self._samples_s: list[float] = []
        self._concrete: ConcreteFunction | None = None
        self._signature: Signature | None = None
        self._label: int | None = None
        self._unplaced: _Copy | None = None

    def run(self, function: Function, as_it_is: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs a step by the copy that stands for its traced function, if there is one."""
        is_traced = function.experimental_get_tracing_count() == self._num_traces
        if self._is_left or (is_traced and not any(self._copies.values())):
            return as_it_is(*args, **kwargs)
        initializers = internals.first_trace(function, args, kwargs)
        if initializers:
            return internals.first_run(function, args, kwargs, initializers)
        concrete, inputs = internals.trace(function, args, kwargs)
        self._num_traces = function.experimental_get_tracing_count()
        copy = self._copy(concrete)
        if copy is None:
            return as_it_is(*args, **kwargs)
        if copy.state is not None:
            copy.state.follow_seeds()
        return internals.call_flat(copy.function, inputs)

    def _copy(self, concrete: ConcreteFunction) -> _Copy | None:
        """The copy of a function that draws with a seed, from its first call on: it can go on by a plan."""
        if id(concrete) not in self._copies:
            self._copies[id(concrete)] = None
            try:
                draws = SeededDraws(concrete)
                if draws.carried:
                    state = RandomState(draws)
                    self._copies[id(concrete)] = _Copy(copied_function(concrete, state), state)
            except Exception as error:  # noqa: BLE001 - whatever it is, the script runs on
                self._watcher.say(
                    f"{function_name(concrete)} draws anew where it is placed: {one_line(error)}"
                )
        return self._copies[id(concrete)]

    def call(
        self, function: Function, as_it_is: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Runs a step, which is timed, and decides."""
        signature = self._signature
        trial = None if signature is None else signature.trial
        if signature is not None and trial is not None:
            concrete, inputs = internals.trace(function, args, kwargs)
            if concrete is not self._concrete:
                return as_it_is(*args, **kwargs)
            copy = self._copy(concrete)
            if copy is not None and copy.state is not None:
                copy.state.follow_seeds()
            try:
                outputs = trial.call(inputs)
            except Exception as error:
                if is_from_the_program(error):
                    raise
                self._watcher.say(f"{function_name(concrete)} runs as it is: {one_line(error)}")
                self.is_settled = True
                self._undo()
                return as_it_is(*args, **kwargs)
            if trial.verdict is not None:
                self.is_settled = True
                self._signature = signature.settled(self._watcher.config)
                self._tell_of_the_plan(self._signature)
            return outputs
        if self._watcher.plan is not None:
            initializers = internals.first_trace(function, args, kwargs)
            if initializers:
                return internals.first_run(function, args, kwargs, initializers)
            concrete, inputs = internals.trace(function, args, kwargs)
            self._calls += 1
            self.is_settled = self._calls >= _LOOKS
            if id(concrete) not in self._looked_at:
                self._looked_at.add(id(concrete))
                part, arguments = self._part(concrete, inputs)
                self._concrete, plan = concrete, self._watcher.plan
                self._watcher.place(function_name(part), lambda: self._place_by(plan, part, arguments))
            return as_it_is(*args, **kwargs)
        start_s = time.perf_counter()
        outputs = as_it_is(*args, **kwargs)
        wait_for(outputs)
        self._samples_s.append(time.perf_counter() - start_s)
        if len(self._samples_s) > WATCHED_STEPS:
            self._decide(function, args, kwargs)
        return outputs

    def _part(
        self, concrete: ConcreteFunction, inputs: Sequence[tf.Tensor]
    ) -> tuple[ConcreteFunction, list[tf.Tensor]]:
        """Function to place and its arguments; of one that is given an iterator, as Keras', the largest it calls."""
        if all(value.dtype not in (tf.resource, tf.variant) for value in inputs) or not self.inner:
            return concrete, list(inputs)
        graphs = [concrete.graph.as_graph_def() for concrete in self.inner]
        nodes = [len(graph.node) + sum(len(f.node_def) for f in graph.library.function) for graph in graphs]
        largest = self.inner[max(range(len(nodes)), key=lambda i: (nodes[i], i))]
        captured = {id(tensor) for tensor in largest.graph.internal_captures}
        return largest, [tensor for tensor in largest.inputs if id(tensor) not in captured]

    def _decide(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Finds a plan for a function that is costly."""
        self.is_settled = True
        seconds = statistics.median(self._samples_s[1:])
        if seconds < COSTLY_S:
            why = f"takes {milliseconds(seconds)} a step, and under {milliseconds(COSTLY_S)} no search pays"
            self._watcher.runs_as_it_is[str(function.name)] = why
            return
        self._concrete, inputs = internals.trace(function, args, kwargs)
        part, arguments = self._part(self._concrete, inputs)
        name = function_name(part)
        self._watcher.say(f"{name} takes {milliseconds(seconds)} a step: finding a plan for it")
        copy = self._copy(self._concrete)
        writing = Writing(self._write, self._undo, self._concrete if copy is None else copy.function)
        self._signature = self._watcher.place(
            name,
            lambda: placed_signature(name, part, arguments, self._watcher.config, writing=writing),
        )
        signature = self._signature
        if signature is None:
            return
        if signature.plan is None:
            self._watcher.say(f"{name} runs as it is: it has no op to place")
        elif signature.trial is not None:
            self._watcher.say(f"{name}: its next calls are timed, as it is and by the plan")
            self.is_settled = False
        else:
            self._tell_of_the_plan(signature)

    def _tell_of_the_plan(self, signature: Signature) -> None:
        assert signature.item is not None and signature.plan is not None  # it was placed
        name = signature.item.name
        if self._label is None:
            self._watcher.say(f"{name} runs as it is: {why_not(signature.plan)}")
        else:
            self._watcher.placed.append(name)
            self._watcher.say(f"{name} runs by its plan")

    def _place_by(self, plan: PlanFile, part: ConcreteFunction, arguments: Sequence[tf.Tensor]) -> None:
        config, name = self._watcher.config, function_name(part)
        item = Item.from_function(
            part, *(example(value, config.batch_size) for value in arguments), name=name
        )
        if item.fingerprint != plan.fingerprint:
            if plan.splitting is not None and plan.splitting.fingerprint == item.fingerprint:
                raise InputError(
                    f"{plan.source} has {plan.splitting}; make one with --parts=1 and --recompute=none"
                )
            self._watcher.say(f"{name} runs as it is: {plan.source} is a plan for another program")
            return
        cluster = config.chosen_cluster()
        problem = analytic_problem(item, cluster)
        placement = Placement.from_plan(plan, problem)
        held = why_variables_stay(captured_handles(part, item))
        variables = (
            dataclasses.replace(variable, stays=held.get(variable.node, variable.stays))
            for variable in item.variables
        )
        item = dataclasses.replace(item, variables=tuple(variables))
        run_by_plan(part, item, placement, cluster, self._write)
        self._watcher.placed.append(name)
        self._watcher.say(f"{name} runs by {plan.source}")

    def _write(
        self, part: ConcreteFunction, item: Item, placement: Placement, devices: Mapping[str, str]
    ) -> ConcreteFunction:
        """Gives a plan to the plug-in; returns the copy that runs by it, of which TensorFlow has no graph yet."""
        assert self._concrete is not None  # what is placed was traced
        draws = SeededDraws(self._concrete)
        if draws.lost and self._watcher.plan is None:  # with one, it is placed before its first call
            self._watcher.say(
                f"{function_name(part)}: what {', '.join(draws.lost)} draws begins anew; kernels alone have its state"
            )
        self._unplaced = self._copy(self._concrete)
        state = None if self._unplaced is None else self._unplaced.state
        copy = copied_function(self._concrete, state)
        devices, names = with_host_ops_here(item, devices), item.index.names
        types = {node.name: node.op for node in item.graph_def.node}
        clusters = placement.cluster_of_op
        fused = () if clusters is None else zip(names, clusters, strict=True)
        plan = FunctionPlan(
            tf.compat.as_str(copy.name),
            {name: (types[name], devices[name]) for name in names},
            [(names[before], names[after]) for before, after in order_edges(placement, item).tolist()],
            {name: int(cluster) for name, cluster in fused if cluster != NO_CLUSTER},
        )
        self._label = self._watcher.plug_in.add(plan)
        self._copies[id(self._concrete)] = _Copy(copy, state)
        return copy

    def _undo(self) -> None:
        if self._label is not None:
            assert self._concrete is not None  # it was placed
            self._watcher.plug_in.remove(self._label)
            self._label = None
            self._copies[id(self._concrete)] = self._unplaced


@dataclasses.dataclass(frozen=True)
class _Copy:
    """A copy of a traced function, which runs in its place."""

    function: ConcreteFunction  # the copy
    state: RandomState | None  # what it draws from; None where it draws nothing with a seed
