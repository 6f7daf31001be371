"""Forms of a program on a cluster: its batch whole, or in parts."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np

from tf_placer.base.arguments import InputError
from tf_placer.calibration.build_problem import Cache, build_problem
from tf_placer.cluster.cluster import Cluster
from tf_placer.costs.analytic import analytic_costs
from tf_placer.evaluation.simulated import SimulatedEvaluator
from tf_placer.graph.item import Item
from tf_placer.problem.analytic_problem import analytic_problem
from tf_placer.problem.bounds import PROVEN, lower_bounds
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.runtime.graph_program import DeadlineExceeded, WorkerDied
from tf_placer.search.memory import Recomputation, recomputation, with_devices_of
from tf_placer.transform import PART, WHOLE
from tf_placer.transform.split.plans import carried_over, data_parallel_plan, faster_whole, handed_to_hosts
from tf_placer.transform.split.split_batch import SplitProgram, split_program


@dataclasses.dataclass(frozen=True, eq=False)
class Unfit:
    """A program too large for its devices, and what was done so that a step fits."""

    item: Item
    recomputes: bool
    parks: bool
    choice: Recomputation

    @functools.cached_property
    def stand_in(self) -> dict[str, str]:
        """Op of the program -> op of the one that fits: itself, or its copy where that alone is left."""
        originals = self.item.index.id_of_name
        return {origin: name for name, origin in self.choice.origin_of.items()} | {
            name: name for name in self.choice.origin_of if name in originals
        }

    def chosen_for(
        self, item: Item, cluster: Cluster, plan_of: Callable[[Problem], np.ndarray]
    ) -> tuple[Item, Recomputation | None]:
        """The program, whole or in parts, made to fit by a plan [U] of its problem on a cluster."""
        problem = analytic_problem(item, cluster)
        return recomputation(item, problem, self.recomputes, self.parks, plan_of(problem))


@dataclasses.dataclass(frozen=True, eq=False)
class Form:
    """One program in one shape on one cluster.

    A program that a user wants in parts is whole here: what this module splits has a ``split``.
    """

    problem: Problem
    item: Item | None = None  # None of a profiled graph
    split: SplitProgram | None = None  # how the item was made of the whole program
    whole: Form | None = None  # the form that was split
    all_in_parts: Form | None = None  # of a form with ops kept whole that could be split: the one without
    stayed_whole: tuple[str, ...] = ()  # a sentence for each kind of op without parts, the longest first
    proven_s: float = 0.0  # largest lower bound on the step that a search has proven
    why_recomputed: str = ""  # a sentence on what is done again or parked so that it fits
    unfit: Unfit | None = None  # the whole program as it was before that
    # [U] units of a whole program from which pins, requests and what stays where it is took devices.
    is_narrowed: np.ndarray | None = None

    @property
    def replicas(self) -> tuple[int, ...]:
        """Positions of the devices that its batch is split over, or would be."""
        return tuple(np.flatnonzero(self.problem.cluster.accelerators()).tolist())

    @property
    def parts(self) -> int:
        """Parts of its batch; 1 of the whole."""
        return 1 if self.problem.splitting is None else self.problem.splitting.parts

    @property
    def batch_statistics(self) -> str:
        """Of the ``"whole"`` batch, or of each ``"part"``."""
        return WHOLE if self.problem.splitting is None else self.problem.splitting.batch_statistics

    @property
    def title(self) -> str:
        """``"whole"``, or in how many parts the batch is."""
        splitting, of_each = self.problem.splitting, ", statistics of each" * (self.batch_statistics == PART)
        title = WHOLE if self.parts == 1 else f"in {self.parts} parts{of_each}"
        title += ", some ops done again" * bool(splitting and splitting.recomputed)
        return title + ", some outputs parked" * bool(splitting and splitting.parked)

    @property
    def bounds(self) -> dict[str, float]:
        """Lower bounds on the step of any of its plans in the simulator: name -> seconds, the proven one if largest."""
        bounds = {name: bound_ns / 1e9 for name, bound_ns in lower_bounds(self.problem).rows}
        return bounds | ({PROVEN: self.proven_s} if self.proven_s > max(bounds.values()) else {})

    @property
    def tightest_bound(self) -> str:
        """The name of the largest of ``bounds``; of equal ones the first."""
        return max(self.bounds, key=self.bounds.__getitem__)

    @property
    def lower_bound_s(self) -> float:
        """The largest of ``bounds``."""
        return max(self.bounds.values())

    def has(self, plan: Placement | None) -> bool:
        """True if a plan is one of this form, whatever its costs."""
        return plan is not None and plan.problem.fingerprint == self.problem.fingerprint

    def of(self, plan: Placement) -> Form:
        """The form that a plan is of: this one, that with all in parts, or the whole."""
        forms = [form for form in (self, self.all_in_parts, self.whole) if form is not None]
        return next((form for form in forms if form.has(plan)), forms[-1])

    @functools.cached_property
    def data_parallel(self) -> Placement:
        """The plan in which every device computes its part of the batch."""
        return Placement(self.problem, data_parallel_plan(self.problem, self.replicas))

    def lift(self, plan: Placement) -> Placement:
        """A plan of the whole program on this form: all copies of an op are where the op is."""
        if self.split is None:
            return plan
        return Placement(self.problem, carried_over(self.split, self.problem, plan))

    def starts(self, plans: Sequence[Placement]) -> list[Placement]:
        """Plans that a search begins with: data parallelism and plans of the whole, lifted, the fastest first.

        Neither leads further everywhere: on WaveNet 2x18 the slower one did, by a fifth. Each is the fastest of itself
        and what minimum cuts make of it (``handed_to_hosts``).
        """
        simulator, starts = SimulatedEvaluator(self.problem), []
        for plan in (self.data_parallel, *map(self.lift, plans)):
            row = plan.device_of_unit
            rows = np.concatenate([row[np.newaxis], handed_to_hosts(self.problem, row)])
            runtime_s = np.nan_to_num(simulator.evaluate(rows).runtime_s, nan=np.inf)
            starts.append((runtime_s.min(), rows[runtime_s.argmin()]))
        return [Placement(self.problem, row) for _, row in sorted(starts, key=lambda start: start[0])]

    def where_it_pays(self, whole_s: float) -> Form:
        """The form in which ops stay whole that are faster so (``faster_whole``); this one where none is.

        On live devices it is this one: what an op takes there is profiled program by program. ``whole_s`` is the step
        of the best placement of the whole program.
        """
        cluster, whole = self.problem.cluster, self.whole
        if cluster.is_live or self.split is None or whole is None or whole.item is None:
            return self
        kept = faster_whole(self.split, self.problem, whole.problem, self.replicas, whole_s)
        try:
            return self.keeping(kept) if kept else self
        except InputError:  # what is left can be split only together with what is kept
            return self

    def keeping(self, kept_whole: Collection[str]) -> Form:
        """The form in which some ops of the whole program stay whole, by estimated costs.

        Raises InputError where what is left cannot be split.
        """
        assert self.whole is not None  # asked of forms in parts
        split, why = _split(self.whole, self.parts, self.batch_statistics, kept_whole)
        form = split_form(split, analytic_problem(split.item, self.problem.cluster), self.whole)
        return dataclasses.replace(form.narrowed(), all_in_parts=self, why_recomputed=why)

    def narrowed(self) -> Form:
        """The form, its ops where those that they were made of may be, by pins, requests and what stays where it is.

        Raises InputError where ops that share a device were made of some that must be apart.
        """
        assert self.split is not None and self.whole is not None  # asked of forms in parts
        if self.whole.is_narrowed is None:
            return self
        whole, problem = self.whole.problem, self.problem
        op_of = {name: op for op, name in enumerate(whole.op_names)}
        made_of = np.array([op_of[self.split.origin_of[name]] for name in problem.op_names])
        unit = whole.unit_of_op[made_of]
        narrowed, allowed = np.flatnonzero(self.whole.is_narrowed[unit]), problem.allowed.copy()
        np.logical_and.at(allowed, problem.unit_of_op[narrowed], whole.allowed[unit[narrowed]])
        nowhere = np.flatnonzero(~allowed.any(axis=1))
        if len(nowhere):
            name = problem.op_names[int(np.flatnonzero(problem.unit_of_op == nowhere[0])[0])]
            raise InputError(f"op {name!r} and what shares its device were made of ops that must be apart")
        return dataclasses.replace(self, problem=dataclasses.replace(problem, allowed=allowed))


def split_form(split: SplitProgram, problem: Problem, whole: Form | None = None) -> Form:
    """The form of a split program: its problem, by whose costs what stayed whole is sorted, and what was split."""
    time_of_op: Counter[str] = Counter()
    for name, nanoseconds in zip(problem.op_names, problem.compute_ns.min(axis=1).tolist(), strict=True):
        time_of_op[split.origin_of[name]] += nanoseconds
    return Form(problem, split.item, split, whole, stayed_whole=tuple(split.sentences(time_of_op)))


def made_to_fit(
    item: Item, cluster: Cluster, recomputes: bool = True, parks: bool = False
) -> tuple[Item, Unfit | None]:
    """The program, changed so that a step fits (``recomputation``), and the one before; None where nothing changed."""
    again, choice = recomputation(item, analytic_problem(item, cluster), recomputes, parks)
    return again, None if choice is None else Unfit(item, recomputes, parks, choice)


def fitted_to(whole: Form, plan: Placement) -> tuple[Form, Placement]:
    """A program that had to be made to fit, changed anew for one of its plans, and that plan; free of pins."""
    unfit, cluster = whole.unfit, whole.problem.cluster
    assert unfit is not None  # asked of forms that did not fit
    row = functools.partial(
        with_devices_of, origin_of=unfit.stand_in, whole=plan.problem, plan=plan.device_of_unit
    )
    item, choice = unfit.chosen_for(unfit.item, cluster, row)
    problem, before = analytic_problem(item, cluster), analytic_problem(unfit.item, cluster)
    origin_of = {name: name for name in problem.op_names} if choice is None else choice.origin_of
    devices = with_devices_of(problem, origin_of, before, row(before))
    why = "" if choice is None else str(choice)
    return Form(problem, item, why_recomputed=why, unfit=unfit), Placement(problem, devices)


def _split(
    whole: Form, parts: int, batch_statistics: str, kept_whole: Collection[str] = ()
) -> tuple[SplitProgram, str]:
    """A program with its batch in parts, made to fit by data parallelism where the whole had to be, and how."""
    unfit = whole.unfit
    if unfit is None:
        assert whole.item is not None  # not of a profiled graph
        return split_program(whole.item, parts, batch_statistics, kept_whole), ""
    names = unfit.item.index.id_of_name
    split = split_program(unfit.item, parts, batch_statistics, [name for name in kept_whole if name in names])
    plan = functools.partial(data_parallel_plan, devices=whole.replicas)
    again, choice = unfit.chosen_for(split.item, whole.problem.cluster, plan)
    split = split if choice is None else split.made_again(again, choice.origin_of)
    origin_of = {name: unfit.stand_in[origin] for name, origin in split.origin_of.items()}
    return dataclasses.replace(split, origin_of=origin_of), "" if choice is None else str(choice)


def in_parts(
    whole: Form,
    batch_statistics: str,
    costs: str | None = None,
    profiles: Cache | None = None,
    before_profiling: Callable[[Item], object] = lambda item: None,
) -> Form | str:
    """A program with a part of the batch for each device, or one clause on why that cannot be, or does not run.

    ``batch_statistics`` is as ``split_program`` takes it, the costs as ``build_problem`` does, which may raise
    WorkerError; ``before_profiling`` is given the split program.
    """
    cluster, parts = whole.problem.cluster, len(whole.replicas)
    if parts < 2 or whole.item is None:
        return f"cluster {cluster.name!r} has one device to compute it all"
    if whole.problem.splitting is not None and whole.unfit is None:
        return "what is done again was chosen for the whole batch"
    try:
        split, why = _split(whole, parts, batch_statistics)
        announce = None if costs == "analytic" else lambda problem: before_profiling(split.item)
        problem = build_problem(split.item, cluster, costs, profiles, announce)
    except (InputError, WorkerDied, DeadlineExceeded) as error:
        return str(error).partition(";")[0]  # nothing was asked for that needs the remedy
    return dataclasses.replace(split_form(split, problem, whole), why_recomputed=why)


def estimated_in_parts(whole: Form) -> Form | str:
    """The same with costs for which nothing is profiled.

    An op takes as much more than its estimate as the op that it was made of does; on described devices that is the
    estimate.
    """
    form = in_parts(whole, WHOLE, "analytic")
    cluster, item = whole.problem.cluster, whole.item
    if isinstance(form, str) or not cluster.is_live or item is None or form.split is None:
        return form
    split = form.split
    estimated_ns = analytic_costs(item, cluster).compute_ns.astype(np.float64)
    factor = np.divide(
        whole.problem.compute_ns, estimated_ns, out=np.ones_like(estimated_ns), where=estimated_ns > 0
    )
    position = item.index.id_of_name
    made_of = [position[split.origin_of[name]] for name in form.problem.op_names]
    compute_ns = np.rint(form.problem.compute_ns * factor[made_of]).astype(np.int64)
    return dataclasses.replace(form, problem=dataclasses.replace(form.problem, compute_ns=compute_ns))
