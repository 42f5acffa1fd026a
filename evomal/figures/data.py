"""What the data functions of several figures share: tables, statistics, gradients and trained models."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from evomal.checks import MOST_SEEDS, MOST_STEPS, whole_number
from evomal.engine import Score, train
from evomal.engine.precision import Precision
from evomal.engine.resolve import initial_model, resolve_device
from evomal.engine.rows import without_row_outputs
from evomal.errors import InputError
from evomal.figures.kept_models import find_training, keep_training
from evomal.figures.style import FloatArray
from evomal.files import create_folder
from evomal.losses.catalogue import TASK_LOSSES
from evomal.progress import Announce, StepsDone
from evomal.randomness import generator
from evomal.runs.canonical import checksum
from evomal.tasks.parts import Part
from evomal.tasks.task import Task
from evomal.text import plural
from evomal.verdict.contestants import ComparedLoss, Losses, given_contestants
from evomal.verdict.plan import EVALUATION_SEEDS
from evomal.verdict.words import schedule_words

NOTHING_TRAINED = "nothing was trained in this run"
NOTHING_RECORDED = "nothing is recorded yet in these runs"
_NAME_LENGTH = 24  # characters
_CURVE_POINTS = 50
_USUAL_RIVALS = {
    "classification": ("label-smoothing", "focal"),
    "multilabel": ("focal",),
    "regression": ("huber", "mae"),
}


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
    """How the models of a figure are trained, from the same seeds with each loss."""

    seeds: int
    """The number of trainings with each loss; 5 by default."""
    seed: int | None
    """The first seed; None for the first one that no search uses."""
    steps: int | None
    """Training steps; None for those of the task's recipe."""
    milestones: tuple[int, ...] | None
    """Steps at which the learning rate is divided by ten; None for those of the recipe, scaled to the steps."""
    device: str
    precision: Precision
    channels_last: bool
    rates: Mapping[str, float] | None
    """The learning rate of each loss by its name; other losses have that of the task's recipe."""
    announce: Announce | None
    """Called with a sentence before each loss."""
    report: StepsDone | None
    """Called every few steps with the number of steps done since the last call."""
    kept: Path | None
    """A folder of trainings with their models; those that it holds are not repeated."""


@dataclass(frozen=True)
class TrainedModel:
    """One training and its result; the model of the score is None if the training diverged."""

    name: str
    loss: nn.Module
    score: Score

    @property
    def sentence(self) -> str:
        """What happened if the training diverged."""
        return f"{self.name}, seed {self.score.seed}: {self.score.sentence}"


def trained_models(
    task: Task,
    losses: Losses,
    *,
    seeds: int = 5,
    seed: int | None = None,
    announce: Announce | None = None,
    rates: Mapping[str, float] | None = None,
    kept: Path | None = None,
    **settings: Any,
) -> Iterator[TrainedModel]:
    """Train the task's model with each loss, one at a time, so that only one is in memory.

    `settings` are those of `evomal.train`; see also `TrainingOptions`.
    """
    whole_number("seeds", seeds, at_least=1, at_most=MOST_SEEDS)
    if settings.get("steps") is not None:
        whole_number("steps", settings["steps"], at_least=1, at_most=MOST_STEPS)
    if not losses:
        raise InputError("at least one loss must be given but got none")
    first = EVALUATION_SEEDS if seed is None else seed
    if kept is not None:  # the same for all figures, so that they share their trainings
        settings.setdefault("curve_points", _CURVE_POINTS)
    for contestant in given_contestants(losses, task):
        if announce is not None:
            announce(f"training with {contestant.name}, {plural(seeds, 'seed')}")
        rate = (rates or {}).get(contestant.name)
        own = settings if rate is None else {**settings, "lr": rate}
        for compared in contestant.found:
            for number in range(first, first + seeds):
                score = _trained(task, compared, number, kept, own)
                yield TrainedModel(contestant.name, compared.loss, score)


def _trained(task: Task, compared: ComparedLoss, seed: int, kept: Path | None, settings: Mapping[str, Any]) -> Score:
    """The training with its model, from the folder `kept` if it holds it."""
    if compared.procedure is not None:
        raise InputError(f"a figure shows models as they are trained, without {compared.procedure.name}")
    about = {name: value for name, value in settings.items() if name != "report"}
    named = checksum(
        {"loss": compared.identity, "seed": seed, "settings": about, "task": {**task.record, "name": task.name}}
    )
    path = None if kept is None else create_folder(kept) / f"{named[:_NAME_LENGTH]}.npz"
    found = None if path is None else find_training(path, lambda: without_row_outputs(initial_model(task, seed)))
    if found is not None:
        where = resolve_device(settings.get("device", "auto"))
        return found if found.model is None else dataclasses.replace(found, model=found.model.to(where).eval())
    score = train(task, compared.loss, seed=seed, progress=True, keep_model=True, **settings)
    if path is not None:
        keep_training(path, score)
    return score


def usual_losses(task: Task) -> list[str]:
    """Return the names of the task's own loss and its usual rivals: few enough to be told apart in a figure."""
    return [TASK_LOSSES[task.kind], *_USUAL_RIVALS[task.kind]]


def schedule_of(task: Task, options: TrainingOptions) -> str:
    """Return how long the trainings are, in words."""
    recipe = task.recipe.for_steps(options.get("steps"), options.get("milestones"))
    return schedule_words(recipe.steps, recipe.milestones)


def row_words(rows: int, of: int, split: str) -> str:
    """Return how many rows of a split a figure shows."""
    return f"{rows:,}{f' of {of:,}' if rows < of else ''} {split} rows"


def fixed_rows(part: Part, samples: int, *purpose: str) -> Part:
    """Return `samples` rows of a split, always the same ones; all rows if it has no more."""
    if samples >= len(part):
        return part
    rows: npt.NDArray[np.int64] = np.sort(generator(0, "rows", *purpose).choice(len(part), samples, replace=False))
    return part.select(torch.from_numpy(rows))
