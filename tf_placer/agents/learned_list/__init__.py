"""A list scheduler whose rule was learned on other programs, and is searched for on this one."""

from tf_placer.agents.learned_list.config import LearnedListConfig
from tf_placer.agents.learned_list.inputs import list_inputs
from tf_placer.agents.learned_list.placer import ListPlacer
from tf_placer.agents.learned_list.planner import LearnedList
from tf_placer.agents.learned_list.policy import RulePrior
from tf_placer.agents.learned_list.rules import Rules
from tf_placer.agents.learned_list.student import LearnedListStudent
from tf_placer.agents.learned_list.student import ListLesson

__all__ = [
    "LearnedList",
    "LearnedListConfig",
    "LearnedListStudent",
    "ListLesson",
    "ListPlacer",
    "RulePrior",
    "Rules",
    "list_inputs",
]
