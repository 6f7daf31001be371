"""Policies that are taught on many problems before a search begins, or trained by several controllers at once."""

from tf_placer.agents.weights import Plans
from tf_placer.training.controllers import Controllers
from tf_placer.training.controllers import Durations
from tf_placer.training.controllers import Trained
from tf_placer.training.controllers import Training
from tf_placer.training.controllers import train
from tf_placer.training.controllers import train_in_processes
from tf_placer.training.teach import kept_plans
from tf_placer.training.teach import lesson_of
from tf_placer.training.teach import Epoch
from tf_placer.training.teach import teach

__all__ = [
    "Controllers",
    "Durations",
    "Epoch",
    "Plans",
    "Trained",
    "Training",
    "kept_plans",
    "lesson_of",
    "teach",
    "train",
    "train_in_processes",
]
