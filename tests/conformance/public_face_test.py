"""Each package's face is written by hand, agrees with its `__all__`, and is documented."""

import ast
import dataclasses
import pathlib

import pytest

from tools.module_map import Module, source_modules


@pytest.fixture(scope="module")
def modules(root: pathlib.Path) -> dict[str, Module]:
    return {name: with_stub(module, root) for name, module in source_modules(root).items()}


def with_stub(module: Module, root: pathlib.Path) -> Module:
    """A module; of a lazy package the imports of its stub, and all of them in ``__all__``."""
    stub = (root / module.path).with_suffix(".pyi")
    if not stub.is_file():
        return module
    text = stub.read_text(encoding="utf-8")
    public = [
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    docstring = ast.get_docstring(module.tree)
    return dataclasses.replace(module, text=f'"""{docstring}"""\n{text}\n__all__ = {public}\n')


def faces(modules: dict[str, Module]) -> list[Module]:
    """The packages that re-export something."""
    found = [module for module in modules.values() if module.is_package and exported(module) is not None]
    assert found, "no package has an __all__"
    return found


def exported(module: Module) -> list[str] | None:
    """The literal value of `__all__`, or None where there is none."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            return list(ast.literal_eval(node.value))
    return None


def definitions(module: Module) -> list[ast.FunctionDef | ast.ClassDef]:
    """Functions and classes at the top of a module; of an overloaded function the one that runs."""
    return [
        node
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and "overload" not in [ast.unparse(decorator) for decorator in node.decorator_list]
    ]


def bound_names(module: Module) -> dict[str, str]:
    """Public name -> dotted origin of every import and definition at the top of a module."""
    origins: dict[str, str] = {}
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            origins |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            origins[node.name] = f"{module.name}.{node.name}"
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            origins |= {name: f"{module.name}.{name}" for name in names}
    return {name: origin for name, origin in origins.items() if not name.startswith("_")}


def test_all_agrees_with_the_imports(modules):
    wrong = []
    for module in faces(modules):
        names, listed = set(bound_names(module)), exported(module) or []
        lines = [f"{name} is in __all__ twice" for name in listed if listed.count(name) > 1]
        lines += [f"{name} is in __all__ but not imported" for name in sorted(set(listed) - names)]
        lines += [f"{name} is imported but not in __all__" for name in sorted(names - set(listed))]
        wrong += [f"{module.path}: {line}" for line in lines]
    assert wrong == [], "\n".join(wrong)


def test_a_package_that_imports_has_all(modules):
    packages = [module for module in modules.values() if module.is_package and bound_names(module)]
    assert [str(package.path) for package in packages if exported(package) is None] == []


def test_one_name_per_line(modules):
    crowded = [
        f"{module.path}:{node.lineno}"
        for module in faces(modules)
        for node in module.tree.body
        if isinstance(node, ast.ImportFrom) and len({alias.lineno for alias in node.names}) < len(node.names)
    ]
    assert crowded == [], "\n".join(crowded)


def test_public_names_have_docstrings(modules):
    origins = {origin for module in faces(modules) for origin in bound_names(module).values()}
    assert sorted(origin for origin in origins if not is_documented(origin, modules)) == []


def is_documented(origin: str, modules: dict[str, Module]) -> bool:
    """Whether the definition behind a dotted name, followed through re-exports, has a docstring.

    A constant counts as documented by its name and the comment above it.
    """
    if origin in modules:
        return ast.get_docstring(modules[origin].tree) is not None
    module_name, _, name = origin.rpartition(".")
    module = modules.get(module_name)
    if module is None:
        return False  # exported from somewhere that is not ours
    for node in definitions(module):
        if node.name == name:
            return ast.get_docstring(node) is not None
    next_origin = bound_names(module).get(name)
    if next_origin is None:
        return False
    return next_origin == origin or is_documented(next_origin, modules)


def test_modules_have_docstrings(modules):
    full = [module for module in modules.values() if module.tree.body]
    assert [str(module.path) for module in full if not ast.get_docstring(module.tree)] == []


def test_public_functions_and_classes_have_docstrings(modules):
    bare = [
        f"{module.path}:{node.lineno} {node.name}"
        for module in modules.values()
        for node in definitions(module)
        if not node.name.startswith("_")
        and node.name != "main"  # the module's docstring says what it runs
        and not ast.get_docstring(node)
    ]
    assert bare == [], "\n".join(bare)


def test_a_missing_docstring_is_seen(tmp_path):
    package = tmp_path / "colocation"
    package.mkdir()
    (package / "__init__.py").write_text("from colocation.a import f, g\n__all__ = ['f']\n")
    (package / "a.py").write_text("def f():\n    return 1\ndef g():\n    '''G.'''\n")
    found = source_modules(tmp_path)
    assert not is_documented("colocation.f", found)
    assert is_documented("colocation.g", found)
    assert not is_documented("colocation.missing", found)
    with pytest.raises(AssertionError, match="g is imported but not in __all__"):
        test_all_agrees_with_the_imports(found)
