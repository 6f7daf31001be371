"""Writes the BUILD files of the Python folders from the modules that are there.

    python -m tools.sync_build

One ``py_library`` for each folder, its ``deps`` from the imports; in ``tf_placer/`` itself one for
each module, because ``errors`` is at the bottom of the layout and the public face at the top.
One ``pytest_test`` for each test file. ``tests/conformance/build_files_test.py`` fails when a
file on disk differs from what this writes. BUILD files that do not start with HEADER are
written by hand and left alone.
"""

from __future__ import annotations

import pathlib
import sys

from tools.module_map import Module, imported_modules, read_module, source_modules, started_modules

HEADER = "# Written by `make build-files` from the files beside it; edit tools/sync_build.py instead.\n"

_VISIBILITY = 'package(default_visibility = ["//visibility:public"])\n'
# Split into one target for each module, see above.
_SPLIT_FOLDER = "tf_placer"
# What a folder's modules need beyond files of their own folder.
_EXTRA_DATA = {"tf_placer.ops": ["//tf_placer/ops/cc:libtf_placer_ops.so", "//tf_placer/ops/cc:sources"]}
# These tests look at the checkout as a whole.
_WHOLE_CHECKOUT = "tests/conformance"
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
    modules = source_modules(root)
    folders: dict[str, list[Module]] = {}
    for module in modules.values():
        folders.setdefault(module.folder, []).append(module)
    files = {
        f"{folder.replace('.', '/')}/BUILD": _render_source_folder(root, folder, members, modules)
        for folder, members in folders.items()
    }
    test_folders = sorted({file.parent for file in (root / "tests").rglob("*.py")})
    # tests/conformance names every other package, itself included.
    packages = [*(str(pathlib.PurePosixPath(path).parent) for path in files)]
    packages += [folder.relative_to(root).as_posix() for folder in test_folders]
    for folder in test_folders:
        path = folder.relative_to(root).as_posix()
        files[f"{path}/BUILD"] = _render_test_folder(root, folder, modules, packages)
    return files


def _render_source_folder(
    root: pathlib.Path, folder: str, members: list[Module], modules: dict[str, Module]
) -> str:
    """The BUILD file of a folder of modules."""
    data = _data_files(root / folder.replace(".", "/")) + _EXTRA_DATA.get(folder, [])
    if folder == _SPLIT_FOLDER:
        targets = [([member], data if member.is_package else []) for member in members]
    else:
        targets = [(members, data)]
    rules = []
    for target_members, target_data in targets:
        label = _label(target_members[0])
        uses: set[str] = set()
        for member in target_members:
            uses |= imported_modules(member, modules) | started_modules(member, modules)
        rules.append(
            _rule(
                "py_library",
                name=label.partition(":")[2],
                srcs=[member.path.name for member in target_members],
                data=target_data,
                deps=_labels(uses, modules, without=label, package="//" + folder.replace(".", "/")),
            )
        )
    if folder == "tools":
        rules.insert(0, 'exports_files(["pytest_main.py"])\n')
    return "\n".join([HEADER + _VISIBILITY, *rules, _checkout()])


def _render_test_folder(
    root: pathlib.Path, folder: pathlib.Path, modules: dict[str, Module], packages: list[str]
) -> str:
    """The BUILD file of a folder of tests."""
    path = folder.relative_to(root).as_posix()
    files = [read_module(root, file) for file in sorted(folder.glob("*.py"))]
    support = [file for file in files if not file.path.name.endswith("_test.py")]
    data = _data_files(folder)
    if path == _WHOLE_CHECKOUT:
        data += [
            "//:checkout",
            "//tf_placer/ops/cc:sources",
            *(f"//{package}:checkout" for package in packages),
        ]
    load = 'load("//tools:pytest.bzl", "pytest_test")\n'
    rules = []
    for file in files:
        if file in support:
            continue
        uses: set[str] = set()
        for member in [file, *support]:
            uses |= imported_modules(member, modules) | started_modules(member, modules)
        rules.append(
            _rule(
                "pytest_test",
                name=file.path.stem,
                src=file.path.name,
                support=[member.path.name for member in support],
                data=data,
                deps=_labels(uses, modules, without=""),
            )
        )
    return "\n".join([HEADER + load, _VISIBILITY, *rules, _checkout()])


def _label(module: Module) -> str:
    """The target that holds a module."""
    package = "//" + "/".join(module.path.parts[:-1])
    folder_name = module.path.parts[-2]
    if module.folder != _SPLIT_FOLDER or module.is_package:
        return f"{package}:{folder_name}"
    return f"{package}:{module.path.stem}"


def _labels(names: set[str], modules: dict[str, Module], without: str, package: str = "") -> list[str]:
    """The sorted targets of the named modules, short where Bazel allows."""
    labels = sorted({_label(modules[name]) for name in names} - {without})
    return [_short(label, package) for label in labels]


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
            found.append(entry.name)
        elif not (entry / "BUILD").exists() and not any(entry.rglob("*.py")):
            found += [f"{entry.name}/{inner}" for inner in _data_files(entry)]
    return sorted(found)


def _checkout() -> str:
    """A target for tests that read the checkout itself."""
    return 'filegroup(\n    name = "checkout",\n    srcs = glob(["*"]),\n)\n'


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
