"""The command line: ``python -m tf_placer COMMAND --flag=value``, also installed as ``tf-placer``.

What is wrong with a command line is told before TensorFlow is loaded, which takes seconds.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import gc
import itertools
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import rich.console
from absl import flags

from tf_placer import native_log, workloads
from tf_placer.base import interrupt
from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.heartbeat import HEARTBEAT
from tf_placer.base.store import clear_cache, kinds
from tf_placer.cluster.cluster import Cluster
from tf_placer.command_line.check_flags import (
    CommandWords,
    check_flags,
    cluster_names,
    completion,
    define,
    flag_words,
    help_text,
    list_clusters,
    parse_flags,
    refuse_graph,
)
from tf_placer.command_line.list_workloads import list_workloads
from tf_placer.command_line.run_script import run_script
from tf_placer.planning.request import ALL, PASSED_ON, SHELLS
from tf_placer.planning.stages import begins_at, begun_s, process_start_s
from tf_placer.search import methods
from tf_placer.version import VERSION
from tf_placer.workers.fork_server import workers_opened

OK, OUR_FAILURE, BAD_INPUT = 0, 1, 2
_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2
_SCRIPT = "script"
_PROGRAM = ("workload", _SCRIPT, "saved_model", "meta_graph")
_HELP = frozenset({"--help", "-help", "-h", "-?", "--h", "--helpfull", "--helpshort"})
_VERSION = frozenset({"--version", "-version", "-V", "-v", "version"})


@dataclasses.dataclass(frozen=True)
class Command:
    """One command; its flags are in ``Options``."""

    help: str  # one line
    required: tuple[str, ...] = ()  # flags that have no default
    word: str | None = None  # flag of a word without dashes
    one_of: tuple[str, ...] = ()  # flags of which exactly one must be given
    example: str = ""  # flags of a command line that works
    # Flag -> another, and this one's default where the first is given.
    implied: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    # Prints and returns as JSON data what needs no TensorFlow; ``run_command`` does the rest.
    run_light: Callable[[flags.FlagValues, rich.console.Console], Any] | None = None


def _workloads(values: flags.FlagValues, console: rich.console.Console) -> list[Any] | None:
    if values.facts:
        values["facts"].value = list(workloads.names()) if ALL in values.facts else values.facts
        return None
    if not values.names:
        return list_workloads(console)
    for name in workloads.names():
        console.print(name)
    return list(workloads.names())


def _methods(values: flags.FlagValues, console: rich.console.Console) -> list[dict[str, Any]]:
    rows = methods.descriptions()
    for row in rows:
        console.print(f"{row['name']}: {row['summary']}", soft_wrap=True)
        ignores = f"; ignores {', '.join(row['ignores'])}" if row["ignores"] else ""
        console.print(f"  {row['kind']}{ignores}", soft_wrap=True)
        if row["settings"]:
            settings = ", ".join(f"{name}={value}" for name, value in row["settings"].items())
            console.print(f"  --set: {settings}", soft_wrap=True)
    return rows


def _doctor(values: flags.FlagValues, console: rich.console.Console) -> dict[str, Any]:
    if values.clear is not None:
        return clear_cache(values.clear.split(","), console)
    what = "looking at TensorFlow, devices and compiled code"
    with HEARTBEAT.showing(console, lambda: what), concurrent.futures.ThreadPoolExecutor(1) as pool:
        probed = pool.submit(Cluster.local)  # in a child process, while TensorFlow is loaded here
        native_log.load_tensorflow()
        from tf_placer.command_line.doctor import examine  # TensorFlow with it

        return examine(console, probed)


def _completion(values: flags.FlagValues, console: rich.console.Console) -> dict[str, Any]:
    names = {
        **dict.fromkeys(("workload", "workloads", "held_out"), workloads.names()),
        "facts": (ALL, *workloads.names()),
        **dict.fromkeys(("cluster", "clusters"), cluster_names()),
        **dict.fromkeys(("method", "methods"), methods.names()),
        "clear": (ALL, *kinds()),
    }
    words = {
        name: CommandWords(command.help, flag_words(name, names), SHELLS if command.word == "shell" else ())
        for name, command in COMMANDS.items()
    }
    script = completion(values.shell, words)
    console.print(script, soft_wrap=True, end="")
    return {"shell": values.shell, "script": script}


COMMANDS = {
    "place": Command(
        "find a placement",
        ("cluster", "out"),
        _SCRIPT,
        (*_PROGRAM, "graph"),
        "--workload=two_towers --cluster=local --budget_s=60 --out=out/plan",
        {"fleet": ("cluster", "local")},
    ),
    "compare": Command(
        "try several methods",
        ("cluster", "out"),
        _SCRIPT,
        (*_PROGRAM, "graph"),
        "--workload=two_towers --cluster=k40x2 --methods=single,random,auto --out=out/compared",
    ),
    "measure": Command(
        "time a plan on this machine",
        ("placement",),
        _SCRIPT,
        _PROGRAM,
        "--workload=two_towers --placement=out/plan/placement.json",
    ),
    "explain": Command(
        "say why an op or a layer is where a plan puts it",
        ("plan",),
        _SCRIPT,
        ("op", "layer"),
        "--plan=out/plan/placement.json --op=MatMul",
    ),
    "run": Command(
        "run a script under a plan",
        (PASSED_ON,),
        PASSED_ON,
        example="--cluster=local train.py --epochs=3",
    ),
    "profile": Command(
        "measure ops and links on this machine",
        (),
        _SCRIPT,
        _PROGRAM,
        "--workload=two_towers",
    ),
    "train": Command(
        "teach a policy on many problems",
        ("method", "workloads", "clusters", "out"),
        example="--method=go --workloads=dense_small,two_towers --clusters=k40x2 --out=out/weights.npz",
    ),
    "clusters": Command("list the described machines", run_light=lambda _, console: list_clusters(console)),
    "workloads": Command("list what can be placed", run_light=_workloads),
    "methods": Command("list the search methods", run_light=_methods),
    "doctor": Command("say what works here, and what the cache holds", run_light=_doctor),
    "completion": Command(
        "print what completes commands in a shell",
        ("shell",),
        "shell",
        example="bash",
        run_light=_completion,
    ),
}


def run(argv: Sequence[str], console: rich.console.Console | None = None) -> int:
    """Runs one command.

    Args:
      argv: command and flags, without the program's name.
      console: where results go; standard output when not given.

    Returns:
      The exit status: 0 done, 2 bad input, told in one line on stderr; of ``run``, the script's. A failure of ours is
      an exception.
    """
    console = console or rich.console.Console(highlight=False, markup=False)
    try:
        asked = _help_asked(argv)
        if asked is not None:
            console.print(asked, soft_wrap=True, markup=False)
            return OK if argv else BAD_INPUT
        name = argv[0]
        if name not in COMMANDS:
            raise InputError(f"unknown command {name!r}; {nearest(name, COMMANDS)} (tf-placer --help)")
        command, values = COMMANDS[name], define(name)
        refuse_graph(name, values, argv[1:])
        needed = command.required, command.word, command.one_of, command.example
        parse_flags(values, argv, *needed, command.implied)
        check_flags(name, values)
        if command.word == PASSED_ON:
            script_of = (values.cluster, values.plan, values.budget_s, values.batch_size, values.refresh)
            return run_script(tuple(values.program), *script_of)
        opened = workers_opened("open_workers" in values and values.open_workers)
        with interrupt.stoppable(), begins_at(begun_s()), opened, _warnings_are_lines():
            _run(name, values, console)
    except (InputError, flags.Error) as error:
        sys.stderr.write(f"tf-placer: {' '.join(str(error).split())}\n")
        return BAD_INPUT
    return OK


@contextlib.contextmanager
def _warnings_are_lines() -> Iterator[None]:
    """A warning is one line, without the source line that it came from, which is none of a user's."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        sys.stderr.write(f"tf-placer: warning: {' '.join(str(message).split())}\n")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _help_asked(argv: Sequence[str]) -> str | None:
    """Text for a call that asks for help, for the version, or for nothing; None for any other."""
    if not argv:
        return usage()
    if argv[0] in _VERSION:
        return f"tf_placer {VERSION}"
    if (
        argv[0] in COMMANDS and COMMANDS[argv[0]].word == PASSED_ON
    ):  # what comes behind the script is the script's
        argv = [argv[0], *itertools.takewhile(lambda word: word.startswith("-") or word == "help", argv[1:])]
    is_first = argv[0] == "help" or argv[0] in _HELP
    if not is_first and not (argv[0] in COMMANDS and (_HELP & set(argv[1:]) or argv[1:] == ["help"])):
        return None
    name = next((word for word in argv if word in COMMANDS), None)
    if name is None:
        return usage()
    command = COMMANDS[name]
    return help_text(name, command.help, command.example, command.required, command.one_of, command.word)


