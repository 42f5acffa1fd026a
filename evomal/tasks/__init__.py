"""Tasks: data, models and metrics."""

from evomal.tasks.hardships import Hardships
from evomal.tasks.loading import TASKS, load_task, task_from_file
from evomal.tasks.metrics import Metric
from evomal.tasks.models import MODELS, make_model
from evomal.tasks.parts import Part
from evomal.tasks.task import Recipe, Task

__all__ = [
    "MODELS",
    "TASKS",
    "Hardships",
    "Metric",
    "Part",
    "Recipe",
    "Task",
    "load_task",
    "make_model",
    "task_from_file",
]
