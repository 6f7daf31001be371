"""Modules of the repository and their imports, read with ast; nothing is run.

    python -m tools.module_map          # prints every figure with its limit
    python -m tools.module_map --check  # exit status 1 where a figure is over its limit, or a limit has slack
    python -m tools.module_map --lower  # lowers the limits to the figures; raises none

The package is ``tf_placer/`` and ``colocation/``. The limits are in tools/limits.json. They only go down.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import itertools
import json
import pathlib
import re
import statistics
import sys
from collections.abc import Iterable, Iterator

SOURCE_ROOTS = ("colocation", "tf_placer", "experiments", "tools")
PACKAGE = ("colocation", "tf_placer")
LIMITS = pathlib.PurePosixPath("tools/limits.json")
# A limit further above its figure than this has to be lowered: 1 % of it, so that not every commit has to.
SLACK = 0.01

# Files that a reader opens, in this order, to follow one request of `place` from the command line to its page.
JOURNEY = (
    "__main__",
    *(f"command_line/{name}" for name in ("check_flags", "request", "place")),
    *(f"planning/{name}" for name in ("request", "find", "forecast", "log")),
    *(f"planning/{name}" for name in ("live", "forms", "fusing", "outcome")),
    *(f"search/{name}" for name in ("search", "round", "recorder", "combinators")),
    *(f"report/{name}" for name in ("sentences", "views")),
)  # fmt: skip
# Names of variables that say nothing of what they hold.
_NAMELESS = re.compile(
    "found|one|others?|more|known|asked|kept|said|told|given|made|here|there|some|each|every|own|its|what|taken|"
    "wanted|named|left|of|such|much|many|first|last|both|apart|alone|beside|without|away|ahead|alike"
)
_PRONOUN = re.compile(r"\b(it|that of|those|what is|what it|it is|who)\b")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)


@dataclasses.dataclass(frozen=True)
class Module:
    """One Python file of the repository.

    Attributes:
      name: dotted name; a package's ``__init__`` has the package's name.
      path: relative to the repository root.
      text: the source.
    """

    name: str
    path: pathlib.PurePosixPath
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        """The parsed source."""
        return ast.parse(self.text, str(self.path))

    @property
    def folder(self) -> str:
        """The folder as a dotted name, e.g. ``tf_placer.cluster``."""
        return ".".join(self.path.parts[:-1])

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def lines(self) -> int:
        return self.text.count("\n")


@functools.cache
def source_modules(root: pathlib.Path) -> dict[str, Module]:
    """Returns every module below SOURCE_ROOTS, by dotted name, sorted.

    Args:
      root: the repository root.

    Raises:
      SyntaxError: a file is not Python 3.11.
    """
    modules = {}
    for top in SOURCE_ROOTS:
        for file in sorted((root / top).rglob("*.py")):
            module = read_module(root, file)
            modules[module.name] = module
    return modules


def read_module(root: pathlib.Path, file: pathlib.Path) -> Module:
    """Reads and parses one file below root."""
    relative = pathlib.PurePosixPath(file.relative_to(root).as_posix())
    parts = relative.with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    module = Module(name, relative, file.read_text(encoding="utf-8"))
    assert module.tree  # a syntax error is raised here, with the file's name
    return module


def imported_modules(module: Module, known: dict[str, Module]) -> set[str]:
    """Returns the names in `known` that `module` imports, at any depth of its code.

    ``from package import name`` counts as the submodule where there is one, else as the
    package. Importing ``a.b.c`` also runs ``a`` and ``a.b``, which is not counted: every
    module would then depend on the public face of its package.
    """
    names: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _absolute_source(module, node)
            for alias in node.names:
                submodule = f"{source}.{alias.name}"
                names.add(submodule if submodule in known else source)
    return (names & known.keys()) - {module.name}


def _absolute_source(module: Module, node: ast.ImportFrom) -> str:
    """The dotted name behind ``from ... import``, with leading dots resolved."""
    if not node.level:
        return node.module or ""
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def figures(root: pathlib.Path) -> dict[str, float]:
    """Figure -> value, each better when lower. Modules and edges leave out ``__init__`` faces."""
    every = source_modules(root)
    package = {name: module for name, module in every.items() if name.split(".")[0] in PACKAGE}
    files = {name: module for name, module in package.items() if not module.is_package}
    lines = sum(module.lines for module in package.values())
    fan_out = [len(imported_modules(module, package)) for module in files.values()]
    nodes = [node for module in package.values() for node in ast.walk(module.tree)]
    stored = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    first_lines = [
        text.splitlines()[0]
        for node in nodes
        if isinstance(node, (ast.ClassDef, *_FUNCTIONS)) and (text := ast.get_docstring(node))
    ]
    journey = [package[f"tf_placer.{path.replace('/', '.')}"] for path in JOURNEY if _is_in(package, path)]
    return {
        "package lines": lines,
        "package bytes": sum(len(module.text.encode()) for module in package.values()),
        "code lines": sum(_code_lines(module) for module in package.values()),
        "modules": len(files),
        "lines of the largest module": max((module.lines for module in files.values()), default=0),
        "import edges per 1,000 lines": _rounded(1000 * sum(fan_out) / lines),
        "largest fan-out": max(fan_out, default=0),
        "functions": sum(isinstance(node, _FUNCTIONS) for node in nodes),
        "functions per 1,000 lines": _rounded(
            1000 * sum(isinstance(node, _FUNCTIONS) for node in nodes) / lines
        ),
        "files with topic headings": sum(_has_topic_headings(module) for module in package.values()),
        "nameless locals, %": _percentage(map(_NAMELESS.fullmatch, stored)),
        "pronouns in first lines, %": _percentage(map(_PRONOUN.search, first_lines)),
        "files on the place journey": len(journey),
        "files gone from the place journey": len(JOURNEY) - len(journey),
        "lines on the place journey": sum(module.lines for module in journey),
        "fields of Outcome": _fields(package, "tf_placer.planning.outcome", "Outcome"),
        "parameters of search": _parameters(package, "tf_placer.search.search", "search"),
        "settings of methods": sum(_is_setting(node) for node in nodes),
        "experiments lines": sum(
            module.lines for name, module in every.items() if name.split(".")[0] == "experiments"
        ),
        "tests lines": sum(
            file.read_text(encoding="utf-8").count("\n") for file in (root / "tests").rglob("*.py")
        ),
    }


def _rounded(value: float) -> float:
    return round(value, 2)


def _percentage(matches: Iterable[object]) -> float:
    is_match = [match is not None for match in matches]
    return _rounded(100 * sum(is_match) / max(len(is_match), 1))


def _is_in(package: dict[str, Module], path: str) -> bool:
    return f"tf_placer.{path.replace('/', '.')}" in package


def _code_lines(module: Module) -> int:
    """Lines that are neither blank nor a comment, nor in a docstring or an import statement."""
    prose: set[int] = set()
    for node in ast.walk(module.tree):
        text = node
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            text = node.body[0]
        elif not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        prose.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))  # type: ignore[attr-defined]
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in prose
        for number, line in enumerate(module.text.splitlines(), 1)
    )


def _has_topic_headings(module: Module) -> bool:
    """True if a comment in column 0 follows a blank line behind the first definition: a file of several topics."""
    starts = [node.lineno for node in module.tree.body if isinstance(node, (ast.ClassDef, *_FUNCTIONS))]
    rest = module.text.splitlines()[min(starts, default=0) :] if starts else []
    return any(not before.strip() and line.startswith("# ") for before, line in itertools.pairwise(rest))


def _is_setting(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setting"


def _fields(package: dict[str, Module], module: str, class_name: str) -> int:
    body = _definition(package, module, class_name)
    return sum(isinstance(node, ast.AnnAssign) for node in body.body) if isinstance(body, ast.ClassDef) else 0


def _parameters(package: dict[str, Module], module: str, function: str) -> int:
    node = _definition(package, module, function)
    return len(node.args.args) + len(node.args.kwonlyargs) if isinstance(node, ast.FunctionDef) else 0


def _definition(package: dict[str, Module], module: str, name: str) -> ast.stmt | None:
    body = package[module].tree.body if module in package else []
    return next((node for node in body if getattr(node, "name", None) == name), None)


def limits(root: pathlib.Path) -> dict[str, float]:
    """Figure -> limit, of tools/limits.json."""
    return dict(json.loads((root / LIMITS).read_text(encoding="utf-8")))


def violations(now: dict[str, float], limit_of: dict[str, float]) -> list[str]:
    """One line for each figure over its limit, without one, or so far below that the limit has to be lowered."""
    lines = [f"{name}: no such figure; take it out of {LIMITS}" for name in limit_of.keys() - now.keys()]
    for name, value in now.items():
        if name not in limit_of:
            lines.append(f"{name}: {value:,} has no limit in {LIMITS}")
        elif value > limit_of[name]:
            lines.append(f"{name}: {value:,} is over the limit of {limit_of[name]:,}, which is never raised")
        elif value < limit_of[name] * (1 - SLACK):
            lines.append(
                f"{name}: {value:,} is well below {limit_of[name]:,}: python -m tools.module_map --lower"
            )
    return lines


def lowered(now: dict[str, float], limit_of: dict[str, float]) -> dict[str, float]:
    """The limits, each at its figure where that is lower; a figure without a limit gets one."""
    return {name: min(value, limit_of.get(name, value)) for name, value in now.items()}


def report(root: pathlib.Path) -> str:
    """Every figure with its limit, the largest fan-outs, and folders by size, as text."""
    modules = source_modules(root)
    limit_of = limits(root) if (root / LIMITS).exists() else {}
    fan_out = {name: len(imported_modules(module, modules)) for name, module in modules.items()}
    folders: dict[str, int] = {}
    for module in modules.values():
        folders[module.folder] = folders.get(module.folder, 0) + module.lines
    median = statistics.median(module.lines for module in modules.values())
    return "\n".join(
        [
            f"{len(modules)} modules with experiments and tools, {median:.0f} lines in the median module",
            f"{'figure':32} {'now':>12} {'limit':>12}",
            *(f"{name:32} {value:12,} {_limit(limit_of, name):>12}" for name, value in figures(root).items()),
            "largest fan-out:",
            *(f"  {count:3} {name}" for name, count in _most(fan_out, 5)),
            f"{len(folders)} folders, lines:",
            *(f"  {count:6,} {name}" for name, count in _most(folders, len(folders))),
        ]
    )


def _limit(limit_of: dict[str, float], name: str) -> str:
    return f"{limit_of[name]:,}" if name in limit_of else "none"


def _most(counts: dict[str, int], number: int) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:number]


def main(arguments: Iterator[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare the figures with their limits")
    parser.add_argument("--lower", action="store_true", help="lower the limits to the figures")
    options = parser.parse_args(None if arguments is None else list(arguments))
    root = pathlib.Path(__file__).resolve().parent.parent
    if options.lower:
        limit_of = limits(root) if (root / LIMITS).exists() else {}
        text = json.dumps(lowered(figures(root), limit_of), indent=2) + "\n"
        temporary = root / LIMITS.with_suffix(".new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(root / LIMITS)
    if not options.check:
        print(report(root))
        return 0
    lines = violations(figures(root), limits(root))
    print("\n".join(lines) if lines else "every figure is within its limit")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