def _run(name: str, values: flags.FlagValues, console: rich.console.Console) -> None:
    if not values.json:
        _found(name, values, console)
        return
    with standard_output_silenced():
        data = _found(name, values, rich.console.Console(stderr=True, highlight=False, markup=False))
    console.file.write(json.dumps(data, indent=1, allow_nan=False) + "\n")
    console.file.flush()


@contextlib.contextmanager
def standard_output_silenced() -> Iterator[None]:
    """Sends standard output to standard error meanwhile, also from C and from child processes."""
    sys.stdout.flush()
    kept = os.dup(_STANDARD_OUTPUT)
    try:
        os.dup2(_STANDARD_ERROR, _STANDARD_OUTPUT)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what C has in its buffers would come out afterwards
        os.dup2(kept, _STANDARD_OUTPUT)
        os.close(kept)


def _found(name: str, values: flags.FlagValues, console: rich.console.Console) -> Any:
    light = COMMANDS[name].run_light
    found = None if light is None else light(values, console)
    if found is not None:
        return found
    with HEARTBEAT.showing(console, lambda: "loading TensorFlow"):
        native_log.load_tensorflow()
        from tf_placer.command_line.run_command import RUN_OF_COMMAND  # TensorFlow with it

        return RUN_OF_COMMAND[name](values, console)


def usage() -> str:
    """List of the commands, one a line."""
    lines = [f"  {name:<10} {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: tf-placer COMMAND --flag=value",
            "",
            "example:",
            f"  tf-placer place {COMMANDS['place'].example}",
            "",
            "commands (COMMAND --help says more):",
            *lines,
        ]
    )


def console_main() -> None:
    """The entry point of ``tf-placer``; ends the process."""
    try:
        with interrupt.stoppable(), begins_at(process_start_s()):
            status = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("tf-placer: interrupted before there was anything to keep\n")
        status = OUR_FAILURE
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: the process may end in peace
    gc.disable()  # Python would look for garbage among millions of objects first
    sys.exit(status)


if __name__ == "__main__":
    console_main()
