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

from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.files import Cache
from tf_placer.base.native import load_op_libraries
from tf_placer.cluster.cluster import choose_cluster, limited, limits_of_texts
from tf_placer.command_line.check_flags import NEEDS_A_PROGRAM, flag_value
from tf_placer.command_line.source import Source
from tf_placer.fleet.address import FleetAddress
from tf_placer.planning import forecast
from tf_placer.planning.fusing import check_has_xla
from tf_placer.planning.request import AUTO, DEFAULT_BUDGET_S, DESCRIPTION, REPEATED, SOURCES, Flags
from tf_placer.problem.analytic_problem import Pin
from tf_placer.problem.placement import PlanFile
from tf_placer.search import methods
from tf_placer.search.methods import AUTO_ORDER, NO_ORDER, Budget, Objective, configured
from tf_placer.workers.fork_server import are_workers_open, loopback_library

_SIZE = re.compile(r"[1-9][0-9]{0,17}")
# Options that a source and a request have under the same names.
_OF_SOURCE = (
    *("workload", "saved_model", "signature", "meta_graph", "fetches", "batch_size", "graph", "script"),
    *("args", "tags", "batch_statistics"),
)
_OF_REQUEST = ("seed", "costs", "complete_plan", "write", "by", "budget_of", "robust", "fuse")


@dataclasses.dataclass(frozen=True)
class Request(forecast.Request):
    """Request of a command."""

    source: Source


def request_of(options: Flags, plan: PlanFile | None = None) -> Request:
    """Request from the flags of a command, which are checked as far as that needs no TensorFlow.

    Of a plan that the command reads by itself the batch is in as many parts as there, unless the flags say otherwise.
    """
    # Everything that can be said without a machine comes before the machine is probed.
    load_op_libraries(options.op_library)
    source = Source(
        **{name: getattr(options, name) for name in _OF_SOURCE},
        input_shapes=_input_shapes(options.input_shape),
        parts=1 if options.parts == AUTO else int(options.parts),
    )
    pins = tuple(Pin.parse(text) for text in options.pin)
    is_place, is_search = options.command == "place", options.command in ("place", "compare")
    applied = PlanFile.read(options.plan) if is_place and options.plan else None
    plan = applied or plan
    splitting = None if plan is None else plan.splitting
    if splitting is not None:
        if "parts" not in options.typed or options.parts == AUTO:
            statistics = splitting.batch_statistics
            source = dataclasses.replace(source, parts=splitting.parts, batch_statistics=statistics)
        if (source.parts, source.batch_statistics) == (splitting.parts, splitting.batch_statistics):
            chosen = {name: getattr(splitting, name) for name in ("kept_whole", "recomputed", "parked")}
            source = dataclasses.replace(source, **chosen)
    limits = limits_of_texts("--memory_limit", options.memory_limit)
    cluster = choose_cluster(options.cluster, f"--cluster={options.cluster}")
    cluster = limited("--memory_limit", cluster, limits)
    if options.fuse:
        check_has_xla("--fuse")
    if cluster.kind == "local" and not are_workers_open():
        loopback_library()  # before the search, not after
    evaluations = options.budget_evaluations
    budget_s = options.budget_s or (math.inf if evaluations else DEFAULT_BUDGET_S)
    objective = Objective(options.objective, options.slow_down)
    order = options.order or NO_ORDER
    is_applied = applied is not None and not options.complete_plan
    is_searched = not (cluster.is_live or options.robust or is_applied or objective.is_memory)
    if is_place and not options.order and is_searched:
        order = AUTO_ORDER  # where it costs no measurement
    return Request(
        **{name: getattr(options, name) for name in _OF_REQUEST},
        source=source,
        cluster=cluster,
        budget=Budget(budget_s, evaluations) if is_search else Budget(evaluations=1),
        pins=pins,
        plan=applied,
        respect_devices=options.respect_devices if is_search else None,
        settings=_settings(options),
        objective=objective,
        recomputes=options.recompute == AUTO,
        parks=options.offload == AUTO,
        # The batch's size is fixed, and the plan's own graph runs: a SavedModel serves any batch, and a MetaGraphDef is
        # written back with its own ops.
        tries_parts=options.parts == AUTO
        and source.parts == 1
        and bool(source.workload or source.script)
        and not (pins or applied or options.respect_devices),
        order=order,
        fleet=FleetAddress.parse(options.fleet) if options.fleet else None,
        folder=pathlib.Path(options.out) if is_place else None,
        profiles=Cache(is_anew=options.refresh),
    )


def made_for(options: Flags) -> dict[str, Any]:
    """Flags that describe the program and the devices, as a plan keeps them, but for the number of parts.

    Paths are whole, so that the plan is of use in another folder.
    """

    def whole(name: str, value: Any) -> Any:
        folder, colon, function = str(value).rpartition(":")
        if name == "script" and folder.endswith(".py"):
            return f"{os.path.abspath(folder)}{colon}{function}"
        is_file = name == "cluster" and (os.sep in str(value) or str(value).endswith(".toml"))
        is_file = is_file or name in ("saved_model", "meta_graph", "graph")
        return os.path.abspath(value) if is_file else list(value) if isinstance(value, tuple) else value

    values = options.values()
    return {name: whole(name, values[name]) for name in DESCRIPTION if name in values and name != "parts"}


