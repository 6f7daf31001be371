"""``auto_place``: a ``tf.function`` that finds a placement at its first call and runs that from then on."""

from __future__ import annotations

import dataclasses
import inspect
import os
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Unpack, overload

import tensorflow as tf

from colocation import tensorflow_internals as internals
from colocation.tensorflow_internals import ConcreteFunction, Function, WrappingFunction
from tf_placer.automatic.config import AutoPlaceConfig, Settings
from tf_placer.automatic.signature import Signature, placed_signature
from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, told
from tf_placer.base.eager import outside_functions
from tf_placer.base.files import write_atomically
from tf_placer.evaluation.runtime import RuntimeEvaluator
from tf_placer.graph.item import with_values_of
from tf_placer.planning.outcome import Outcome
from tf_placer.problem.placement import Placement
from tf_placer.report.sentences import why_not
from tf_placer.report.views import plan_report, section_of_plan
from tf_placer.report_page.page import Page, Section, page_html
from tf_placer.rewrite.placed_function import cut_to_fit, move_back
from tf_placer.rewrite.placed_function import fits as do_fit
from tf_placer.rewrite.rewrite import program_of_plan
from tf_placer.runtime.audit import Audit
from tf_placer.workers.local_workers import WorkerError

_CHOOSE = "a strategy splits the batch and placing splits the step: use one of them"
# TensorFlow's words, before anything runs, for a function whose ops cannot be where they are put.
_FROM_THE_PLACER = ("Cannot assign a device for operation", "Unable to find any devices for spec")
# One function is placed at a time: what moves variables must be the only one that does.
_PLACING = threading.RLock()


def why_a_strategy_decides(args: Any = (), kwargs: Any = None) -> str:
    """Reason why a call with these arguments is not placed: a strategy of tf.distribute; empty without one."""
    if tf.distribute.has_strategy():
        name = type(tf.distribute.get_strategy()).__name__
        where = "is in scope" if tf.distribute.in_cross_replica_context() else "runs it in a replica"
        return f"a tf.distribute strategy ({name}) {where}; {_CHOOSE}, and call it outside of the strategy for this one"
    if any(
        isinstance(value, tf.distribute.DistributedValues) for value in tf.nest.flatten((args, kwargs or {}))
    ):
        return (
            f"it is given values of several replicas; {_CHOOSE}, and call it with plain tensors for this one, or by "
            "strategy.run for the other"
        )
    return ""


def is_from_the_program(error: Exception) -> bool:
    """True for an error of a program that has run; False for what TensorFlow or this package says before that."""
    return isinstance(error, tf.errors.OpError) and not any(text in str(error) for text in _FROM_THE_PLACER)


class RunsAsItIs(UserWarning):
    """A function that ``auto_place`` wraps runs unplaced; the message says why."""


