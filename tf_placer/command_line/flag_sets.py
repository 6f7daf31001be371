"""The flags of the commands."""

from __future__ import annotations

from absl import flags

from tf_placer import workloads
from tf_placer.base.arguments import MAX_SEED
from tf_placer.base.store import ALL, kinds
from tf_placer.command_line.check_flags import BY, FASTEST, OP, PASSED_ON, WRITE, cluster_names
from tf_placer.command_line.help_text import SHELLS, FlagWords
from tf_placer.costs import COSTS
from tf_placer.search import known
from tf_placer.search.known import BUDGETS, OBJECTIVES, ORDERS, SLOW_DOWN, TIME, WHOLE
from tf_placer.transform import AUTO, BATCH_STATISTICS

DEFAULT_BUDGET_S = 60.0


def of_workloads(values: flags.FlagValues) -> None:
    """Flags of ``workloads``."""
    flags.DEFINE_list(
        "facts", [], "Workloads that are built to find what they are, or all.", flag_values=values
    )
    flags.DEFINE_bool("names", False, "Print the names alone, for scripts.", flag_values=values)


def none(values: flags.FlagValues) -> None:
    """Flags of commands that list things: none."""


def of_every_command(values: flags.FlagValues) -> None:
    """Flags of every command."""
    flags.DEFINE_bool(
        "json", False, "One JSON value on standard output; what is for people goes to standard error.", values
    )


def of_doctor(values: flags.FlagValues) -> None:
    """``--clear`` alone means all."""
    flag = flags.Flag(
        _KindsParser(),
        None,
        "clear",
        None,
        "Empty the cache: all of it, or some kinds, separated by commas: --clear=plans,profiles.",
        boolean=True,
    )
    flags.DEFINE_flag(flag, values)


class _KindsParser(flags.ArgumentParser):
    """Kinds of what the cache keeps; what there are, ``clear_cache`` says."""

    syntactic_help = "kinds, separated by commas"

    def parse(self, argument: str) -> str:
        return ALL if argument == "true" else argument


class _PartsParser(flags.ArgumentParser):
    """A number of parts, or ``auto``."""

    syntactic_help = "a whole number from 1 on, or auto"

    def parse(self, argument: str | int) -> int | str:
        if argument == AUTO or (str(argument).isascii() and str(argument).isdigit() and int(argument) >= 1):
            return AUTO if argument == AUTO else int(argument)
        raise ValueError(f"give {self.syntactic_help}")


def of_completion(values: flags.FlagValues) -> None:
    """Flags of ``completion``: the shell."""
    flags.DEFINE_enum(
        "shell", None, SHELLS, "The shell; `completion bash` says the same.", flag_values=values
    )


def completions(values: flags.FlagValues) -> tuple[FlagWords, ...]:
    """Completions of each flag of a command."""
    words = {
        **dict.fromkeys(("workload", "workloads", "held_out"), workloads.names()),
        "facts": (ALL, *workloads.names()),
        **dict.fromkeys(("cluster", "clusters"), cluster_names()),
        **dict.fromkeys(("method", "methods"), known.methods()),
        "clear": (ALL, *kinds()),
    }
    found = []
    for name in values:
        flag = values[name]
        taken = tuple(flag.parser.enum_values) if isinstance(flag, flags.EnumFlag) else words.get(name, ())
        is_list = isinstance(flag.parser, flags.ListParser) or name == "clear"
        is_boolean = flag.boolean and name != "clear"
        found.append(FlagWords(name, flag.help, is_boolean, tuple(taken), is_list))
    return tuple(found)


