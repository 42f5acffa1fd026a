"""How much a difference between two losses depends on which samples they are judged on: a jackknife over blocks.

All trainings are judged on the same samples, so that differences between seeds say what another start would give, not
what other samples would.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from evomal.randomness import generator
from evomal.tasks.metrics import Metric, counted
from evomal.tasks.named_metrics import missing_class
from evomal.tasks.task import Task

if TYPE_CHECKING:
    from evomal.engine.scores import Evaluated, Fitness, Reached

_BLOCKS = 20  # of samples: the standard error that they give has a standard error of a sixth of it
_MOST_OUTPUTS = {False: 2**21, True: 2**18}  # by whether a metric needs every class: such a one sorts the outputs
_MOST_OUTPUTS_IN_A_SEARCH = 2**18  # as every known loss is judged at every learning rate

LeftOut = Sequence[Sequence[float]]
"""For each seed of a loss, its metric without each block of samples; empty where that is not known."""
PartName = Literal["validation", "test", "final"]
"""The parts of a task that models are judged on."""


def left_out_metrics(task: Task, evaluated: "Evaluated", name: PartName = "test") -> tuple[float, ...]:
    """Returns the task's metric on a part of its data without each of up to twenty blocks of its samples.

    How much these values differ says how much the metric depends on which samples the part happens to have (the
    delete-a-group jackknife). A sample is in the same block for every training of the task. Empty for a user's own
    metric, which may need all rows; where samples depend on each other, as those of a group or of a series do; where
    they have different numbers of rows; where it would take seconds; and where the metric is not defined without some
    block.
    """
    part, metric = getattr(task, name), task.metric
    leaves = _leaves(metric)
    is_own = metric.is_by_part or not all(one.is_named for one in leaves)
    needs_every_class = any(one.needs_every_class for one in leaves)
    is_large = evaluated.outputs.numel() > _MOST_OUTPUTS[needs_every_class]
    samples, rows = part.rows or 0, len(evaluated.targets)
    # The tensors of a part with a source are some of its samples, so their shapes do not say how many rows each has.
    is_even = samples > 1 and (rows == samples or (part.source is None and not rows % samples))
    if is_own or is_large or not is_even or task.record.get("split_by"):
        return ()
    blocks = min(_BLOCKS, samples)
    order = torch.from_numpy(generator(0, "test blocks").permutation(samples)) % blocks
    of_rows = order.repeat_interleave(rows // samples)
    # By the CPU: for so little work a GPU takes longer to begin than to compute.
    weights_of_rows = None if evaluated.weights is None else evaluated.weights.cpu()
    every = counted(evaluated.outputs.cpu(), evaluated.targets.cpu(), weights_of_rows)
    if weights_of_rows is not None:
        of_rows = of_rows[weights_of_rows > 0]
    found = []
    for kept in (of_rows != block for block in range(blocks)):
        outputs, targets, weights = (values[kept] for values in every)
        if not len(targets) or (needs_every_class and missing_class(targets, task.outputs, task.kind)):
            return ()
        found.append(metric(outputs, targets, weights=weights, part="test" if name == "test" else "validation"))
    return tuple(found) if all(map(math.isfinite, found)) else ()


class LeftOutCosts:
    """Watches trials, and computes what each costs on the validation split without each block of its samples.

    `is_final`: whether the trials are judged on the rows for the final, where the task has some.
    """

    def __init__(self, task: Task, *, is_final: bool) -> None:
        self._task, self._found = task, dict[int, tuple[float, ...]]()
        self._part: PartName = "final" if is_final and task.final is not None else "validation"

    def __call__(self, place: int, horizon: int, reached: "Reached") -> None:
        """Take note of a trial that has reached a horizon."""
        found = reached.validation
        if found is not None and found.outputs.numel() <= _MOST_OUTPUTS_IN_A_SEARCH and not reached.fitness.diverged:
            metrics = left_out_metrics(self._task, found, self._part)
            self._found[place] = tuple(map(self._task.metric.cost, metrics))

    def added_to(self, fitnesses: Sequence["Fitness"]) -> list["Fitness"]:
        """The fitness of each trial with these costs."""
        return [
            dataclasses.replace(fitness, left_out=self._found.get(place, ())) for place, fitness in enumerate(fitnesses)
        ]


def _leaves(metric: Metric) -> tuple[Metric, ...]:
    """Returns the metrics that a metric is made of in the end."""
    return tuple(leaf for one in metric.members for leaf in _leaves(one)) or (metric,)


def error_of_rows(own: Sequence[LeftOut], base: LeftOut) -> float | None:
    """Return the standard error of the mean difference that comes from the choice of the rows that all are judged on.

    By the delete-a-group jackknife, of the mean over searches and seeds. Its variance also contains the part by which
    rows and seeds together decide a single training, a share of 1 / seeds, which the differences between seeds contain
    already; the variances of single seeds contain all of it, so it can be taken out. With 5 seeds and 30, 88 or 400
    rows, and with 10 seeds and 30 rows, of normal differences and of errors of a classifier, 94 to 97 % of the
    intervals that include this error contain the true difference (1 500 samples each); those over seeds alone do in as
    few as 14 %, if rows differ more than seeds do. Rows count as independent of each other. What few rows do not show,
    no interval can: if losses differ on 5 % of 20 or 30 rows, all in one direction, 64 and 78 % contain the true
    difference, of log-normal differences on 30 rows 88 %.

    Args:
        own: For each search and seed, the metric without each block of samples.
        base: The same of what it is compared with, for each seed.

    Returns:
        The standard error; None if it is not known for some training, or there is one seed.
    """
    seeds = len(base)
    blocks = len(base[0]) if base else 0
    is_known = all(len(row) == seeds and all(len(seed) == blocks for seed in row) for row in (*own, base))
    if min(seeds, blocks) < 2 or not is_known:
        return None
    # Subtracted first, so that searches which found the baseline itself have no rounding errors.
    differences = (np.asarray(own, dtype=np.float64) - np.asarray(base, dtype=np.float64)).mean(axis=0)
    with np.errstate(over="ignore"):  # the squares of a metric that almost diverged
        of_mean, of_one = (
            float((values.var(axis=-1) * (blocks - 1)).mean()) for values in (differences.mean(axis=0), differences)
        )
    if not math.isfinite(of_one):
        return None
    together = max(0.0, (of_one - of_mean) / (seeds - 1))
    return math.sqrt(max(0.0, of_mean - together))


def half_width(error: float, blocks: int, confidence: float) -> float:
    """Half the width of the interval that a standard error from so many blocks gives."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # here, as it takes long to import

    return float(stdtrit(blocks - 1, (1 + confidence) / 2)) * error
