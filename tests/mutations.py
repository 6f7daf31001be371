"""Puts the bugs of ``mutations.md`` one after the other into a copy of the checkout, and prints what catches each.

Exit status 1: another test than the table says failed first, or none.

python -m tests.mutations [FIRST [COUNT]]
"""

import multiprocessing
import os
import pathlib
import re
import shutil
import sys
import tempfile

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| (\S+\.py) \| `(.+)` \| `(.*)` \| (\S+_test\.py) \| (\w+) \|", re.MULTILINE)


def caught_by(copy: pathlib.Path, file: str, old: str, new: str, test: str) -> str:
    """The test that fails first with the changed line."""
    text = (copy / file).read_text(encoding="utf8")
    assert text.count(old) == 1, f"{file}: {old!r} is there {text.count(old)} times"
    (copy / file).write_text(text.replace(old, new), encoding="utf8")
    context, output = multiprocessing.get_context("forkserver"), copy / "output"
    context.set_forkserver_preload(["tensorflow", "keras"])  # of what a test imports, what takes longest
    output.touch()
    child = context.Process(target=run_tests, args=(copy, test, output))
    child.start()
    child.join()
    (copy / file).write_text(text, encoding="utf8")
    failed = re.search(r"^FAILED (\S+)", output.read_text(), re.MULTILINE)
    return failed[1].rpartition("::")[2] if failed else f"NOTHING (status {child.exitcode})"


def run_tests(copy: pathlib.Path, test: str, output: pathlib.Path) -> None:
    """The quick tests of a file, as a process in the copy would run them."""
    file = os.open(output, os.O_WRONLY | os.O_TRUNC | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    sys.dont_write_bytecode = True  # files change twice in a second
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("tests", "colocation", "tf_placer")
    ]:
        del sys.modules[name]
    raise SystemExit(pytest.main(["-qx", "-m", "not slow and not medium", "-p", "no:cacheprovider", test]))


def main() -> None:
    rows = ROW.findall((REPOSITORY / "tests" / "mutations.md").read_text(encoding="utf8"))
    first, count = (int(text) for text in [*sys.argv[1:], *("0", str(len(rows)))[len(sys.argv) - 1 :]])
    others = []
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name) / "checkout"
        shutil.copytree(REPOSITORY, copy, ignore=shutil.ignore_patterns(".*", "out", "build", "__pycache__"))
        for number, (file, old, new, test, expected) in enumerate(rows[first : first + count], start=first):
            caught = caught_by(copy, file, old, new, test).partition("[")[0]
            print(f"{number} {file}: {old!r} is caught by {caught}", flush=True)
            if caught != expected:
                others.append(f"{number}: {expected} is to catch it")
    if others:
        raise SystemExit("\n".join(others))


if __name__ == "__main__":
    main()
