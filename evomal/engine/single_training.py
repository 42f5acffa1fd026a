"""Training of one model with one loss, from the seed to the test split."""

import dataclasses
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import Tensor, nn

from evomal.engine.choices import check_recipe, chosen_device, chosen_loss, chosen_optimizer, initial_model
from evomal.engine.cuda_graphs import GraphedStep
from evomal.engine.precision import Precision, autocasting, check_precision, matrix_arithmetic
from evomal.engine.scores import CurvePoint, Score, diverged_score
from evomal.errors import InputError
from evomal.progress import tracked
from evomal.randomness import isolated_torch, torch_generator
from evomal.tasks.batches import Batches
from evomal.tasks.metrics import metrics_for
from evomal.tasks.task import Part, Recipe, Task

_STEPS_BETWEEN_CHECKS = 50  # looking at a loss waits for the device, so divergence is noticed a little late
_EVALUATION_BATCH = 1024
_DECAY = 0.1  # of the learning rate at a milestone


class TrainingSettings(TypedDict, total=False):
    """The keyword arguments of `train`."""

    seed: int
    steps: int | None
    optimizer: str
    lr: float | None
    momentum: float | None
    nesterov: bool | None
    weight_decay: float | None
    batch_size: int | None
    milestones: tuple[int, ...] | None
    device: str
    precision: Precision
    channels_last: bool
    graphs: bool
    curve_points: int
    progress: bool


AnyLoss = nn.Module | str | os.PathLike[str]


@overload
def train(task: Task, loss: AnyLoss, **settings: Unpack[TrainingSettings]) -> Score: ...
@overload
def train(task: Sequence[Task], loss: AnyLoss, **settings: Unpack[TrainingSettings]) -> list[Score]: ...
def train(
    task: Task | Sequence[Task],
    loss: AnyLoss,
    *,
    seed: int = 0,
    steps: int | None = None,
    optimizer: str = "sgd",
    lr: float | None = None,
    momentum: float | None = None,
    nesterov: bool | None = None,
    weight_decay: float | None = None,
    batch_size: int | None = None,
    milestones: tuple[int, ...] | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    channels_last: bool = False,
    graphs: bool = True,
    curve_points: int = 20,
    progress: bool = False,
) -> Score | list[Score]:
    """Train the task's model with a loss, a loss's name or a loss file, and evaluate it once on the test split.

    The seed fixes initial weights, batches, augmentation and dropout, identically for every loss; settings not given
    are the task's own. Several tasks give a score each. The caller's random state is left as it was. On CUDA a step is
    captured as a graph where it can be: what a model decides in Python it then decides once (`graphs=False` prevents).
    """
    given: dict[str, Any] = {
        "steps": steps, "lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay,
        "batch_size": batch_size, "milestones": milestones,
    }  # fmt: skip
    changes = {name: value for name, value in given.items() if value is not None}
    where = chosen_device(device)
    check_precision(precision, where)
    if curve_points < 1:
        raise InputError(f"curve_points must be at least 1 but got {curve_points}")
    tasks = [task] if isinstance(task, Task) else list(task)
    if not tasks:
        raise InputError("at least one task must be given but got none")
    manners = _Manners(where, precision, channels_last, graphs, curve_points, progress)
    trainings = []
    for one in tasks:  # all are checked before the first is trained
        recipe = dataclasses.replace(one.recipe, **changes)
        check_recipe(recipe, optimizer)
        trainings.append((one, chosen_loss(loss, one).to(where), recipe))
    scores = []
    for one, criterion, recipe in trainings:
        with isolated_torch(seed, "dropout", device=where), matrix_arithmetic(precision, where):
            scores.append(_Training(one, criterion, recipe, optimizer, seed, manners).run())
    return scores[0] if isinstance(task, Task) else scores


@dataclass(frozen=True)
class _Manners:
    """How a training runs, beyond what it computes."""

    device: torch.device
    precision: Precision
    channels_last: bool
    graphs: bool
    curve_points: int
    progress: bool


class _Training:
    """A model on its way from the seed's weights to a score."""

    def __init__(
        self, task: Task, criterion: nn.Module, recipe: Recipe, optimizer: str, seed: int, manners: _Manners
    ) -> None:
        device = manners.device
        self.task, self.criterion, self.recipe, self.seed, self.manners = task, criterion, recipe, seed, manners
        self.model = initial_model(task, seed).to(device)
        if manners.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.data, self.validation = task.train.to(device), task.validation.to(device)
        self.batches = Batches(len(self.data), recipe.batch_size, seed=seed, purpose="training", device=device)
        self.optimizer = chosen_optimizer(optimizer, self.model.parameters(), recipe, device)
        self.augmenting = torch_generator(seed, "augmentation", device=device)
        self.rows = torch.empty(self.batches.size, dtype=torch.int64, device=device)
        self.value = torch.zeros((), device=device)
        self.step = GraphedStep(
            self._step,
            device=device,
            generators=(self.augmenting,) if task.augmentation else (),
            enabled=manners.graphs,
        )

    def run(self) -> Score:
        """All steps, then the evaluation; or divergence, as soon as it is noticed."""
        steps, curve = self.recipe.steps, list[CurvePoint]()
        spacing = max(1, steps // self.manners.curve_points)
        self.model.train()
        for index in tracked(range(steps), self.task.name, total=steps, shown=self.manners.progress):
            if index in self.recipe.milestones:
                self._decay(self.recipe.milestones.count(index))
            self.rows.copy_(self.batches[index])
            self.step()
            done = index + 1
            if done % spacing == 0 or done == steps:
                curve.append(CurvePoint(done, self.value.item(), self._validated()))
            if (done % _STEPS_BETWEEN_CHECKS == 0 or done == steps) and not math.isfinite(self.value.item()):
                return self._diverged(curve, done, f"the training loss was {self.value.item()} at step {done}")
        return self._evaluated(curve)

    def _step(self) -> None:
        inputs = self.data.inputs.index_select(0, self.rows)  # several times faster than indexing with a tensor
        if self.task.augmentation is not None:
            inputs = self.task.augmentation(inputs, generator=self.augmenting)
        if self.manners.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with autocasting(self.manners.precision, self.manners.device):
            outputs = self.model(inputs)
        value = self.criterion(outputs.float(), self.data.targets.index_select(0, self.rows))
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        self.optimizer.step()
        self.value.copy_(value.detach())

    def _decay(self, times: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] *= _DECAY**times
        self.step.forget()

    def _validated(self) -> float:
        return self.task.metric(outputs_of(self.model, self.validation.inputs), self.validation.targets)

    def _evaluated(self, curve: list[CurvePoint]) -> Score:
        test: Part = self.task.test.to(self.manners.device)
        outputs = outputs_of(self.model, test.inputs)
        if not bool(torch.isfinite(outputs).all()):
            return self._diverged(curve, self.recipe.steps, "the trained model's outputs are not finite")
        return Score(
            test=self.task.metric(outputs, test.targets),
            validation=self._validated(),
            metrics={name: metric(outputs, test.targets) for name, metric in metrics_for(self.task.kind).items()},
            curve=curve,
            seed=self.seed,
            steps=self.recipe.steps,
        )

    def _diverged(self, curve: list[CurvePoint], step: int, sentence: str) -> Score:
        return diverged_score(self.task.metric, curve, seed=self.seed, step=step, sentence=sentence)


def outputs_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """The model's outputs on all inputs, in evaluation mode."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(batch) for batch in torch.split(inputs, _EVALUATION_BATCH)])
    model.train(was_training)
    return outputs
