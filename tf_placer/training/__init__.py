"""Policies that are taught on many problems before a search begins."""

from tf_placer.training.teach import kept_plans
from tf_placer.training.teach import lesson_of
from tf_placer.training.teach import Epoch
from tf_placer.training.teach import Plans
from tf_placer.training.teach import teach

__all__ = [
    "Epoch",
    "Plans",
    "kept_plans",
    "lesson_of",
    "teach",
]