class AutoPlaced(WrappingFunction):
    """A function that is placed when it is first called, once for each of its signatures.

    Attributes:
      unplaced: the function that was wrapped; it keeps working, on the same variables.
    """

    _config: AutoPlaceConfig
    _is_python: bool  # what was wrapped is no tf.function
    _signatures: dict[int, Signature]  # id of a traced function, which the signature keeps alive
    _callers: dict[int, weakref.ref]  # id of a function traced for one caller -> that caller's graph
    _bound: weakref.WeakKeyDictionary[Any, AutoPlaced]
    _told: set[str]  # why calls run as they are

    def __init__(self, function: Function, config: AutoPlaceConfig, is_python: bool = False) -> None:
        """Wraps a function.

        ``is_python``: it was made of a plain Python function. Undecorated, that would run again each time that a
        function which calls it is traced: a Keras model that is compiled anew traces its step anew. So does this one.
        """
        bound = weakref.WeakKeyDictionary[Any, AutoPlaced]()
        empty: dict[str, Any] = {"_signatures": {}, "_callers": {}, "_bound": bound, "_told": set()}
        super().__init__(function, _config=config, _is_python=is_python, **empty)

    def __reduce__(self) -> tuple:
        """A copy places anew, on the variables that it has."""
        return AutoPlaced, (self.unplaced, self._config, self._is_python)

    def __get__(self, instance: Any, owner: type | None) -> Any:
        """Binds the function as a method: each object has a function, and placements, of its own."""
        if instance is None:
            return self
        bound = self.unplaced.__get__(instance, owner)
        if not isinstance(bound, Function):  # the object is a tensor of several parts: an argument
            return types.MethodType(self, instance)
        if instance not in self._bound:
            self._bound[instance] = AutoPlaced(bound, self._config, self._is_python)
        return self._bound[instance]

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tf.config.functions_run_eagerly():
            return self.unplaced(*args, **kwargs)
        if self._runs_eagerly():
            return self.unplaced.python_function(*args, **kwargs)
        why_not = self._why_not_here() or why_a_strategy_decides(args, kwargs)
        is_for_one_caller = self._is_python and not tf.executing_eagerly()
        function = internals.untraced(self.unplaced) if is_for_one_caller else self.unplaced
        if why_not:
            self._tell(why_not)
            if internals.is_inside_xla():
                self._take_back()
            return function(*args, **kwargs)
        num_traces = function.experimental_get_tracing_count()
        initializers = internals.first_trace(function, args, kwargs)
        if initializers:
            return internals.first_run(function, args, kwargs, initializers)
        concrete, inputs = internals.trace(function, args, kwargs)
        may_have_run = function.experimental_get_tracing_count() == num_traces
        if is_for_one_caller:
            # What was traced for callers that are gone is forgotten, with the variables that it holds.
            for key in [key for key, caller in self._callers.items() if caller() is None]:
                del self._callers[key]
                self._signatures.pop(key, None)
            self._callers[id(concrete)] = weakref.ref(tf.compat.v1.get_default_graph())
        signature = self._signature(concrete, inputs, may_have_run=may_have_run)
        if signature.concrete is concrete and signature.trial is None:
            return internals.call_flat(concrete, inputs)
        # A tensor where only a run knows: inside another function sizes may be open.
        fits = do_fit(signature.shapes, inputs)
        if fits is False:
            self._tell(f"its plan is of {signature.splitting}, and calls of another batch do not run by it")
            return internals.call_flat(signature.unplaced if tf.executing_eagerly() else concrete, inputs)
        try:
            outputs = self._run(concrete, signature, inputs, fits)
        except Exception as error:
            if is_from_the_program(error):
                raise
            # From TensorFlow, while it built what a tape or an accumulator asked for, or looked for the devices:
            # nothing has run yet.
            self._tell(one_line(error), error)
            unplaced = dataclasses.replace(signature.without_plan(), item=None, plan=None)
            self._signatures[id(concrete)] = unplaced
            return internals.call_flat(unplaced.concrete, inputs)
        # Not above: whatever goes wrong here, the step has run and must not run again.
        self._settle(concrete)
        return outputs

    def _run(
        self,
        concrete: ConcreteFunction,
        signature: Signature,
        inputs: Sequence[tf.Tensor],
        fits: bool | tf.Tensor,
    ) -> Any:
        """A call by the plan, or one of the first, which decide whether it is used."""
        if tf.executing_eagerly():
            if signature.random_state is not None:
                signature.random_state.follow_seeds()
            if signature.trial is not None:
                return signature.trial.call(inputs)
            placed = signature.concrete
        else:
            placed = self._without_trial(concrete)
        if fits is True or placed is concrete:
            return internals.call_flat(placed, inputs)
        return tf.cond(
            fits,
            lambda: internals.call_flat(placed, cut_to_fit(signature.shapes, inputs)),
            lambda: internals.call_flat(concrete, inputs),
        )

    def _without_trial(self, concrete: ConcreteFunction) -> ConcreteFunction:
        """Function to run where calls cannot be timed: inside another function, or saved."""
        trial = self._signatures[id(concrete)].trial
        if trial is not None:
            try:
                with outside_functions():
                    trial.end()
            except Exception as error:  # noqa: BLE001 - as where it is placed without a trial
                self._tell(one_line(error), error)
                self._signatures[id(concrete)] = Signature(concrete, concrete)
            self._settle(concrete)
        return self._signatures[id(concrete)].in_functions

    def _take_back(self) -> None:
        """Undoes all placements, of variables too: what XLA compiles finds them on its own device only."""
        with _PLACING, outside_functions():
            for key, signature in reversed(list(self._signatures.items())):
                try:
                    if signature.item is not None and signature.home:
                        move_back(signature.traced, signature.item, signature.home)
                    self._signatures[key] = signature.without_plan()
                except InputError as error:
                    self._tell(one_line(error), error)

    def _settle(self, concrete: ConcreteFunction) -> None:
        """Applies the verdict of a trial, if there is one."""
        signature = self._signatures[id(concrete)]
        if signature.trial is None or signature.trial.verdict is None:
            return
        with _PLACING:
            if self._signatures[id(concrete)] is not signature:
                return  # by another thread
            settled = self._signatures[id(concrete)] = signature.settled(self._config)
        self._tell_of_the_plan(settled)

    def _tell_of_the_plan(self, signature: Signature) -> None:
        if signature.plan is not None and signature.is_used is False:
            remedy = "keep_unplaced=False runs it all the same"
            text = f"{self.name!r} runs as it is: {why_not(signature.plan)}; {remedy}"
            warnings.warn(text, RunsAsItIs, stacklevel=_frames_to_caller())

    def _repr_html_(self) -> str | None:
        """The verdict of the signature that was called last, for a notebook; None where nothing was placed."""
        plans = [signature.plan for signature in self._signatures.values() if signature.plan is not None]
        return plans[-1]._repr_html_() if plans else None

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
        plans = [signature.plan for signature in self._signatures.values()]
        return tuple(plan.placement for plan in plans if plan is not None)

    def report(self, path: str | os.PathLike[str] | None = None, split_batch: bool = True) -> str:
        """Report for each signature: devices with reasons, predicted and measured times, largest transfers, memory.

        Beside the plan stands what splitting the batch over its devices would take, in the simulator. The first report
        splits the graph of each signature for that; the function is not traced again.

        Args:
          path: a file, ``report.html`` say, that a page with charts of the same is written to, beside the text.
          split_batch: False leaves that away.

        Raises:
          InputError: the function was not called yet, ``path`` cannot be written to, or no signature was placed, so
            that there is nothing to draw.
        """
        split_batch, name = arguments.truth("split_batch", split_batch), str(self.name)
        page = None if path is None else arguments.file_to_write("path", path)
        if page is not None or not (self._signatures or self._told):
            self._last()  # raises where there is none
        texts = [f"{name} runs as it is, unplaced: {why}" for why in sorted(self._told)]
        sections = list[Section]()
        for number, signature in enumerate(self._signatures.values(), 1):
            outcome = signature.beside_splitting if split_batch else signature.plan
            if outcome is not None:
                if page is not None:
                    sections.append(section_of_plan(name, number, outcome, signature.is_used))
                texts.append("\n".join([plan_report(name, outcome, signature.is_used), *signature.staying]))
        if page is not None:
            write_atomically(page, page_html(Page(name, tuple(sections))))
        return "\n\n".join(texts)

    def audit(self, values: bool = False) -> Audit:
        """Runs one step of the placement that ``placement`` gives on fresh workers, and says where its ops ran.

        Also where that placement is not used, because the function is faster as it was.

        Variables and results of this process are not touched.

        Args:
          values: also run the step as it is, and compare what both give: with Grappler and oneDNN off the bits are the
            same, or of a batch in parts the numbers up to the order of sums; with them on, TensorFlow rewrites ops by
            where they are, and the last bits may differ. Inputs of calls are kept where they are small; drawn numbers
            stand for the others.

        Raises:
          InputError: the function was not called yet, cannot be placed, or its devices are not live.
          AuditError: an op ran elsewhere than the placement says, or the step computes something else.
        """
        values = arguments.truth("values", values)
        signature, plan = self._last()
        assert signature.item is not None  # it has a plan
        item = with_values_of(signature.item, signature.traced)
        program = program_of_plan(item, plan.placement)
        with RuntimeEvaluator(program, plan.placement.problem, as_it_is=item) as evaluator:
            audit = evaluator.audit(plan.placement.decisions)
            if values:
                same = evaluator.compare_values(plan.placement.decisions)
                audit = dataclasses.replace(audit, values=same)
        audit.check()
        return audit

    def _last(self) -> tuple[Signature, Outcome]:
        if not self._signatures and not self._told:
            raise InputError(f"{self.name!r} is placed at its first call; call it first")
        for signature in reversed(self._signatures.values()):
            if signature.item is not None and signature.plan is not None:
                return signature, signature.plan
        why_not = "; ".join(sorted(self._told)) or "it has no op to place"
        raise InputError(f"{self.name!r} runs as it is, unplaced: {why_not}")

    def _runs_eagerly(self) -> bool:
        """True if it is Python that would run op by op undecorated: for a Keras model with ``run_eagerly=True``."""
        if not self._is_python or not tf.executing_eagerly():
            return False
        function = inspect.unwrap(self.unplaced.python_function)
        # TensorFlow binds a method to a stand-in that holds it weakly.
        owner = getattr(function, "__self__", None)
        if getattr(getattr(owner, "target", owner), "run_eagerly", False) is True:
            return True
        frame = inspect.currentframe()
        while frame is not None:
            is_keras = str(frame.f_globals.get("__name__", "")).partition(".")[0] == "keras"
            if is_keras and getattr(frame.f_locals.get("self"), "run_eagerly", False) is True:
                return True
            frame = frame.f_back
        return False

    def _why_not_here(self) -> str:
        """Reason why calls are not placed here; empty where they are."""
        if not tf.compat.v1.executing_eagerly_outside_functions():
            return "it is called in a graph of TensorFlow 1; call it eagerly, or place that graph"
        if why_a_strategy_decides():
            return why_a_strategy_decides()
        if internals.is_compiled(self.unplaced):
            return "jit_compile=True has XLA compile it as one program for one device"
        if internals.is_inside_xla():
            return "it is called inside a function with jit_compile=True, which is one program for one device"
        return ""

    def _tell(self, why: str, cause: BaseException | None = None) -> None:
        """Warns once of each reason; raises InputError where the configuration is strict."""
        if self._config.strict:
            raise InputError(f"{self.name!r} cannot be placed: {why}") from cause
        if why not in self._told:
            self._told.add(why)
            text = f"{self.name!r} runs as it is, unplaced: {why}"
            warnings.warn(text, RunsAsItIs, stacklevel=_frames_to_caller())

    _bypassed = _tell

    def _of_concrete(self, concrete: ConcreteFunction) -> ConcreteFunction:
        why_not = self._why_not_here()
        if why_not:
            self._tell(why_not)
            return concrete
        captured = {id(tensor) for tensor in concrete.graph.internal_captures}
        inputs = [tensor for tensor in concrete.inputs if id(tensor) not in captured]
        self._signature(concrete, inputs, is_called=False)
        return self._without_trial(concrete)

    def _signature(
        self,
        concrete: ConcreteFunction,
        inputs: Sequence[tf.Tensor],
        is_called: bool = True,
        may_have_run: bool = False,
    ) -> Signature:
        key = id(concrete)
        if key in self._signatures:
            return self._signatures[key]
        with _PLACING, internals.random_state_kept(), outside_functions():
            if key in self._signatures:  # another thread placed it meanwhile
                return self._signatures[key]
            others = [placed.item for placed in self._signatures.values() if placed.item is not None]
            try:
                signature = placed_signature(
                    str(self.name), concrete, inputs, self._config, others, is_called, may_have_run
                )
            except Exception as error:  # noqa: BLE001 - whatever it is, the program that is wrapped runs
                self._tell(one_line(error), error)
                signature = Signature(concrete, concrete)
            self._tell_of_the_plan(signature)
            self._signatures[key] = signature
            return signature