def _workload_flags(values: flags.FlagValues) -> None:
    flags.DEFINE_string("workload", None, "What to place; `workloads` lists them.", values)
    flags.DEFINE_string(
        "script", None, "Or a function in a script: FILE.py:NAME or package.module:NAME.", values
    )
    flags.DEFINE_string(
        "args", None, "What of the script gives the function's arguments: a value, or a function.", values
    )
    flags.DEFINE_string("saved_model", None, "Or the folder of a SavedModel.", values)
    flags.DEFINE_string(
        "signature", "serving_default", "Which signature of it; `place` takes several: a,b.", values
    )
    flags.DEFINE_list(
        "tags",
        ["serve"],
        "Tags of the graph in it that is meant, all of them: serve,tpu.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "meta_graph", None, "Or the file of a MetaGraphDef or GraphDef, binary or text.", values
    )
    flags.DEFINE_list("fetches", [], "What to compute of it: tensors and ops.", flag_values=values)
    flags.DEFINE_integer(
        "batch_size",
        32,
        "Stands for dimensions of any size in a script, SavedModel or MetaGraphDef.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE(
        _PartsParser(),
        "parts",
        1,
        "Parts that the batch is split into, placed one by one; auto (place) tries one for each device, too.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "batch_statistics",
        BATCH_STATISTICS[0],
        BATCH_STATISTICS,
        "Of a split program: statistics of the whole batch, or of each part as under tf.distribute (other numbers).",
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "input_shape",
        [],
        "Shape of an input of a SavedModel or MetaGraphDef that leaves it open: --input_shape=x:1,224,224,3; "
        "may be repeated.",
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "op_library",
        [],
        "A library with ops that TensorFlow lacks, loaded first: --op_library=FILE.so; may be repeated.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "cluster", None, "A preset (`clusters` lists them), a .toml file, local, or local:2.", values
    )
    flags.DEFINE_multi_string(
        "memory_limit",
        [],
        "Most memory that a device may take, no more than it has: --memory_limit=GPU:0=10GB; may be repeated.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "costs",
        None,
        COSTS,
        "Op costs: estimated, or measured (on live devices, if not given).",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "open_workers",
        False,
        "Let the workers that are started here listen on every interface, where nothing can keep them from it.",
        flag_values=values,
    )


def _seed_flag(values: flags.FlagValues) -> None:
    flags.DEFINE_integer(
        "seed", 0, "Fixes everything random.", lower_bound=0, upper_bound=MAX_SEED, flag_values=values
    )


def _refresh_flag(values: flags.FlagValues) -> None:
    flags.DEFINE_bool(
        "refresh",
        False,
        "On live devices, measure anew what was kept: costs of ops and links, and plans of `run`.",
        flag_values=values,
    )


def _search_flags(values: flags.FlagValues) -> None:
    _workload_flags(values)
    flags.DEFINE_float(
        "budget_s",
        None,
        f"Seconds, of the whole wait unless budget_of says otherwise; {DEFAULT_BUDGET_S:g} without budget_evaluations.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "budget_of",
        WHOLE,
        BUDGETS,
        "What budget_s is of: the whole wait, or the search of each method.",
        flag_values=values,
    )
    flags.DEFINE_integer("budget_evaluations", None, "Most placements each method tries.", flag_values=values)
    _seed_flag(values)
    _refresh_flag(values)
    flags.DEFINE_string("out", None, "Folder for summary.json, placement.json, placed_graph.pb.", values)
    flags.DEFINE_string(
        "tensorboard",
        None,
        "Ignored: report.html has the curves, layers and plan.",
        values,
    )
    flags.DEFINE_string("graph", None, "Or the file of a graph that was profiled elsewhere.", values)
    flags.DEFINE_multi_string(
        "set",
        [],
        "A setting of a method: --set=num_groups=256, or of one of several: --set=hdp.num_groups=256; may be repeated.",
        flag_values=values,
    )
    flags.DEFINE_string("settings", None, "A TOML file of such settings: a table for each method.", values)
    flags.DEFINE_string(
        "weights", None, "A file that `train` wrote: the weights that a policy begins with.", values
    )
    flags.DEFINE_multi_string(
        "pin",
        [],
        "Ops that must be on a device, by a regular expression: --pin='encoder/.*=/device:CPU:0'; may be repeated.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "respect_devices",
        False,
        "Keep ops on the devices that the program asks for; a model placed before asks for its old plan.",
        flag_values=values,
    )


def _by_flag(values: flags.FlagValues) -> None:
    flags.DEFINE_enum(
        "by",
        OP,
        BY,
        "Of what the plan is made: each op where it is best, or whole layers; these are shown in a table, too.",
        flag_values=values,
    )


