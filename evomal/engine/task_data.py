"""A task as the engine uses it: data on the device, initial weights and batches of every meta step, and a digest."""

import copy
import dataclasses
import functools
import hashlib
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evomal.engine.behaviour import behaviour
from evomal.engine.device_memory import machine_bytes, usable_bytes
from evomal.engine.feeds import BatchFeed
from evomal.engine.functional_model import FunctionalModel
from evomal.engine.meta_gradient import InputRows, MetaBatch, TaskLoss
from evomal.engine.optimizers import recipe_record
from evomal.engine.plans import EngineSettings, capabilities
from evomal.engine.resolve import check_model, check_targets, class_priors, initial_model
from evomal.engine.rows import RowRule, Rows, target_positions, without_row_outputs
from evomal.engine.step_costs import step_multiply_adds
from evomal.expression import Expression
from evomal.forest import Forest
from evomal.forest.programs import row_shares
from evomal.randomness import isolated_torch
from evomal.tasks.inputs import arguments, first, image_tensor, tensors
from evomal.tasks.models.base import BuiltInModel
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task
from evomal.threads import processors

_KEPT_SHARE = 1 / 3  # share of a GPU's memory for initial weights
_KEPT_HOST_SHARE = 1 / 4  # share of the machine's memory for those that the GPU has no room for
_KEPT_BYTES = 2 * 2**30  # memory for them on a CPU
_DRAWN_TOGETHER = 2**18  # a model with at least as many weights draws those of several steps at once, by threads
_MOST_THREADS = 16
_DIGITS = 16  # of a digest: enough to tell two apart, and short enough to be read


class InitialWeights:
    """Fresh base weights θ0 for every meta step, as one vector on the device; all candidates use the same.

    Drawing those of a large model takes longer than the step itself. They are kept on the GPU, then in the machine's
    memory; beyond that, they are drawn again by every stack of candidates. `steps`: how many all candidates take.
    """

    def __init__(self, task: Task, model: FunctionalModel, *, seed: int, steps: int) -> None:
        self._task, self._model, self._seed, self._steps = task, model, seed, steps
        self._bytes_per_step = model.size * model.flat.element_size()
        on_host = int(_KEPT_HOST_SHARE * machine_bytes()) if model.device.type == "cuda" else 0
        self._room = _room(model.device) // self._bytes_per_step
        self._room_in_all = self._room + on_host // self._bytes_per_step
        self._kept: dict[int, Tensor] = {}
        self._ahead: dict[int, Tensor] = {}  # drawn together with others, but not kept
        self._modules: list[nn.Module] = []  # that draw their weights again and again, each in a thread of its own

    def at(self, step: int, *, keep: bool = True) -> Tensor:
        """Returns the weights of that step; with `keep` they are kept for the next call, where there is room."""
        if not keep:
            return self._drawn([step])[0].to(self._model.device)
        if step not in self._kept and step not in self._ahead:
            following = range(step, min(step + self._together, self._steps))  # they are asked for in their order
            drawn = dict(zip(following, self._drawn(following), strict=True))
            self._ahead = {number: flat for number, flat in drawn.items() if number >= self._room_in_all}
            for number in drawn.keys() - self._ahead.keys():
                self._kept[number] = drawn[number].to(self._model.device) if number < self._room else drawn[number]
        return (self._kept if step in self._kept else self._ahead)[step].to(self._model.device)

    @functools.cached_property
    def _together(self) -> int:
        """How many steps are drawn at once: one where drawing is fast, or needs torch's global generator."""
        if not self._modules:
            self._drawn([0])
        redraws = isinstance(without_row_outputs(self._modules[0]), BuiltInModel)
        return min(processors(), _MOST_THREADS) if redraws and self._model.size >= _DRAWN_TOGETHER else 1

    def _drawn(self, steps: Sequence[int]) -> list[Tensor]:
        if len(steps) == 1:
            module = self._modules[0] if self._modules else None
            self._modules[:1] = [initial_model(self._task, self._seed, "meta step", steps[0], reuse=module)]
            return [self._model.flattened(self._modules[0])]
        with ThreadPoolExecutor(len(steps)) as pool:
            missing = range(len(self._modules), len(steps))
            self._modules += pool.map(lambda _: copy.deepcopy(self._modules[0]), missing)
            return list(pool.map(self._redrawn, steps, self._modules))

    def _redrawn(self, step: int, module: nn.Module) -> Tensor:
        return self._model.flattened(initial_model(self._task, self._seed, "meta step", step, reuse=module))

    def bytes_kept(self, steps: int) -> int:
        """Returns the bytes on the device of the weights that are kept for that number of steps."""
        return min(steps, self._room) * self._bytes_per_step

    def share_drawn_again(self, steps: int) -> float:
        """Returns the share of that number of steps whose weights are not kept."""
        return max(0, steps - self._room_in_all) / steps

    def prepare(self, steps: int) -> None:
        """Draw the weights of the first steps now, so that later steps can be timed or captured without it."""
        with torch.no_grad():
            for step in range(min(steps, self._room_in_all)):
                self.at(step)


