"""The meta-gradient against double backprop, for the networks people use, and once against finite differences."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from evomal.engine.functional_model import FunctionalModel
from evomal.engine.meta_gradient import InputRows, MetaBatch, meta_gradients, unrolled_meta_gradients
from evomal.engine.rows import Rows
from evomal.engine.task_data import task_loss_of
from evomal.engine.vectorise import Masks, vectorised
from evomal.expression import Expression
from evomal.forest import Forest
from evomal.losses import ExpressionLoss
from evomal.losses.expression_loss import starting_weights
from evomal.tasks.models import make_model
from evomal.tasks.recipe import Recipe

CPU = torch.device("cpu")
TREES = [
    Expression.parse(text)
    for text in (
        "square(sub(y, f))",
        "abs(log(mul(y, f)))",
        "add(tanh(sub(f, y)), aq(square(f), y))",
        "max(mul(f, f), sub(sqrt(y), mul(y, f)))",
        "min(sub(square(sub(f, y)), 1), mul(y, tanh(f)))",
    )
]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.head(self.block(self.embed(x)).mean(1))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    )


NETWORKS = {
    "mlp": (lambda: make_model("mlp:hidden=16", (5,), 1), (5,), 1),
    "lenet5": (lambda: make_model("lenet5", (1, 28, 28), 10), (1, 28, 28), 10),
    "batch norm": (convolutional, (1, 8, 8), 3),
    "dropout": (lambda: nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Dropout(0.4), nn.Linear(16, 3)), (5,), 3),
    "lstm": (Recurrent, (6, 4), 3),
    "transformer": (Attentive, (6, 4), 3),
}
RECIPES = {
    "nesterov": Recipe(lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-3),
    "momentum": Recipe(lr=0.1, momentum=0.9, nesterov=False, weight_decay=5e-3),
    "plain": Recipe(lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0),
}


def mean(costs, row_weights):
    """The mean of the rows, or Σ w·l / Σ w."""
    if row_weights is None:
        return costs.mean()
    return (costs.reshape(len(costs), -1).mean(1) * row_weights).sum() / row_weights.sum()


class Case:
    """A network, its batches, and the gradient by both ways."""

    def __init__(self, network, dtype, inner_steps, row_weights=None):
        make, shape, outputs = NETWORKS[network]
        generator = torch.Generator().manual_seed(3)
        self.drawn = network == "dropout"
        self.kind = "regression" if outputs == 1 else "classification"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.model = FunctionalModel(make(), device=CPU, dtype=dtype)
            self.model.flat.copy_(self.model.flattened(make()))

        def batch():
            inputs = torch.randn(12, *shape, dtype=dtype, generator=generator)
            if outputs == 1:
                return InputRows(inputs, Rows(torch.randn(12, 1, dtype=dtype, generator=generator), row_weights))
            return InputRows(inputs, Rows(torch.randint(outputs, (12,), generator=generator), row_weights))

        self.batch = MetaBatch(tuple(batch() for _ in range(inner_steps)), batch())
        self.task_loss = task_loss_of(self.kind, outputs)
        rng = np.random.default_rng(0)
        self.forest = Forest(TREES, kind=self.kind, outputs=outputs)
        # Far from ones, so that no two terms are alike.
        own = [(np.array(starting_weights(tree, generator=rng)) - 1) * 200 + 1 for tree in TREES]
        self.weights = self.forest.programs.packed(own, dtype=dtype)
        self.masks = Masks(enabled=self.drawn, captured=False, device=CPU, seed=0)

    def by_adjoint(self, recipe, mode, tangent="transposed", unrolled=None):
        over = vectorised(mode, self.masks)
        arguments = (self.model, self.forest, self.weights, self.batch, self.task_loss, recipe, over)
        with torch.random.fork_rng(devices=[]), self.model.differentiable_twice():
            self.masks.begin("inner 0")
            if unrolled if unrolled is not None else len(self.batch.inner) > 1:
                return unrolled_meta_gradients(*arguments)
            return meta_gradients(*arguments, tangent)

    def by_double_backprop(self, recipe, tree):
        loss_weights = self.weights[tree, 1 : TREES[tree].size].clone().requires_grad_()
        value = self.task_loss_after(recipe, tree, loss_weights)
        (gradient,) = torch.autograd.grad(value, loss_weights)
        return gradient, value.detach()

    def task_loss_after(self, recipe, tree, loss_weights):
        loss = ExpressionLoss(TREES[tree], weights=loss_weights, kind=self.kind, reduction="none")
        own = {name: value.clone().requires_grad_() for name, value in self.model.parameters.items()}
        momenta = {name: torch.zeros_like(value) for name, value in own.items()}
        with torch.random.fork_rng(devices=[]), self.model.differentiable_twice():
            for step, part in enumerate(self.batch.inner):
                self.masks.begin(f"inner {step}")
                value = mean(loss(self.model(own, part.inputs), part.rows.targets), part.rows.weights)
                gradients = torch.autograd.grad(value, own.values(), create_graph=True)
                for name, gradient in zip(list(own), gradients, strict=True):
                    gradient = gradient + recipe.weight_decay * own[name]
                    momenta[name] = recipe.momentum * momenta[name] + gradient
                    direction = gradient + recipe.momentum * momenta[name] if recipe.nesterov else momenta[name]
                    own[name] = own[name] - recipe.lr * direction
            self.masks.begin("validation")
            inputs, rows = self.batch.validation
            task_loss = F.mse_loss if self.kind == "regression" else F.cross_entropy
            return mean(task_loss(self.model(own, inputs), rows.targets, reduction="none"), rows.weights)

    def check(self, found, recipe, tolerance):
        gradients, values = found
        assert not bool(gradients[:, 0].any())
        for tree, expression in enumerate(TREES):
            expected, value = self.by_double_backprop(recipe, tree)
            own = gradients[tree, 1 : expression.size]
            assert (own - expected).norm() <= tolerance * expected.norm(), (expression, own, expected)
            assert values[tree].item() == pytest.approx(value.item(), rel=tolerance)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("inner_steps", [1, 3])
@pytest.mark.parametrize("network", NETWORKS)
def test_it_equals_double_backprop(network, inner_steps, recipe):
    case = Case(network, torch.float64, inner_steps)
    case.check(case.by_adjoint(RECIPES[recipe], "looped"), RECIPES[recipe], 1e-8)
    if network != "lstm":  # vmap has no rule for it
        case.check(case.by_adjoint(RECIPES[recipe], "stacked"), RECIPES[recipe], 1e-8)


@pytest.mark.parametrize("network", NETWORKS)
def test_single_precision(network):
    case = Case(network, torch.float32, 1)
    case.check(case.by_adjoint(RECIPES["nesterov"], "looped"), RECIPES["nesterov"], 1e-4)


@pytest.mark.parametrize("network", ["mlp", "lenet5", "batch norm", "transformer"])
@pytest.mark.parametrize("mode", ["stacked", "looped"])
def test_forward_mode_gives_the_same(network, mode):
    case = Case(network, torch.float64, 1)
    case.check(case.by_adjoint(RECIPES["nesterov"], mode, tangent="forward"), RECIPES["nesterov"], 1e-8)


@pytest.mark.parametrize("inner_steps", [1, 2])
@pytest.mark.parametrize("network", ["mlp", "dropout"])
def test_row_weights_are_those_of_double_backprop(network, inner_steps):
    row_weights = torch.tensor([0.0, 1.0, 2.0, 0.5] * 3, dtype=torch.float64)
    case, recipe = Case(network, torch.float64, inner_steps, row_weights), RECIPES["nesterov"]
    case.check(case.by_adjoint(recipe, "stacked"), recipe, 1e-8)


def test_one_step_is_the_unrolled_one():
    case = Case("mlp", torch.float64, 1)
    for recipe in RECIPES.values():
        case.check(case.by_adjoint(recipe, "stacked", unrolled=True), recipe, 1e-8)


def test_finite_differences_confirm_it():
    case, recipe, tree = Case("mlp", torch.float64, 3), RECIPES["nesterov"], 2
    gradients, _ = case.by_adjoint(recipe, "looped")
    weights = case.weights[tree, 1 : TREES[tree].size]
    for edge in range(len(weights)):
        step = torch.zeros_like(weights)
        step[edge] = 1e-5
        above, below = (case.task_loss_after(recipe, tree, weights + sign * step).item() for sign in (1, -1))
        assert gradients[tree, edge + 1].item() == pytest.approx((above - below) / 2e-5, rel=1e-5, abs=1e-9)


def test_looped_candidates_do_not_know_of_each_other():
    case = Case("dropout", torch.float32, 1)
    together = case.by_adjoint(RECIPES["nesterov"], "looped")[0]
    for tree, expression in enumerate(TREES):
        alone = Case("dropout", torch.float32, 1)
        alone.forest = Forest([expression], kind=alone.kind, outputs=3)
        alone.weights = case.weights[tree : tree + 1]
        assert torch.equal(alone.by_adjoint(RECIPES["nesterov"], "looped")[0][0], together[tree])