def of_place(values: flags.FlagValues) -> None:
    """A program, devices, a budget, a method, and what is decided already."""
    _search_flags(values)
    values["parts"].value = AUTO
    _by_flag(values)
    flags.DEFINE_string("method", known.DEFAULT, "How to search; `methods` lists them.", values)
    flags.DEFINE_enum(
        "write",
        FASTEST,
        WRITE,
        "Whose plan: the fastest one found, or that of the method.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "objective",
        TIME,
        OBJECTIVES,
        "The shortest step, or the least memory within the slow-down.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "slow_down",
        SLOW_DOWN,
        "Share of the fastest plan's step that a plan of least memory may take longer.",
        lower_bound=0.0,
        flag_values=values,
    )
    flags.DEFINE_bool(
        "robust",
        False,
        "Search the plan with the shortest mean step over draws of what is not known of described devices.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "order",
        None,
        ORDERS,
        "Also decide an order of execution: by a rule, by whichever of the rules and none is fastest (auto: the "
        "default on described devices), or none (the default on live ones).",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "fuse",
        False,
        "Have XLA compile clusters of the plan's ops, where that is measured to be clearly faster.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "fleet",
        None,
        "Measure on many machines through Ray: HOST:PORT of its head, or local:N for N actors here.",
        values,
    )
    flags.DEFINE_string("plan", None, "A placement.json to apply instead of searching.", values)
    flags.DEFINE_bool(
        "complete_plan",
        False,
        "Search what the plan does not say of this graph, and ignore what is not in it.",
        flag_values=values,
    )


def of_compare(values: flags.FlagValues) -> None:
    """The same with several methods."""
    _search_flags(values)
    _by_flag(values)
    flags.DEFINE_list(
        "methods",
        list(known.COMPARED),
        "Methods, separated by commas.",
        flag_values=values,
    )


def of_measure(values: flags.FlagValues) -> None:
    """A program, live devices and a plan."""
    _workload_flags(values)
    values["cluster"].value = "local"
    flags.DEFINE_string("placement", None, "The placement.json to time.", values)


def of_profile(values: flags.FlagValues) -> None:
    """A program and live devices."""
    _workload_flags(values)
    values["cluster"].value = "local"


def of_explain(values: flags.FlagValues) -> None:
    """A plan and an op or a layer; what the plan was made for, where it does not say."""
    _workload_flags(values)
    flags.DEFINE_string("plan", None, "A placement.json; it knows what it was made for.", values)
    flags.DEFINE_string("op", None, "Name of the op to explain.", values)
    flags.DEFINE_string("layer", None, "Or of the layer, such as encoder/layer_1.", values)


def of_run(values: flags.FlagValues) -> None:
    """A script with its arguments, devices, and a plan or a budget."""
    values.set_gnu_getopt(False)  # what comes behind the script is its own
    flags.DEFINE_multi_string(
        PASSED_ON, [], "A script and its arguments; words behind the flags are the same.", flag_values=values
    )
    flags.DEFINE_string(
        "cluster", "local", "local, local:2, logical:2, or a .toml file with addresses.", values
    )
    flags.DEFINE_string("plan", None, "A placement.json to run by instead of searching.", values)
    flags.DEFINE_float(
        "budget_s",
        DEFAULT_BUDGET_S,
        "Seconds to find the plan of a function.",
        lower_bound=0.001,
        upper_bound=1e9,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "batch_size",
        32,
        "Stands for sizes that the script's functions leave open.",
        lower_bound=1,
        flag_values=values,
    )
    _refresh_flag(values)


def of_train(values: flags.FlagValues) -> None:
    """A method whose policy is taught, and on what."""
    flags.DEFINE_string("method", None, "Whose policy is taught.", values)
    flags.DEFINE_list("workloads", [], "What is taught; `workloads` lists them.", flag_values=values)
    flags.DEFINE_list("clusters", [], "On what: presets or .toml files.", flag_values=values)
    flags.DEFINE_list("held_out", [], "Workloads that are only looked at.", flag_values=values)
    flags.DEFINE_integer("searches", 2, "For good plans of each problem.", lower_bound=1, flag_values=values)
    flags.DEFINE_integer(
        "evaluations", 2000, "Placements that each of them tries.", lower_bound=1, flag_values=values
    )
    flags.DEFINE_integer(
        "epochs", 40, "Times that each problem is taught.", lower_bound=1, flag_values=values
    )
    _seed_flag(values)
    flags.DEFINE_multi_string(
        "set", [], "A setting of the method: --set=width=64; may be repeated.", flag_values=values
    )
    flags.DEFINE_string("out", None, "File for the weights; what is unfinished stands beside it.", values)
