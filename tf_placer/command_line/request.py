"""Request of a command: the program to place, the devices, and all settings, made from flags."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.method_spec import Role
from tf_placer.base.native import load_op_libraries
from tf_placer.cluster.cluster import Cluster, choose_cluster, limited, limits_of_texts
from tf_placer.command_line.check_flags import NEEDS_A_PROGRAM, take_text
from tf_placer.command_line.source import Source
from tf_placer.fleet.address import FleetAddress
from tf_placer.planning.fusing import check_has_xla
from tf_placer.planning.request import (
    AUTO,
    DEFAULT_BUDGET_S,
    DESCRIPTION,
    FASTEST,
    OP,
    REPEATED,
    SOURCES,
)
from tf_placer.planning.road import Asked
from tf_placer.problem.pins import Pin
from tf_placer.problem.placement import PlanFile
from tf_placer.search import methods
from tf_placer.search.methods import (
    AUTO_ORDER,
    NO_ORDER,
    SLOW_DOWN,
    TIME,
    WHOLE,
    Budget,
    Objective,
    configured,
)
from tf_placer.workers.fork_server import are_workers_open, loopback_library

# Method -> setting -> value.
MethodSettings = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Request:
    """Program to place, devices, and all settings of the run."""

    source: Source  # the program
    cluster: Cluster  # the devices; a ``local`` one is also measured on
    budget: Budget  # most seconds and evaluations
    seed: int  # of the search
    costs: str | None = None  # a word of ``build_problem``
    pins: tuple[Pin, ...] = ()  # ops that must be on some device
    plan: PlanFile | None = None  # a plan to apply instead of searching one
    # What the plan does not say of this graph is searched, and what it says of ops that are not
    # there is ignored; else such a plan is refused.
    complete_plan: bool = False
    # Ops that ask for a device in the program itself are on such a device; False places them
    # anew. What is not kept is told; None leaves them alone and says nothing.
    respect_devices: bool | None = None
    # Op name -> device, of ops that have their place already; the program need not have them all.
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Method -> setting -> value, of those that take part; the others have their defaults.
    settings: MethodSettings = dataclasses.field(default_factory=dict)
    # Whose plan is written: the ``"fastest"``, whoever found it, or that of the ``"method"``.
    write: str = FASTEST
    # What the plan that is written is made of: each ``"op"`` where it is best, or every
    # ``"layer"`` whole.
    by: str = OP
    # What is sought; the plan of least memory is the one written where that is asked for.
    objective: Objective = dataclasses.field(default_factory=Objective)
    # Its seconds are of the ``"whole"``, from the start of the command to the results, or those
    # of each ``"search"``, for comparisons; its evaluations are those of each search in any case.
    budget_of: str = WHOLE
    tries_parts: bool = False  # the batch is also split over the devices, and the faster form is written
    # The plan is searched, and written, that is best in the mean over draws of what is not known.
    robust: bool = False
    order: str = NO_ORDER  # of execution, as ``search`` takes it
    fuse: bool = False  # clusters of the plan's ops are searched, too
    # Where plans are measured besides this machine; None for this one alone.
    fleet: FleetAddress | None = None
    folder: pathlib.Path | None = None  # of the results, and of the fleet's journals
    is_anew: bool = False  # costs that were measured before are measured again

    def asked(self, method: str = "") -> Asked:
        """Search request for the method of that name."""
        return Asked(
            self.source.name,
            self.cluster,
            method,
            self.budget,
            self.budget_of,
            self.seed,
            self.objective,
            self.settings,
            self.robust,
            self.order,
            self.fleet,
            self.folder,
            self.is_anew,
        )

    @property
    def is_profiled(self) -> bool:
        """True if costs are measured, as far as is known before the program is read."""
        return self.cluster.is_live and self.costs in (None, "profiled")

    @property
    def is_applied(self) -> bool:
        """A plan is given that says where all goes."""
        return self.plan is not None and not self.complete_plan


_SIZE = re.compile(r"[1-9][0-9]{0,17}")


def request(values: flags.FlagValues, budget: Budget, given: PlanFile | None = None) -> Request:
    """Request from the flags; flags that a command does not have take their defaults.

    Args:
      values: of the flags.
      budget: of the search.
      given: a plan that the command reads by itself; the batch is in as many parts as in that.

    Raises:
      InputError: a program, plan, pin or cluster that cannot be, or workers that cannot be kept off the network.
    """

    def value(name: str, default: Any = None) -> Any:
        return values[name].value if name in values else default

    # Everything that can be said without a machine comes before the machine is probed.
    load_op_libraries(values.op_library)
    source = _source(values)
    pins = tuple(Pin.parse(text) for text in value("pin", ()))
    places = "complete_plan" in values
    plan = PlanFile.read(values.plan) if places and values.plan else None
    source = _in_parts_of(plan or given, source, values)
    limits = limits_of_texts("--memory_limit", values.memory_limit)
    cluster = choose_cluster(values.cluster, f"--cluster={values.cluster}")
    cluster = limited("--memory_limit", cluster, limits)
    if value("fuse"):
        check_has_xla("--fuse")
    if cluster.kind == "local" and not are_workers_open():
        loopback_library()  # before the search, not after
    return Request(
        source=source,
        cluster=cluster,
        budget=budget,
        seed=value("seed", 0),
        costs=values.costs,
        pins=pins,
        plan=plan,
        complete_plan=value("complete_plan", False),
        respect_devices=value("respect_devices"),
        settings=_settings(values),
        write=value("write", FASTEST),
        by=value("by", OP),
        objective=Objective(value("objective", TIME), value("slow_down", SLOW_DOWN)),
        budget_of=value("budget_of", WHOLE),
        tries_parts=values.parts == AUTO,
        robust=value("robust", False),
        order=_order(values, cluster) if places else NO_ORDER,
        fuse=value("fuse", False),
        fleet=FleetAddress.parse(values.fleet) if value("fleet") else None,
        folder=pathlib.Path(values.out) if places else None,
        is_anew=value("refresh", False),
    )


def _order(values: flags.FlagValues, cluster: Cluster) -> str:
    """The order that the flags give; else one is searched on described devices, where it costs no measurement."""
    if values.order is not None:
        return str(values.order)
    is_given = values.plan and not values.complete_plan
    goes_without = cluster.is_live or values.robust or is_given or Objective(values.objective).is_memory
    return NO_ORDER if goes_without else AUTO_ORDER


def _in_parts_of(plan: PlanFile | None, source: Source, values: flags.FlagValues) -> Source:
    """The program in parts as a plan has it, unless the flags give another number of them."""
    if plan is None or plan.splitting is None:
        return source
    splitting = plan.splitting
    if not values["parts"].present or values.parts == AUTO:
        source = dataclasses.replace(
            source, parts=splitting.parts, batch_statistics=splitting.batch_statistics
        )
    is_same = source.parts == splitting.parts and source.batch_statistics == splitting.batch_statistics
    return dataclasses.replace(source, kept_whole=splitting.kept_whole) if is_same else source


def budget(values: flags.FlagValues) -> Budget:
    """The budget that the flags give, or the default one."""
    default_s = DEFAULT_BUDGET_S if values.budget_evaluations is None else math.inf
    return Budget(default_s if values.budget_s is None else values.budget_s, values.budget_evaluations)


def made_for(values: flags.FlagValues) -> dict[str, Any]:
    """Flags that describe the program and the devices, as a plan keeps them; its parts are the outcome's to tell.

    Paths are whole, so that the plan is of use in another folder.
    """

    def whole(name: str, value: Any) -> Any:
        where, colon, function = str(value).rpartition(":")
        if name == "script" and where.endswith(".py"):
            return f"{os.path.abspath(where)}{colon}{function}"
        is_file = name == "cluster" and (os.sep in str(value) or str(value).endswith(".toml"))
        return os.path.abspath(value) if is_file or name in ("saved_model", "meta_graph", "graph") else value

    return {
        name: whole(name, values[name].value)
        for name in DESCRIPTION
        if name in values and name != "parts" and values[name].value not in (None, [])
    }


def recall(values: flags.FlagValues, plan: PlanFile) -> None:
    """Sets the flags that describe the program and the devices to what a plan was made for, unless they are given.

    Raises:
      InputError: neither says which devices or which program, or a value of the plan is impossible.
    """
    remembered = {
        name: value for name, value in plan.made_for.items() if name in DESCRIPTION and name in values
    }
    is_source_given = any(values[name].present for name in SOURCES if name in values)
    if not is_source_given and "graph" in plan.made_for and "graph" not in values:
        raise InputError(
            f"{plan.source} was made for --graph={plan.made_for['graph']}: this {NEEDS_A_PROGRAM}"
        )
    if is_source_given:
        of_another = (*SOURCES, "args", "input_shape")
        remembered = {name: value for name, value in remembered.items() if name not in of_another}
    for name, value in remembered.items():
        if not values[name].present:
            texts = [str(text) for text in value] if isinstance(value, list) else [str(value)]
            values[name].value = texts if name in REPEATED else ",".join(texts)
            take_text(values[name])
    if not values.cluster:
        raise InputError(f"{plan.source} does not say which devices it was made for; give --cluster")
    if not any(values[name].value for name in SOURCES if name in values):
        raise InputError(
            f"{plan.source} does not say which program it was made for; give --workload or another"
        )


def _settings(values: flags.FlagValues) -> MethodSettings:
    if "set" not in values:
        return {}
    asked = [values.method] if "method" in values else values.methods
    texts = [*values.set, *_weights(values, asked)]
    if "method" not in values:
        return method_settings(texts, values.settings, asked)
    beside = [spec.name for role in Role for spec in methods.having(role)]
    return method_settings(texts, values.settings, asked, list(dict.fromkeys(beside)))


def _weights(values: flags.FlagValues, asked: Sequence[str]) -> list[str]:
    """--weights as settings of the methods that have weights to begin with."""
    if values.weights is None:
        return []
    if not pathlib.Path(values.weights).is_file():
        raise InputError(f"--weights={values.weights}: no such file; give one that `train` wrote")
    taught = [name for name in asked if methods.find(name).student is not None]
    if not taught:
        raise InputError(
            f"--weights is for methods that are taught beforehand, and {asked[0]!r} is not; leave it out"
        )
    return [f"{name}.weights={json.dumps(values.weights)}" for name in taught]


def _source(values: flags.FlagValues) -> Source:
    return Source(
        values.workload,
        values.saved_model,
        values.signature,
        values.meta_graph,
        tuple(values.fetches),
        values.batch_size,
        graph=values.graph if "graph" in values else None,
        script=values.script,
        args=values.args,
        input_shapes=_input_shapes(values.input_shape),
        tags=tuple(values.tags),
        parts=1 if values.parts == AUTO else values.parts,
        batch_statistics=values.batch_statistics,
    )


def _input_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Input -> shape of ``NAME:SIZE,SIZE`` texts, in which ``?`` or -1 is any size and no size is a scalar.

    Raises:
      InputError: a text is of another form, or two are for one input.
    """
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, sizes = text.rpartition(":")
        parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
        if not name or not all(part in ("?", "-1") or _SIZE.fullmatch(part) for part in parts):
            raise InputError(
                f"--input_shape={text} is not possible; give an input and its sizes, x:1,224,224,3 say (? is any size, "
                "x: a scalar)"
            )
        if name in found:
            raise InputError(f"--input_shape={text} is the second for {name!r}; give one")
        found[name] = tuple(-1 if part in ("?", "-1") else int(part) for part in parts)
    return found


