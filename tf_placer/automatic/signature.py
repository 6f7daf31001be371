"""One signature of a function: its trace, its plan, its placed program, and the trial of one against the other."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import rich.console
import tensorflow as tf

from colocation.tensorflow_internals import ConcreteFunction, call_flat, host_address_space, wait_for_ops
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.plan import find_plan, keep
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.program import Splitting
from tf_placer.planning.forms import Form, made_to_fit, split_form
from tf_placer.planning.log import begins_at
from tf_placer.planning.outcome import Clock, Note, Outcome, with_data_parallel
from tf_placer.problem.analytic_problem import Pin
from tf_placer.problem.placement import Placement, PlanFile
from tf_placer.problem.problem import Problem
from tf_placer.rewrite.placed_function import (
    captured_handles,
    check_nothing_is_lost,
    copied_function,
    devices_here,
    movable_variables,
    move_back,
    placed_concrete_function,
    run_by_plan,
    shapes_of_inputs,
)
from tf_placer.rewrite.variables import (
    PLACED_BEFORE,
    RandomState,
    SeededDraws,
    kept_functions,
    tell_of_lost_state,
    why_variables_stay,
)
from tf_placer.runtime.timing import OtherLoad, clearly_slower
from tf_placer.transform import AUTO
from tf_placer.transform.fusion import check_clusters
from tf_placer.transform.split.split_batch import split_program
from tf_placer.workers.local_workers import check_attachable, import_meanwhile, names_here

WARMUP_STEPS = 2
TIMED_STEPS = 9  # eight of them faster is clear
MOST_STEPS = 5 * (WARMUP_STEPS + TIMED_STEPS)  # of each; where steps overlap there may never be enough

# The trials whose variables are where their plans have them, of which there is one at a time: functions share variables
# (a step to train and one to test), and each puts them back to where it found them.
_with_plan: weakref.WeakSet[Trial] = weakref.WeakSet()
_taking_turns = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Verdict of a trial."""

    is_used: bool  # calls run by the plan
    # placed_s, unplaced_s: seconds of a step by the plan and as it is; None where they could not be timed, so that the
    # race has the last word
    placed_s: float | None = None
    unplaced_s: float | None = None
    # share of the CPUs that other processes took meanwhile; None where nobody knows
    load: float | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(eq=False)
