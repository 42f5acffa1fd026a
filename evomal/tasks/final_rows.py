"""Validation rows that a search keeps for its final: nothing that takes part there was chosen by them."""

import dataclasses

import numpy as np
import torch

from evomal.errors import InputError
from evomal.tasks.task import Task

FEWEST_ROWS = 2000
"""Validation rows from which on some are kept. Two classifiers that disagree on one row in twenty differ by a share of
errors with a standard error of 0.7 percentage points on 1 000 rows; with fewer, a final would tell nothing."""


def with_final_rows(task: Task, share: float, *, generator: np.random.Generator) -> Task:
    """Move a share of the validation rows into the task's part for the final.

    The task stays as it is if it has fewer than 2 000 validation rows, if these are read in batches (whose source
    decides their order and sizes), or if its metric needs rows that one of the parts would lack, such as groups of rows
    or a class that has one row.

    Args:
        task: The task.
        share: The share of the validation rows; 0: none.
        generator: Draws the rows.
    """
    part = task.validation
    if not share or task.final is not None or part.source is not None or len(part) < FEWEST_ROWS:
        return task
    order = generator.permutation(len(part))
    if part.targets[0].numel() == 1:  # both parts have the same shares of classes, or of small and large targets
        order = order[np.argsort(part.targets.flatten().numpy()[order], kind="stable")]
    is_kept = np.diff(np.floor(np.arange(len(part) + 1) * share)) > 0
    validation, final = (part.select(torch.from_numpy(np.sort(order[rows]))) for rows in (~is_kept, is_kept))
    try:
        return dataclasses.replace(task, validation=validation, final=final)
    except InputError:  # the metric has groups of rows, or a class is so rare that one of the two has none of it
        return task
