"""Row weights of a forest, on every backend, against autograd on Σ w·l / Σ w of each loss alone."""

import pytest
import torch

from evomal.engine.weight_optimisation import NetworkLosses
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.forest import Forest
from evomal.losses import ExpressionLoss
from evomal.losses.neural import NeuralLoss, layers_of, starting_layers, weights_of
from tests.forest.agreement import derivative
from tests.processes import check_in_interpreter

TREES = [
    Expression.parse(text)
    for text in ("square(sub(y, f))", "mul(y, log(f))", "add(abs(sub(f, y)), mul(f, tanh(y)))", "max(y, f)")
]
WEIGHTS = torch.tensor([1.0, 0.0, 2.5, 0.3, 0.0])
ROWS = len(WEIGHTS)


def question(kind, outputs, dtype, count):
    rng = torch.Generator().manual_seed(outputs)
    z = torch.randn(count, ROWS, outputs, generator=rng, dtype=dtype)
    tangents = torch.randn(z.shape, generator=rng, dtype=dtype)
    if kind == "classification":
        targets = torch.randint(max(2, outputs), (ROWS,), generator=rng)
    else:
        targets = torch.randint(2, (ROWS, outputs), generator=rng).to(dtype)
    return z, targets, tangents


def weighted_mean(loss, outputs, targets, row_weights):
    costs = loss(outputs, targets)
    costs = costs.mean(1) if costs.dim() == 2 else costs
    counted = row_weights > 0
    return (costs * row_weights)[counted].sum() / row_weights.sum()


SHAPES = [("classification", 3), ("classification", 1), ("regression", 2), ("multilabel", 2)]


def assert_weighted(kind, outputs, backend):
    dtype, tolerance = (torch.float32, 1e-5) if backend == "triton" else (torch.float64, 1e-12)
    z, targets, tangents = question(kind, outputs, dtype, len(TREES))
    row_weights = WEIGHTS.to(dtype)
    forest = Forest(TREES, kind=kind, outputs=outputs, backend=backend)
    weights = forest.programs.packed([[1.1] * tree.edges for tree in TREES], dtype=dtype)
    losses, gradients = forest.gradients(z, targets, weights, row_weights)
    mixed = forest.mixed_gradients(z, targets, tangents, weights, row_weights)
    curvatures = forest.curvatures(z, targets, tangents, weights, row_weights)
    for tree, expression in enumerate(TREES):
        edges = weights[tree, 1 : expression.size].clone().requires_grad_()
        variable = z[tree].clone().requires_grad_()
        loss = ExpressionLoss(expression, edges, kind=kind, reduction="none")
        value = weighted_mean(loss, variable, targets, row_weights)
        gradient = derivative(value, variable, create_graph=True)
        along = (gradient * tangents[tree]).sum()
        for found, expected in (
            (losses[tree], value),
            (gradients[tree], gradient),
            (mixed[tree, 1 : expression.size], derivative(along, edges, retain_graph=True)),
            (curvatures[tree], derivative(along, variable, retain_graph=True)),
        ):
            torch.testing.assert_close(found, expected.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize(("kind", "outputs"), SHAPES)
def test_row_weights_give_the_weighted_mean_of_the_rows(kind, outputs, backend):
    assert_weighted(kind, outputs, backend)


INTERPRETED = """
from tests.forest import test_row_weights as checks

for kind, outputs in checks.SHAPES[::2]:
    checks.assert_weighted(kind, outputs, "triton")
"""


def test_the_triton_kernels_have_row_weights_too():
    check_in_interpreter(INTERPRETED)


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_rows_without_weight_may_hold_anything(backend):
    z, targets, tangents = question("classification", 3, torch.float64, len(TREES))
    row_weights = WEIGHTS.double()
    spoilt = z.clone()
    spoilt[:, row_weights == 0] = torch.nan
    forest = Forest(TREES, kind="classification", outputs=3, backend=backend)
    weights = forest.programs.packed([], dtype=torch.float64)
    for function in ("mixed_gradients", "curvatures"):
        ask = getattr(forest, function)
        expected = ask(z, targets, tangents, weights, row_weights)
        torch.testing.assert_close(ask(spoilt, targets, tangents, weights, row_weights), expected, rtol=0, atol=0)
    pairs = zip(
        forest.gradients(spoilt, targets, weights, row_weights),
        forest.gradients(z, targets, weights, row_weights),
        strict=True,
    )
    assert all(torch.equal(found, expected) for found, expected in pairs)


def test_groups_have_row_weights_of_their_own():
    z, targets, _ = question("classification", 3, torch.float64, 4)
    trees, others = TREES[:2], targets.flip(0)
    both = Forest([*trees, *trees], kind="classification", outputs=3)
    alone = Forest(trees, kind="classification", outputs=3)
    row_weights = torch.stack((WEIGHTS, WEIGHTS.flip(0))).double()
    weights = both.programs.packed([], dtype=torch.float64)
    dense = torch.stack([both.dense_targets(own, torch.float64) for own in (targets, others)])
    losses, gradients = both.gradients(z, dense, weights, row_weights)
    for group, own in enumerate((targets, others)):
        rows = slice(2 * group, 2 * group + 2)
        found = alone.gradients(z[rows], own, weights[rows], row_weights[group])
        torch.testing.assert_close((losses[rows], gradients[rows]), found)


def test_a_batch_in_which_no_row_counts_costs_nothing():
    z, targets, tangents = question("classification", 3, torch.float64, len(TREES))
    forest = Forest(TREES, kind="classification", outputs=3)
    weights, none = forest.programs.packed([], dtype=torch.float64), torch.zeros(ROWS, dtype=torch.float64)
    losses, gradients = forest.gradients(z, targets, weights, none)
    assert not bool(losses.any())
    assert not bool(gradients.any())
    assert not bool(forest.mixed_gradients(z, targets, tangents, weights, none).any())


def test_row_weights_must_fit_the_rows():
    z, targets, _ = question("classification", 3, torch.float64, len(TREES))
    forest = Forest(TREES, kind="classification", outputs=3)
    weights = forest.programs.packed([], dtype=torch.float64)
    with pytest.raises(InputError, match=r"row weights must be torch.float64 of shape \[5\], .* but got .* \[4\]"):
        forest.gradients(z, targets, weights, torch.ones(4, dtype=torch.float64))


def test_networks_as_losses_have_row_weights_too():
    z, targets, tangents = question("classification", 3, torch.float64, 1)
    layers = starting_layers(generator=torch.Generator().manual_seed(0))
    weights = weights_of(layers).double().unsqueeze(0)
    population = NetworkLosses(kind="classification", outputs=3, hidden=layers[0].shape[0])
    losses, gradients = population.gradients(z, targets, weights, WEIGHTS.double())
    loss = NeuralLoss(layers_of(weights[0]), kind="classification", reduction="none")
    variable = z[0].clone().requires_grad_()
    value = weighted_mean(loss, variable, targets, WEIGHTS.double())
    torch.testing.assert_close(losses[0], value.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradients[0], derivative(value, variable), rtol=1e-5, atol=1e-6)
    counting = WEIGHTS > 0
    rest = z[:, counting], targets[counting], tangents[:, counting], weights, WEIGHTS[counting].double()
    for function in ("mixed_gradients", "curvatures"):
        ask = getattr(population, function)
        found, expected = ask(z, targets, tangents, weights, WEIGHTS.double()), ask(*rest)
        torch.testing.assert_close(found[:, counting] if function == "curvatures" else found, expected)