class Trial:
    """Runs a user's steps, the first ones as they are and as many more by the plan, and keeps what is faster.

    Every step runs once: what it does to variables, files or the screen is the user's. The steps as they are come
    first, while the variables are where they were, since a function whose variables live on workers is slower by
    itself. A step is timed from the call until its outputs can be read. One that another call overlaps is not timed,
    and variables move only while none runs. While another function's trial has its variables moved, this one waits.
    """

    traced: ConcreteFunction  # the unplaced function, with which it begins
    # Moves its variables to where the plan has them, and makes what runs by that.
    place: Callable[[], ConcreteFunction]
    move_back: Callable[[], None]  # moves them to where they were before that
    clock: Callable[[], float] = time.perf_counter
    verdict: Verdict | None = None  # None while it runs

    def __post_init__(self) -> None:
        self._lock, self._load = threading.RLock(), OtherLoad()
        self._placed: ConcreteFunction | None = None
        self._begun = {False: 0, True: 0}  # steps as it is, and by the plan
        self._samples_s: dict[bool, list[float]] = {False: [], True: []}
        self._running, self._is_overlapped = 0, False

    @property
    def concrete(self) -> ConcreteFunction:
        """Function that the last step ran."""
        return self.traced if self._placed is None else self._placed

    def call(self, inputs: Sequence[tf.Tensor]) -> Any:
        """Runs a step on inputs of ``call_flat``; the step may be timed.

        Raises whatever the step does; or, before it runs, what keeps the variables from being moved.
        """
        with self._lock:
            if not self._running:
                self._go_on()
                self._is_overlapped = False
            concrete, is_placed = self.concrete, self._placed is not None
            self._running += 1
            self._is_overlapped |= self._running > 1
            self._begun[is_placed] += 1
            is_timed = self.verdict is None and self._begun[is_placed] > WARMUP_STEPS
        try:
            start_s = self.clock()
            outputs = call_flat(concrete, inputs)
            if is_timed:
                wait_for(outputs)
            took_s = self.clock() - start_s
            with self._lock:
                if is_timed and not self._is_overlapped:
                    self._samples_s[is_placed].append(took_s)
        finally:
            with self._lock:
                self._running -= 1
        return outputs

    def end(self) -> None:
        """Ends it before it has found anything, where steps cannot be timed: the plan is used, unless a step runs.

        Raises whatever keeps the variables from being moved.
        """
        with self._lock:
            if self.verdict is None and not self._running:
                self._leave()
                self._placed = self._placed or self.place()
                self.verdict = Verdict(is_used=True)

    def _go_on(self) -> None:
        """Goes on to steps by the plan, or to the verdict, when there are enough steps; nothing runs meanwhile."""
        if self.verdict is not None:
            return
        is_placed = self._placed is not None
        has_samples = len(self._samples_s[is_placed]) >= TIMED_STEPS
        if not has_samples and self._begun[is_placed] < MOST_STEPS:
            return
        if not has_samples:
            self.end()
        elif is_placed:
            unplaced_s, placed_s = (self._samples_s[by_plan][-TIMED_STEPS:] for by_plan in (False, True))
            is_used = clearly_slower(unplaced_s, placed_s)
            self._leave()
            if not is_used:
                self.move_back()
                self._placed = None
            medians_s = (float(np.median(placed_s)), float(np.median(unplaced_s)))
            self.verdict = Verdict(is_used, *medians_s, load=self._load.share)
        else:
            with _taking_turns:  # another trial runs its plan, unless that takes too long
                if _with_plan and self._begun[False] < MOST_STEPS:
                    return
                _with_plan.add(self)
            try:
                self._placed = self.place()
            except BaseException:
                self._leave()
                raise

    def _leave(self) -> None:
        with _taking_turns:
            _with_plan.discard(self)


def wait_for(outputs: Any) -> None:
    """Waits until the outputs of a step can be read, wherever they are."""
    for output in tf.nest.flatten(outputs, expand_composites=True):
        if isinstance(output, tf.Tensor) and output.dtype not in (tf.resource, tf.variant):
            output.numpy()
    wait_for_ops()  # what gives nothing back may still run


