"""Modules of the repository and their imports, read with ast; nothing is run.

    python -m tools.module_map

prints how large and how tangled the source is: modules and lines, import edges per 1,000 lines, the modules that import
most others, folders by size, and docstrings that begin with a question word.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
import re
import statistics

SOURCE_ROOTS = ("colocation", "tf_placer", "experiments", "tools")


@dataclasses.dataclass(frozen=True)
class Module:
    """One Python file of the repository.

    Attributes:
      name: dotted name; a package's ``__init__`` has the package's name.
      path: relative to the repository root.
      tree: the parsed source.
    """

    name: str
    path: pathlib.PurePosixPath
    tree: ast.Module

    @property
    def folder(self) -> str:
        """The folder as a dotted name, e.g. ``tf_placer.cluster``."""
        return ".".join(self.path.parts[:-1])

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


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
    """Parses one file below root."""
    relative = pathlib.PurePosixPath(file.relative_to(root).as_posix())
    parts = relative.with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, relative, ast.parse(file.read_text(encoding="utf-8"), str(relative)))


def imported_modules(module: Module, known: dict[str, Module]) -> set[str]:
    """Returns the names in `known` that `module` imports, at any depth of its code.

    ``from package import name`` counts as the submodule where there is one, else as the
    package. Importing ``a.b.c`` also runs ``a`` and ``a.b``, which is not counted: every
    module would then depend on the public face of its package.
    """
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _absolute_source(module, node)
            for alias in node.names:
                submodule = f"{source}.{alias.name}"
                found.add(submodule if submodule in known else source)
    return (found & known.keys()) - {module.name}


def _absolute_source(module: Module, node: ast.ImportFrom) -> str:
    """The dotted name behind ``from ... import``, with leading dots resolved."""
    if not node.level:
        return node.module or ""
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def report(root: pathlib.Path) -> str:
    """The figures of ``SOURCE_ROOTS`` as text; lines are all lines of a file."""
    modules = source_modules(root)
    lines = {
        name: len((root / module.path).read_text(encoding="utf-8").splitlines())
        for name, module in modules.items()
    }
    fan_out = {name: len(imported_modules(module, modules)) for name, module in modules.items()}
    folders: dict[str, int] = {}
    for name, module in modules.items():
        folders[module.folder] = folders.get(module.folder, 0) + lines[name]
    docstrings = [text for module in modules.values() for text in _docstrings(module)]
    asking = sum(re.match(r"(What|Which|How|Where)\b", text) is not None for text in docstrings)
    total, edges = sum(lines.values()), sum(fan_out.values())
    return "\n".join(
        [
            f"{len(modules)} modules, {total:,} lines, {statistics.median(lines.values()):.0f} in the median module",
            f"{edges:,} import edges, {1000 * edges / total:.1f} per 1,000 lines",
            "largest fan-out:",
            *(f"  {count:3} {name}" for name, count in _most(fan_out, 5)),
            f"{asking / len(docstrings):.1%} of {len(docstrings):,} docstrings begin with What/Which/How/Where",
            f"{len(folders)} folders, lines:",
            *(f"  {count:6,} {name}" for name, count in _most(folders, len(folders))),
        ]
    )


def _docstrings(module: Module) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(module.tree) if isinstance(node, kinds))
    return [text for text in found if text]


def _most(counts: dict[str, int], number: int) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:number]


if __name__ == "__main__":
    print(report(pathlib.Path(__file__).resolve().parent.parent))
