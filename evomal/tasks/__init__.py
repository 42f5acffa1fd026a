"""Tasks: data, models and metrics."""

from typing import TYPE_CHECKING

from evomal.lazy_names import lazy_names

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
            "MODELS": "evomal.tasks.models",
            "TASKS": "evomal.tasks.built_in",
            "Hardships": "evomal.tasks.hardships",
            "Metric": "evomal.tasks.metrics",
            "Part": "evomal.tasks.parts",
            "Recipe": "evomal.tasks.recipe",
            "Task": "evomal.tasks.task",
            "load_task": "evomal.tasks.loading",
            "make_model": "evomal.tasks.models",
            "metrics": "evomal.tasks.metrics",
            "task_from_file": "evomal.tasks.loading",
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
