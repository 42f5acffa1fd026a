"""Tasks: data, models and metrics."""

from typing import TYPE_CHECKING

from evomal.extras import lazy_names

if TYPE_CHECKING:
    from evomal.tasks import metrics
    from evomal.tasks.built_in import TASKS
    from evomal.tasks.hardships import Hardships
    from evomal.tasks.loading import load_task, task_from_file
    from evomal.tasks.metrics import Metric
    from evomal.tasks.models import MODELS, make_model
    from evomal.tasks.parts import Part
    from evomal.tasks.recipe import Recipe
    from evomal.tasks.task import Task
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "evomal.tasks.built_in": "TASKS",
            "evomal.tasks.hardships": "Hardships",
            "evomal.tasks.loading": "load_task task_from_file",
            "evomal.tasks.metrics": "Metric metrics",
            "evomal.tasks.models": "MODELS make_model",
            "evomal.tasks.parts": "Part",
            "evomal.tasks.recipe": "Recipe",
            "evomal.tasks.task": "Task",
        },
    )

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
    "metrics",
    "task_from_file",
]
