"""Trained models to look into: every loss with the same seeds, one training after the other."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import nn

from evomal.checks import whole_number
from evomal.engine import Score, train
from evomal.engine.resolve import resolve_device
from evomal.errors import InputError
from evomal.methods.baseline import TASK_LOSSES
from evomal.randomness import generator
from evomal.tasks.metrics import shown_in_percent
from evomal.tasks.task import Part, Task
from evomal.text import plural
from evomal.verdict.comparing import EVALUATION_SEEDS
from evomal.verdict.contestants import STRONG, Contestant, Losses, given_contestants

FIRST_SEED = EVALUATION_SEEDS
"""No search has seen it, and `evomal compare` begins with it too."""

Announce = Callable[[str], None]


@dataclass(frozen=True)
class TrainedModel:
    """One training: with what, from which seed, and what came of it."""

    name: str
    loss: nn.Module
    score: Score
    model: nn.Module | None
    """In evaluation mode; None where the training diverged."""

    @property
    def sentence(self) -> str:
        """What happened, where the training diverged."""
        return f"{self.name}, seed {self.score.seed}: {self.score.sentence}" if self.score.diverged else ""


def usual_losses(task: Task) -> list[str]:
    """The task's own loss and its usual rivals, by name."""
    return [TASK_LOSSES[task.kind], *STRONG[task.kind]]


def trained_models(
    task: Task,
    losses: Losses,
    *,
    seeds: int = 1,
    seed: int = FIRST_SEED,
    steps: int | None = None,
    milestones: tuple[int, ...] | None = None,
    device: str = "auto",
    curve_points: int = 20,
    announce: Announce | None = None,
) -> Iterator[TrainedModel]:
    """Train the task's model with each loss from `seeds` seeds, `seed` and those after it, loss by loss.

    A model is handed over as soon as it is trained, so that there is never more than one in memory. What is given is
    checked before the first training.
    """
    whole_number("seeds", seeds, at_least=1)
    if steps is not None:
        whole_number("steps", steps, at_least=1)
    resolve_device(device)
    if not losses:
        raise InputError("at least one loss must be given but got none")
    contestants = given_contestants(losses, task)
    chosen = range(seed, seed + seeds)
    return _trained_one_by_one(task, contestants, chosen, steps, milestones, device, curve_points, announce)


def _trained_one_by_one(
    task: Task, contestants: Sequence[Contestant], seeds: range, steps: int | None,
    milestones: tuple[int, ...] | None, device: str, curve_points: int, announce: Announce | None,
) -> Iterator[TrainedModel]:  # fmt: skip
    for contestant in contestants:
        (compared,) = contestant.losses
        assert compared is not None  # a given loss is there
        if announce is not None:
            announce(f"training with {contestant.name}, {plural(len(seeds), 'seed')}")
        for seed in seeds:
            kept: list[nn.Module] = []
            score = train(
                task, compared.loss, seed=seed, steps=steps, milestones=milestones, device=device,
                curve_points=curve_points, progress=True, keep=kept.append,
            )  # fmt: skip
            yield TrainedModel(contestant.name, compared.loss, score, kept[0].eval() if kept else None)


def fixed_rows(part: Part, samples: int, *purpose: str) -> Part:
    """So many rows of a split, always the same ones; all of them where it has no more."""
    if samples >= len(part):
        return part
    rows: npt.NDArray[np.int64] = np.sort(generator(0, "rows", *purpose).choice(len(part), samples, replace=False))
    return Part(part.inputs[rows], part.targets[rows])


def mean_and_deviation(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Over the first axis; the deviation is the sample's (n − 1 in the denominator) and NaN for fewer than two."""
    with np.errstate(invalid="ignore"):  # where something is infinite, there is no deviation
        mean = values.mean(axis=0)
        deviation = values.std(axis=0, ddof=1) if len(values) > 1 else np.full_like(mean, np.nan)
    return mean, deviation


def metric_words(metric: str) -> str:
    """The metric's name for the axis of a figure, with its unit where it has one."""
    return f"{metric.replace('_', ' ')} (%)" if shown_in_percent(metric) else metric.replace("_", " ")


def metric_scale(metric: str) -> float:
    """What a value is multiplied by where it is shown: shares are shown in percent."""
    return 100.0 if shown_in_percent(metric) else 1.0


def shown_metric(value: float, metric: str) -> str:
    """The value for a person."""
    return f"{100 * value:.2f} %" if shown_in_percent(metric) else f"{value:.4g}"
