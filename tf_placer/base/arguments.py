"""Values as users give them, checked against annotations by pydantic; a misfit is one line with the remedy.

Numbers and texts of NumPy and ``os.PathLike`` are accepted where Python's own are. A truth value is no number.
Errors of TensorFlow become one line, too (``told``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import json
import math
import os
import pathlib
import re
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union

import numpy as np
from annotated_types import Ge, Gt, Le, Len, Lt, Predicate


class InputError(ValueError):
    """Bad input: one line that names the file, node or flag, and the remedy.

    The command line prints the message and exits with status 2; anything else that
    escapes is a failure of ours.
    """


MAX_SEED = 2**31 - 1  # of all that draws
FINITE, NOT_NAN = Predicate(math.isfinite), Predicate(lambda number: not math.isnan(number))
Text = Annotated[str, Len(1)]

_Kind = TypeVar("_Kind")
_NOUNS = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}
_LIMITS = {Gt: "above {}", Lt: "below {}", Ge: "of at least {}", Le: "of at most {}"}
_MARKS = {"above": Gt, "below": Lt, "least": Ge, "most": Le}
_MOST_NAMES = 30  # of a list of all that is known
_NEAREST = 3
_SHOWN = ("builtins", "numpy", "pathlib", "tensorflow")  # whose values say what they are
_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-f]*")
_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 60


def fit(kind: Any, value: Any, where: str, form: Literal["python", "text", "document"] = "python") -> Any:
    """Returns a value as the type that an annotation describes.

    Args:
      kind: a type, ``Annotated`` with limits of annotated_types, or a dataclass of such fields.
      value: to check; a mapping where ``kind`` is a dataclass.
      where: name of the value; of a dataclass the prefix of its fields, such as ``"--"`` or ``"box.toml: "``.
      form: in a ``"text"`` numbers and truth values are texts; a ``"document"`` is what JSON or TOML can hold.
    """
    import pydantic  # here: it takes 0.1 s, and not every command needs it

    try:
        if form == "document":
            return _adapter(kind).validate_json(json.dumps(value, default=str), strict=True)
        plain = value.item() if isinstance(value, np.generic | np.ndarray) and not np.ndim(value) else value
        return _adapter(kind).validate_python(plain, strict=form == "python")
    except pydantic.ValidationError as errors:
        error = errors.errors(include_url=False)[0]
    name, annotation = where, kind
    for step in error["loc"]:
        annotation = _without_none(annotation)
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if dataclasses.is_dataclass(annotation):
            fields = typing.get_type_hints(annotation, include_extras=True)
            if step not in fields:
                raise InputError(
                    f"{where}unknown key {name.removeprefix(where)}{step}; {nearest(str(step), fields)}"
                )
            name, annotation = f"{name}{step}", fields[str(step)]
        elif origin in (tuple, list, dict):
            name, annotation = f"{name}[{step}]", arguments[-1 if origin is dict else 0]
        else:
            break  # the alternatives of a union are described together
        if dataclasses.is_dataclass(annotation):
            name += "."
    if error["type"] == "missing":
        raise InputError(f"{name} is missing; give {describe(annotation)}")
    raise InputError(f"{name} is {shown(error['input'])}; give {describe(annotation)}")


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Puts the name of an argument before the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


@functools.cache
def _adapter(kind: Any) -> Any:
    import pydantic

    return pydantic.TypeAdapter(kind)


def _without_none(kind: Any) -> Any:
    """``int`` of ``int | None``."""
    if typing.get_origin(kind) not in (Union, types.UnionType):
        return kind
    kinds = tuple(part for part in typing.get_args(kind) if part is not type(None))
    return Union[kinds]  # noqa: UP007 - of a tuple


def describe(kind: Any) -> str:
    """What fits an annotation: ``"a whole number from 1 to 9"``, ``"one of op, layer"``."""
    kind = _without_none(kind)
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is Union:
        return " or ".join(map(describe, parts))
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(parts)}" if len(parts) > 1 else parts[0]
    if typing.get_origin(kind) in (tuple, list):
        return f"a list, each {describe(parts[0])}"
    if typing.get_origin(kind) is not Annotated:
        return _NOUNS.get(kind, "a table")
    noun, limits = describe(parts[0]), {type(mark): mark for mark in parts[1:]}
    if FINITE in parts:
        noun = noun.replace("a ", "a finite ")
    bounds = {}
    for mark in (Gt, Lt, Ge, Le):
        if mark in limits:
            bound = getattr(limits[mark], mark.__name__.lower())
            bounds[mark] = str(bound) if isinstance(bound, int) and bound < 10**15 else f"{bound:g}"
    if Ge in bounds and Le in bounds:
        return f"{noun} from {bounds[Ge]} to {bounds[Le]}"
    return f"{noun} {' and '.join(_LIMITS[mark].format(bound) for mark, bound in bounds.items())}".strip()


def whole_number(name: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """``value`` as an int from ``least`` to ``most``; raises InputError."""
    return int(fit(limited(int, least=least, most=most), value, name))


def number(name: str, value: object, **limits: Any) -> float:
    """``value`` as a float within limits as of ``limited``; nan never."""
    return float(fit(limited(float, **limits), value, name))


def limited(kind: type, finite: bool = False, **limits: float | None) -> Any:
    """Annotation of a number strictly between limits ``above`` and ``below``, from ``least`` to ``most``."""
    marks: list[Any] = [_MARKS[name](limit) for name, limit in limits.items() if limit is not None]
    if kind is float:
        marks.insert(0, FINITE if finite else NOT_NAN)
    return Annotated[(kind, *marks)] if marks else kind


def truth(name: str, value: object) -> bool:
    """``value`` as True or False; raises InputError for anything else, 0 and 1 included."""
    return bool(fit(bool, value, name))


def text(name: str, value: object, remedy: str = "give a text") -> str:
    """``value`` as a str that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} is {shown(value)}; {remedy}")
    return str(value)


