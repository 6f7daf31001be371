"""Runs damaged inputs, one after another, in a process that one of them may kill.

Reads ``kind seed`` lines from standard input and writes a JSON object a line to standard output. What Python writes
to ``sys.stderr`` is ours and is part of the answer; what TensorFlow's native code logs goes to file descriptor 2.
"""

import contextlib
import io
import json
import pathlib
import resource
import shutil
import sys
import tempfile
import traceback
from typing import Any

from tests.fuzz.cases import make_case, make_originals, plan_problem
from tf_placer.__main__ import run
from tf_placer.base.arguments import InputError
from tf_placer.problem.placement import Placement

# What an input may make the process take, so that a bad one ends this process and not the machine.
MEMORY_BYTES = 4 << 30


def main() -> None:
    """Answers until standard input ends; the argument is the folder of the good inputs, made if it is not there."""
    answers = sys.stdout
    good = pathlib.Path(sys.argv[1])
    if not good.is_dir():
        good.mkdir()
        make_originals(good)
    problem = plan_problem(good)
    pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="utf8").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for line in sys.stdin:
        kind, seed = line.split()
        json.dump(_answer(kind, int(seed), good, problem), answers)
        answers.write("\n")
        answers.flush()


def _answer(kind: str, seed: int, good: pathlib.Path, problem: Any) -> dict[str, Any]:
    """What became of one input: ``status`` (None: an exception), ``stderr``, ``left`` in the folder, ``what``."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=good.parent))
    try:
        case = make_case(kind, seed, good, folder)
        given = set(folder.iterdir())
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            status = _status(kind, case.argv, problem)
        out = folder / "out"
        written = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
        left = sorted({path.name for path in set(folder.iterdir()) - given} | set(written))
        return {"status": status, "stderr": errors.getvalue(), "left": left, "what": case.what}
    finally:
        shutil.rmtree(folder)


def _status(kind: str, argv: tuple[str, ...], problem: Any) -> int | None:
    try:
        if kind != "plan":
            return run(argv)
        Placement.load(argv[0], problem)
    except InputError as error:
        sys.stderr.write(f"tf-placer: {error}\n")
        return 2
    except Exception:  # noqa: BLE001 - what is looked for; the test fails on it
        traceback.print_exc()
        return None
    return 0


if __name__ == "__main__":
    main()