def one_line(error: BaseException) -> str:
    """Reason why a function is not placed, as a sentence; a fault of this package is named as one."""
    if isinstance(error, InputError | WorkerError):
        return str(error)
    if isinstance(error, tf.errors.OpError):
        return f"TensorFlow refuses to place it: {told(error)}"
    return (
        f"tf_placer failed on this program, which is a fault of tf_placer; please report it: {type(error).__name__}: "
        f"{told(error)}"
    )


def _frames_to_caller() -> int:
    """Number of frames up to the code that called the placed function: neither ours nor TensorFlow's."""
    frame, level = inspect.currentframe(), 0
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in ("tf_placer", "colocation", "tensorflow", "contextlib"):
            break
        frame, level = frame.f_back, level + 1
    return level


@overload
def auto_place(fn: None = None, **settings: Unpack[Settings]) -> Callable[[Callable], AutoPlaced]: ...


@overload
def auto_place(fn: Callable, **settings: Unpack[Settings]) -> AutoPlaced: ...


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
    names = {field.name for field in dataclasses.fields(AutoPlaceConfig)}
    for name in settings:
        if name not in names:
            raise InputError(f"auto_place has no setting {name!r}; {arguments.nearest(name, names)}")
    config = AutoPlaceConfig(**settings)

    def wrap(function: Any) -> AutoPlaced:
        if isinstance(function, AutoPlaced):
            raise InputError(f"fn is {function.name!r}, which is auto-placed already; apply auto_place once")
        if isinstance(function, Function):
            return AutoPlaced(function, config)
        arguments.function("fn", function, "give a tf.function, or what one can be made of")
        return AutoPlaced(tf.function(function), config, is_python=True)

    return wrap if fn is None else wrap(fn)


# With the settings one by one, for help and completion in a running Python.
_fn, *_ = inspect.signature(auto_place).parameters.values()
_settings = inspect.signature(AutoPlaceConfig).parameters.values()
_keywords = [setting.replace(kind=inspect.Parameter.KEYWORD_ONLY) for setting in _settings]
auto_place.__signature__ = inspect.Signature([_fn, *_keywords])  # type: ignore[attr-defined]
