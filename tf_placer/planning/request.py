"""Commands and their options: one model with type, limits, help and default, also for ``auto_place``.

Flags, ``--help``, completion, the checks of ``AutoPlaceConfig`` and ``made_for`` of plan files come from it.
It loads no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from tf_placer.base.arguments import FINITE, MAX_SEED, InputError, Text
from tf_placer.costs import COSTS
from tf_placer.search.methods import (
    BUDGETS,
    BY,
    COMPARED,
    DEFAULT,
    FASTEST,
    NO_ORDER,
    OBJECTIVES,
    OP,
    ORDERS,
    SLOW_DOWN,
    TIME,
    WHOLE,
    WRITE,
)
from tf_placer.transform import AUTO, BATCH_STATISTICS, RECOMPUTE

SHELLS = ("bash", "zsh", "fish")
DEFAULT_BUDGET_S = 60.0

Count = Annotated[int, Ge(1)]
Parts = Count | Literal["auto"]
Seconds = Annotated[float, Gt(0), FINITE]
Seed = Annotated[int, Ge(0), Le(MAX_SEED)]
Share = Annotated[float, Ge(0), FINITE]
Texts = tuple[Text, ...]

_SEARCH = "place compare"
_PROGRAM = f"{_SEARCH} measure explain profile"
_READ = f"{_PROGRAM} memory"
_EVERY = f"{_READ} train clusters workloads methods doctor completion"


def _on(commands: str, about: str, default: Any = None, words: Sequence[str] = (), **own: Any) -> Any:
    """An option of commands: help in one line, all words where these are few, defaults also by command."""
    default_of = dict.fromkeys(commands.split(), default) | own
    return dataclasses.field(
        default=default, metadata={"about": about, "default_of": default_of, "words": tuple(words)}
    )


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of all commands, in the order of the help."""

    workload: Text = _on(_READ, "What to place; `workloads` lists them.")
    script: Text = _on(_READ, "Or a function in a script: FILE.py:NAME or package.module:NAME.")
    program: Texts = _on("run", "A script and its arguments; words behind the flags are the same.", ())
    args: Text = _on(_READ, "Name in the script of the function's arguments, or of a function for them.")
    saved_model: Text = _on(_READ, "Or the folder of a SavedModel.")
    tags: Texts = _on(_READ, "All tags of the graph in the SavedModel: serve,tpu.", ("serve",))
    signature: Text = _on(
        _READ, "Signature of the SavedModel; `place` takes several: a,b.", "serving_default"
    )
    meta_graph: Text = _on(_READ, "Or the file of a MetaGraphDef or GraphDef, binary or text.")
    fetches: Texts = _on(_READ, "Tensors and ops of the MetaGraphDef to compute.", ())
    graph: Text = _on(_SEARCH, "Or the file of a graph that was profiled elsewhere.")
    batch_size: Count = _on(
        f"{_READ} run", "Stands for dimensions of any size in a script, SavedModel or MetaGraphDef.", 32
    )
    parts: Parts = _on(
        _PROGRAM,
        "Parts of the batch, placed one by one; auto (place) tries one for each device, too.",
        1,
        place=AUTO,
    )
    batch_statistics: str = _on(
        _PROGRAM,
        "Of a split program: statistics of the whole batch, or of each part as under tf.distribute (other numbers).",
        BATCH_STATISTICS[0],
        words=BATCH_STATISTICS,
    )
    recompute: str = _on(
        "place",
        "Do ops again in the backward pass, where a step does not fit otherwise (auto).",
        RECOMPUTE[0],
        words=RECOMPUTE,
    )
    offload: str = _on(
        "place",
        "Park what the backward pass reads on the host, where a step does not fit otherwise (auto).",
        RECOMPUTE[0],
        words=RECOMPUTE,
    )
    input_shape: Texts = _on(
        _READ,
        "Shape of an input of a SavedModel or MetaGraphDef that leaves it open: x:1,224,224,3; may be repeated.",
        (),
    )
    op_library: Texts = _on(
        _READ, "A library with ops that TensorFlow lacks, loaded first; may be repeated.", ()
    )
    workloads: Texts = _on("train", "Workloads to teach; `workloads` lists them.", ())
    held_out: Texts = _on("train", "Workloads for evaluation only.", ())
    facts: Texts = _on("workloads", "Workloads to build for their facts, or all.", ())
    names: bool = _on("workloads", "Print the names alone, for scripts.", False)
    cluster: Text = _on(
        f"{_READ} run",
        "A preset (`clusters` lists them), a .toml file, local, or local:2; run takes logical:2, too.",
        measure="local",
        profile="local",
        run="local",
    )
    clusters: Texts = _on("train", "Clusters to teach on: presets or .toml files.", ())
    fleet: Text = _on(
        "place", "Measure on many machines through Ray: HOST:PORT of its head, or local:N for N actors here."
    )
    memory_limit: Texts = _on(
        _READ, "Most memory that a device may take, no more than it has: GPU:0=10GB; may be repeated.", ()
    )
    costs: str = _on(
        _PROGRAM, "Op costs: estimated, or measured (on live devices, if not given).", words=COSTS
    )
    pin: Texts = _on(
        _SEARCH,
        "Ops that must be on a device, by a regular expression: 'encoder/.*=/device:CPU:0'; may be repeated.",
        (),
    )
    respect_devices: bool = _on(
        _SEARCH,
        "Keep ops on the devices that the program asks for; a model placed before asks for its old plan.",
        False,
    )
    open_workers: bool = _on(
        _PROGRAM, "Let local workers listen on every interface, where nothing can keep them off.", False
    )
    budget_s: Seconds = _on(
        f"{_SEARCH} run",
        f"Seconds, of the whole wait or as budget_of says; {DEFAULT_BUDGET_S:g} without budget_evaluations.",
        run=DEFAULT_BUDGET_S,
    )
    budget_evaluations: Count = _on(_SEARCH, "Most placements each method tries.")
    budget_of: str = _on(
        _SEARCH, "Scope of budget_s: the whole wait, or the search of each method.", WHOLE, words=BUDGETS
    )
    method: Text = _on(
        "place train", "How to search, or the method to teach; `methods` lists them.", place=DEFAULT
    )
    methods: Texts = _on("compare", "Methods, separated by commas.", COMPARED)
    set: Texts = _on(
        f"{_SEARCH} train",
        "A setting of a method: num_groups=256, or of one of several: hdp.num_groups=256; may be repeated.",
        (),
    )
    settings: Text = _on(_SEARCH, "A TOML file of such settings: a table for each method.")
    weights: Text = _on(_SEARCH, "A file that `train` wrote: initial weights of a policy.")
    objective: str = _on(
        "place", "The shortest step, or the least memory within the slow-down.", TIME, words=OBJECTIVES
    )
    slow_down: Share = _on(
        "place", "Share of the fastest plan's step that a plan of least memory may take longer.", SLOW_DOWN
    )
    robust: bool = _on(
        "place",
        "Search the plan with the shortest mean step over draws of unknown costs of described devices.",
        False,
    )
    order: str = _on(
        "place",
        "Also decide an order of execution: by a rule, by the fastest of the rules and none (auto, the default "
        "on described devices), or none (the default on live ones).",
        words=ORDERS,
    )
    fuse: bool = _on(
        "place",
        "Have XLA compile clusters of the plan's ops, where that is measured to be clearly faster.",
        False,
    )
    seed: Seed = _on(f"{_SEARCH} train", "Fixes everything random.", 0)
    refresh: bool = _on(
        f"{_SEARCH} run",
        "On live devices, measure costs of ops and links anew, and search plans of `run` anew.",
        False,
    )
    searches: Count = _on("train", "Searches for good plans of each problem.", 2)
    evaluations: Count = _on("train", "Placements that each search tries.", 2000)
    epochs: Count = _on("train", "Times that each problem is taught.", 40)
    plan: Text = _on("place explain run", "A placement.json to apply instead of searching, or to explain.")
    placement: Text = _on("measure", "The placement.json to time.")
    complete_plan: bool = _on(
        "place", "Search what the plan does not say of this graph, and ignore what is not in it.", False
    )
    by: str = _on(
        _SEARCH,
        "Unit of the plan: each op where it is best, or whole layers, shown in a table, too.",
        OP,
        words=BY,
    )
    write: str = _on(
        "place", "Plan to write: the fastest one found, or the method's own.", FASTEST, words=WRITE
    )
    op: Text = _on("explain", "Name of the op to explain.")
    layer: Text = _on("explain", "Or of the layer, such as encoder/layer_1.")
    out: Text = _on(
        f"{_SEARCH} train",
        "Folder for summary.json, placement.json, placed_graph.pb; of train, the file of weights.",
    )
    model_explorer: bool = _on(
        _SEARCH, "Also write node data for Model Explorer: the device of each op.", False
    )
    json: bool = _on(
        _EVERY, "One JSON value on standard output; what is for people goes to standard error.", False
    )
    clear: Text = _on("doctor", "Empty the cache, or some kinds of it: --clear=plans,profiles.")
    shell: str = _on("completion", "The shell; `completion bash` says the same.", words=SHELLS)


