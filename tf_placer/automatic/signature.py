"""One signature of a function: traced, its placement found, its placed program made."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any

import rich.console
import tensorflow as tf

from colocation.tensorflow_internals import ConcreteFunction, Function, host_address_space
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.automatic.eager_devices import attach, check_attachable, is_attached
from tf_placer.automatic.page_section import page_section
from tf_placer.automatic.plan import Plan, find_plan
from tf_placer.automatic.report import report
from tf_placer.automatic.smaller_call import smaller_call
from tf_placer.automatic.trial import Trial
from tf_placer.cluster.cluster import Cluster
from tf_placer.data_parallel.data_parallel import DataParallel, data_parallel
from tf_placer.data_parallel.smaller_batch import Splittable
from tf_placer.errors import InputError
from tf_placer.graph.item import Item
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.report_page.page import Section
from tf_placer.rewrite.placed_function import movable_variables, move_variables, placed_concrete_function
from tf_placer.rewrite.rewrite import check_can_be_written
from tf_placer.search.budget import Budget
from tf_placer.search.progress import ConsoleProgress
from tf_placer.waiting.begun import begins_at
from tf_placer.workers.local_workers import import_meanwhile


@dataclasses.dataclass(frozen=True, eq=False)
class Signature:
    """One signature of a function that was placed, or not.

    Attributes:
      traced: what runs unplaced.
      concrete: what runs; ``traced`` where the plan is not worth it, or there is none.
      item, plan: its graph, and where its ops go, or would; None where it cannot be placed.
      smaller: how the same step of fewer examples is made; None where nothing tells.
      trial: runs the calls while they decide whether the plan is used; None where that is decided.
    """

    traced: ConcreteFunction
    concrete: ConcreteFunction
    item: Item | None = None
    plan: Plan | None = None
    smaller: Splittable | None = None
    trial: Trial | None = None

    @property
    def is_used(self) -> bool | None:
        """Whether calls run by the plan; None where the first calls are still to decide."""
        return None if self.trial is not None else self.concrete is not self.traced

    def settled(self) -> Signature:
        """As its trial, which is over, has decided."""
        assert self.trial is not None and self.plan is not None and self.trial.verdict is not None
        said, plan = self.trial.verdict, self.plan
        if said.placed_s is not None and said.unplaced_s is not None:
            plan = plan.tried(said.is_used, said.placed_s, said.unplaced_s)
        return dataclasses.replace(self, concrete=self.trial.concrete, plan=plan, trial=None)

    def report(self, split_batch: bool = True) -> str:
        """Where the ops went and why; empty where it cannot be placed.

        Args:
          split_batch: what splitting the batch would take stands beside it.
        """
        if self.item is None or self.plan is None:
            return ""
        return report(self.item.name, self.plan, self.is_used, self._split(split_batch))

    def page_section(self, number: int, split_batch: bool = True) -> Section | None:
        """The same as a part of a page; None where it cannot be placed.

        Args:
          number: of the signature, from 1.
          split_batch: as in ``report``.
        """
        if self.item is None or self.plan is None:
            return None
        return page_section(self.item.name, number, self.plan, self.is_used, self._split(split_batch))

    def _split(self, split_batch: bool) -> DataParallel | None:
        return self._data_parallel if split_batch else None

    @functools.cached_property
    def _data_parallel(self) -> DataParallel:
        """The batch split over the plan's devices, simulated by the costs that the plan is predicted with.

        Found when a report first wants it: the function is traced for it, and a call that places takes long enough.
        """
        assert self.plan is not None  # asked for beside a plan
        return data_parallel(self.item, self.plan.fitted_problem, self.smaller)


def placed_signature(
    name: str,
    function: Function,
    concrete: ConcreteFunction,
    inputs: Sequence[tf.Tensor],
    config: AutoPlaceConfig,
    others: Sequence[Item] = (),
) -> Signature:
    """Finds a placement for a traced function, moves its variables there and makes the placed program.

    Args:
      name: what to call it in reports.
      function: that was traced.
      concrete: its trace.
      inputs: its arguments; those without a value stand for their shapes.
      config: what was asked for.
      others: signatures of the same function: a pin may be about ops of these alone.

    Raises:
      InputError: it cannot be placed; the message says why.
    """
    began_s = time.monotonic()
    cluster = config.chosen_cluster()
    import_meanwhile(cluster)
    examples = [_example(value, config.batch_size) for value in inputs]
    item = Item.from_function(concrete, *examples, name=name)
    if not item.index.num_ops:  # it gives back what it is given
        return Signature(concrete, concrete)
    config = config.with_pins_for(item.index.names, [other.index.names for other in others])
    fixed = {}
    if config.variables == "stay":
        fixed = _where_variables_are(concrete, item, cluster)
    else:
        movable_variables(concrete, item)  # what cannot be moved is found out before the search
    console = rich.console.Console(stderr=True)

    def progress(title: str, budget: Budget) -> ConsoleProgress:
        return ConsoleProgress(f"{title} for {item.name}", budget, console)

    _check_nothing_is_lost(item, cluster)

    def before_search(problem: Problem) -> None:
        """What can fail with the plan fails here, with another one."""
        check_attachable(cluster)
        placed_concrete_function(concrete, item, Placement(problem, problem.everything_on(0)))

    with begins_at(began_s):
        plan = find_plan(item, cluster, config, fixed, progress, console, before_search)
    smaller = smaller_call(function, concrete, item)
    if config.keep_unplaced and not plan.is_worth_it:
        return Signature(concrete, concrete, item, plan, smaller)
    check_can_be_written(plan.placement.decisions)  # before any variable moves

    were: dict[str, str] = {}

    def place() -> ConcreteFunction:
        were.update(_where_variables_live(concrete, item))
        here = attach(cluster)
        devices = {op: here[device] for op, device in plan.placement.device_names.items()}
        move_variables(concrete, item, devices)
        return placed_concrete_function(concrete, item, plan.placement, devices)

    if config.keep_unplaced and plan.raced_s is not None and plan.placed_call_s is None:
        trial = Trial(concrete, place, lambda: move_variables(concrete, item, were))
        return Signature(concrete, concrete, item, plan, smaller, trial)
    return Signature(concrete, place(), item, plan, smaller)


def _where_variables_live(concrete: ConcreteFunction, item: Item) -> dict[str, str]:
    """Op -> device of each variable's handle, with the other ops on this process's CPU."""
    variables = movable_variables(concrete, item)
    everything_here = dict.fromkeys(item.index.names, f"{host_address_space()}/device:CPU:0")
    return everything_here | {node: variable.handle.device for node, variable in variables.items()}


def _check_nothing_is_lost(item: Item, cluster: Cluster) -> None:
    """Raises InputError where connecting this process to the cluster's workers would lose what the function captures.

    TensorFlow forgets what it knows by a name, such as a table, when a process is connected to others.
    """
    named = [capture for capture in item.host_captures if not capture.is_anonymous]
    if named and cluster.is_live and not is_attached(cluster):
        raise InputError(
            f"{named[0].node!r} is {named[0].kind} of this process that connecting to workers would lose; make it "
            "after a first function was placed on them"
        )


def _example(value: tf.Tensor, batch_size: int) -> Any:
    """A value for a tensor that may have none: where functions call each other while they are traced."""
    if hasattr(value, "numpy") or value.dtype == tf.resource:
        return value
    if value.shape.rank is None:
        raise InputError(
            f"input {value.name!r} has unknown rank inside another function; give it a shape with tf.ensure_shape"
        )
    shape = [batch_size if size is None else size for size in value.shape.as_list()]
    return tf.zeros(shape, value.dtype)


def _where_variables_are(concrete: ConcreteFunction, item: Item, cluster: Cluster) -> dict[int, int]:
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
