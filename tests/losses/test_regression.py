"""Robust regression losses against their definitions."""

import math

import pytest
import torch

from evomal.errors import InputError
from evomal.losses import CauchyLoss, ExpressionLoss, LogCoshLoss, QuantileLoss, TukeyLoss, WelschLoss

ERRORS = [-40.0, -3.1, -1.0, -1e-3, 0.0, 0.2, 0.9, 2.0, 700.0]  # f - y; cosh of more overflows
LOSSES = {
    "log-cosh": (LogCoshLoss, lambda e: math.log(math.cosh(e))),
    "cauchy": (lambda **o: CauchyLoss(0.7, **o), lambda e: 0.7**2 / 2 * math.log(1 + (e / 0.7) ** 2)),
    "welsch": (lambda **o: WelschLoss(1.4, **o), lambda e: 1.4**2 / 2 * (1 - math.exp(-((e / 1.4) ** 2)))),
    "tukey": (
        lambda **o: TukeyLoss(2.5, **o),
        lambda e: 2.5**2 / 6 * (1 - (1 - (e / 2.5) ** 2) ** 3) if abs(e) <= 2.5 else 2.5**2 / 6,
    ),
    "quantile": (lambda **o: QuantileLoss(0.8, **o), lambda e: -0.8 * e if e < 0 else 0.2 * e),
}


@pytest.mark.parametrize("name", LOSSES)
def test_values(name):
    make, defined = LOSSES[name]
    target = torch.linspace(-2, 2, len(ERRORS), dtype=torch.float64)
    output = target + torch.tensor(ERRORS, dtype=torch.float64)
    expected = [defined(e) for e in (output - target).tolist()]
    assert make(reduction="none")(output, target).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert make()(output, target).item() == pytest.approx(sum(expected) / len(ERRORS), rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name):
    make, _ = LOSSES[name]
    errors = [e for e in ERRORS if e != 0 and abs(e) < 100]  # the quantile loss has a kink at 0
    output, target = torch.tensor(errors, dtype=torch.float64, requires_grad=True), torch.zeros(len(errors)).double()
    loss = make(reduction="none")
    assert torch.autograd.gradcheck(lambda f: loss(f, target), output)
    assert torch.autograd.gradgradcheck(lambda f: loss(f, target), output)


@pytest.mark.parametrize("name", LOSSES)
def test_far_errors_in_single_precision_are_finite(name):
    make, _ = LOSSES[name]
    output = torch.tensor([-1e9, 1e9, 0.0], requires_grad=True)
    value = make(reduction="sum")(output, torch.zeros(3))
    value.backward()
    assert value.isfinite()
    assert output.grad.isfinite().all()
    assert output.grad[2] == pytest.approx(0.2 - 0.5 if name == "quantile" else 0)  # between its two slopes


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_tree_has_the_same_values_and_gradients_also_far_from_the_target(name, dtype):
    make, _ = LOSSES[name]
    expression, weights, activation = make().tree()
    tree = ExpressionLoss(expression, weights, kind="regression", activation=activation, reduction="none")
    errors = torch.tensor([*ERRORS, *torch.linspace(-12, 12, 101).tolist()], dtype=dtype)
    found = []
    for loss in (tree, make(reduction="none")):
        output = errors.clone().requires_grad_()
        costs = loss(output, torch.zeros_like(output))
        found.append((costs.detach(), *torch.autograd.grad(costs.sum(), output)))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=2e-7, atol=1e-6 if dtype == torch.float32 else 2e-7)


def test_a_quantile_has_the_least_loss():
    target = torch.arange(101, dtype=torch.float64)
    losses = [QuantileLoss(0.8)(target.new_full((101,), value), target).item() for value in range(101)]
    assert losses.index(min(losses)) == 80


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: CauchyLoss(0), "c must be a finite number of more than 0 but got 0"),
        (lambda: WelschLoss(-1), "c must be a finite number of more than 0 but got -1"),
        (lambda: TukeyLoss(0), "c must be a finite number of more than 0 but got 0"),
        (lambda: QuantileLoss(1), "quantile must be a finite number of more than 0 and less than 1 but got 1"),
    ],
)
def test_options_out_of_range(make, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        make()
