"""Tasks with so few rows to judge models on that what is measured on them is mostly chance."""

import warnings
import weakref

import torch

from evomal.tasks.data_checks import target_rows
from evomal.tasks.task import Task
from evomal.text import plural

FEWEST_JUDGED = 8
"""The fewest rows to judge models on without a warning. With fewer, the standard error of a mean of squared normal
errors is more than half of it, √(2 / rows), and one row is more than twelve points of an error rate."""
_KNOWN: "weakref.WeakSet[Task]" = weakref.WeakSet()
"""Tasks that were checked."""


def warn_of_few_rows(task: Task) -> None:
    """Warn, once for a task, if results on its validation or test split are mostly chance, or about one class only.

    Data that are read in batches are checked by their number of rows, if that is known: not all targets are.
    """
    if task in _KNOWN:
        return
    _KNOWN.add(task)
    parts = {name: getattr(task, name) for name in ("validation", "test")}
    # Where a model is only trained, as by the scikit-learn estimators, they are the training rows again.
    whole = {
        name: target_rows(part.targets, task.kind)
        for name, part in parts.items()
        if part.source is None and not torch.equal(part.targets, task.train.targets)
    }
    rows = {name: part.rows for name, part in parts.items() if part.source is not None}
    rows |= {name: len(found) for name, found in whole.items()}
    few = [f"{plural(count, 'row')} for {name}" for name, count in rows.items() if count and count < FEWEST_JUDGED]
    if few:
        rule = f"with fewer than {FEWEST_JUDGED}, differences between losses are mostly chance"
        warnings.warn(f"{task.name} has {' and '.join(few)}: {rule}", stacklevel=1)  # one place, as in `logits`
    for name, found in whole.items():
        if task.kind == "classification" and len(found) >= FEWEST_JUDGED and bool((found == found[0]).all()):
            missed = "so that they do not show whether classes are told apart"
            warnings.warn(f"the {len(found):,} {name} rows of {task.name} are of one class, {missed}", stacklevel=1)
