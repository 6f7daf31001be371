"""BUILD files have every module in a library and every test file in a test."""

import ast
import pathlib
import re

from tools.module_map import SOURCE_ROOTS, source_modules


def packages_of(root: pathlib.Path) -> list[pathlib.Path]:
    """Folders with a BUILD file, the sources and the tests of Bazel's packages."""
    found = [file.parent for top in (*SOURCE_ROOTS, "tests") for file in (root / top).rglob("BUILD")]
    assert found, "no BUILD file found: the test looks in the wrong place"
    return found


def rules_of(package: pathlib.Path) -> dict[str, dict[str, ast.expr]]:
    """Rule or macro -> attributes, of a BUILD file; its syntax is a subset of Python's."""
    return {
        node.func.id: {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        for node in ast.walk(ast.parse((package / "BUILD").read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def globbed(package: pathlib.Path, pattern: str) -> set[pathlib.Path]:
    """Files that Bazel's ``glob`` finds: those of a package, not of the packages below it."""
    below = [file.parent for file in package.rglob("BUILD") if file.parent != package]
    return {file for file in package.glob(pattern) if not any(folder in file.parents for folder in below)}


def in_libraries(root: pathlib.Path) -> set[pathlib.Path]:
    """The modules of all ``python_folder`` macros (tools/python.bzl)."""
    return {
        file
        for package in packages_of(root)
        if "python_folder" in rules_of(package)
        for file in globbed(package, "**/*.py")
        if not file.name.endswith("_test.py")
    }


def in_tests(root: pathlib.Path) -> set[pathlib.Path]:
    """The files of all ``pytest_tests`` macros (tools/pytest.bzl)."""
    found: set[pathlib.Path] = set()
    for package in packages_of(root):
        files = rules_of(package).get("pytest_tests", {}).get("files")
        if files is not None:
            assert isinstance(files, ast.Call) and ast.unparse(files.func) == "glob"
            for pattern in ast.literal_eval(files.args[0]):
                found |= globbed(package, pattern)
    return found


def missing(root: pathlib.Path) -> list[str]:
    """Modules that are in no library, and test files that are in no test."""
    files = {file for top in (*SOURCE_ROOTS, "tests") for file in (root / top).rglob("*.py")}
    return sorted(str(file.relative_to(root)) for file in files - in_libraries(root) - in_tests(root))


def test_every_module_is_in_a_library_and_every_test_file_in_a_test(root):
    assert missing(root) == []
    assert in_tests(root) == set((root / "tests").rglob("*_test.py"))


def test_bazel_runs_nothing_beside_what_is_marked_alone(root):
    marked = {
        file.relative_to(root / "tests").as_posix()
        for file in (root / "tests").rglob("*_test.py")
        if any(
            isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.alone"
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        )
    }
    alone = ast.literal_eval(rules_of(root / "tests")["pytest_tests"]["alone"])
    assert marked and set(alone) == marked


def test_a_file_of_a_package_without_a_macro_is_missing(tmp_path):
    (tmp_path / "tests" / "docs").mkdir(parents=True)
    (tmp_path / "tests" / "BUILD").write_text('pytest_tests(files = glob(["**/*_test.py"]))\n')
    for name in ("tests/a_test.py", "tests/docs/b_test.py", "tests/shared.py"):
        (tmp_path / name).write_text("")
    assert missing(tmp_path) == ["tests/shared.py"]
    (tmp_path / "tests" / "docs" / "BUILD").write_text('python_folder(name = "docs")\n')
    assert missing(tmp_path) == ["tests/docs/b_test.py", "tests/shared.py"]


def test_build_files_are_short(root):
    files = [*(root / "third_party").rglob("BUILD"), *(at / "BUILD" for at in (root, *packages_of(root)))]
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) < 800


def test_every_test_file_has_a_test(root):
    # Bazel's runner accepts a file whose tests are all slow, so an empty file must be caught here.
    assert [
        str(file.relative_to(root))
        for file in (root / "tests").rglob("*_test.py")
        if not any(
            isinstance(node, ast.FunctionDef) and node.name.startswith("test")
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        )
    ] == []


def test_bazel_compiles_the_op_as_the_package_does(root):
    [flags] = [
        ast.literal_eval(node.value)
        for node in source_modules(root)["tf_placer.ops.build"].tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_FLAGS"
    ]
    build_text = (root / "tf_placer/ops/cc/BUILD").read_text(encoding="utf-8")
    shaping = [flag for flag in flags if flag.startswith(("-O", "-D", "-m"))]
    assert shaping, "tf_placer/ops/build.py no longer names its optimization level in _FLAGS"
    assert [flag for flag in shaping if f'"{flag}"' not in build_text] == []


def test_no_test_imports_another(root):
    """A test file is no library, to Bazel either: what two need is a file of its own."""
    importers = [
        f"{path.relative_to(root)}: {line}"
        for path in sorted((root / "tests").rglob("*.py"))
        for line in path.read_text(encoding="utf8").splitlines()
        if re.match(r"(from|import) tests\.\S+_test\b", line)
    ]
    assert importers == [], "\n".join(importers)
