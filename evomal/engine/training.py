"""Training of one model with one loss, step by step."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evomal.engine.cuda_graphs import GraphedStep
from evomal.engine.feeds import BatchFeed, evaluation_batches
from evomal.engine.optimizers import TrainingOptimizer
from evomal.engine.precision import Precision, autocast
from evomal.engine.resolve import check_model, initial_model
from evomal.engine.rows import RowRule, Rows, joined_rows
from evomal.engine.scores import (
    Evaluated,
    Fitness,
    diverged_fitness,
    fitness_of_outputs,
    metric_or_nan,
)
from evomal.engine.step_costs import step_multiply_adds
from evomal.progress import StepsDone, tracked
from evomal.randomness import derived_seed, reseed_torch
from evomal.tasks.inputs import Inputs, called, first, image_tensor, pieces, with_channels_last
from evomal.tasks.model_trials import evaluating
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task
from evomal.threads import suitable_threads

_STEPS_BETWEEN_CHECKS = 50  # reading a loss waits for the device, so divergence is noticed a little late
_STEPS_BETWEEN_REPORTS = 10
_EVALUATION_BATCH = 1024


@dataclass(frozen=True)
class TrainingSetup:
    """Everything a training needs besides its loss."""

    task: Task
    recipe: Recipe
    seed: int
    device: torch.device
    precision: Precision = "float32"
    channels_last: bool = False
    graphs: bool = True
    dtype: torch.dtype = torch.float32
    parts: tuple[Part, Part] | None = None
    """Data to train on and to judge on that are on the device already; None: the task's training and validation data
    are copied there."""

    @functools.cached_property
    def data(self) -> tuple[Part, Part]:
        """The parts on the device: models are trained on the first, and judged on the second."""
        train, validation = self.task.train, self.task.validation
        return self.parts or (train.to(self.device, self.dtype), validation.to(self.device, self.dtype))

    def resplit(self, number: int) -> tuple[Tensor, Tensor]:
        """Returns the rows to train on and to judge on in another split, as numbers among the rows of both parts."""
        train, judged = self.task.resplit(number)
        return train.to(self.device), judged.to(self.device)


class Training:
    """Training of one model with one loss, from the seed's initial weights; it can be started again.

    To be used inside `isolated_torch`: dropout draws from torch's global generators, which `start` seeds.
    """

    def __init__(self, setup: TrainingSetup, criterion: Callable[[Tensor, Rows], Tensor]) -> None:
        task, device, dtype = setup.task, setup.device, setup.dtype
        model = initial_model(task, setup.seed).to(device, dtype)
        if setup.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        check_model(model, task)
        self.setup, self.model, self.criterion = setup, model, criterion
        self._data, self._validation = setup.data
        size = setup.recipe.batch_size
        self._feed = BatchFeed(self._data, count=1, size=size, device=device, dtype=dtype)
        self._feed.open([(setup.seed, "training")])
        self._row_rule = RowRule(task, device, dtype)
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimizer = TrainingOptimizer(setup.recipe, model, device, graphs=setup.graphs)
        self._initial = {name: value.detach().clone() for name, value in self._state().items()}
        self._augmenting = torch.Generator(device)
        self.loss = torch.zeros((), dtype=dtype, device=device)
        """The training loss of the last batch."""
        self._sum = torch.zeros_like(self.loss)  # of all losses: not finite once one of them was not
        self.steps_done, self._diverged = 0, ""
        generators = (self._augmenting,) if task.augmentation else ()
        captured = self._optimizer.can_be_captured and not self._feed.is_varying
        self.step = GraphedStep(self._step, device=device, generators=generators, enabled=captured)

    def start(self, lr: float | None = None, steps: int | None = None) -> None:
        """Put model, optimizer and random generators into the seed's initial state, in the memory they are in.

        Learning rate and number of steps are those of the recipe where None is given.
        """
        self.steps_done, self._diverged = 0, ""
        with torch.no_grad():
            for name, value in self._state().items():
                value.copy_(self._initial[name])
        recipe = self.setup.recipe
        self._whole = recipe.steps if steps is None else steps
        self._optimizer.start(recipe.lr if lr is None else lr, self._whole)
        self._sum.zero_()
        reseed_torch(derived_seed(self.setup.seed, "dropout"), self.setup.device)
        self._augmenting.manual_seed(derived_seed(self.setup.seed, "augmentation"))

    def advance(
        self, steps: int, report: StepsDone | None = None, *, on_step: Callable[[int], None] | None = None,
        before_step: Callable[[int], None] | None = None, progress: bool = False,
    ) -> None:  # fmt: skip
        """Train until that number of steps is done, or until the training is found to have diverged.

        `before_step` is called with the number of steps done before each step, `on_step` with that after it.
        """
        if self._diverged:
            return
        left = range(self.steps_done, steps)
        for index in tracked(left, self.setup.task.name, total=len(left), shown=progress):
            if self._optimizer.prepare(index):
                self.step.forget()
            self._feed.load(index)
            if before_step is not None:
                before_step(index)
            self.step()
            self.steps_done = done = index + 1
            if on_step is not None:
                on_step(done)
            report_steps(report, done, steps)
            is_checked = done % _STEPS_BETWEEN_CHECKS == 0 or done == steps
            if is_checked and not math.isfinite(self._sum.item()):
                self._diverged = f"the training loss was not finite by step {done}"
                if report is not None:
                    report(self._whole - done)  # the remaining steps are not taken
                return

    def fitness(self) -> Fitness:
        """Returns the fitness of the model as it is now, on the validation split."""
        return self.validated()[0]

    def validated(self) -> tuple[Fitness, Evaluated | None]:
        """Returns the fitness, and the outputs on the validation split unless the training diverged."""
        if self._diverged:
            return diverged_fitness(self._diverged), None
        evaluated = self._evaluated(self._validation)
        return fitness_of_outputs(self.setup.task, evaluated), evaluated

    def run(self, report: StepsDone | None = None, **options: Any) -> Fitness:
        """Train from the initial weights for the steps of the recipe; `options` are those of `advance`."""
        self.start()
        self.advance(self.setup.recipe.steps, report, **options)
        return self.fitness()

    def suitable_threads(self) -> int:
        """Returns the number of threads for this training, by a fixed rule; at most those that torch uses now."""
        forward = functools.partial(evaluate_model, self.model)
        parameters = sum(parameter.numel() for parameter in self._trained)
        work = step_multiply_adds(forward, first(self._data.inputs, 2), parameters=parameters, batch=self._feed.size)
        return suitable_threads(work, device=self.setup.device.type, most=torch.get_num_threads())

    def validation_metric(self) -> float:
        """Returns the task's metric on the validation split for the current weights."""
        return metric_or_nan(self.setup.task, self._evaluated(self._validation))

    def test_outputs(self) -> Evaluated:
        """Returns the outputs on the test split."""
        return self._evaluated(self.setup.task.test.to(self.setup.device, self.setup.dtype))

    def _evaluated(self, part: Part) -> Evaluated:
        """Returns the outputs on all samples of a part."""
        batches = evaluation_batches(part, size=_EVALUATION_BATCH, device=self.setup.device, dtype=self.setup.dtype)
        pairs = [(evaluate_model(self.model, batch.inputs), self._row_rule.of_metric(batch)) for batch in batches]
        rows = joined_rows([own for _, own in pairs])
        return Evaluated(torch.cat([own for own, _ in pairs]), rows.targets, rows.weights)

    def _state(self) -> dict[str, Tensor]:
        """All that training may change; unlike a state dictionary it has every buffer."""
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

    def _step(self) -> None:
        batch = self._feed.batch()
        inputs = batch.inputs
        if self.setup.task.augmentation is not None:
            inputs = self.setup.task.augmentation(image_tensor(inputs), generator=self._augmenting)
        if self.setup.channels_last:
            inputs = with_channels_last(inputs)
        with autocast(self.setup.precision, self.setup.device):
            outputs = called(self.model, inputs)
        loss = self.criterion(outputs.to(self.setup.dtype), self._row_rule.of_loss(batch))
        self._optimizer.zero_grad()
        # Only the model's parameters: a loss may have parameters of its own, which are not trained here.
        torch.autograd.backward(loss, inputs=self._trained)
        self._optimizer.step()
        self.loss.copy_(loss.detach())
        self._sum.add_(self.loss)


def report_steps(report: StepsDone | None, done: int, steps: int) -> None:
    """Call `report`, if given, after every tenth step and after the last one."""
    if report is not None and (done % _STEPS_BETWEEN_REPORTS == 0 or done == steps):
        report(done % _STEPS_BETWEEN_REPORTS or _STEPS_BETWEEN_REPORTS)


def evaluate_model(model: nn.Module, inputs: Inputs) -> Tensor:
    """Returns the model's outputs on all inputs, in evaluation mode."""
    with evaluating(model), torch.no_grad():
        return torch.cat([called(model, batch) for batch in pieces(inputs, _EVALUATION_BATCH)])