@dataclasses.dataclass(frozen=True)
class Writing:
    """The way in which a plan becomes what runs."""

    # makes the function that runs by a plan, of a traced function, its item, the plan and its devices here
    write: Callable[[ConcreteFunction, Item, Placement, Mapping[str, str]], ConcreteFunction]
    undo: Callable[[], None]  # takes that back, before variables move back
    called: ConcreteFunction  # the function whose calls are timed, which is the traced one, or calls it


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """One signature of a function that was placed, or not."""

    traced: ConcreteFunction  # what runs unplaced
    concrete: ConcreteFunction  # what runs; ``traced`` where the plan is not worth it, or there is none
    # item, plan: its graph without values, and where its ops go, or would; None where it cannot be placed
    item: Item | None = None
    plan: Outcome | None = None
    staying: tuple[str, ...] = ()  # sentences on variables that stay where they are, and the plan around them
    # runs the calls while they decide whether the plan is used; None where that is decided
    trial: Trial | None = None
    # op -> device of the handles of variables, from before the plan moved them; empty where it has not
    home: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # what runs unplaced where it draws from variables, as ``concrete`` does; None: ``traced``
    as_it_is: ConcreteFunction | None = None
    random_state: RandomState | None = None  # these variables
    # makes the placed function that draws as one that has not run
    fresh: Callable[[], ConcreteFunction] | None = None

    @property
    def unplaced(self) -> ConcreteFunction:
        """What an eager call runs without the plan."""
        return self.as_it_is or self.traced

    @property
    def is_used(self) -> bool | None:
        """True if calls run by the plan, False if not; None while the first calls are still to decide."""
        return None if self.trial is not None else self.concrete is not self.unplaced

    @functools.cached_property
    def in_functions(self) -> ConcreteFunction:
        """What other functions call, and what is saved: each of these draws anew, as it would undecorated."""
        if self.fresh is None:
            return self.concrete
        return self.fresh() if self.is_used else self.traced

    def settled(self, config: AutoPlaceConfig) -> Signature:
        """The signature as its trial, which is over, has decided; that is kept for later processes."""
        assert self.trial is not None and self.plan is not None and self.trial.verdict is not None
        verdict, plan = self.trial.verdict, self.plan
        if verdict.placed_s is not None and verdict.unplaced_s is not None:
            plan = plan.tried(verdict.is_used, verdict.placed_s, verdict.unplaced_s, verdict.load)
            keep(plan, config)
        return dataclasses.replace(self, concrete=self.trial.concrete, plan=plan, trial=None)

    @property
    def splitting(self) -> Splitting | None:
        """How the plan has the batch in parts; None where it is whole, or there is no plan."""
        return None if self.plan is None else self.plan.placement.problem.splitting

    @functools.cached_property
    def shapes(self) -> tuple[tf.TensorShape | None, ...]:
        """Of each input that a plan of the batch in parts, for its own batch alone, is for; empty of a whole batch."""
        if self.item is None or self.splitting is None or self.splitting.parts == 1:
            return ()
        return shapes_of_inputs(self.traced, self.item)

    def without_plan(self) -> Signature:
        """The signature as it runs where its plan cannot be used."""
        if self.random_state is not None:
            self.random_state.move_back()
        return dataclasses.replace(self, concrete=self.unplaced, trial=None, home={})

    @functools.cached_property
    def beside_splitting(self) -> Outcome | None:
        """The plan beside the batch split over its devices; found when a report first wants it, not in a call."""
        return self.plan if self.plan is None or self.splitting is not None else with_data_parallel(self.plan)


