"""Runs a method against a budget and keeps the best placement."""

from typing import TYPE_CHECKING

from tf_placer.base.lazy_face import make_lazy

if TYPE_CHECKING:
    from tf_placer.search.known import Budget
    from tf_placer.search.recorder import ConsoleProgress
    from tf_placer.search.recorder import Progress
    from tf_placer.search.recorder import HistoryEntry
    from tf_placer.search.recorder import SearchResult
    from tf_placer.search.round import Context
    from tf_placer.search.round import Method
    from tf_placer.search.round import Round
    from tf_placer.search.search import search
    from tf_placer.base.method_spec import Kind
    from tf_placer.base.method_spec import MethodSpec
    from tf_placer.base.method_spec import Role

__all__ = [
    "Budget",
    "ConsoleProgress",
    "Context",
    "HistoryEntry",
    "Kind",
    "Method",
    "MethodSpec",
    "Progress",
    "Role",
    "Round",
    "SearchResult",
    "search",
]

make_lazy(
    __name__,
    {
        "Budget": "tf_placer.search.known",
        "ConsoleProgress": "tf_placer.search.recorder",
        "Context": "tf_placer.search.round",
        "HistoryEntry": "tf_placer.search.recorder",
        "Kind": "tf_placer.base.method_spec",
        "Method": "tf_placer.search.round",
        "MethodSpec": "tf_placer.base.method_spec",
        "Progress": "tf_placer.search.recorder",
        "Role": "tf_placer.base.method_spec",
        "Round": "tf_placer.search.round",
        "SearchResult": "tf_placer.search.recorder",
        "search": "tf_placer.search.search",
    },
)
