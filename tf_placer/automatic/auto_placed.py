"""auto_place: wraps a ``tf.function`` so that its first call finds a placement and later calls run it."""

from __future__ import annotations

import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import rich.console
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import (
    concrete_function,
    function_type_utils,
    polymorphic_function,
    tracing_compilation,
)

from tf_placer import arguments
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.eager_devices import attach
from tf_placer.automatic.plan import Plan, find_plan
from tf_placer.automatic.report import report
from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.placed_function import move_variables, placed_concrete_function
from tf_placer.runtime.audit import Audit
from tf_placer.search.budget import Budget
from tf_placer.search.progress import ConsoleProgress


@dataclasses.dataclass(frozen=True, eq=False)
class Placed:
    """One signature of a function after it was placed.

    Attributes:
      item: its graph.
      plan: where its ops go, or would.
      concrete: what runs; the traced function itself where the plan is not worth it.
    """

    item: Item
    plan: Plan
    concrete: concrete_function.ConcreteFunction


class AutoPlaced:
    """A function that is placed when it is first called, once for each of its signatures.

    Attributes:
      unplaced: the function that was wrapped; it keeps working, on the same variables.
    """

    def __init__(self, function: polymorphic_function.Function, config: AutoPlaceConfig) -> None:
        self.unplaced = function
        self._config = config
        self._placed: dict[int, tuple[concrete_function.ConcreteFunction, Placed]] = {}
        self._bound: weakref.WeakKeyDictionary[Any, AutoPlaced] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()
        functools.update_wrapper(self, function.python_function)

    def __get__(self, instance: Any, owner: type) -> AutoPlaced:
        """As a method: each object has a function, and placements, of its own."""
        if instance is None:
            return self
        if instance not in self._bound:
            self._bound[instance] = AutoPlaced(self.unplaced.__get__(instance, owner), self._config)
        return self._bound[instance]

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        placed, flat_inputs = self._prepared(args, kwargs)
        return placed.concrete._call_flat(flat_inputs, placed.concrete.captured_inputs)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> concrete_function.ConcreteFunction:
        """The placed function for such arguments, for ``tf.saved_model.save``; places it if need be."""
        return self._prepared(args, kwargs)[0].concrete

    @property
    def placement(self) -> Placement:
        """The placement of the signature that was called last for the first time.

        Raises:
          InputError: the function was not called yet.
        """
        return self._last().plan.placement

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One for each signature, in the order of their first calls."""
        return tuple(placed.plan.placement for _, placed in self._placed.values())

    def report(self) -> str:
        """What went where and why, predicted and measured times, the largest transfers, memory; for every signature.

        Raises:
          InputError: the function was not called yet.
        """
        self._last()
        return "\n\n".join(_report(concrete, placed) for concrete, placed in self._placed.values())

    def audit(self) -> Audit:
        """Runs one step of the placement that ``placement`` gives on fresh workers, and says where its ops ran.

        Also where that placement is not used, because the function is faster as it was.

        Variables and results of this process are not touched.

        Raises:
          InputError: the function was not called yet, or its devices are not live.
          AuditError: an op ran elsewhere than the placement says.
        """
        placed = self._last()
        with RuntimeEvaluator(placed.item, placed.plan.placement.problem) as evaluator:
            found = evaluator.audit(placed.plan.placement.device_of_unit)
        found.check()
        return found

    def _last(self) -> Placed:
        if not self._placed:
            raise InputError(f"{self.unplaced.name!r} is placed at its first call; call it first")
        return list(self._placed.values())[-1][1]

    def _prepared(self, args: tuple, kwargs: dict) -> tuple[Placed, list[tf.Tensor]]:
        concrete, flat_inputs = _traced(self.unplaced, args, kwargs)
        found = self._placed.get(id(concrete))
        if found is None:
            with self._lock:
                found = self._placed.get(id(concrete))
                if found is None:
                    with tf.init_scope():
                        found = (concrete, self._place(concrete, flat_inputs))
                    self._placed[id(concrete)] = found
        return found[1], flat_inputs

    def _place(self, concrete: concrete_function.ConcreteFunction, flat_inputs: list[tf.Tensor]) -> Placed:
        config = self._config
        cluster = config.chosen_cluster()
        examples = [_example(value, config.batch_size) for value in flat_inputs]
        item = Item.from_function(concrete, *examples, name=str(self.unplaced.name))
        fixed = _where_variables_are(concrete, item, cluster) if config.variables == "stay" else {}
        console = rich.console.Console(stderr=True)

        def progress(title: str, budget: Budget) -> ConsoleProgress:
            return ConsoleProgress(f"{title} for {item.name}", budget, console)

        plan = find_plan(item, cluster, config, fixed, progress)
        if config.keep_unplaced and not plan.is_worth_it:
            return Placed(item, plan, concrete)
        here = attach(cluster)
        devices = {op: here[device] for op, device in plan.placement.device_names.items()}
        move_variables(concrete, item, devices)
        return Placed(item, plan, placed_concrete_function(concrete, item, devices))


def _report(concrete: concrete_function.ConcreteFunction, placed: Placed) -> str:
    text = report(placed.item.name, placed.plan)
    return f"{text}\nkept as it was: this plan is not used" if placed.concrete is concrete else text


def _traced(
    function: polymorphic_function.Function, args: tuple, kwargs: dict
) -> tuple[concrete_function.ConcreteFunction, list[tf.Tensor]]:
    """The concrete function that a call would run, and its tensors: what ``Function.__call__`` does before it runs."""
    bound = function_type_utils.canonicalize_function_inputs(
        args, kwargs, function._function_type, function._default_values, function._is_pure
    )
    if function._variable_creation_config is None:
        # The first trace may create variables; this initializes them.
        function.get_concrete_function(*args, **kwargs)
    options = (
        function._no_variable_creation_config
        if function._created_variables
        else function._variable_creation_config
    )
    concrete = tracing_compilation.trace_function(bound.args, bound.kwargs, options)
    bound = concrete.function_type.bind(*bound.args, **bound.kwargs)
    return concrete, concrete.function_type.unpack_inputs(bound)


def _example(value: tf.Tensor, batch_size: int) -> Any:
    """A value for a tensor that may have none: where functions call each other while they are traced."""
    if hasattr(value, "numpy") or value.dtype == tf.resource:
        return value
    if value.shape.rank is None:
        raise InputError(
            f"input {value.name!r} has unknown rank inside another function; give it a shape with tf.ensure_shape"
        )
    shape = [batch_size if size is None else size for size in value.shape.as_list()]
    return tf.constant(np.zeros(shape, value.dtype.as_numpy_dtype), value.dtype)


def _where_variables_are(
    concrete: concrete_function.ConcreteFunction, item: Item, cluster: Cluster
) -> dict[int, int]:
    """Op -> device of the handle of each variable, as positions.

    Raises:
      InputError: a variable lives on none of the cluster's devices.
    """
    position = {device.name: d for d, device in enumerate(cluster.devices)}
    handles = dict(
        zip((t.op.name for t in concrete.graph.internal_captures), concrete.captured_inputs, strict=True)
    )
    op_of_name = {name: op for op, name in enumerate(item.index.names)}
    fixed = {}
    for variable in item.variables:
        device = handles[variable.capture].device
        if device not in position:
            raise InputError(
                f"variable {variable.node!r} is on {device}, which cluster {cluster.name!r} lacks; "
                'place with variables="move"'
            )
        fixed[op_of_name[variable.node]] = position[device]
    return fixed


def auto_place(fn: Callable | None = None, **settings: Any) -> Any:
    """Wraps a ``tf.function`` so that its first call finds a placement for it and later calls run that.

        @tf_placer.auto_place(cluster="local", budget_s=60)
        @tf.function
        def train_step(x, y): ...

    Args:
      fn: a ``tf.function``, or a Python function that is made one. Without, a decorator is returned.
      **settings: fields of ``AutoPlaceConfig``.

    Raises:
      InputError: ``fn`` is not a function, or a setting is not possible.
    """
    known = {field.name for field in dataclasses.fields(AutoPlaceConfig)}
    for name in settings:
        if name not in known:
            raise InputError(f"auto_place has no setting {name!r}; {arguments.nearest(name, known)}")
    config = AutoPlaceConfig(**settings)
    if fn is None:
        return functools.partial(_wrap, config=config)
    return _wrap(fn, config)


def _wrap(fn: Any, config: AutoPlaceConfig) -> AutoPlaced:
    if isinstance(fn, AutoPlaced):
        raise InputError(f"fn is {fn.unplaced.name!r}, which is auto-placed already; apply auto_place once")
    if isinstance(fn, polymorphic_function.Function):
        return AutoPlaced(fn, config)
    arguments.function("fn", fn, "give a tf.function, or a function that can be one")
    return AutoPlaced(tf.function(fn), config)