def placed_signature(
    name: str,
    concrete: ConcreteFunction,
    inputs: Sequence[tf.Tensor],
    config: AutoPlaceConfig,
    others: Sequence[Item] = (),
    is_called: bool = True,
    may_have_run: bool = False,
    writing: Writing | None = None,
) -> Signature:
    """Finds a placement for a traced function, moves its variables there and makes the placed program.

    Args:
      inputs: its arguments; those without a value stand for their shapes.
      others: signatures of the same function: a pin may be about ops of these alone.
      is_called: by ``AutoPlaced``, which looks at sizes; what is saved in parts needs a trace that says its batch.
      may_have_run: it was traced before it was decorated, so that its kernels may have drawn numbers.
      writing: how the plan becomes what runs; None: a placed function is made.

    Raises:
      InputError: it cannot be placed; the message says why.
    """
    began_s = time.monotonic()
    cluster = config.chosen_cluster()
    import_meanwhile(cluster)
    item = Item.from_function(concrete, *(example(value, config.batch_size) for value in inputs), name=name)
    if not item.index.num_ops:  # it gives back what it is given
        return Signature(concrete, concrete)
    names, pins = item.index.names, [Pin(ops, device) for ops, device in config.pins.items()]
    elsewhere = [pin for pin in pins if any(pin.matching(sibling.index.names) for sibling in others)]
    pins = [pin for pin in pins if pin not in elsewhere or pin.matching(names)]
    config = dataclasses.replace(config, pins={pin.ops: pin.device for pin in pins})
    plan_file, kept_whole = None if config.plan is None else PlanFile.read(config.plan), list[str]()
    in_memory: tuple[tuple[int, ...], tuple[tuple[int, int], ...]] = (), ()  # done again, parked
    why_recomputed = ""
    if plan_file is not None and plan_file.splitting is not None:
        how = plan_file.splitting
        kept_whole, in_memory = [names[op] for op in how.kept_whole], (how.recomputed, how.parked)
        config = dataclasses.replace(config, parts=how.parts, batch_statistics=how.batch_statistics)
    item, fixed, staying = _around_what_stays(concrete, item, cluster, config)
    why_whole = "" if is_called or config.parts == 1 else _why_not_in_parts(inputs)
    if why_whole and not config.tries_parts:
        raise InputError(f"parts={config.parts}: {why_whole}")
    config = dataclasses.replace(config, parts=1) if why_whole else config
    parts = 1 if isinstance(config.parts, str) else config.parts
    program = split_program(item, parts, config.batch_statistics, kept_whole, *in_memory)
    how_it_fits = config.recompute == AUTO, config.offload == AUTO
    if any(how_it_fits) and plan_file is None:
        fitting, unfit = made_to_fit(program.item, cluster, *how_it_fits)
        if unfit is not None:
            why_recomputed = str(unfit.choice)
            program = program.made_again(fitting, unfit.choice.origin_of)
    form, is_split = program.item, program.item is not item
    fixed = {form.index.id_of_name[names[op]]: device for op, device in fixed.items()}
    check_nothing_is_lost(item, cluster)

    def before_search(problem: Problem) -> None:
        """Fails early, with a trivial plan, where applying the final plan would fail."""
        check_attachable(cluster)
        placed_concrete_function(concrete, form, Placement(problem, problem.everything_on(0)))

    console = rich.console.Console(stderr=True)
    with begins_at(began_s):
        plan = find_plan(form, cluster, config, fixed, console, before_search, item if is_split else None)
    if why_whole:
        plan = plan.noted({Note.WHY_NOT_SPLIT: f"The batch is not split: {why_whole}."})
    if is_split:
        plan = dataclasses.replace(plan, form=split_form(program, plan.problem))
    form, kept = plan.form.item or form, item.without_values()
    # Every signature would keep a copy of every variable, and the record of its split.
    whole = kept if plan.problem.splitting is None else None
    lasting = Form(plan.problem, whole, stayed_whole=plan.form.stayed_whole, why_recomputed=why_recomputed)
    signature = Signature(concrete, concrete, kept, dataclasses.replace(plan, form=lasting), staying)
    if config.keep_unplaced and not plan.is_worth_it:
        return signature
    # Before any variable moves.
    check_clusters(form, plan.placement.cluster_of_op, plan.placement.device_names)
    to_place = form.with_variables({variable.node: variable.value for variable in kept.variables})
    is_tried = config.keep_unplaced and plan.written.clock is Clock.RACED
    return _placed_or_tried(signature, to_place, cluster, writing, is_tried, may_have_run)