# First option of each group in the help.
GROUPS = {
    "workload": "program (what is placed)",
    "cluster": "devices",
    "budget_s": "search",
    "plan": "plan",
    "out": "results",
    "clear": "other",
}
ALL = "all"  # kinds of what is cached, or workloads
PASSED_ON = "program"  # a script with arguments of its own: flags of ours end at the first word
REPEATED = (PASSED_ON, "input_shape", "op_library", "memory_limit", "pin", "set")  # other lists have commas
SOURCES = ("workload", "script", "saved_model", "meta_graph", "graph")
DESCRIPTION = (  # of the program and the devices: a plan file remembers these
    *SOURCES,
    *("args", "signature", "tags", "fetches", "batch_size", "parts", "batch_statistics", "input_shape"),
    *("cluster", "costs", "memory_limit"),
)


@dataclasses.dataclass(frozen=True)
class Command:
    """One command; its flags are the options that name the command."""

    help: str  # one line
    required: tuple[str, ...] = ()  # flags that have no default
    word: str | None = None  # flag of a word without dashes
    one_of: tuple[str, ...] = ()  # flags of which exactly one must be given


_ON_CLUSTER, _PROGRAMS = ("cluster", "out"), SOURCES[:-1]
COMMANDS = {
    "place": Command("find a placement", _ON_CLUSTER, "script", SOURCES),
    "compare": Command("try several methods", _ON_CLUSTER, "script", SOURCES),
    "measure": Command("time a plan on this machine", ("placement",), "script", _PROGRAMS),
    "explain": Command("say why an op or a layer is where a plan puts it", ("plan",), "script", BY),
    "run": Command("run a script under a plan", (PASSED_ON,), PASSED_ON),
    "profile": Command("measure ops and links on this machine", (), "script", _PROGRAMS),
    "memory": Command(
        "say what each device needs before anything runs, and the largest batch that fits",
        *(("cluster",), "script", _PROGRAMS),
    ),
    "train": Command("teach a policy on many problems", ("method", "workloads", "clusters", "out")),
    "clusters": Command("list the described machines"),
    "workloads": Command("list what can be placed"),
    "methods": Command("list the search methods"),
    "doctor": Command("say what works here, and what the cache holds"),
    "completion": Command("print what completes commands in a shell", ("shell",), "shell"),
}
EXAMPLES = {  # what follows a command in a command line that works
    "place": "--workload=two_towers --cluster=local --budget_s=60 --out=out/plan",
    "compare": "--workload=two_towers --cluster=k40x2 --methods=single,random,auto --out=out/compared",
    "measure": "--workload=two_towers --placement=out/plan/placement.json",
    "explain": "--plan=out/plan/placement.json --op=MatMul",
    "run": "--cluster=local train.py --epochs=3",
    "profile": "--workload=two_towers",
    "memory": "--workload=two_towers --cluster=k40x2",
    "train": "--method=go --workloads=dense_small,two_towers --clusters=k40x2 --out=out/weights.npz",
    "completion": "bash",
}
_HINTS = typing.get_type_hints(Options, include_extras=True)
_FIELDS = {field.name: field for field in dataclasses.fields(Options)}
GROUP_OF: dict[str, str] = {}  # heading of each option in the help
for _name in _FIELDS:
    GROUP_OF[_name] = GROUPS.get(_name) or list(GROUP_OF.values())[-1]