def method_settings(
    texts: Sequence[str], file: str | None, asked: Sequence[str], others: Sequence[str] = ()
) -> MethodSettings:
    """Settings from flags and file for the methods that take part; a flag wins over the file.

    Args:
      texts: ``SETTING=VALUE`` where one method is asked for, else ``METHOD.SETTING=VALUE``; values are as in TOML, and
        need no quotes.
      file: a TOML file with a table for each method, or with the settings of the one that is asked for.
      asked: names of the methods that are asked for.
      others: of those that stand beside them, which can be set, too.

    Raises:
      InputError: a file that cannot be read, a method that takes no part, or what ``configured`` refuses; names the
        flag.
    """
    found: dict[str, dict[str, Any]] = {}
    if file is not None:
        said = f"--settings={file}"
        for name, value in _table(file, said).items():
            if isinstance(value, dict):
                _taking_part(said, name, (*asked, *others))
                found.setdefault(name, {}).update(value)
            else:
                found.setdefault(_only(said, name, asked), {})[name] = value
        _check(said, found)
    for text in texts:
        said = f"--set={text}"
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{said} is no setting; write --set=SETTING=VALUE or --set=METHOD.SETTING=VALUE")
        method, dot, setting = name.rpartition(".")
        if dot:
            _taking_part(said, method, (*asked, *others))
        else:
            method = _only(said, setting, asked)
        found.setdefault(method, {})[setting] = _value(value)
        _check(said, {method: {setting: _value(value)}})
    _check("--set", found)  # values that are possible alone need not be so together
    return found


def _table(file: str, said: str) -> dict[str, Any]:
    try:
        return tomllib.loads(pathlib.Path(file).read_text(encoding="utf8"))
    except OSError as error:
        raise InputError(f"{said} cannot be read ({error.strerror}); give a TOML file of settings") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{said} is no TOML ({error}); write [METHOD] and SETTING = VALUE lines") from error


def _taking_part(said: str, method: str, names: Sequence[str]) -> None:
    if method not in names:
        raise InputError(f"{said}: no method of this run is called {method!r}; {nearest(method, names)}")


def _only(said: str, setting: str, asked: Sequence[str]) -> str:
    if len(asked) != 1:
        raise InputError(
            f"{said} does not say which method's setting {setting!r} is meant; write {asked[0]}.{setting}, say"
        )
    return asked[0]


def _check(said: str, found: MethodSettings) -> None:
    for method, values in found.items():
        try:
            configured(methods.find(method), values)
        except InputError as error:
            raise InputError(f"{said}: {str(error).removeprefix('config: ')}") from None


def _value(text: str) -> Any:
    """A value as TOML has it; a bare word is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