def _room(device: torch.device) -> int:
    """Bytes of a device for initial weights."""
    if device.type != "cuda":
        return _KEPT_BYTES
    return int(_KEPT_SHARE * usable_bytes(device))


class TaskData:
    """Model, data, batches and initial weights of one task, the same for every candidate.

    A step always finds its weights and rows in the same memory, so that it can be captured as a CUDA graph.
    """

    def __init__(
        self, task: Task, recipe: Recipe, settings: EngineSettings, *, seed: int, device: torch.device
    ) -> None:
        self.task, self.recipe, self.inner_steps = task, recipe, settings.inner_steps
        check_targets(task)
        module = initial_model(task, seed, "meta step", 0)
        check_model(module, task)
        dtype = settings.dtype
        self.model = FunctionalModel(
            module, device=device, dtype=dtype, precision=settings.precision, channels_last=settings.channels_last
        )
        self.initial_weights = InitialWeights(task, self.model, seed=seed, steps=settings.meta_steps)
        self.train, self.validation = task.train.to(device, dtype), task.validation.to(device, dtype)
        self.final = None if task.final is None else task.final.to(device, dtype)
        purposes = [f"meta training {step}" for step in range(self.inner_steps)]
        options: dict[str, Any] = {"size": recipe.batch_size, "device": device, "dtype": dtype}
        self._training_feed = BatchFeed(self.train, count=self.inner_steps, **options)
        self._training_feed.open([(seed, purpose) for purpose in purposes])
        self.batch_size = self._training_feed.size
        """Samples in a training batch."""
        self._validation_feed = BatchFeed(self.validation, count=1, **options)
        self._validation_feed.open([(seed, "meta validation")])
        self.is_varying = self._training_feed.is_varying or self._validation_feed.is_varying
        """Whether batches may differ in shape, so that steps cannot be captured and seeds not be stacked."""
        self.rows = RowRule(task, device, dtype)
        self.augmenting = torch.Generator(device)
        self.model.flat.copy_(self.initial_weights.at(0, keep=False))
        self.model.cast_once(first(self.train.inputs, 4))
        self.capabilities = capabilities(
            self.model, module, first(self.train.inputs, 4),
            positions=math.prod(target_positions(self.train.targets, task.kind)),
        )  # fmt: skip
        self.multiply_adds = self._multiply_adds()
        """Multiply-adds of a training step."""
        self.task_loss = task_loss_of(task.kind, self.capabilities.outputs)
        self.activation, self.is_extended = settings.activation, settings.is_extended
        self._priors = class_priors(task) if self.is_extended and task.kind != "regression" else None

    def _multiply_adds(self) -> int:
        model, batch = self.model, self.batch_size
        forward = functools.partial(model, model.parameters)
        parameters = sum(values.numel() for values in model.parameters.values())
        with isolated_torch(0, "trial", device=model.device):
            return step_multiply_adds(forward, first(self.train.inputs, 4), parameters=parameters, batch=batch)

    def bytes_kept(self, steps: int) -> int:
        """Returns the bytes of the data and of the initial weights of that number of steps."""
        parts = [self.train, self.validation, *([] if self.final is None else [self.final])]
        kept = [tensor for part in parts for tensor in tensors(part.inputs)]
        return self.initial_weights.bytes_kept(steps) + sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def begin_step(self, step: int, *, keep: bool = True) -> None:
        """Copy θ0 and batches of the step to where it reads them; `keep`: the step will be taken again."""
        self.model.flat.copy_(self.initial_weights.at(step, keep=keep))
        for feed in (self._training_feed, self._validation_feed):
            feed.load(step)

    def batch(self) -> MetaBatch:
        """Returns the batches of the step; training data are augmented where the task says so, validation data not."""
        inner = []
        for part in self._training_feed.batches():
            if self.task.augmentation is not None:
                images = self.task.augmentation(image_tensor(part.inputs), generator=self.augmenting)
                part = dataclasses.replace(part, inputs=images)
            inner.append(InputRows(part.inputs, self.rows.of_loss(part)))
        validation = self._validation_feed.batch()
        return MetaBatch(tuple(inner), InputRows(validation.inputs, self.rows.of_loss(validation)))

    def forest(self, expressions: Sequence[Expression], *, width: int | None = None) -> Forest:
        """Returns the expressions as losses of this task's outputs."""
        return Forest(
            expressions, kind=self.task.kind, outputs=self.capabilities.outputs, activation=self.activation,
            device=self.model.device, width=width, extended=self.is_extended, priors=self._priors,
        )  # fmt: skip