def one_of(name: str, value: object, words: Iterable[str]) -> str:
    """``value`` as one of some words."""
    words = tuple(words)
    if not isinstance(value, str) or value not in words:
        raise InputError(f"{name} is {shown(value)}; give one of {', '.join(words)}")
    return str(value)


def path(name: str, value: object, what: str = "a path") -> pathlib.Path:
    """``value`` as a path; whether anything is there is not looked at."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if isinstance(text, str) and text and "\0" not in text:
        return pathlib.Path(text)
    raise InputError(f"{name} is {shown(value)}; give {what}, as a str or pathlib.Path")


def file_to_write(name: str, value: object) -> pathlib.Path:
    """``value`` as the path of a file, which may be missing, in a folder that is there."""
    file = path(name, value, "the file to write")
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise InputError(f"{name} is {shown(value)}; give a file in a folder that is there")
    return file


def instance_of(name: str, value: object, kind: type[_Kind], remedy: str) -> _Kind:
    """``value``, checked to be a ``kind``."""
    if not isinstance(value, kind):
        raise InputError(f"{name} is {shown(value)}, not {_one(kind)}; {remedy}")
    return value


def items_of(name: str, value: object, kind: type[_Kind], remedy: str) -> tuple[_Kind, ...]:
    """``value`` as a tuple of ``kind``; one text is no sequence of texts."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InputError(f"{name} is {shown(value)}; {remedy}")
    items = tuple(value)
    if set(map(type, items)) <= {kind}:
        return items
    for position, item in enumerate(items):
        if not isinstance(item, kind):
            raise InputError(f"{name}[{position}] is {shown(item)}, not {_one(kind)}; {remedy}")
    return items


def texts_by_text(name: str, value: object, remedy: str) -> dict[str, str]:
    """``value`` as a dict from text to text."""
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is {shown(value)}; {remedy}")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            raise InputError(f"{name} has {shown(key)}: {shown(item)}; {remedy}")
    return dict(value)


def has_parts(name: str, value: _Kind, parts: Iterable[str], remedy: str) -> _Kind:
    """``value`` of any class, checked for attributes."""
    for part in parts:
        if isinstance(value, type) or not hasattr(value, part):
            raise InputError(f"{name} is {shown(value)}, which has no {part}; {remedy}")
    return value


def function(name: str, value: object, remedy: str) -> Callable[..., Any]:
    """``value``, checked to be callable."""
    if not callable(value):
        raise InputError(f"{name} is {shown(value)}; {remedy}")
    return value


def check_positions(name: str, value: np.ndarray, count: int) -> None:
    """Raises InputError unless an array is of positions from 0 to ``count - 1``."""
    outside = (value < 0) | (value >= count)
    if outside.any():
        raise InputError(f"{name} has the entry {value[outside][0]}; give positions from 0 to {count - 1}")