@dataclasses.dataclass(frozen=True)
class Flags(Options):
    """Values of a command line; options that the command lacks have their defaults."""

    command: str = ""
    typed: frozenset[str] = frozenset()  # names of flags that were typed

    def values(self) -> dict[str, Any]:
        """Values of the command's options that are not empty."""
        values = ((option.name, getattr(self, option.name)) for option in options_of(self.command))
        return {name: value for name, value in values if value not in (None, (), False)}


def options_of(command: str) -> list[dataclasses.Field[Any]]:
    """Options of a command, in the order of the help."""
    return [field for field in _FIELDS.values() if command in field.metadata["default_of"]]


def kind_of(name: str) -> Any:
    """Annotation of an option's value, for ``arguments.fit``."""
    words = _FIELDS[name].metadata["words"]
    return Literal[words] if words else _HINTS[name]


_OF_WORDS = ("order", "objective", "by", "recompute", "offload")
_NEUTRAL = {"parts": (1, AUTO), **dict.fromkeys(_OF_WORDS, (NO_ORDER, TIME, OP))}
_NEEDS = {"args": "script", "meta_graph": "fetches", "complete_plan": "plan"}
_APPLIED = "applied plan"  # a plan that is not completed by a search
_EXCLUDES = {
    "plan": ("pin", "recompute", "offload"),
    "graph": ("pin", "plan", "respect_devices", "costs", "parts", "recompute", "offload", "fuse", "fleet"),
    "input_shape": ("workload", "script", "graph"),
    "robust": ("objective", "order", _APPLIED),
    "order": ("objective", _APPLIED),
    "fuse": ("plan", "objective", "by"),
    "fleet": ("op_library", "objective", _APPLIED),
}


def check_together(value_of: Callable[[str], Any], dashes: str = "") -> None:
    """Refuses options that exclude each other or need another one; ``dashes`` stand before names in messages."""

    def is_given(name: str) -> bool:
        if name == _APPLIED:
            return is_given("plan") and not value_of("complete_plan")
        return bool(value_of(name)) and value_of(name) not in _NEUTRAL.get(name, ())

    for name, needed in _NEEDS.items():
        if is_given(name) and not is_given(needed):
            about = _FIELDS[needed].metadata["about"]
            raise InputError(f"{dashes}{name} is given without {dashes}{needed}; give both ({about})")
    for name, others in _EXCLUDES.items():
        for other in others:
            if is_given(name) and is_given(other):
                names = f"{dashes}{name} and {dashes}{other.removeprefix('applied ')}"
                raise InputError(f"{names} are given; leave one of them out")
