"""Many trials as one: models stacked along a leading dimension, each with its own loss, learning rate and weight decay.

Trials of one seed and split form a group: they start from the same weights and see the same batches. A group has at
least two places, filled up where needed: matrix products of a single member take another kernel, and a trial alone
would differ in its last bits from the same trial among others.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from evomal.engine.convolution_tails import with_tails
from evomal.engine.cuda_graphs import GraphedStep
from evomal.engine.feeds import BatchFeed, evaluation_batches
from evomal.engine.functional_model import stackable_attention, state_of
from evomal.engine.optimizers import Schedule, changed_option, changes_rates, make_optimizer
from evomal.engine.precision import autocast
from evomal.engine.resolve import check_model, initial_model
from evomal.engine.row_losses import StackLosses
from evomal.engine.rows import RowRule, Rows, joined_rows
from evomal.engine.scores import Evaluated, Fitness, TrialLoss, diverged_fitness, fitness_of_outputs
from evomal.engine.stackable_layers import stackable_copy
from evomal.engine.training import TrainingSetup, report_steps
from evomal.engine.updates import clip_members, stacked_optimizers
from evomal.errors import InputError
from evomal.progress import StepsDone
from evomal.randomness import derived_seed, isolated_torch, reseed_torch, restore_torch, torch_states
from evomal.tasks.inputs import Inputs, arguments, first, image_tensor, map_tensors, select
from evomal.tasks.model_trials import evaluating
from evomal.tasks.parts import Part, joined_parts

FEWEST_MEMBERS = 2
_HOST_OUTPUTS = 200_000
"""Outputs of one model on a part up to which the CPU computes its metric, so that the members of a stack do not wait
for the device one after the other. Estimated: a metric of that size takes a CPU as long as the waiting."""


@dataclass(frozen=True)
class Member:
    """One trial of a stack, without what its group has in common."""

    loss: TrialLoss
    lr: float
    factor: float = 1.0
    decay: float = 1.0


@dataclass(frozen=True)
class Group:
    """Trials of one seed and split."""

    seed: int
    members: tuple[Member, ...]
    rows: tuple[Tensor, Tensor] | None = None
    """The rows to train on and to judge on in another split, among those of both parts; None: the task's own split."""


