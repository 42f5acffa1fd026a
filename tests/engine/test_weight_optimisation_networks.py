"""Networks as losses: gradients against `NeuralLoss` and double backprop, and tuned weights against torch's Adam."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from evomal.engine import Engine, EngineSettings
from evomal.engine.resolve import initial_model
from evomal.engine.weight_optimisation import NetworkLosses
from evomal.losses import CrossEntropyLoss, NeuralLoss
from evomal.losses.neural import layers_of, starting_layers, weight_count, weights_of
from evomal.randomness import torch_generator
from evomal.tasks.parts import Batches
from tests.engine.populations import classification, regression

HIDDEN = 6
DOUBLE = {"device": "cpu", "dtype": torch.float64, "meta_steps": 4, "meta_lr": 0.05, "training_steps": 5}


def rows(count, hidden=HIDDEN):
    generators = (torch_generator(seed, "rows") for seed in range(count))
    return torch.stack([weights_of(starting_layers(hidden, generator=generator)) for generator in generators])


def batch(kind, outputs, samples=7):
    drawn = torch_generator(0, kind)
    logits = torch.randn(3, samples, outputs, generator=drawn, dtype=torch.float64)
    if kind == "classification":
        return logits, torch.randint(max(2, outputs), (samples,), generator=drawn)
    if kind == "multilabel":
        return logits, torch.randint(2, (samples, outputs), generator=drawn)
    return logits, torch.randn(samples, outputs, generator=drawn, dtype=torch.float64)


@pytest.mark.parametrize(
    ("kind", "outputs"), [("regression", 2), ("classification", 4), ("classification", 1), ("multilabel", 3)]
)
@pytest.mark.parametrize("shared", [False, True])
def test_gradients_equal_those_of_the_loss(kind, outputs, shared):
    logits, targets = batch(kind, outputs)
    logits = logits[0] if shared else logits
    weights = rows(3)
    losses = NetworkLosses(kind=kind, outputs=outputs, hidden=HIDDEN)
    values, gradients = losses.gradients(logits, targets, weights)
    tangents = torch.randn(3, *logits.shape[-2:], generator=torch_generator(1), dtype=torch.float64)
    mixed = losses.mixed_gradients(logits, targets, tangents, weights)
    bent = losses.curvatures(logits, targets, tangents, weights)
    for member in range(3):
        own = (logits if shared else logits[member]).clone().requires_grad_()
        row = weights[member].clone().requires_grad_()
        value = NeuralLoss(layers_of(row, HIDDEN), kind=kind)(own, targets)
        (gradient,) = torch.autograd.grad(value, own, create_graph=True)
        by_row, by_output = torch.autograd.grad((gradient * tangents[member]).sum(), (row, own))
        for found, expected in (
            (values[member], value), (gradients[member], gradient), (mixed[member], by_row), (bent[member], by_output),
        ):  # fmt: skip
            torch.testing.assert_close(found, expected.detach(), rtol=1e-10, atol=1e-12)


def by_double_backprop(task, start, *, steps, lr):
    """The reference: unroll one step, differentiate twice, torch's own Adam."""
    recipe = task.recipe
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=lr)
    rate = recipe.lr * (1 + recipe.momentum if recipe.nesterov else 1)
    for step in range(steps):
        model = initial_model(task, 0, "meta step", step).double()
        own = dict(model.named_parameters())
        rows_ = Batches(len(task.train), recipe.batch_size, seed=0, purpose="meta training 0")[step]
        outputs = functional_call(model, own, (task.train.inputs[rows_].double(),))
        loss = NeuralLoss(layers_of(weights), kind=task.kind)(outputs, task.train.targets[rows_].double())
        gradients = torch.autograd.grad(loss, list(own.values()), create_graph=True)
        moved = {
            name: value - rate * (gradient + recipe.weight_decay * value)
            for (name, value), gradient in zip(own.items(), gradients, strict=True)
        }
        rows_ = Batches(len(task.validation), recipe.batch_size, seed=0, purpose="meta validation")[step]
        outputs = functional_call(model, moved, (task.validation.inputs[rows_].double(),))
        optimizer.zero_grad()
        F.mse_loss(outputs, task.validation.targets[rows_].double()).backward()
        optimizer.step()
    return weights.detach()


def test_tuned_networks_equal_double_backprop():
    task = regression()
    start = weights_of(starting_layers(generator=torch_generator(3)))
    engine = Engine(task, seed=0, settings=EngineSettings(**DOUBLE))
    (found,) = engine.optimise_networks([start.tolist()])
    expected = by_double_backprop(task, start, steps=4, lr=0.05)
    assert len(found.weights) == weight_count() == 2650
    torch.testing.assert_close(torch.tensor(found.weights, dtype=torch.float64), expected, rtol=1e-8, atol=1e-9)
    assert found.diverged_at is None
    assert not torch.allclose(expected, start)


def test_any_loss_is_evaluated_as_the_usual_training_would(tmp_path):
    import evomal

    task = classification()
    engine = Engine(task, seed=4, settings=EngineSettings(device="cpu", training_steps=12))
    steps = []
    (fitness,) = engine.evaluate_losses([CrossEntropyLoss()], report=lambda stage, done: steps.append((stage, done)))
    assert fitness.value == pytest.approx(evomal.train(task, "ce", seed=4, steps=12, device="cpu").validation, rel=1e-6)
    assert steps == [("evaluate", 10), ("evaluate", 2)]


def test_a_loss_that_gives_nan_has_no_fitness():
    class Broken(torch.nn.Module):
        def forward(self, output, target):
            return output.sum() * torch.nan

    engine = Engine(regression(), seed=0, settings=EngineSettings(device="cpu", training_steps=5))
    (fitness,) = engine.evaluate_losses([Broken()])
    assert (fitness.outcome, fitness.value) == ("diverged", float("inf"))
