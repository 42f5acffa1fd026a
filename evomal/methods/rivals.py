"""The rivals that practitioners would try on a task before they search for a loss of their own."""

from evomal.engine.resolve import class_priors
from evomal.losses.contract import Kind
from evomal.tasks.task import Task

_STRONG: dict[Kind, tuple[str, ...]] = {
    "classification": ("ce", "label-smoothing", "focal", "gce", "sce", "nce-rce", "poly-1"),
    "multilabel": ("ce", "label-smoothing", "focal", "gce"),
    # Tukey's usual c suits errors of standard deviation 1. Those of standardised targets are smaller, above all where
    # outliers have inflated the deviation that the targets were divided by.
    "regression": ("mse", "mae", "huber", "log-cosh", "cauchy", "welsch", "tukey", "tukey:c=2"),
}
_FOR_IMBALANCE = ("balanced-softmax", "class-weighted-ce")
_IMBALANCE = 3.0  # the size of the largest training class divided by that of the smallest


def strong_rivals(*tasks: Task) -> tuple[str, ...]:
    """Returns the known losses that a learned loss should beat on a task, or on several of one kind.

    Those made for classes of unequal size are among them if the largest training class has more than three times as
    many rows as the smallest, on any of the tasks.

    Args:
        *tasks: The tasks.

    Returns:
        Names of losses, some with options (`tukey:c=2`), the baseline first.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from evomal import Task
        >>> x, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50.0)
        >>> strong_rivals(Task.from_arrays(x, y, model=lambda: nn.Linear(3, 1), kind="regression"))[:3]
        ('mse', 'mae', 'huber')
    """
    names = _STRONG[tasks[0].kind]
    if tasks[0].kind == "classification":
        shares = map(class_priors, tasks)
        if any(priors.max() > _IMBALANCE * priors.min() for priors in shares):
            names += _FOR_IMBALANCE
    return names
