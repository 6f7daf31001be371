"""auto_place: wraps a ``tf.function`` so that its first call finds a placement and later calls run it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import rich.console
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import concrete_function, polymorphic_function

from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.eager_devices import attach
from tf_placer.automatic.plan import Plan, find_plan
from tf_placer.automatic.report import report
from tf_placer.automatic.tracing import (
    first_run,
    first_trace,
    is_compiled,
    is_inside_xla,
    run,
    symbolic_inputs,
    traced,
)
from tf_placer.cluster.cluster import Cluster
from tf_placer.errors import InputError
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.placement import Placement
from tf_placer.rewrite.placed_function import move_variables, placed_concrete_function
from tf_placer.runtime.audit import Audit
from tf_placer.search.budget import Budget
from tf_placer.search.progress import ConsoleProgress


class RunsAsItIs(UserWarning):
    """A function that ``auto_place`` wraps runs unplaced; the message says why."""


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """One signature of a function after its first call.

    Attributes:
      concrete: what runs; the traced function itself where it is not placed.
      item, plan: its graph, and where its ops go, or would; None where it cannot be placed.
      why_not: why it cannot be placed; empty where it can.
    """

    concrete: concrete_function.ConcreteFunction
    item: Item | None = None
    plan: Plan | None = None
    why_not: str = ""


class AutoPlaced(polymorphic_function.Function):
    """A function that is placed when it is first called, once for each of its signatures.

    It is a ``tf.function``, so that modules, ``tf.saved_model.save`` and whoever else asks for one take it as such. The
    state of a ``tf.function`` is in the one that it wraps: what is not here is looked up there, and then in the Python
    function or object behind it (a Keras model's ``summary``, say).

    Attributes:
      unplaced: the function that was wrapped; it keeps working, on the same variables.
    """

    def __init__(self, function: polymorphic_function.Function, config: AutoPlaceConfig) -> None:
        # TensorFlow's own constructor would make a second function with traces and variables of its own.
        signatures: dict[int, tuple[concrete_function.ConcreteFunction, Signature]] = {}
        bound: weakref.WeakKeyDictionary[Any, AutoPlaced] = weakref.WeakKeyDictionary()
        self.__dict__.update(
            unplaced=function,
            _config=config,
            _signatures=signatures,
            _bound=bound,
            _placing=threading.RLock(),
            _told=set(),
        )
        functools.update_wrapper(self, function.python_function, updated=())

    def __getattr__(self, name: str) -> Any:
        unplaced = self.__dict__.get("unplaced")
        if unplaced is None or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if hasattr(unplaced, name):
            return getattr(unplaced, name)
        return getattr(unplaced.python_function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # What is set on a wrapped model is meant for the model; a plain function has no state of its own.
        wrapped = self.unplaced.python_function
        is_own = name.startswith("_") or hasattr(type(self), name) or name in self.__dict__
        if not is_own and not inspect.isroutine(wrapped) and hasattr(wrapped, name):
            setattr(wrapped, name, value)
        else:
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple:
        """A copy places anew, on the variables that it has."""
        return AutoPlaced, (self.unplaced, self._config)

    def __get__(self, instance: Any, owner: type | None) -> Any:
        """As a method: each object has a function, and placements, of its own."""
        if instance is None:
            return self
        bound = self.unplaced.__get__(instance, owner)
        if not isinstance(
            bound, polymorphic_function.Function
        ):  # a tensor of many parts is an argument to TensorFlow
            return types.MethodType(self, instance)
        if instance not in self._bound:
            self._bound[instance] = AutoPlaced(bound, self._config)
        return self._bound[instance]

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tf.config.functions_run_eagerly():
            return self.unplaced(*args, **kwargs)
        why_not = self._why_not_here()
        if why_not:
            self._tell(why_not)
            return self.unplaced(*args, **kwargs)
        initializers = first_trace(self.unplaced, args, kwargs)
        if initializers:
            return first_run(self.unplaced, args, kwargs, initializers)
        concrete, flat_inputs = traced(self.unplaced, args, kwargs)
        signature = self._signature(concrete, flat_inputs)
        if signature.concrete is concrete:
            return run(concrete, flat_inputs)
        try:
            return run(signature.concrete, flat_inputs)
        except tf.errors.OpError:
            raise  # from the program itself, which has run
        except Exception as error:  # noqa: BLE001 - whatever it is, the program that is wrapped runs
            # From TensorFlow, while it built what a tape or an accumulator asked for: nothing has run yet.
            self._give_up(concrete, error)
            return run(concrete, flat_inputs)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> concrete_function.ConcreteFunction:
        """The placed function for such arguments, for ``tf.saved_model.save``; places it if need be."""
        return self._of_concrete(self.unplaced.get_concrete_function(*args, **kwargs))

    @property
    def placement(self) -> Placement:
        """The placement of the signature that was called last for the first time.

        Raises:
          InputError: the function was not called yet, or cannot be placed.
        """
        return self._last()[1].placement

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One for each signature that can be placed, in the order of their first calls."""
        found = (signature.plan for _, signature in self._signatures.values())
        return tuple(plan.placement for plan in found if plan is not None)

    def report(self) -> str:
        """What went where and why, predicted and measured times, the largest transfers, memory; for every signature.

        Raises:
          InputError: the function was not called yet.
        """
        if not self._signatures and not self._told:
            raise self._not_called()
        told = [f"{self.name}: runs as it is, unplaced: {why}" for why in sorted(self._told)]
        return "\n\n".join(told + [_report(*pair) for pair in self._signatures.values() if pair[1].plan])

    def audit(self) -> Audit:
        """Runs one step of the placement that ``placement`` gives on fresh workers, and says where its ops ran.

        Also where that placement is not used, because the function is faster as it was.

        Variables and results of this process are not touched.

        Raises:
          InputError: the function was not called yet, cannot be placed, or its devices are not live.
          AuditError: an op ran elsewhere than the placement says.
        """
        item, plan = self._last()
        with RuntimeEvaluator(item, plan.placement.problem) as evaluator:
            found = evaluator.audit(plan.placement.device_of_unit)
        found.check()
        return found

    def _last(self) -> tuple[Item, Plan]:
        if not self._signatures and not self._told:
            raise self._not_called()
        found = [(one.item, one.plan) for _, one in self._signatures.values()]
        placed = [(item, plan) for item, plan in found if item is not None and plan is not None]
        if not placed:
            raise InputError(f"{self.name!r} runs as it is, unplaced: {'; '.join(sorted(self._told))}")
        return placed[-1]

    def _not_called(self) -> InputError:
        return InputError(f"{self.name!r} is placed at its first call; call it first")

    def _why_not_here(self) -> str:
        """Why calls are not placed where this one is made; empty where they are."""
        if not tf.compat.v1.executing_eagerly_outside_functions():
            return "it is called in a graph of TensorFlow 1; call it eagerly, or place that graph"
        if tf.distribute.has_strategy():
            name = type(tf.distribute.get_strategy()).__name__
            return f"it is called under tf.distribute's {name}, which says itself where replicas and variables are"
        if is_compiled(self.unplaced):
            return "jit_compile=True has XLA compile it as one program for one device"
        if is_inside_xla():
            return "it is called inside a function with jit_compile=True, which is one program for one device"
        return ""

    def _tell(self, why_not: str, cause: BaseException | None = None) -> None:
        """Warns once of each reason.

        Raises:
          InputError: the configuration is strict.
        """
        if self._config.strict:
            raise InputError(f"{self.name!r} cannot be placed: {why_not}") from cause
        if why_not not in self._told:
            self._told.add(why_not)
            warnings.warn(f"{self.name!r} runs as it is, unplaced: {why_not}", RunsAsItIs, stacklevel=4)

    def _of_concrete(
        self, concrete: concrete_function.ConcreteFunction
    ) -> concrete_function.ConcreteFunction:
        why_not = self._why_not_here()
        if why_not:
            self._tell(why_not)
            return concrete
        return self._signature(concrete, symbolic_inputs(concrete)).concrete

    def _signature(
        self, concrete: concrete_function.ConcreteFunction, flat_inputs: list[tf.Tensor]
    ) -> Signature:
        found = self._signatures.get(id(concrete))
        if found is None:
            with self._placing:
                found = self._signatures.get(id(concrete))
                if found is None:
                    with tf.init_scope():
                        found = (concrete, self._placed_or_as_it_is(concrete, flat_inputs))
                    self._signatures[id(concrete)] = found
        return found[1]

    def _placed_or_as_it_is(
        self, concrete: concrete_function.ConcreteFunction, flat_inputs: list[tf.Tensor]
    ) -> Signature:
        try:
            return self._place(concrete, flat_inputs)
        except Exception as error:  # noqa: BLE001 - whatever it is must not end the program that is wrapped
            why_not = one_line(error)
            self._tell(why_not, error)
            return Signature(concrete, why_not=why_not)

    def _give_up(self, concrete: concrete_function.ConcreteFunction, error: Exception) -> None:
        why_not = one_line(error)
        self._tell(why_not, error)
        self._signatures[id(concrete)] = (concrete, Signature(concrete, why_not=why_not))

    def _place(self, concrete: concrete_function.ConcreteFunction, flat_inputs: list[tf.Tensor]) -> Signature:
        config = self._config
        cluster = Cluster.local() if config.cluster == "local" else config.cluster
        assert isinstance(cluster, Cluster)
        examples = [_example(value, config.batch_size) for value in flat_inputs]
        item = Item.from_function(concrete, *examples, name=str(self.name))
        fixed = _where_variables_are(concrete, item, cluster) if config.variables == "stay" else {}
        console = rich.console.Console(stderr=True)

        def progress(title: str, budget: Budget) -> ConsoleProgress:
            return ConsoleProgress(f"{title} for {item.name}", budget, console)

        plan = find_plan(item, cluster, config, fixed, progress)
        if config.keep_unplaced and not plan.is_worth_it:
            return Signature(concrete, item, plan)
        here = attach(cluster)
        devices = {op: here[device] for op, device in plan.placement.device_names.items()}
        move_variables(concrete, item, devices)
        return Signature(placed_concrete_function(concrete, item, devices), item, plan)

    # What else a tf.function answers, some of it to TensorFlow alone.

    def _get_concrete_function_garbage_collected(self, *args: Any, **kwargs: Any) -> Any:
        concrete = self.unplaced._get_concrete_function_garbage_collected(*args, **kwargs)
        return self._of_concrete(concrete)

    def _list_all_concrete_functions(self) -> list[concrete_function.ConcreteFunction]:
        return [self._of_concrete(concrete) for concrete in self.unplaced._list_all_concrete_functions()]

    def _list_all_concrete_functions_for_serialization(self) -> list[concrete_function.ConcreteFunction]:
        concretes = self.unplaced._list_all_concrete_functions_for_serialization()
        return [self._of_concrete(concrete) for concrete in concretes]

    def _decorate(self, decorator: Callable) -> None:
        self.unplaced._decorate(decorator)

    def _clone(self, python_function: Callable | None) -> AutoPlaced:
        return AutoPlaced(self.unplaced._clone(python_function), self._config)

    def get_initialization_function(self, *args: Any, **kwargs: Any) -> concrete_function.ConcreteFunction:
        """As of the unplaced function: what gives the variables that it creates their first values."""
        return self.unplaced.get_initialization_function(*args, **kwargs)

    def experimental_get_compiler_ir(self, *args: Any, **kwargs: Any) -> Callable:
        """As of the unplaced function."""
        return self.unplaced.experimental_get_compiler_ir(*args, **kwargs)


def one_line(error: BaseException) -> str:
    """An error as a reason in a sentence."""
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def _report(concrete: concrete_function.ConcreteFunction, signature: Signature) -> str:
    assert signature.item is not None and signature.plan is not None, "it can be placed"
    text = report(signature.item.name, signature.plan)
    return f"{text}\nkept as it was: this plan is not used" if signature.concrete is concrete else text


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

    It is the same function otherwise. Where it cannot be placed it runs as it is, with one warning (``RunsAsItIs``)
    that says why; with ``strict=True`` that is an ``InputError``.

    Args:
      fn: a ``tf.function``, or what one can be made of: a Python function, a bound method, a Keras model. Without, a
        decorator is returned.
      **settings: fields of ``AutoPlaceConfig``.

    Raises:
      InputError: ``fn`` is not a function, or a setting is not possible.
    """
    known = {field.name for field in dataclasses.fields(AutoPlaceConfig)}
    for name in settings:
        if name not in known:
            raise InputError(f"auto_place has no setting {name!r}; it has {', '.join(sorted(known))}")
    config = AutoPlaceConfig(**settings)
    if fn is None:
        return functools.partial(_wrap, config=config)
    return _wrap(fn, config)


def _wrap(fn: Any, config: AutoPlaceConfig) -> AutoPlaced:
    if isinstance(fn, AutoPlaced):
        raise InputError(f"{fn.name!r} is auto-placed already; apply auto_place once")
    if isinstance(fn, polymorphic_function.Function):
        return AutoPlaced(fn, config)
    if not callable(fn):
        raise InputError(f"auto_place needs a function, got {fn!r}")
    return AutoPlaced(tf.function(fn), config)
