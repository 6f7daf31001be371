"""One module alone knows what is private in TensorFlow, and the installed TensorFlow has it.

Source is read with ast, so a name is private by its form. ``x._name`` counts as TensorFlow's unless x is ``self``,
``cls`` or ``super()``, or the same module defines ``_name``; it does not matter what x is, because ast cannot tell.
``self._name`` counts where no module of ours defines ``_name``: then it is a base class's. ``getattr`` and its kin with
a literal name count as the attribute. The few private names of other libraries are listed below.
"""

import ast
import importlib
import pathlib
import textwrap
from collections.abc import Iterator

import pytest
import tensorflow as tf

from tools.module_map import Module, source_modules

INTERNALS = "colocation.tensorflow_internals"

OF_NAMED_TUPLES = {"_asdict", "_make", "_replace"}  # a StructuredTensor of TensorFlow has private _fields
# (module, private name) -> whose it is.
OF_OTHERS = {
    ("tf_placer.rewrite.variables", "_current_frames"): "of sys, which documents it",
    ("tf_placer.workers.fork_server_process", "_exit"): "of os, which documents it",
}


@pytest.fixture(scope="module")
def modules(root: pathlib.Path) -> dict[str, Module]:
    return source_modules(root)


def private_imports(module: Module) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of imports from ``tensorflow.python``; the name is empty for a whole module."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if f"{node.module}.{alias.name}.".startswith("tensorflow.python."):
                    yield node.lineno, node.module, alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if f"{alias.name}.".startswith("tensorflow.python."):
                    yield node.lineno, alias.name, ""
        elif isinstance(node, ast.Call):  # importlib.import_module and its kin
            for value in node.args[:1]:
                if isinstance(value, ast.Constant) and f"{value.value}.".startswith("tensorflow.python."):
                    yield node.lineno, value.value, ""


def is_private(name: object) -> bool:
    return isinstance(name, str) and name[:1] == "_" != name[1:2] and name not in OF_NAMED_TUPLES | {"_"}


def defined_names(module: Module) -> set[str]:
    """Private names that a module makes: functions, classes, methods, fields, globals, attributes of ``self``."""
    names = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            names.add(node.attr)
    return {name for name in names if is_private(name)}


def is_self(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_attributes(module: Module, ours: set[str]) -> Iterator[tuple[int, str]]:
    """(line, text) of each private attribute that a module reads or writes of an object that is not its own."""
    here = defined_names(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            owner, name = node.value, node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "setattr", "hasattr", "delattr")
            and len(node.args) > 1
            and isinstance(node.args[1], ast.Constant)
        ):
            owner, name = node.args[0], node.args[1].value
        else:
            continue
        known = ours if is_self(owner) else here
        if is_private(name) and name not in known and (module.name, name) not in OF_OTHERS:
            yield node.lineno, ast.unparse(node)


def test_one_module_imports_what_is_private(modules):
    others = [
        f"{module.path}:{line} imports {source} {name}".strip()
        for module in modules.values()
        if module.name != INTERNALS
        for line, source, name in private_imports(module)
    ]
    assert others == [], f"put a function for it into {modules[INTERNALS].path}:\n" + "\n".join(others)


def test_one_module_touches_private_attributes(modules):
    ours = set().union(*(defined_names(module) for module in modules.values()))
    others = [
        f"{module.path}:{line} {text}"
        for module in modules.values()
        if module.name != INTERNALS
        for line, text in private_attributes(module, ours)
    ]
    assert others == [], f"put a function for it into {modules[INTERNALS].path}:\n" + "\n".join(others)


def test_the_list_of_others_is_needed(modules):
    used = {
        (name, node.attr)
        for name, module in modules.items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
    }
    assert OF_OTHERS.keys() - used == set()


def test_the_installed_tensorflow_has_each_name(modules):
    # Without importing our module, which fails as a whole when one name is gone.
    imports = list(private_imports(modules[INTERNALS]))
    assert imports, "no import found: the test looks in the wrong place"
    gone = [f"{source}.{name}" for _, source, name in imports if not exists(source, name)]
    assert gone == [], (
        f"TensorFlow {tf.__version__} has moved these; change {modules[INTERNALS].path}: {', '.join(gone)}"
    )


def exists(source: str, name: str) -> bool:
    """Whether a module has an attribute or a submodule of this name."""
    for candidate in (source, f"{source}.{name}"):
        try:
            found = importlib.import_module(candidate)
        except ImportError:
            continue
        if candidate != source or hasattr(found, name):
            return True
    return False


def test_the_installed_tensorflow_lacks_a_name_that_is_not_there():
    assert exists("tensorflow.python.eager", "context")
    assert exists("tensorflow.python.framework.func_graph", "FuncGraph")
    assert not exists("tensorflow.python.framework.func_graph", "FunkGraph")
    assert not exists("tensorflow.python.no_such_folder", "context")


def test_the_rules_see_a_violation():
    text = """
        import importlib
        import tensorflow.python.ops as a
        from tensorflow import python
        from tensorflow.python.eager import context
        from tensorflow.core.framework import types_pb2
        b = importlib.import_module("tensorflow.python.keras")

        class Ours:
            def __init__(self, other):
                self._x = other._handle
                self._inherited()
                other._x = 1
                other.__class__
                getattr(other, "_captured_inputs")
                del other.function._cache[0]
                other._replace(x=1)

        def f(ours):
            return ours._x
    """
    module = Module("f", pathlib.PurePosixPath("f.py"), ast.parse(textwrap.dedent(text)))
    assert [(source, name) for _, source, name in sorted(private_imports(module))] == [
        ("tensorflow.python.ops", ""),
        ("tensorflow", "python"),
        ("tensorflow.python.eager", "context"),
        ("tensorflow.python.keras", ""),
    ]
    assert [text for _, text in sorted(private_attributes(module, {"_x"}))] == [
        "other._handle",
        "self._inherited",
        "getattr(other, '_captured_inputs')",
        "other.function._cache",
    ]
