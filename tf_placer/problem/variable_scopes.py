"""Which name scopes are layers, and what they are called: both are told by the variables that are read in them."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tf_placer.problem.name_scopes import Scope, below, without_count


@dataclasses.dataclass(frozen=True)
class VariableScopes:
    """Where the variables of a program belong.

    Attributes:
      home: variable's op -> scope of the layer that it belongs to; () where nothing says so.
      named_by: scope of a layer -> scope of the variables that it was found by, which has the name that the layer was
        given: Keras enters each layer's scope twice, and TensorFlow calls the second ``dense_1``.
    """

    home: Mapping[int, Scope]
    named_by: Mapping[Scope, Scope]


def variable_scopes(
    readers: Mapping[int, Sequence[int]], scopes: Sequence[Scope], names: Sequence[str]
) -> VariableScopes:
    """Finds the layer of each variable.

    It is the scope of a reader that is called as the variable's own; else the scope where it is read first; else its
    own. Where one scope has several variables of one name, counted, they are of several layers, and what these are is
    told by where they are read.

    Args:
      readers: variable's op -> ops that take it, in the order of the graph.
      scopes: [N] of each op.
      names: [N] of each op.
    """
    called = Counter((scopes[variable], without_count(names[variable])) for variable in readers)
    home: dict[int, Scope] = {}
    named_by: dict[Scope, Scope] = {}
    for variable, ops in readers.items():
        own = scopes[variable]
        read_in = list(dict.fromkeys(scope for op in ops if (scope := scopes[op])))
        matches = {scope: match for scope in read_in if (match := _called_alike(own, scope))}
        for layer in matches.values():
            named_by.setdefault(layer, own)
        is_of_several = called[own, without_count(names[variable])] > 1
        home[variable] = next(iter((*(matches if is_of_several else matches.values()), *read_in)), own)
    return VariableScopes(home, named_by)


def _called_alike(own: Scope, scope: Scope) -> Scope:
    """The beginning of ``scope`` that ends as the variable's own does, or as close to that as there is."""
    for part in reversed(own):
        for depth in range(len(scope), 0, -1):
            if scope[depth - 1] == part or _counted(scope[depth - 1], part):
                return scope[:depth]
    return ()


def _counted(part: str, name: str) -> bool:
    return part != name and without_count(part) == name


def layer_names(layers: Iterable[Scope], named_by: Mapping[Scope, Scope]) -> dict[Scope, Scope]:
    """What each layer is called: as its variables say, and where those say it of one, its siblings alike.

    A layer without variables loses its count only where a sibling's variables show that Keras counted, and where no
    sibling would be called the same; so does what is around a layer that was counted. Layers that read the same
    variables, as a layer that is called twice does, are one.

    Args:
      layers: scopes of layers and all scopes around them.
      named_by: of ``VariableScopes``.
    """
    children: defaultdict[Scope, list[Scope]] = defaultdict(list)
    for scope in sorted(layers, key=len):
        children[scope[:-1]].append(scope)
    counted = {layer for layer, own in named_by.items() if own and _counted(layer[-1], own[-1])}
    told = {layer[:d] for layer, own in named_by.items() for d in range(1, len(layer)) if layer[d - 1] in own}
    around = below(counted) - told
    found: dict[Scope, Scope] = {(): ()}
    for parent, scopes in children.items():
        is_counted = parent in counted or bool(counted.intersection(scopes))
        wanted = {
            scope: without_count(scope[-1]) if is_counted or scope in around else scope[-1]
            for scope in scopes
        }
        wanted |= {scope: named_by[scope][-1] for scope in counted.intersection(scopes)}
        claims = Counter({(name, named_by.get(scope, scope)) for scope, name in wanted.items()})
        rivals = Counter(name for name, _ in claims)
        for scope in scopes:
            name = wanted[scope] if rivals[wanted[scope]] == 1 else scope[-1]
            found[scope] = (*found[parent], name)
    return found