def _placed_or_tried(
    unplaced: Signature,
    item: Item,
    cluster: Cluster,
    writing: Writing | None,
    is_tried: bool,
    may_have_run: bool,
) -> Signature:
    """The signature, placed, or on trial; its random numbers go on where it changes from one to the other.

    ``item`` is what the plan is of: that of the traced function, or the same in parts.
    """
    concrete, whole, plan = unplaced.traced, unplaced.item, unplaced.plan
    assert whole is not None and plan is not None  # it can be placed
    placement, home = plan.placement, dict[str, str]()
    state, as_it_is = None, None
    if writing is None and not may_have_run:
        kept_functions.add(concrete)
        draws = SeededDraws(concrete)
        # The numbers of these would begin anew after the first calls, so the race has the last word.
        is_tried = is_tried and not draws.lost
        if draws.carried and (is_tried or plan.form.parts > 1):
            state = RandomState(draws)
            as_it_is = copied_function(concrete, state)

    def written(
        concrete: ConcreteFunction, item: Item, placement: Placement, devices: Mapping[str, str]
    ) -> ConcreteFunction:
        tell_of_lost_state([concrete], f"{item.name} is placed")
        return placed_concrete_function(concrete, item, placement, devices, state)

    def place() -> ConcreteFunction:
        """What runs by the plan, after its variables have moved."""
        home.update(dict.fromkeys(whole.index.names, f"{host_address_space()}/device:CPU:0"))
        # Handles in a local would keep their variables there.
        home.update((node, handle.device) for node, handle in captured_handles(concrete, whole).items())
        write = written if writing is None else writing.write
        return run_by_plan(concrete, item, placement, cluster, write)

    def take_back() -> None:
        if writing is not None:
            writing.undo()
        move_back(concrete, whole, home)
        if state is not None:
            state.move_back()

    called = writing.called if writing is not None else as_it_is or concrete
    return dataclasses.replace(
        unplaced,
        concrete=called if is_tried else place(),
        trial=Trial(called, place, take_back) if is_tried else None,
        home=home,
        as_it_is=as_it_is,
        random_state=state,
        # Draws as if it had never run.
        fresh=None
        if as_it_is is None
        else lambda: placed_concrete_function(concrete, item, placement, devices_here(placement, cluster)),
    )


def _why_not_in_parts(inputs: Sequence[tf.Tensor]) -> str:
    """Reason why the batch is not known, as a clause; empty where it is."""
    for value in inputs:
        if not hasattr(value, "numpy") and value.dtype != tf.resource and not value.shape.is_fully_defined():
            return (
                f"input {value.name!r} was traced with the shape {value.shape}, and what is saved in parts is of a "
                "known batch; call the function first, or trace it for tensors of that batch"
            )
    return ""


def example(value: tf.Tensor, batch_size: int) -> Any:
    """A value for a tensor that may have none: where functions call each other while they are traced."""
    if hasattr(value, "numpy") or value.dtype == tf.resource:
        return value
    if value.shape.rank is None:
        raise InputError(
            f"input {value.name!r} has unknown rank inside another function; give it a shape with tf.ensure_shape"
        )
    shape = [batch_size if size is None else size for size in value.shape.as_list()]
    return tf.zeros(shape, value.dtype)


def _around_what_stays(
    concrete: ConcreteFunction, item: Item, cluster: Cluster, config: AutoPlaceConfig
) -> tuple[Item, dict[int, int], tuple[str, ...]]:
    """Finds the variables that stay where they are.

    Returns:
      The item, in which those that live on none of the cluster's devices stay in this process; op -> device, as
      positions, of the handles of the others that stay; a sentence for each variable that something holds.

    Raises:
      InputError: one that would have to move cannot.
    """
    handles = captured_handles(concrete, item)
    held = why_variables_stay(handles)
    if config.pins:  # who pins decides where variables are; what was placed before follows
        held = {node: why for node, why in held.items() if why != PLACED_BEFORE}
    why = dict.fromkeys(handles, 'variables="stay"') | held if config.variables == "stay" else held
    position = {device_here: d for d, device_here in enumerate(names_here(cluster).values())}
    fixed, variables = {}, []
    for variable in item.variables:
        device = handles[variable.node].device
        if variable.node in why and device in position:
            fixed[item.index.id_of_name[variable.node]] = position[device]
        elif variable.node in why:
            stays = f"it stays where it is: {why[variable.node]}"
            variable = dataclasses.replace(variable, stays=stays, device=device)
        variables.append(variable)
    sentences = [
        f"variable {node!r} stays on {handles[node].device}, and the plan is made around it: {reason}"
        for node, reason in held.items()
    ]
    item = dataclasses.replace(item, variables=tuple(variables))
    # What cannot be moved is found out before the search.
    movable_variables(concrete, {node: handle for node, handle in handles.items() if node not in why})
    return item, fixed, tuple(sentences)