def recall(options: Flags, plan: PlanFile) -> Flags:
    """Flags that describe the program and the devices as a plan was made for them, unless they are typed."""
    is_source_typed = bool(options.typed.intersection(SOURCES))
    if not is_source_typed and "graph" in plan.made_for:
        raise InputError(
            f"{plan.source} was made for --graph={plan.made_for['graph']}: this {NEEDS_A_PROGRAM}"
        )
    of_another = (*SOURCES, "args", "input_shape") if is_source_typed else ("graph",)
    values = {}
    for name in DESCRIPTION:
        if name in plan.made_for and name not in options.typed and name not in of_another:
            value = plan.made_for[name]
            texts = [str(text) for text in value] if isinstance(value, list) else [str(value)]
            values[name] = flag_value(name, texts if name in REPEATED else ",".join(texts))
    options = dataclasses.replace(options, **values)
    if not options.cluster:
        raise InputError(f"{plan.source} does not say which devices it was made for; give --cluster")
    if not any(getattr(options, name) for name in SOURCES):
        raise InputError(
            f"{plan.source} does not say which program it was made for; give --workload or another"
        )
    return options


def _settings(options: Flags) -> forecast.MethodSettings:
    """Settings of the methods of a run; --weights is a setting of taught ones."""
    if options.command not in ("place", "compare"):
        return {}
    texts, names = list(options.set), list(options.methods)
    others: list[str] = []
    if options.command == "place":
        names = [options.method]
        others = [name for name in methods.names() if methods.find(name).roles]
    if options.weights:
        taught = [name for name in names if methods.find(name).student is not None]
        if not taught:
            raise InputError(
                f"--weights is for methods that are taught beforehand, and {names[0]!r} is not; leave it out"
            )
        texts += [f"{name}.weights={json.dumps(options.weights)}" for name in taught]
    return method_settings(texts, options.settings, names, others)


def _input_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Input -> shape of ``NAME:SIZE,SIZE`` texts, in which ``?`` or -1 is any size and no size is a scalar."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, sizes = text.rpartition(":")
        parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
        if not name or not all(part in ("?", "-1") or _SIZE.fullmatch(part) for part in parts):
            raise InputError(
                f"--input_shape={text} is not possible; give an input and its sizes, x:1,224,224,3 say (? is any size, "
                "x: a scalar)"
            )
        if name in shapes:
            raise InputError(f"--input_shape={text} is the second for {name!r}; give one")
        shapes[name] = tuple(-1 if part in ("?", "-1") else int(part) for part in parts)
    return shapes


def method_settings(
    texts: Sequence[str], file: str | None, names: Sequence[str], others: Sequence[str] = ()
) -> forecast.MethodSettings:
    """Settings from flags and file for the methods that take part; a flag wins over the file.

    Args:
      texts: ``SETTING=VALUE`` where one method is searched, else ``METHOD.SETTING=VALUE``; values are as in TOML, and
        need no quotes.
      file: a TOML file with a table for each method, or with the settings of a single one.
      others: methods that run with those of ``names``, which can be set, too.
    """
    entries: list[tuple[str, str | None, Mapping[str, Any]]] = []  # words of the user, method, its settings
    if file is not None:
        flag_text = f"--settings={file}"
        try:
            table = tomllib.loads(pathlib.Path(file).read_text(encoding="utf8"))
        except OSError as error:
            raise InputError(
                f"{flag_text} cannot be read ({error.strerror}); give a TOML file of settings"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(
                f"{flag_text} is no TOML ({error}); write [METHOD] and SETTING = VALUE lines"
            ) from error
        plain = {name: value for name, value in table.items() if not isinstance(value, dict)}
        entries += [(flag_text, name, values) for name, values in table.items() if name not in plain]
        entries += [(flag_text, None, plain)] if plain else []
    for text in texts:
        flag_text = f"--set={text}"
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(
                f"{flag_text} is no setting; write --set=SETTING=VALUE or --set=METHOD.SETTING=VALUE"
            )
        method, dot, setting = name.rpartition(".")
        try:
            typed = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            typed = value  # a bare word is a text
        entries.append((flag_text, method if dot else None, {setting: typed}))
    settings: dict[str, dict[str, Any]] = {}
    checks: list[tuple[str, str, Mapping[str, Any]]] = []
    for source, of_method, values in entries:
        if of_method is None and len(names) != 1:
            setting = next(iter(values))
            raise InputError(
                f"{source} does not say which method's setting {setting!r} is meant; write {names[0]}.{setting}, say"
            )
        method = names[0] if of_method is None else of_method
        if method not in (*names, *others):
            raise InputError(
                f"{source}: no method of this run is called {method!r}; {nearest(method, (*names, *others))}"
            )
        settings.setdefault(method, {}).update(values)
        checks.append((source, method, values))
    # Values that are possible alone need not be so together.
    for source, method, values in [*checks, *(("--set", *entry) for entry in settings.items())]:
        try:
            configured(methods.find(method), values)
        except InputError as error:
            raise InputError(f"{source}: {str(error).removeprefix('config: ')}") from None
    return settings
