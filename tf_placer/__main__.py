"""The command line: ``python -m tf_placer COMMAND --flag=value``, also installed as ``tf-placer``.

A wrong command line is refused before TensorFlow is loaded, which takes seconds.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import gc
import itertools
import json
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import rich.console
from absl import flags

import tf_placer
from tf_placer import native_log
from tf_placer.base import interrupt
from tf_placer.base.arguments import InputError, nearest
from tf_placer.base.files import clear_cache
from tf_placer.base.quantities import HEARTBEAT
from tf_placer.command_line.check_flags import (
    COMPLETION,
    check_flags,
    completions,
    help_text,
    list_clusters,
    parse,
)
from tf_placer.command_line.list_workloads import list_workloads
from tf_placer.command_line.run_script import run_script
from tf_placer.planning.log import begins_at, begun_s, process_start_s
from tf_placer.planning.request import COMMANDS, EXAMPLES, PASSED_ON, Flags
from tf_placer.search import methods
from tf_placer.version import VERSION
from tf_placer.workers.fork_server import workers_opened

OK, OUR_FAILURE, BAD_INPUT = 0, 1, 2
_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2
_HELP = frozenset({"--help", "-help", "-h", "-?", "--h", "--helpfull", "--helpshort"})
_VERSION = frozenset({"--version", "-version", "-V", "-v", "version"})


def _run(options: Flags, console: rich.console.Console) -> Any:
    """Runs a command, which prints its results and returns them as JSON data; most load TensorFlow."""
    if options.command == "clusters":
        return list_clusters(console)
    if options.command == "workloads" and not options.facts:
        return list_workloads(console, options.names)
    if options.command == "methods":
        rows = methods.descriptions()
        for row in rows:
            console.print(f"{row['name']}: {row['summary']}", soft_wrap=True)
            ignores = f"; ignores {', '.join(row['ignores'])}" if row["ignores"] else ""
            console.print(f"  {row['kind']}{ignores}", soft_wrap=True)
            if row["settings"]:
                settings = ", ".join(f"{name}={value}" for name, value in row["settings"].items())
                console.print(f"  --set: {settings}", soft_wrap=True)
        return rows
    if options.command == "doctor" and options.clear:
        return clear_cache(options.clear.split(","), console)
    if options.command == "doctor":
        what = "looking at TensorFlow, devices and compiled code"
        with HEARTBEAT.showing(console, lambda: what), concurrent.futures.ThreadPoolExecutor(1) as pool:
            # In a child process, while TensorFlow is loaded here.
            probed = pool.submit(tf_placer.Cluster.local)
            native_log.load_tensorflow()
            from tf_placer.command_line.doctor import examine  # TensorFlow with it

            return examine(console, probed)
    if options.command == "completion":
        script = COMPLETION[options.shell]
        console.print(script, soft_wrap=True, markup=False, end="")
        return {"shell": options.shell, "script": script}
    with HEARTBEAT.showing(console, lambda: "loading TensorFlow"):
        native_log.load_tensorflow()
        from tf_placer.command_line.place import RUN_OF_COMMAND  # TensorFlow with it

        return RUN_OF_COMMAND[options.command](options, console)


def run(argv: Sequence[str], console: rich.console.Console | None = None) -> int:
    """Runs one command.

    Args:
      argv: command and flags, without the program's name.
      console: where results go; standard output when not given.

    Returns:
      The exit status: 0 done, 2 bad input, with one line on stderr; of ``run``, the script's. A failure of ours is
      an exception.
    """
    console = console or rich.console.Console(highlight=False, markup=False)
    if argv[:1] == ["complete"]:  # asked by a shell
        console.print(*completions(argv[1:]), sep="\n", soft_wrap=True, markup=False)
        return OK
    try:
        help_or_version = _help_of(argv)
        if help_or_version is not None:
            console.print(help_or_version, soft_wrap=True, markup=False)
            return OK if argv else BAD_INPUT
        if argv[0] not in COMMANDS:
            raise InputError(f"unknown command {argv[0]!r}; {nearest(argv[0], COMMANDS)} (tf-placer --help)")
        options = parse(argv[0], argv)
        check_flags(options)
        if options.program:
            return run_script(options)
        with (
            interrupt.stoppable(),
            begins_at(begun_s()),
            workers_opened(options.open_workers),
            warnings.catch_warnings(),
        ):
            warnings.showwarning = lambda message, *_, **__: print(  # without the source line, which is ours
                f"tf-placer: warning: {' '.join(str(message).split())}", file=sys.stderr
            )
            if not options.json:
                _run(options, console)
                return OK
            with standard_output_silenced():
                data = _run(options, rich.console.Console(stderr=True, highlight=False, markup=False))
            console.file.write(json.dumps(data, indent=1, allow_nan=False) + "\n")
            console.file.flush()
    except (InputError, flags.Error) as error:
        sys.stderr.write(f"tf-placer: {' '.join(str(error).split())}\n")
        return BAD_INPUT
    return OK


def _help_of(argv: Sequence[str]) -> str | None:
    """Text for a call that asks for help, for the version, or for nothing; None for any other."""
    if argv and argv[0] in _VERSION:
        return f"tf_placer {VERSION}"
    if argv and argv[0] in COMMANDS and COMMANDS[argv[0]].word == PASSED_ON:
        # Words behind the script are the script's.
        argv = [argv[0], *itertools.takewhile(lambda word: word.startswith("-") or word == "help", argv[1:])]
    is_first = not argv or argv[0] == "help" or argv[0] in _HELP
    if not is_first and not (argv[0] in COMMANDS and (_HELP & set(argv[1:]) or argv[1:] == ["help"])):
        return None
    name = next((word for word in argv if word in COMMANDS), None)
    if name is not None:
        return help_text(name)
    usage = f"usage: tf-placer COMMAND --flag=value\n\nexample:\n  tf-placer place {EXAMPLES['place']}"
    commands = [f"  {name:<10} {command.help}" for name, command in COMMANDS.items()]
    return "\n".join([usage, "", "commands (COMMAND --help says more):", *commands])


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