def shown(value: object) -> str:
    """A value in a message: short, and on one line; of what has no short form, its class."""
    kind = type(value)
    if kind.__module__.partition(".")[0] not in _SHOWN:
        return _one(kind)
    try:
        text = " ".join(_SHORT.repr(value).split())
    except ValueError:  # Python does not write numbers of thousands of digits
        return "a huge number"
    is_whole = isinstance(value, list | tuple | dict | set | np.ndarray)
    return _ADDRESS.sub("", text) if is_whole or not _ADDRESS.search(repr(value)) else _one(kind)


def nearest(word: str, known: Iterable[str]) -> str:
    """A remedy for an unknown name: the nearest known ones, or all of them where they are few.

    Case does not count, nor ``-`` for ``_``. A name that contains the word is near, as is a path with a near last part.
    """
    names, spelled = sorted(known), word.casefold().replace("-", "_")
    name_of = {name.casefold().replace("-", "_"): name for name in names}
    near = [spelled] if spelled in name_of else difflib.get_close_matches(spelled, name_of, _NEAREST, 0.5)
    close = [name_of[name] for name in near]
    if not close and word:
        close = sorted((name for name in names if word.lower() in name.lower()), key=len)[:_NEAREST]
    if not close and word:
        of_last_part = {name.rpartition("/")[2]: name for name in reversed(names)}
        parts = difflib.get_close_matches(word.rpartition("/")[2], of_last_part, _NEAREST, 0.6)
        close = [of_last_part[part] for part in parts]
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if len(names) > _MOST_NAMES:
        nearest_of_all = difflib.get_close_matches(word, names, n=_NEAREST, cutoff=0.0)
        return f"there are {len(names)}, the nearest are {', '.join(map(repr, nearest_of_all))}"
    return f"known: {', '.join(names)}" if names else "there is none"


def _one(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def exact(name: str, value: object, dtype: type) -> np.ndarray:
    """``value``, array-like, as an array of ``dtype``, an integer type or bool, when that changes no number."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is {shown(value)}, which is no array; give rows of equal length") from error
    if array.dtype.kind in "iufb":
        with np.errstate(invalid="ignore"):
            cast: np.ndarray = array.astype(dtype)
        if np.array_equal(cast, array):
            return cast
    values = f"{array.dtype} values that do not" if array.dtype.kind in "iufb" else shown(array.tolist())
    expected = f"whole numbers that fit {np.dtype(dtype).name}"
    raise InputError(f"{name}: expected {expected}, got {values}; give an array of them")


def check_registration(kind: str, name: Any, value: Any, built_in: Collection[str]) -> None:
    """Refuses a name or a value that a table could not give back.

    A name stands in flags, where commas separate names, and in names of files. Those that are built in keep their
    meaning; others may be registered anew, as a notebook does. ``kind`` is what the table holds, for messages.
    """
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise InputError(f"{name!r} is no name of a {kind}; use small letters, digits and _")
    if name in built_in:
        raise InputError(f"{name!r} comes with tf_placer; give your {kind} another name")
    if not callable(value):
        raise InputError(f"{kind} {name!r} is {value!r}, which cannot be called; give a function")


# {{function_node __wrapped__MatMul_device_/job...}} and the list of nodes behind a message say where TensorFlow was.
_WHERE = re.compile(r"\[\[.*?\]\]|\{\{function_node [^}]*\}\}|\[Op:[^\]]*\](?: name:.*)?", re.DOTALL)
_NODE = re.compile(r"\{\{(?:\w+ )?([^}]*)\}\}")
_STACK = re.compile(r'^\s*File "', re.MULTILINE)
_HEADING = re.compile(
    r"in user code:|Graph execution error:|Detected at node.*|Node: .*"
    r"|\d+ (derived|root) error.*|\d+ successful operations.*"
)
_KIND = re.compile(r"^(?:[\w.]*(?:Error|Exception)): ")


def plain(text: str) -> str:
    """A TensorFlow message on one line, with names of the user's nodes and without places in TensorFlow."""
    return " ".join(_NODE.sub(r"\1", _WHERE.sub("", text)).split())


def told(error: BaseException) -> str:
    """Message of a TensorFlow error on one line, without stacks and headings; else its class."""
    # TensorFlow's errors have what they say apart from where they arose.
    message = getattr(error, "message", None)
    text = message if isinstance(message, str) and message else str(error)
    for paragraph in re.split(r"\n\s*\n", text):
        if _STACK.search(paragraph):
            continue
        lines = [line for line in paragraph.splitlines() if not _HEADING.fullmatch(line.strip())]
        line = _KIND.sub("", plain("\n".join(lines)))
        if line:
            return line
    return type(error).__name__
