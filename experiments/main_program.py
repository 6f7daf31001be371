"""Entry point of every experiment: runs its main function; a wrong flag ends it with one line and status 2."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from typing import Any

from absl import flags

from experiments.pretraining.course import WORKLOADS, course_named, without
from experiments.studies.study import FILES, read_study
from tf_placer import workloads
from tf_placer.base.arguments import InputError
from tf_placer.base.files import check_writable, reserved
from tf_placer.cluster.device import preset_path
from tf_placer.command_line.check_flags import read_flags
from tf_placer.search import methods

OK, BAD_INPUT = 0, 2
flags.disclaim_key_flags()  # a flag defined here is of the program that asks for it, and in its help


def out_flag(default: str | None, meaning: str) -> flags.FlagHolder[Any]:
    """Defines ``--out``, which is looked at before the work."""
    return flags.DEFINE_string("out", default, meaning)


def seed_flag(meaning: str = "Fixes everything random.", default: int = 0) -> flags.FlagHolder[int]:
    """Defines ``--seed``."""
    return flags.DEFINE_integer("seed", default, meaning, lower_bound=0)


def run_program(main: Callable[[], None]) -> None:
    """Parses the command line, calls ``main``, and ends the process."""
    sys.exit(status_of(main, flags.FLAGS, sys.argv))


def run(main: Callable[[pathlib.Path], None]) -> None:
    """Runs an experiment as ``run_program`` does, with ``--out`` reserved for it."""

    def in_folder() -> None:
        out = pathlib.Path(flags.FLAGS.out)
        with reserved(out, f"--out={out}"):
            main(out)

    run_program(in_folder)


def status_of(main: Callable[[], None], values: flags.FlagValues, argv: list[str]) -> int:
    """Parses a command line and calls ``main``; the status to end with."""
    if {"--help", "-h"} & set(argv[1:]):
        print(values.main_module_help() if values is flags.FLAGS else values.get_help())
        return OK
    try:
        if words := read_flags(values, argv):
            raise InputError(f"takes flags only, got {words[0]!r}; write --flag=value")
        study = values["study"].value if "study" in values else None
        course = values["course"].value if "course" in values else WORKLOADS
        for name in values:
            if values[name].value is not None and not isinstance(values[name], flags.EnumFlag):
                _check(name, values[name].value, study, course)
        main()
    except InputError as error:
        sys.stderr.write(f"{pathlib.Path(argv[0]).stem}: {error}\n")
        return BAD_INPUT
    return OK


def _check(name: str, value: object, study: str | None, course: str) -> None:
    """Looks before the work whether what a flag names is there: such flags are called alike in every experiment.

    Methods are a study's candidates where one is given, of which some are methods with settings of their own.

    Raises:
      InputError: it is not; begins with the flag.
    """
    words = value if isinstance(value, list) else [str(value)]
    path = pathlib.Path(str(value))
    try:
        if name == "out":
            check_writable(path.parent if path.suffix else path, f"--out={value}")
        elif name == "figures":
            check_writable(path.parent, f"--figures={value}")
        elif name == "course":
            course_named(course, seed=0)
        elif name == "leave_out":
            without(course_named(course, seed=0), words)
        elif name in ("workload", "workloads"):
            for workload in words:
                workloads.check_name(workload)
        elif name == "programs":
            for program in words:
                workload, _, cluster = program.partition(":")
                workloads.check_name(workload)
                preset_path(cluster)
        elif name in ("stg", "fjsp") and not path.is_dir():
            raise InputError("there is no such folder; give the one with the instances")
        elif name == "methods" and study is not None:
            read_study(FILES[study]).thinned(names=words)
        elif name in ("method", "methods"):
            for method in words:
                methods.find(method)
        elif name == "cluster":
            preset_path(str(value))
        elif name == "sizes":
            for size in words:
                if not size.isdecimal() or not 0 < int(size) < 10**7:
                    raise InputError(f"{size!r} is no number of ops; give 1 to 9999999")
    except InputError as error:
        said = f"--{name}="
        raise InputError(str(error) if str(error).startswith(said) else f"{said}{value}: {error}") from None
