"""Runs a method against a budget and keeps the best placement."""

from typing import TYPE_CHECKING

from tf_placer.lazy_face import make_lazy

if TYPE_CHECKING:
    from tf_placer.search.budget import Budget
    from tf_placer.search.progress import ConsoleProgress
    from tf_placer.search.progress import Progress
    from tf_placer.search.result import HistoryEntry
    from tf_placer.search.result import SearchResult
    from tf_placer.search.round import Context
    from tf_placer.search.round import Method
    from tf_placer.search.round import Round
    from tf_placer.search.search import search
    from tf_placer.method_spec import Kind
    from tf_placer.method_spec import MethodSpec
    from tf_placer.method_spec import Role

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
        "Budget": "budget",
        "ConsoleProgress": "progress",
        "Context": "round",
        "HistoryEntry": "result",
        "Kind": "spec",
        "Method": "round",
        "MethodSpec": "spec",
        "Progress": "progress",
        "Role": "spec",
        "Round": "round",
        "SearchResult": "result",
        "search": "search",
    },
)
