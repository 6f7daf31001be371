"""Runs a method against a budget and keeps the best placement."""

from tf_placer.search.budget import Budget
from tf_placer.search.progress import ConsoleProgress
from tf_placer.search.progress import Progress
from tf_placer.search.result import HistoryEntry
from tf_placer.search.result import SearchResult
from tf_placer.search.round import Context
from tf_placer.search.round import Method
from tf_placer.search.round import Round
from tf_placer.search.search import search
from tf_placer.search.spec import Kind
from tf_placer.search.spec import MethodSpec
from tf_placer.search.spec import Role

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
