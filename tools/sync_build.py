"""Writes the BUILD files of the Python folders from the modules that are there.

    python -m tools.sync_build

One ``py_library`` for each folder, its ``deps`` from the imports; in ``tf_placer/`` itself one for
each module, because ``errors`` is at the bottom of the layout and the public face at the top.
One ``pytest_test`` for each test file, and a library ``support`` of what a folder's tests share.
``tests/conformance/build_files_test.py`` fails when a file on disk differs from what this writes.
BUILD files that do not start with HEADER are written by hand and left alone.
"""

from __future__ import annotations

import pathlib
import sys

from tools.module_map import Module, imported_modules, read_module, source_modules, started_modules

HEADER = "# Written by `make build-files` from the files beside it; edit tools/sync_build.py instead.\n"

_VISIBILITY = 'package(default_visibility = ["//visibility:public"])\n'
# For the tests that read the checkout itself.
_CHECKOUT = """\
filegroup(
    name = "checkout",
    srcs = glob(
        ["**"],
        exclude = [
            "**/*.pyc",
            "**/*.so",
        ],
    ),
)
"""
# Split into one target for each module, see above.
_SPLIT_FOLDER = "tf_placer"
# What a folder's modules need beyond files of their own folder.
_EXTRA_DATA = {
    "tf_placer/workers": [
        "//tf_placer/workers/cc:libtf_placer_loopback.so",
        "//tf_placer/workers/cc:sources",
    ],
    "tf_placer/ops": ["//tf_placer/ops/cc:libtf_placer_ops.so", "//tf_placer/ops/cc:sources"],
}
_SOURCES_IN_C = ["//tf_placer/workers/cc:sources", "//tf_placer/ops/cc:sources"]
# These tests look at the checkout as a whole.
_WHOLE_CHECKOUT = ("tests/conformance", "tests/docs")
_NOT_DATA = {".py", ".pyc", ".so", ".new"}


def main() -> None:
    """Writes every BUILD file that differs, and says which."""
    root = pathlib.Path(__file__).resolve().parent.parent
    for path, text in render_all(root).items():
        file = root / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {path}\n")


def render_all(root: pathlib.Path) -> dict[str, str]:
    """Returns what each generated BUILD file must hold, by its path relative to the root."""
    sources = source_modules(root)
    tests = [read_module(root, file) for file in sorted((root / "tests").rglob("*.py"))]
    support = {module.name: module for module in tests if not _is_test(module)}
    known = sources | support
    packages = sorted({module.folder.replace(".", "/") for module in [*sources.values(), *tests]})
    rendered = {}
    for package in packages:
        if package.split("/")[0] == "tests":
            members = [module for module in tests if module.folder.replace(".", "/") == package]
            text = _render_test_folder(root / package, package, members, known, packages)
        else:
            members = [module for module in sources.values() if module.folder.replace(".", "/") == package]
            text = _render_source_folder(root / package, package, members, known)
        rendered[f"{package}/BUILD"] = text
    return rendered


def _render_source_folder(
    folder: pathlib.Path, package: str, members: list[Module], known: dict[str, Module]
) -> str:
    """The BUILD file of a folder of modules."""
    data = _data_files(folder) + _EXTRA_DATA.get(package, [])
    if package == _SPLIT_FOLDER:
        targets = [([member], data if member.is_package else []) for member in members]
    else:
        targets = [(members, data)]
    rules = [_library(group, group_data, known) for group, group_data in targets]
    if package == "tools":
        rules.insert(0, 'exports_files(["pytest_main.py"])\n')
    return "\n".join([HEADER + _VISIBILITY, *rules, _CHECKOUT])


def _render_test_folder(
    folder: pathlib.Path, package: str, members: list[Module], known: dict[str, Module], packages: list[str]
) -> str:
    """The BUILD file of a folder of tests: its test files, and a library of what they share."""
    data = _data_files(folder)
    if package in _WHOLE_CHECKOUT:
        data += ["//:checkout", *_SOURCES_IN_C, *(f"//{name}:checkout" for name in packages)]
    rules = []
    shared = [module for module in members if not _is_test(module)]
    if shared:
        rules.append(_library(shared, data, known))
    # A conftest.py reaches the folders below its own.
    above = {_label(module) for module in known.values() if _is_conftest_above(module, package)}
    for member in members:
        if _is_test(member):
            deps = _targets_used([member], known) | above | {_label(module) for module in shared}
            rules.append(
                _rule(
                    "pytest_test",
                    name=member.path.stem,
                    src=member.path.name,
                    data=data,
                    deps=_labels(deps, "//" + package),
                )
            )
    load = 'load("//tools:pytest.bzl", "pytest_test")\n\n'
    return "\n".join([HEADER + load + _VISIBILITY, *rules, _CHECKOUT])


def _is_test(module: Module) -> bool:
    return module.path.name.endswith("_test.py")


def _is_conftest_above(module: Module, package: str) -> bool:
    return module.path.name == "conftest.py" and package.startswith(f"{module.path.parent}/")


def _library(members: list[Module], data: list[str], known: dict[str, Module]) -> str:
    """A py_library of some modules of one folder."""
    label = _label(members[0])
    package, _, name = label.partition(":")
    deps = _labels(_targets_used(members, known) - {label}, package)
    return _rule("py_library", name=name, srcs=[member.path.name for member in members], data=data, deps=deps)


def _targets_used(members: list[Module], known: dict[str, Module]) -> set[str]:
    """The full labels of what some modules import or start."""
    used: set[str] = set()
    for member in members:
        used |= imported_modules(member, known) | started_modules(member, known)
    return {_label(known[name]) for name in used}


def _label(module: Module) -> str:
    """The target that holds a module."""
    package = "//" + "/".join(module.path.parts[:-1])
    if module.path.parts[0] == "tests":
        return f"{package}:support"
    if module.folder != _SPLIT_FOLDER or module.is_package:
        return f"{package}:{module.path.parts[-2]}"
    return f"{package}:{module.path.stem}"


def _labels(labels: set[str], package: str) -> list[str]:
    """Labels sorted, and as short as Bazel allows in a package."""
    return [_short(label, package) for label in sorted(labels)]


def _short(label: str, package: str) -> str:
    folder, _, name = label.partition(":")
    if folder == package:
        return f":{name}"
    return folder if folder.rsplit("/", 1)[-1] == name else label


def _data_files(folder: pathlib.Path) -> list[str]:
    """Files of a folder, or of its subfolders without code: presets, schemas, recorded test inputs."""
    found = []
    for entry in folder.iterdir():
        if entry.name[0] in "._" or entry.name == "BUILD" or entry.suffix in _NOT_DATA:
            continue
        if entry.is_file():
            # Bazel puts a test's launcher beside it, named like the test without a suffix.
            found += [entry.name] if entry.suffix else []
        elif not (entry / "BUILD").exists() and not any(entry.rglob("*.py")):
            found += [f"{entry.name}/{inner}" for inner in _data_files(entry)]
    return sorted(found)


def _rule(kind: str, **attributes: str | list[str]) -> str:
    """One rule in Bazel's own layout; empty attributes are left out."""
    lines = [f"{kind}("]
    for key, value in attributes.items():
        if isinstance(value, str):
            lines.append(f'    {key} = "{value}",')
        elif len(value) == 1:
            lines.append(f'    {key} = ["{value[0]}"],')
        elif value:
            lines += [f"    {key} = [", *(f'        "{item}",' for item in value), "    ],"]
    return "\n".join([*lines, ")"]) + "\n"


if __name__ == "__main__":
    main()
