"""One signature of a function: its trace, its plan, and its placed program."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rich.console
import tensorflow as tf

from colocation.tensorflow_internals import ConcreteFunction, host_address_space
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.plan import find_plan
from tf_placer.automatic.trial import Trial
from tf_placer.base.arguments import InputError
from tf_placer.cluster.cluster import Cluster
from tf_placer.graph.item import Item
from tf_placer.graph.program import Splitting
from tf_placer.planning.forms import Form, made_to_fit, split_form
from tf_placer.planning.log import begins_at
from tf_placer.planning.outcome import Clock, Note, Outcome, with_data_parallel
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
from tf_placer.rewrite.random_state import RandomState, SeededDraws, mark_as_kept, tell_of_lost_state
from tf_placer.rewrite.rewrite import check_clusters_of
from tf_placer.rewrite.variables import PLACED_BEFORE, why_variables_stay
from tf_placer.transform import AUTO
from tf_placer.transform.split.split_batch import split_program
from tf_placer.workers.connection import check_attachable, import_meanwhile, names_here


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

    def settled(self) -> Signature:
        """The signature as its trial, which is over, has decided."""
        assert self.trial is not None and self.plan is not None and self.trial.verdict is not None
        verdict, plan = self.trial.verdict, self.plan
        if verdict.placed_s is not None and verdict.unplaced_s is not None:
            plan = plan.tried(verdict.is_used, verdict.placed_s, verdict.unplaced_s, verdict.load)
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

    def shown(self, split_batch: bool) -> Outcome | None:
        """The plan as reports have it, if need be beside the batch split over its devices; None without a plan."""
        if self.item is None or self.plan is None:
            return None
        return self._beside_splitting if split_batch and self.splitting is None else self.plan

    @functools.cached_property
    def _beside_splitting(self) -> Outcome:
        """The plan beside the batch split over its devices; found when a report first wants it, not in a call."""
        assert self.plan is not None  # asked for beside a plan
        return with_data_parallel(self.plan)


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
    examples = [example(value, config.batch_size) for value in inputs]
    item = Item.from_function(concrete, *examples, name=name)
    if not item.index.num_ops:  # it gives back what it is given
        return Signature(concrete, concrete)
    config = config.with_pins_for(item.index.names, [item_of_other.index.names for item_of_other in others])
    plan_file, kept_whole = None if config.plan is None else PlanFile.read(config.plan), list[str]()
    in_memory: tuple[tuple[int, ...], tuple[tuple[int, int], ...]] = (), ()  # done again, parked
    why_recomputed = ""
    if plan_file is not None and plan_file.splitting is not None:
        how, kept_whole = plan_file.splitting, plan_file.splitting.names_kept(item.index.names)
        in_memory = how.recomputed, how.parked
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
    names = item.index.names
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
    lasting = dataclasses.replace(
        Form(plan.problem, kept if plan.problem.splitting is None else None),
        stayed_whole=plan.form.stayed_whole,
        why_recomputed=why_recomputed,
    )
    plan = dataclasses.replace(plan, form=lasting)
    if config.keep_unplaced and not plan.is_worth_it:
        return Signature(concrete, concrete, kept, plan, staying)
    check_clusters_of(form, plan.placement)  # before any variable moves
    to_place = form.with_variables({variable.node: variable.value for variable in kept.variables})
    placing = _Placing(concrete, kept, to_place, plan.placement, cluster, writing)
    is_tried = config.keep_unplaced and plan.written.clock is Clock.RACED
    return _placed_or_tried(placing, plan, staying, is_tried, may_have_run)


def _placed_or_tried(
    placing: _Placing, plan: Outcome, staying: tuple[str, ...], is_tried: bool, may_have_run: bool
) -> Signature:
    """The signature, placed, or on trial; its random numbers go on where it changes from one to the other."""
    concrete, writing, as_it_is = placing.concrete, placing.writing, None
    if writing is None and not may_have_run:
        mark_as_kept(concrete)
        draws = SeededDraws(concrete)
        # The numbers of these would begin anew after the first calls, so the race has the last word.
        is_tried = is_tried and not draws.lost
        if draws.carried and (is_tried or plan.form.parts > 1):
            placing = dataclasses.replace(placing, state=RandomState(draws))
            as_it_is = copied_function(concrete, placing.state)
    called = writing.called if writing is not None else as_it_is or concrete
    trial = Trial(called, placing.place, placing.take_back) if is_tried else None
    return Signature(
        concrete,
        called if is_tried else placing.place(),
        placing.whole,
        plan,
        staying,
        trial,
        placing.home,
        as_it_is,
        placing.state,
        None if as_it_is is None else placing.made,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Placing:
    """What moves a function's variables to where a plan has them, and back."""

    concrete: ConcreteFunction  # the traced function
    whole: Item  # its item
    item: Item  # item, placement, cluster: what the plan is of, ``whole`` or that in parts, and for
    placement: Placement
    cluster: Cluster
    writing: Writing | None  # how the plan becomes what runs; None: a placed function is made
    state: RandomState | None = None  # what the function draws from, as it is and placed
    # op -> device of the handles of variables, once they have moved
    home: dict[str, str] = dataclasses.field(default_factory=dict)

    def place(self) -> ConcreteFunction:
        """What runs by the plan, after its variables have moved."""
        self.home.update(dict.fromkeys(self.whole.index.names, f"{host_address_space()}/device:CPU:0"))
        # Handles in a local would keep their variables there.
        self.home.update((node, h.device) for node, h in captured_handles(self.concrete, self.whole).items())
        write = self._write if self.writing is None else self.writing.write
        return run_by_plan(self.concrete, self.item, self.placement, self.cluster, write)

    def _write(
        self, concrete: ConcreteFunction, item: Item, placement: Placement, devices: Mapping[str, str]
    ) -> ConcreteFunction:
        tell_of_lost_state([concrete], f"{item.name} is placed")
        return placed_concrete_function(concrete, item, placement, devices, self.state)

    def made(self, state: RandomState | None = None) -> ConcreteFunction:
        """The placed function; without a state, one that draws as if it had never run."""
        devices = devices_here(self.placement, self.cluster)
        return placed_concrete_function(self.concrete, self.item, self.placement, devices, state)

    def take_back(self) -> None:
        """Undoes ``place``."""
        if self.writing is not None:
            self.writing.undo()
        move_back(self.concrete, self.whole, self.home)
        if self.state is not None:
            self.state.move_back()


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
