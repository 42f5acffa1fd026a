"""What the data functions of several figures share: tables, statistics, gradients, and models trained to look into."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from evomal.checks import whole_number
from evomal.engine import Score, train
from evomal.engine.resolve import resolve_device
from evomal.errors import InputError
from evomal.figures.style import FloatArray
from evomal.methods.baseline import TASK_LOSSES
from evomal.progress import Announce
from evomal.randomness import generator
from evomal.tasks.parts import Part
from evomal.tasks.task import Recipe, Task
from evomal.text import plural
from evomal.verdict.comparing import EVALUATION_SEEDS
from evomal.verdict.contestants import STRONG, Contestant, Losses, given_contestants

FIRST_SEED = EVALUATION_SEEDS
"""The first seed of trainings: no search uses it, and `evomal compare` begins with it too."""


def table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the columns of a table by name."""
    found = list(rows)
    return {name: [row[place] for row in found] for place, name in enumerate(names)}


def mean_and_deviation(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and sample standard deviation over the first axis; the latter is NaN for fewer than two."""
    with np.errstate(invalid="ignore"):  # infinite values have no deviation
        mean = values.mean(axis=0)
        deviation = values.std(axis=0, ddof=1) if len(values) > 1 else np.full_like(mean, np.nan)
    return mean, deviation


def with_gradient(function: Callable[[Tensor], Tensor], positions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the values of an elementwise function and its derivatives, even where gradients are switched off."""
    with torch.enable_grad():
        line = torch.tensor(positions, requires_grad=True)
        values = function(line)
        (gradients,) = torch.autograd.grad(values.sum(), line)
    return values.detach().numpy(), gradients.numpy()


def single_precision(values: FloatArray) -> FloatArray:
    """Return the values, with NaN for those that overflow in single precision, in which losses are trained."""
    return np.where(np.abs(values) <= np.finfo(np.float32).max, values, np.nan)


def span(values: FloatArray) -> float:
    """Return the difference of the largest and the smallest finite value; 0 where there is none."""
    finite = values[np.isfinite(values)]
    return float(np.ptp(finite)) if finite.size else 0.0


class TrainingOptions(TypedDict, total=False):
    """How the models of a figure are trained."""

    steps: int | None
    """Training steps; None for those of the task's recipe."""
    milestones: tuple[int, ...] | None
    """Steps at which the learning rate is divided by ten; None for those of the recipe, scaled to the steps."""
    device: str
    announce: Announce | None
    """Called with a sentence before each loss."""


@dataclass(frozen=True)
class TrainedModel:
    """One training and its result."""

    name: str
    loss: nn.Module
    score: Score
    model: nn.Module | None
    """In evaluation mode; None if the training diverged."""

    @property
    def sentence(self) -> str:
        """What happened if the training diverged; empty otherwise."""
        return f"{self.name}, seed {self.score.seed}: {self.score.sentence}" if self.score.diverged else ""


def usual_losses(task: Task) -> list[str]:
    """Return the names of the task's own loss and its usual rivals."""
    return [TASK_LOSSES[task.kind], *STRONG[task.kind]]


def schedule_of(task: Task, options: TrainingOptions) -> Recipe:
    """Return the recipe with the steps and milestones of the trainings."""
    return task.recipe.schedule(options.get("steps"), options.get("milestones"))


def trained_models(
    task: Task,
    losses: Losses,
    *,
    seeds: int = 1,
    seed: int = FIRST_SEED,
    curve_points: int = 20,
    **options: Unpack[TrainingOptions],
) -> Iterator[TrainedModel]:
    """Train the task's model with each loss, from the same seeds.

    Args:
        task: The task.
        losses: Losses, names of losses or loss files.
        seeds: The number of trainings with each loss.
        seed: The first seed.
        curve_points: How many points the curve of a training has.
        options: See `TrainingOptions`.

    Returns:
        An iterator that trains one model at a time, so that only one is in memory. Arguments are checked before.

    Raises:
        InputError: If an argument is wrong or no loss is given.
    """
    whole_number("seeds", seeds, at_least=1)
    if options.get("steps") is not None:
        whole_number("steps", options["steps"], at_least=1)
    resolve_device(options.get("device", "auto"))
    if not losses:
        raise InputError("at least one loss must be given but got none")
    return _trained(task, given_contestants(losses, task), range(seed, seed + seeds), curve_points, options)


def _trained(
    task: Task, contestants: Sequence[Contestant], seeds: range, curve_points: int, options: TrainingOptions
) -> Iterator[TrainedModel]:
    announce = options.get("announce")
    for contestant in contestants:
        (compared,) = contestant.losses
        assert compared is not None  # only a search can fail to give a loss
        if announce is not None:
            announce(f"training with {contestant.name}, {plural(len(seeds), 'seed')}")
        for seed in seeds:
            score = train(
                task, compared.loss, seed=seed, steps=options.get("steps"), milestones=options.get("milestones"),
                device=options.get("device", "auto"), curve_points=curve_points, progress=True, keep_model=True,
            )  # fmt: skip
            # Without the model, as callers keep the scores of all trainings.
            yield TrainedModel(contestant.name, compared.loss, replace(score, model=None), score.model)


def fixed_rows(part: Part, samples: int, *purpose: str) -> Part:
    """Return `samples` rows of a split, always the same ones; all rows if it has no more."""
    if samples >= len(part):
        return part
    rows: npt.NDArray[np.int64] = np.sort(generator(0, "rows", *purpose).choice(len(part), samples, replace=False))
    return Part(part.inputs[rows], part.targets[rows])