def task_loss_of(kind: str, outputs: int) -> TaskLoss:
    """Returns the task loss that meta-training minimises: squared error or cross-entropy, of rows with weights."""

    def unweighted(found: Tensor, targets: Tensor, reduction: str) -> Tensor:
        if kind == "regression":
            return F.mse_loss(found, targets, reduction=reduction)
        if kind == "classification" and outputs > 1:
            return F.cross_entropy(found, targets, reduction=reduction)
        bits = targets.to(found.dtype).reshape(found.shape)
        return F.binary_cross_entropy_with_logits(found, bits, reduction=reduction)

    def task_loss(found: Tensor, rows: Rows) -> Tensor:
        if rows.weights is None:
            return unweighted(found, rows.targets, "mean")
        costs = unweighted(found, rows.targets, "none").reshape(len(found), -1).sum(1)
        return (costs * row_shares(kind, found, rows.weights)).sum()

    return task_loss


def task_content(task: Task) -> dict[str, Any]:
    """Returns everything of a task that a search depends on: two tasks with equal content give the same search."""
    module = initial_model(task, 0)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        **task.record,
        "name": task.name,
        "metric": task.metric.name,
        "higher_is_better": task.metric.higher_is_better,
        **({"metric_options": options} if (options := task.metric.record()) else {}),
        "recipe": recipe_record(task.recipe, module),
        "data": digest_of_parts(task.train, task.validation, *(() if task.final is None else (task.final,))),
        **({} if task.final is None else {"final_rows": len(task.final)}),
        "fresh_model": digest(state.values(), repr(module)),
        **behaviour(task, module),
    }


def digest_of_parts(*parts: Part) -> str:
    """Returns a short digest of the parts' inputs, targets and weights, and of the names that inputs have."""
    return digest((values for part in parts for values in part.tensors), ",".join(arguments(parts[0].inputs)[1]))


def digest(values: Iterable[Tensor], text: str = "") -> str:
    """Returns a short digest of the tensors' contents, dtypes and shapes, and of a text."""
    found = hashlib.sha256(text.encode())
    for tensor in values:
        plain = tensor.detach().cpu().contiguous()
        found.update(f"{plain.dtype} {tuple(plain.shape)} ".encode())
        found.update(plain.numpy().tobytes())
    return found.hexdigest()[:_DIGITS]