class TrialStack:
    """Trials of one task that are trained together, in groups with the same number of places.

    To be used inside `isolated_torch`: dropout draws from torch's global generators, which `start` seeds. Trials with
    dropout need a stack of one group.

    Args:
        setup: What all trials have in common; its seed and learning rate are not used.
        losses: Makes the losses for a number of places.
        groups: Number of groups.
        members: Places per group.
        evaluated_rows: Rows per forward pass of an evaluation.
        is_random: Whether a forward pass of the model draws random numbers.
    """

    def __init__(
        self, setup: TrainingSetup, losses: Callable[[int], StackLosses], *, groups: int, members: int,
        evaluated_rows: int, is_random: bool = False,
    ) -> None:  # fmt: skip
        task, device, dtype = setup.task, setup.device, setup.dtype
        self.setup, self._make_losses = setup, losses
        self._evaluated_rows, self._is_random = evaluated_rows, is_random
        self._module = initial_model(task, setup.seed).to(device, dtype)
        check_model(self._module, task)
        self._train, self._validation = setup.data
        self._stackable = stackable_copy(self._module, device=device, dtype=dtype, precision=setup.precision)
        if self._stackable is not None:
            self._stackable = with_tails(self._stackable, first(self._train.inputs, 2))
        self._row_rule = RowRule(task, device, dtype)
        self._pool: Part | None = None
        self._groups: Sequence[Group] = ()
        self._random_state: list[Tensor] = []
        self.steps_done = self._steps = 0
        self._orders: dict[str, list[int]] = {}
        self._schedules: dict[float, Schedule] = {}
        self._allocate(1, FEWEST_MEMBERS)
        self._orders = self._orders_of_gradients()
        self._allocate(groups, members)

    def _allocate(self, groups: int, members: int) -> None:
        setup, device, dtype = self.setup, self.setup.device, self.setup.dtype
        self.groups, self.members = groups, members
        places = groups * members
        self._losses = self._make_losses(places)
        self._parameters: dict[str, Tensor] = {}
        self._constants: dict[str, Tensor] = {}
        for name, value in state_of(self._module).items():
            if value.requires_grad:
                shape = (places, *value.shape)
                order = self._orders.get(name, [*range(len(shape))])
                own = torch.zeros([shape[dim] for dim in order], dtype=dtype, device=device)
                self._parameters[name] = own.permute([order.index(dim) for dim in range(len(shape))]).requires_grad_()
            else:
                self._constants[name] = torch.zeros(groups, *value.shape, dtype=dtype, device=device)
        self._single = make_optimizer(setup.recipe, self._module, device)
        single = dict(self._module.named_parameters())
        self._optimizers = stacked_optimizers(
            self._single, {single[name]: stack for name, stack in self._parameters.items()}
        )  # fmt: skip
        self._factors = torch.ones(places, 1, 1, dtype=dtype, device=device)
        self._alive = torch.ones(places, dtype=torch.bool, device=device)
        self._survived = torch.zeros(places, dtype=torch.int64, device=device)
        size = setup.recipe.batch_size
        self._feed = BatchFeed(self._train, count=groups, size=size, device=device, dtype=dtype)
        self._augmenting = [torch.Generator(device) for _ in range(groups)]
        generators = self._augmenting if setup.task.augmentation else ()
        captured = setup.graphs and not self._feed.is_varying
        self.step = GraphedStep(
            self._step, device=device, generators=generators, enabled=captured, raises_memory_errors=True
        )

    def _orders_of_gradients(self) -> dict[str, list[int]]:
        """Returns for each parameter its dimensions in the order in which gradients lie in memory.

        Parameters are laid out alike, as autograd would otherwise copy every gradient to the layout of its parameter.
        """
        with isolated_torch(self.setup.seed, "layout", device=self.setup.device):
            outputs = self._outputs(map_tensors(lambda own: own[:2].clone().unsqueeze(0), self._train.inputs))
            gradients = torch.autograd.grad(outputs.sum(), [*self._parameters.values()], materialize_grads=True)
        orders = {}
        for name, gradient in zip(self._parameters, gradients, strict=True):
            order = [dim for _, dim in sorted((-stride, dim) for dim, stride in enumerate(gradient.stride()))]
            if order[0] == 0:  # each member must be one piece of memory
                orders[name] = order
        return orders

    def start(self, groups: Sequence[Group], *, steps: int) -> None:
        """Load trials, and put models, optimizers and generators into their initial states, in the same memory.

        `steps`: the number of steps that a whole training takes, which is what progress is measured by.
        """
        setup, device = self.setup, self.setup.device
        self.steps_done, self._steps = 0, steps
        self._schedules = {}
        self._load(groups)
        with torch.no_grad():
            for place, group in enumerate(groups):
                self._module = initial_model(setup.task, group.seed, reuse=self._module).to(device, setup.dtype)
                own = slice(place * self.members, (place + 1) * self.members)
                for name, value in state_of(self._module).items():
                    if name in self._parameters:
                        self._parameters[name][own] = value.detach()
                    else:
                        self._constants[name][place] = value
                self._augmenting[place].manual_seed(derived_seed(group.seed, "augmentation"))
        for optimizer in self._optimizers:
            optimizer.restart()
        self._alive.fill_(True)
        self._survived.zero_()
        reseed_torch(derived_seed(groups[0].seed, "dropout"), device)
        self._random_state = torch_states(device)

    def _load(self, groups: Sequence[Group]) -> None:
        assert len(groups) == self.groups
        assert all(len(group.members) <= self.members for group in groups)
        self._groups = groups
        if self._pool is None and any(group.rows is not None for group in groups):
            self._pool = joined_parts(self.setup.data)
            self.step.forget()  # a captured step reads its batches from the training part
        self._losses.load(self._in_places(lambda member: member.loss, None))
        factors = torch.tensor(self._in_places(lambda member: member.factor, 1.0), dtype=torch.float64)
        self._factors.copy_(factors.view(-1, 1, 1))
        for optimizer in self._optimizers:
            optimizer.multiply_decay(self._in_places(lambda member: member.decay, 1.0))
        chosen = [None if group.rows is None else group.rows[0] for group in groups]
        self._feed.open([(group.seed, "training") for group in groups], pool=self._pool, chosen=chosen)

    def _in_places(self, property_of: Callable[[Member], Any], filling: Any) -> list[Any]:
        """Returns a property of the member in each place."""
        rows = ([*map(property_of, group.members)] for group in self._groups)
        return [value for row in rows for value in [*row, *[filling] * (self.members - len(row))]]

    def keep(self, chosen: Sequence[Sequence[int]]) -> None:
        """Continue with only some members of each group; the others cost nothing from now on."""
        kept = [place for place, members in enumerate(chosen) if members]
        groups = []
        for place in kept:
            own = tuple(self._groups[place].members[member] for member in chosen[place])
            groups.append(dataclasses.replace(self._groups[place], members=own))
        members = max(FEWEST_MEMBERS, *(len(group.members) for group in groups))
        # Unused places repeat the first member, whose numbers are ordinary ones.
        places = [
            place * self.members + (chosen[place][index] if index < len(chosen[place]) else chosen[place][0])
            for place in kept
            for index in range(members)
        ]
        rows, of_groups = (torch.tensor(numbers, device=self.setup.device) for numbers in (places, kept))
        before = (self._parameters, self._constants, self._optimizers, self._alive, self._survived, self._augmenting)
        parameters, constants, optimizers, alive, survived, augmenting = before
        self._allocate(len(groups), members)
        with torch.no_grad():
            for name, value in self._parameters.items():
                value.copy_(parameters[name].index_select(0, rows))
            for name, value in self._constants.items():
                value.copy_(constants[name].index_select(0, of_groups))
            for new, old in zip(self._optimizers, optimizers, strict=True):
                new.copy_rows(old, rows)
            self._alive.copy_(alive.index_select(0, rows))
            self._survived.copy_(survived.index_select(0, rows))
        for generator, place in zip(self._augmenting, kept, strict=True):
            generator.set_state(augmenting[place].get_state())
        self._load(groups)
        self._set_rates(self.steps_done)

    def advance(self, steps: int, report: StepsDone | None = None) -> None:
        """Train until that number of steps is done; `report` counts steps of the stack."""
        recipe, device = self.setup.recipe, self.setup.device
        if self._is_random:
            restore_torch(self._random_state, device)
        for index in range(self.steps_done, steps):
            if changes_rates(recipe, index):
                self._set_rates(index)
            self._feed.load(index)
            if self._losses.is_moving:
                self._losses.set_progress(index / self._steps)
            self.step()
            report_steps(report, index + 1, steps)
        self.steps_done = steps
        if self._is_random:
            self._random_state = torch_states(device)

    def _set_rates(self, step: int) -> None:
        """Set the learning rates of the step: trials of one learning rate have one schedule."""
        setup, lrs = self.setup, self._in_places(lambda member: member.lr, 0.0)
        options = {}
        for lr in dict.fromkeys(filter(None, lrs)):
            if lr not in self._schedules:
                own = Schedule(setup.recipe, self._module, setup.device, lr=lr, steps=self._steps)
                self._schedules[lr] = own
            options[lr] = self._schedules[lr].at(step)
            if name := changed_option(self._single, options[lr]):
                raise InputError(
                    f"the schedule changes the optimizer's {name} at step {step}, which stacked trainings cannot "
                    "follow: population_mode must be looped"
                )
        for optimizer in self._optimizers:
            rates = [options[lr][optimizer.group]["lr"] if lr else 0.0 for lr in lrs]
            optimizer.rates.copy_(torch.tensor(rates, dtype=torch.float64))

    def diverged(self) -> list[list[str]]:
        """Returns for each member of each group why its training has diverged; an empty text where it has not."""
        rows = zip(self._survived.view(self.groups, self.members).tolist(), self._groups, strict=True)
        sentence = "the training loss or its gradient was not finite at step"
        return [
            ["" if steps == self.steps_done else f"{sentence} {steps + 1}" for steps in row[: len(group.members)]]
            for row, group in rows
        ]

    def validated(self) -> list[list[tuple[Fitness, Evaluated | None]]]:
        """Returns for each member of each group its fitness as it is now, and its outputs unless it diverged."""
        task = self.setup.task
        return [
            [
                (diverged_fitness(sentence), None) if sentence else (fitness_of_outputs(task, own), own)
                for sentence, own in zip(sentences, members, strict=False)
            ]
            for sentences, members in zip(self.diverged(), self._evaluated(self._validation, split=True), strict=True)
        ]

    def test_outputs(self) -> list[list[Evaluated]]:
        """Returns the outputs on the test split of each member of each group."""
        part = self.setup.task.test.to(self.setup.device, self.setup.dtype)
        return list(self._evaluated(part, split=False))

    def _step(self) -> None:
        inputs, rows = self._batch()
        with autocast(self.setup.precision, self.setup.device):
            outputs = self._outputs(inputs)
        outputs = outputs.flatten(0, 1).to(self.setup.dtype)
        losses, cotangents = self._losses.gradients(outputs.detach(), rows)
        cotangents = cotangents * self._factors
        self._alive &= torch.isfinite(losses) & torch.isfinite(cotangents.sum((1, 2)))
        self._survived += self._alive
        # A diverged member gets no further gradient; momentum may still move it, but its result is already fixed.
        cotangents = torch.where(self._alive[:, None, None], cotangents, 0)
        for value in self._parameters.values():
            value.grad = None
        # Not `torch.autograd.grad`: its gradients need not be laid out as the parameters, which slows the update down.
        torch.autograd.backward(outputs, cotangents)
        gradients = []
        for value in self._parameters.values():
            if value.grad is None:  # no output depends on it
                value.grad = torch.zeros_like(value)
            gradients.append(value.grad)
        if self.setup.recipe.clip is not None:
            clip_members(gradients, self.setup.recipe.clip)
        for optimizer in self._optimizers:
            optimizer.step()

    def _batch(self) -> tuple[Inputs, Rows]:
        """Returns inputs `[G, B, …]` and rows `[G, B]`, or `[G, B · positions]`."""
        part, groups = self._feed.batch(), self.groups
        inputs, rows = _in_groups(part.inputs, groups), self._row_rule.of_loss(part)
        augmentation = self.setup.task.augmentation
        if augmentation is not None:
            images = _grouped(image_tensor(part.inputs), groups)
            pairs = zip(images, self._augmenting, strict=True)
            inputs = torch.stack([augmentation(own, generator=generator) for own, generator in pairs])
        weights = None if rows.weights is None else _grouped(rows.weights, groups)
        return inputs, dataclasses.replace(rows, targets=_grouped(rows.targets, groups), weights=weights)

    @property
    def _computing(self) -> nn.Module:
        """The model that runs, with the parameters of the stack."""
        return self._module if self._stackable is None else self._stackable

    def _outputs(self, inputs: Inputs, *, is_shared: bool = False) -> Tensor:
        """Returns `[G, R, B, K]`, from inputs `[G, B, …]` or, if all groups share them, `[B, …]`."""

        def of_member(own: dict[str, Tensor], constants: dict[str, Tensor], x: Inputs) -> Tensor:
            result: Tensor = functional_call(self._computing, {**constants, **own}, *arguments(x))
            return result

        of_group = vmap(of_member, in_dims=(0, None, None), randomness="same")
        of_all = vmap(of_group, in_dims=(0, 0, None if is_shared else 0), randomness="same")
        stacked = {
            name: value.view(self.groups, self.members, *value.shape[1:]) for name, value in self._parameters.items()
        }
        with stackable_attention(inputs, self.setup.device):
            result: Tensor = of_all(stacked, self._constants, inputs)
        return result

    def _evaluated(self, part: Part, *, split: bool) -> Iterator[list[Evaluated]]:
        """Yields the outputs of each group's members in evaluation mode."""
        rows = [group.rows[1] for group in self._groups if group.rows is not None] if split else []
        with evaluating(self._computing), torch.no_grad():
            if not rows:
                device, dtype = self.setup.device, self.setup.dtype
                batches = evaluation_batches(part, size=self._evaluated_rows, device=device, dtype=dtype)
                pairs = [
                    (self._outputs(batch.inputs, is_shared=True), self._row_rule.of_metric(batch)) for batch in batches
                ]
                outputs = torch.cat([own for own, _ in pairs], dim=2)
                judged = [joined_rows([own for _, own in pairs])] * self.groups
            else:
                pool = self._pool
                assert pool is not None
                chosen = torch.split(torch.stack(rows), self._evaluated_rows, dim=1)
                inputs = (_in_groups(select(pool.inputs, some.reshape(-1)), self.groups) for some in chosen)
                outputs = torch.cat([self._outputs(x) for x in inputs], dim=2)
                judged = [self._row_rule.of_metric(pool.select(own)) for own in rows]
        outputs = outputs.to(self.setup.dtype)
        if self._is_judged_on_host(outputs):
            outputs = outputs.cpu()
            on_host = {id(own): own.to("cpu") for own in judged}
            judged = [on_host[id(own)] for own in judged]
        for members, own in zip(outputs, judged, strict=True):
            yield [Evaluated(member, own.targets, own.weights) for member in members]

    def _is_judged_on_host(self, outputs: Tensor) -> bool:
        """Whether the metrics of `[G, R, B, K]` are computed by the CPU: by one rule for both parts of the task."""
        task = self.setup.task
        targets = max(part.targets.numel() for part in (task.validation, task.test))
        return outputs.is_cuda and task.metric.is_named and targets * outputs.shape[-1] <= _HOST_OUTPUTS


def _in_groups(inputs: Inputs, groups: int) -> Inputs:
    """Returns inputs `[G·B, …]` of groups that lie one after the other as `[G, B, …]`."""
    return map_tensors(lambda values: _grouped(values, groups), inputs)


def _grouped(values: Tensor, groups: int) -> Tensor:
    return values.reshape(groups, -1, *values.shape[1:])
