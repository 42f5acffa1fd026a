"""The search space that fits a task."""

from collections.abc import Sequence

from evomal.methods.baseline import has_unequal_classes
from evomal.settings import AUTO_SPACE, SearchSettings
from evomal.tasks.task import Task


def with_space(settings: SearchSettings, tasks: Sequence[Task]) -> SearchSettings:
    """Returns the settings with the names that `auto` stands for on these tasks.

    It is the paper's space, and `blogp` where the classes are so unequal that balanced softmax is among the rivals: no
    loss of the paper's space knows how frequent a class is, and the best known losses of such tasks all do.
    """
    if AUTO_SPACE not in settings.space:
        return settings
    fitting = ("paper", "blogp") if has_unequal_classes(*tasks) else ("paper",)
    names = (name for given in settings.space for name in (fitting if given == AUTO_SPACE else (given,)))
    return settings.with_changes(space=tuple(dict.fromkeys(names)))
