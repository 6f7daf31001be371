"""Methods as rows of a table, and their settings, a line each with default, paper's value and limits."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tf_placer.base import arguments
from tf_placer.base.arguments import InputError


def setting(
    default: Any,
    *,
    paper: Any = None,
    words: tuple[str, ...] = (),
    remedy: str = "give a text",
    even: bool = False,
    **limits: float | bool,
) -> Any:
    """A field of ``Settings``, annotated as bool, float, int or str.

    Args:
      default: its value where none is given.
      paper: its value under ``preset="paper"``; None where that is the default.
      words: of a text, all that it may be; any with none.
      remedy: of a text that may be any, the end of the message for what is no text.
      even: of a whole number, that it must be even.
      **limits: of numbers ``least`` and ``most``, of floats ``above``, ``below`` and ``finite``, True unless said.
    """
    metadata = {"default": default, "paper": paper, "limits": limits}
    metadata |= {"words": words, "remedy": remedy, "even": even}
    return dataclasses.field(default=default if paper is None else None, metadata=metadata)


class Settings:
    """Base of the settings of a method, a frozen dataclass: values are checked, and kept as Python's own types.

        @dataclasses.dataclass(frozen=True)
        class CemConfig(Settings):
            samples: int = setting(128, paper=10, least=2)
            preset: str = setting("ours", words=("ours", "paper"))

    A field that is given wins: it is what it is in every preset.
    """

    def __post_init__(self) -> None:
        for field in sorted(dataclasses.fields(self), key=lambda field: field.name != "preset"):  # type: ignore[arg-type]
            name, value, limits = field.name, getattr(self, field.name), field.metadata["limits"]
            if value is None and field.metadata["paper"] is not None:
                value = field.metadata["paper" if getattr(self, "preset", "") == "paper" else "default"]
            kind = getattr(field.type, "__name__", field.type)
            if kind == "bool":
                value = arguments.truth(name, value)
            elif kind == "float":
                value = arguments.number(name, value, **{"finite": True, **limits})
            elif kind == "int":
                value = arguments.whole_number(name, value, **limits)
                if field.metadata["even"] and value % 2:
                    raise InputError(f"{name} is {value}; give an even number")
            elif field.metadata["words"]:
                value = arguments.one_of(name, value, field.metadata["words"])
            else:
                value = arguments.instance_of(name, value, str, field.metadata["remedy"])
            object.__setattr__(self, name, value)


@dataclasses.dataclass(frozen=True)
class NoSettings(Settings):
    """Settings of a method that has none."""


class Kind(enum.Enum):
    """Protocol of a method, which fixes its loop (``tf_placer.search.round``)."""

    CONSTRUCTIVE = "makes a few plans and is done"
    IMPROVING = "proposes plans and learns from how they fared, without a network"
    LEARNED = "draws plans from a policy that is trained"
    OWN_ROUNDS = "yields rounds of its own"


class Role(enum.Enum):
    """Part that a method plays among the others."""

    REFERENCE = "what a gain is relative to"
    BESIDE = "costs nothing: stands beside every method, and may be where one begins"
    CONTROL = "gets as many evaluations as the method that it stands beside, in no more time"
    PLAIN = (
        "the strongest that learns nothing: searches beside a method on live devices, and for who names none"
    )
    DEFAULT = "what is tried where no method is named"
    MEMBER = "is tried inside the portfolio of methods"
    OPENING = "is the member that a few evaluations go to before the others"
    LEAD = "is the member that the first part of the portfolio's time goes to"


@dataclasses.dataclass(frozen=True)
class MethodSpec:
    """One method."""

    name: str  # small letters, digits and ``_``
    kind: Kind  # says what ``build`` is
    summary: str  # one line with the paper
    # Of a constructive method ``(problem, config, seed) -> rows`` [K, U] int32, all legal; of an
    # improving one ``(problem, config, start [U] or None, seed) -> Method``; of a learned one
    # ``(problem, config, warm_start, seed) -> PolicyLearner``; of one with its own rounds ``(context,
    # config) -> rounds``.
    build: Callable[..., Any]
    config: type = NoSettings  # frozen dataclass of its settings; every field has a default
    default: Any = None  # its settings where none are given, so that a variant is a row; None is ``config()``
    ignores: tuple[str, ...] = ()  # what it does not look at, in a few words each
    roles: frozenset[Role] = frozenset()  # what it is to the others
    # Begins at plans, those it is given or the best that costs nothing, and tries them first.
    uses_start: bool = False
    # bool, uses up whatever budget it has; None: unless constructive, which makes a few plans and is done.
    goes_on: Any = None
    # Of an improving method that can search inside the simulator: ``(problem, config, starts [K,
    # U], seed, simulator) -> Inside``; None for the others.
    build_inside: Callable[..., Any] | None = None
    # Of what it keeps in a checkpoint, by name; others are refused.
    versions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # Of a method whose policy can be taught on many problems beforehand: ``(config, seed) ->
    # Student``; None for the others.
    student: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.goes_on is None:
            object.__setattr__(self, "goes_on", self.kind is not Kind.CONSTRUCTIVE)


_Build = TypeVar("_Build", bound=Callable[..., Any])
ROWS: dict[str, MethodSpec] = {}  # of methods in the modules that were loaded


def method(name: str, kind: Kind, roles: Iterable[Role] = (), **columns: Any) -> Callable[[_Build], _Build]:
    """Decorator of what builds a method: its row, whose summary is the first line of the docstring.

    ``columns`` are further fields of the ``MethodSpec``.
    """

    def entered(build: _Build) -> _Build:
        summary = str(build.__doc__).splitlines()[0]
        ROWS[name] = MethodSpec(name, kind, summary, build, roles=frozenset(roles), **columns)
        return build

    return entered
