"""Remedies for words that name no command, and no function of a script: commands and flags that were meant."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterable

from tf_placer import workloads
from tf_placer.arguments import nearest, nearest_of
from tf_placer.cluster.choose import is_about_this_machine
from tf_placer.command_line.list_clusters import cluster_names
from tf_placer.errors import InputError
from tf_placer.search import known

_FORM = "write FILE.py:NAME or package.module:NAME"
_SAVED_MODEL_FILE = "saved_model.pb"
# What files of these kinds are given with.
_FLAG_OF_SUFFIX = {
    ".pb": "meta_graph",
    ".pbtxt": "meta_graph",
    ".meta": "meta_graph",
    ".json": "graph",
    ".txt": "graph",
    ".toml": "cluster",
}
_KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")
_LONG_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"  # as word processors write --
_MOST_NAMES = 8


def of_no_command(words: list[str], commands: Iterable[str]) -> str:
    """What to type for a first word that is no command.

    Args:
      words: all that was typed; at least one.
      commands: that there are.
    """
    first, known_commands = words[0], sorted(commands)
    if first.startswith(("-", *_LONG_DASHES)):
        named = [word for word in words if word in known_commands]
        command = named[0] if named else "place"
        return (
            f"write the command first: tf-placer {command} --flag=value (tf-placer --help lists the commands)"
        )
    flag = _flag_of_name(first)
    if flag is not None:
        return f"did you mean tf-placer place --{flag}={first}?"
    if ":" in first or pathlib.Path(first).exists():
        return f"did you mean tf-placer place {first}?"
    return nearest(first, known_commands)


def check_script(command: str, word: str) -> None:
    """Refuses a word that stands for a function of a script and cannot name one.

    Args:
      command: that it was typed for.
      word: as it was typed.

    Raises:
      InputError: says what the word is, and what to type for it.
    """
    remedy = _of_no_script(word)
    if remedy is not None:
        raise InputError(f"{command} {word.rstrip(':')}: {remedy}")


def _of_no_script(word: str) -> str | None:
    """None where it may name a function."""
    where, colon, name = word.rpartition(":")
    path = pathlib.Path(where if colon else word)
    if word.startswith(tuple(_LONG_DASHES)):
        return f"that is another dash than the keyboard's; did you mean --{word.lstrip(_LONG_DASHES)}?"
    flag, equals, _ = word.partition("=")
    if equals and flag.isidentifier():
        return f"did you mean --{word}?"
    if path.suffix in _KERAS_SUFFIXES:
        return _of_keras_file(path)
    is_module = (path / "__init__.py").is_file() or pathlib.Path(f"{path}.py").is_file()
    if colon and where and path.is_dir() and not is_module:
        return _of_path(path)
    if colon and (name or not path.exists()):
        return None
    return _of_name(word) or _of_path(path)


def _of_name(word: str) -> str | None:
    """Of a name that another flag takes."""
    flag = _flag_of_name(word)
    if flag is not None:
        return f"did you mean --{flag}={word}?"
    if is_about_this_machine(word):
        return "did you mean --cluster=local?"
    is_path = "." in word or pathlib.Path(word).exists()
    close = [] if is_path else nearest_of(word, workloads.names())
    return f"did you mean {' or '.join(f'--workload={name}' for name in close)}?" if close else None


def _flag_of_name(word: str) -> str | None:
    """The flag that takes a name; None where the word is no name of anything."""
    tables = {"workload": workloads.names(), "cluster": cluster_names(), "method": known.methods()}
    return next((flag for flag, names in tables.items() if word in names), None)


def _of_path(path: pathlib.Path) -> str | None:
    """Of a file or a folder."""
    if path.is_dir():
        if (path / _SAVED_MODEL_FILE).is_file():
            return f"did you mean --saved_model={path}?"
        return f"that is a folder; {_FORM}"
    if path.suffix == ".py" and not path.exists():
        return f"no such file; {_FORM}"
    if path.suffix == ".py":
        names = _names_in(path)
        which = f"it has {', '.join(names)}; " if names else ""
        return f"which function of it? {which}write {path}:{names[0] if names else 'NAME'}"
    if path.name == _SAVED_MODEL_FILE:
        return f"did you mean --saved_model={path.parent}?"
    flag = _FLAG_OF_SUFFIX.get(path.suffix)
    return None if flag is None else f"did you mean --{flag}={path}?"


def _of_keras_file(path: pathlib.Path) -> str:
    there = "a file of a Keras model" if path.is_file() else "no such file"
    return (
        f"{there}; what is placed is a model in a script: write model = keras.models.load_model({path.name!r}) in a "
        "file, and give FILE.py:model"
    )


def _names_in(script: pathlib.Path) -> list[str]:
    """Functions and values at the top of a script, which is not run; none where it cannot be read."""
    try:
        tree = ast.parse(script.read_text(encoding="utf8"))
    except (OSError, ValueError, SyntaxError):
        return []  # it is run later, and then what is wrong is told
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    values = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    return [name for name in dict.fromkeys([*functions, *values]) if not name.startswith("_")][:_MOST_NAMES]
