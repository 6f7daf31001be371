"""A function in a user's script: ``FILE.py:NAME`` or ``package.module:NAME``, imported and found, or why not."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError, told

_FORM = "write FILE.py:NAME or package.module:NAME"


class _ScriptLoader(importlib.machinery.SourceFileLoader):
    """Loads a script without writing ``__pycache__``."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Called with the compiled script, which is not kept."""


class Called(SystemExit):
    """Ends a script, with its module as ``code``, at its call of the placed function; passes ``except Exception``."""


@dataclasses.dataclass(frozen=True)
class Script:
    """Script and name, ``FILE.py:NAME``."""

    said: str  # as the user wrote it
    file: pathlib.Path | None  # the script; None where a module is named
    module: str  # dotted name of the module, or the name that the script gets
    name: str  # what is meant in it; dots lead into objects

    @staticmethod
    def named(said: str) -> Script:
        """Reads ``FILE.py:NAME`` or ``package.module:NAME``; imports nothing.

        Raises InputError where there is no such file or module, as far as that can be told without an import.
        """
        where, _, name = said.rpartition(":")
        if not where or not all(part.isidentifier() for part in name.split(".")):
            raise InputError(f"{said} names no function of a script; {_FORM}")
        is_file = where.endswith(".py") or os.sep in where or pathlib.Path(where).is_file()
        if not is_file:
            if not all(part.isidentifier() for part in where.split(".")):
                raise InputError(f"{said}: {where!r} is no script and no module; {_FORM}")
            script, top = Script(said, None, where, name), where.partition(".")[0]
            if top not in sys.modules and top not in sys.builtin_module_names:
                path = [str(pathlib.Path.cwd()), *sys.path]
                spec = importlib.machinery.PathFinder.find_spec(top, path)
                if spec is None or (spec.loader is None and top == where):  # a folder without __init__.py
                    raise script._not_found(top)
            return script
        file = pathlib.Path(where)
        if not file.is_file():
            why = "that is a folder" if file.is_dir() else "no such file"
            raise InputError(f"{said}: {why}; {_FORM}")
        if file.suffix != ".py":
            raise InputError(f"{said}: {file.name} is no Python script; {_FORM}")
        # The file's own name, so that other scripts can import the module, unless the name is taken.
        loaded, module = sys.modules.get(file.stem), file.stem
        is_free = loaded is None or getattr(loaded, "__file__", None) == str(file.resolve())
        if not is_free or module in sys.stdlib_module_names:
            module = f"script_{module}"
        return Script(said, file.resolve(), module, name)

    def _not_found(self, module: str) -> InputError:
        return InputError(
            f"{self.said}: there is no module {module!r} in this folder or among those installed; {_FORM}"
        )

    @property
    def path(self) -> str:
        """The file's name in tracebacks."""
        if self.file is not None:
            return str(self.file)
        return str(getattr(sys.modules.get(self.module), "__file__", None) or self.module)

    def imported(self) -> types.ModuleType:
        """Runs the script as a module, not as ``__main__``; its folder is on ``sys.path`` from then on.

        A module is looked for in the working folder first. ``Called`` ends the script, and is no failure.
        """
        folder = str(self.file.parent if self.file is not None else pathlib.Path.cwd())
        if folder not in sys.path:
            sys.path.insert(0, folder)
        with _arguments_of_a_script(self.path), self.errors_told("it must run when it is imported"):
            if self.file is None:
                try:
                    return importlib.import_module(self.module)
                except Called as call:
                    called: Any = call.code
                    sys.modules[self.module] = called  # an import that does not end is forgotten
                    return called
                except ModuleNotFoundError as error:
                    if error.name is None or not f"{self.module}.".startswith(f"{error.name}."):
                        raise  # one that the module imports
                    raise self._not_found(error.name) from None
            loader = _ScriptLoader(self.module, str(self.file))
            spec = importlib.util.spec_from_file_location(self.module, self.file, loader=loader)
            assert spec is not None and spec.loader is not None  # a .py file has both
            module = importlib.util.module_from_spec(spec)
            sys.modules[self.module] = module
            with contextlib.suppress(Called):
                spec.loader.exec_module(module)
            return module

    def run_as_main(self) -> types.ModuleType:
        """Runs the script once more, as ``python SCRIPT`` does; its names replace the module's."""
        before, imported = sys.modules["__main__"], sys.modules[self.module]
        main = types.ModuleType("__main__")
        main.__dict__.update(__file__=self.path, __package__=imported.__package__, __imported__=imported)
        remedy = (
            f"it runs as __main__ up to its first call of {self.name}; set {self.args_name} to do without"
        )
        with _arguments_of_a_script(self.path), self.errors_told(remedy, remedy):
            sys.modules["__main__"] = sys.modules[self.module] = main
            try:
                exec(self.code(), main.__dict__)
            except SystemExit as error:
                if not isinstance(error, Called) and error.code not in (None, 0):
                    raise
            finally:
                sys.modules["__main__"] = before
        return main

    @property
    def args_name(self) -> str:
        """Name in the script for the arguments of a function."""
        return f"{self.name.replace('.', '_')}_args"

    def code(self) -> types.CodeType:
        """The compiled script, after its import; empty for a module without text."""
        code = None
        if self.path.endswith(".py"):
            code = _ScriptLoader(self.module, self.path).get_code(self.module)
        return code or compile("", self.path, "exec")

    def find(self, module: types.ModuleType, args: str | None = None) -> Any:
        """Object of a name in the script: the function itself, or the value of ``--args``."""
        value: Any = module
        for part in (args or self.name).split("."):
            if not hasattr(value, part):
                names = [name for name in dir(value) if not name.startswith("_")]
                owner = "the script" if value is module else arguments.shown(value)
                text = self.said if args is None else f"--args={args}"
                raise InputError(f"{text}: {owner} has no {part!r}; {arguments.nearest(part, names)}")
            value = getattr(value, part)
        return value

    @contextlib.contextmanager
    def errors_told(
        self, remedy: str, at_exit: str = 'put that behind `if __name__ == "__main__":`'
    ) -> Iterator[None]:
        """Turns errors of the user's code into one line with the error and the script's line."""
        try:
            yield
        except InputError:
            raise
        except SystemExit as error:
            raise InputError(f"{self.said}: it ends the process (exit {error.code}); {at_exit}") from None
        except Exception as error:  # a script can raise anything
            message, frames = told(error), traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == self.path]
            # What autograph has rewritten is in no traceback: TensorFlow says in its message where it was.
            lines += map(int, re.findall(rf'File "{re.escape(self.path)}", line (\d+)', str(error)))
            if isinstance(error, SyntaxError):
                message, lines = error.msg, [error.lineno] if error.filename == self.path else lines
            line = lines[-1] if lines else None
            where = f"line {line} of {pathlib.Path(self.path).name}: " if line else ""
            raise InputError(f"{self.said}: {where}{type(error).__name__}: {message}; {remedy}") from error


@contextlib.contextmanager
def _arguments_of_a_script(path: str) -> Iterator[None]:
    """Sets ``sys.argv`` to a script's without arguments."""
    ours = sys.argv
    sys.argv = [path]
    try:
        yield
    finally:
        sys.argv = ours
