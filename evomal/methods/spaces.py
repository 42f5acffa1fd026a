"""The search space that fits a task."""

from collections.abc import Sequence

from evomal.checks import suggestion
from evomal.errors import InputError
from evomal.expression.operators import SPACES, TOKENS
from evomal.methods.baseline import has_unequal_classes
from evomal.settings import AUTO_SPACE, SearchSettings
from evomal.tasks.task import Task
from evomal.text import short_repr


def with_space(settings: SearchSettings, tasks: Sequence[Task]) -> SearchSettings:
    """Returns the settings with the names that `auto` stands for on these tasks.

    It is the paper's space, and `blogp` where the classes are so unequal that balanced softmax is among the rivals: the
    paper's space has no class frequencies, and cannot express what balanced softmax does.

    Raises:
        InputError: A name is unknown.
    """
    for name in settings.space:
        if name not in (known := (AUTO_SPACE, *SPACES, *TOKENS)):
            raise InputError(f"unknown name in space {short_repr(name)}: {suggestion(name, known, 'names')}")
    if AUTO_SPACE not in settings.space:
        return settings
    fitting = ("paper", "blogp") if has_unequal_classes(*tasks) else ("paper",)
    names = (name for given in settings.space for name in (fitting if given == AUTO_SPACE else (given,)))
    return settings.with_changes(space=tuple(dict.fromkeys(names)))
