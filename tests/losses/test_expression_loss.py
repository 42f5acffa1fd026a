"""Expressions as losses: the paper's learned losses, the meaning of weights, finiteness, derivatives."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evomal.expression import Expression, ramped_half_and_half
from evomal.losses import ExpressionLoss, starting_weights
from evomal.losses.expression_loss import evaluate
from evomal.randomness import generator
from tests.strategies import SMOOTH, losses

EPS = 1e-7


def log(a):
    return torch.log(a.abs() + EPS)


def sqrt(a):
    return torch.sqrt(a.abs() + EPS)


# The paper's table of learned losses: token trees beside the formulas written by hand (c with the analytic quotient).
PAPER = {
    "a": ("abs(log(sqrt(mul(y, f))))", lambda y, f: log(sqrt(y * f)).abs()),
    "b": ("add(log(mul(y, f)), square(sqrt(log(mul(y, f)))))", lambda y, f: log(y * f) + sqrt(log(y * f)) ** 2),
    "c": ("square(square(aq(sub(y, f), f)))", lambda y, f: ((y - f) / (1 + f**2).sqrt()) ** 4),
    "d": (
        "add(add(mul(y, square(y)), mul(f, square(f))), add(mul(f, square(y)), mul(square(f), y)))",
        lambda y, f: y**3 + f**3 + f * y**2 + f**2 * y,
    ),
    "e": ("abs(log(square(mul(y, f))))", lambda y, f: log((y * f) ** 2).abs()),
    "f": ("square(sub(f, min(max(y, -1), 1)))", lambda y, f: (f - y.clamp(-1, 1)) ** 2),
    "g": ("abs(mul(y, sqrt(aq(y, f))))", lambda y, f: (y * sqrt(y / (1 + f**2).sqrt())).abs()),
    "h": (
        "abs(sub(aq(aq(y, log(sub(y, 1))), log(sub(y, 1))), f))",
        lambda y, f: (y / (1 + log(y - 1) ** 2) - f).abs(),
    ),
    "i": ("sqrt(mul(y, sub(y, f)))", lambda y, f: sqrt(y * (y - f))),
    "j": ("sqrt(sub(y, f))", lambda y, f: sqrt(y - f)),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_s_learned_losses(name):
    text, by_hand = PAPER[name]
    rng = torch.Generator().manual_seed(0)
    if name < "f":
        output = torch.randn(50, 10, generator=rng, dtype=torch.float64, requires_grad=True)
        target = torch.randint(10, (50,), generator=rng)
        f, y = output.softmax(1), torch.nn.functional.one_hot(target, 10).double()
        expected = by_hand(y, f).sum(1).mean()
        loss = ExpressionLoss(text)
    else:
        output = torch.randn(50, generator=rng, dtype=torch.float64, requires_grad=True)
        target = torch.randn(50, generator=rng, dtype=torch.float64) * 2
        expected = by_hand(target, output).mean()
        loss = ExpressionLoss(text, kind="regression")
    value = loss(output, target)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(v, output)[0] for v in (value, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_weights_multiply_each_value_on_its_way_to_its_parent():
    # Prefix order behind the root: log, mul, y, f.
    w = [2.0, 3.0, 5.0, 7.0]
    y, f = torch.tensor(0.5, dtype=torch.float64), torch.tensor(0.25, dtype=torch.float64)
    value = ExpressionLoss("abs(log(mul(y, f)))", w).value(f, y).item()
    assert value == pytest.approx(abs(2 * math.log(3 * (5 * 0.5) * (7 * 0.25) + 1e-7)), rel=1e-12)


def test_softplus_keeps_a_loss_positive():
    y, f = torch.tensor([1.0]), torch.tensor([-2.0])
    assert ExpressionLoss("mul(y, f)", activation="softplus").value(f, y).item() == pytest.approx(
        math.log1p(math.exp(-2))
    )


def test_weights_given_as_a_tensor_are_trained_through():
    weights = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    loss = ExpressionLoss("mul(y, f)", weights, kind="regression")
    loss(torch.tensor([3.0], dtype=torch.float64), torch.tensor([4.0], dtype=torch.float64)).backward()
    assert weights.grad.tolist() == [2.0 * 12, 1.0 * 12]
    trainable = ExpressionLoss("mul(y, f)", torch.nn.Parameter(torch.ones(2)))
    assert [name for name, _ in trainable.named_parameters()] == ["weights"]


def test_starting_weights():
    trees = ramped_half_and_half(400, generator=generator(0, "trees"))
    rng = generator(0, "phi")
    drawn = torch.tensor([weight for tree in trees for weight in starting_weights(tree, generator=rng)])
    assert drawn.mean().item() == pytest.approx(1, abs=1e-4)
    assert drawn.std().item() == pytest.approx(1e-3, rel=0.05)
    assert len(starting_weights(trees[0], generator=rng)) == trees[0].edges


UNIT = st.floats(-1, 1) | st.sampled_from([0.0, 1.0, -1.0, 1e-300])


@settings(max_examples=300)
@given(losses(max_leaves=40, max_height=8), st.lists(st.tuples(UNIT, UNIT), min_size=1, max_size=8))
def test_every_tree_is_finite_within_the_unit_range(tree, points):
    y, f = (torch.tensor(column, dtype=torch.float64) for column in zip(*points, strict=True))
    assert evaluate(tree, f, y).isfinite().all()


def test_the_unit_range_is_finite_up_to_height_8_and_not_beyond():
    """log(0) is −16.1, and squaring it eight times passes the largest double: a bound no closure can lift."""
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)

    def squares(count):
        tree = Expression.parse("log(y)", fragment=True)
        for _ in range(count):
            tree = Expression(("square", *tree.tokens))
        return tree

    assert squares(7).height == 8
    assert evaluate(squares(7), one, zero).isfinite()
    assert evaluate(squares(8), one, zero).isinf()


ANY = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1e308, -1e308, 0.0, 5e-324])


@settings(max_examples=200)
@given(losses(max_leaves=40), st.tuples(ANY, ANY))
def test_beyond_the_unit_range_there_is_no_exception(tree, point):
    y, f = (torch.tensor([value], dtype=torch.float64) for value in point)
    f.requires_grad_()
    value = evaluate(tree, f, y)
    if value.requires_grad:
        value.sum().backward()


def test_overflow_is_divergence_and_can_be_counted():
    rng = generator(0, "overflow")
    trees = ramped_half_and_half(300, generator=rng)
    big = torch.tensor([1e200, -3e150], dtype=torch.float64)
    diverged = sum(not evaluate(tree, big, big.flip(0)).isfinite().all() for tree in trees)
    assert 0 < diverged < 300


@settings(max_examples=60)
@given(losses(max_leaves=6, max_height=4))
def test_gradcheck_of_the_smooth_operators(tree):
    smooth = Expression(
        token if token in (*SMOOTH, "y", "f", "1", "-1") else {"min": "add", "max": "aq"}.get(token, "tanh")
        for token in tree.tokens
    )
    f = torch.tensor([0.3, -0.6], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1.0, 0.4], dtype=torch.float64)
    weights = torch.tensor(generator(0, smooth.key).normal(1, 0.2, smooth.edges), requires_grad=True)
    assert torch.autograd.gradcheck(lambda f, w: evaluate(smooth, f, y, w), (f, weights), atol=1e-5)
    assert torch.autograd.gradgradcheck(lambda f, w: evaluate(smooth, f, y, w), (f, weights), atol=1e-4)


@given(losses(max_leaves=12))
def test_float32_follows_float64(tree):
    f, y = torch.tensor([0.3, 0.9, 0.05], dtype=torch.float64), torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    exact = evaluate(tree, f, y).expand(3)
    single = evaluate(tree, f.float(), y.float()).expand(3)
    assert single.dtype == torch.float32
    if exact.abs().max() < 1e3:
        torch.testing.assert_close(single.double(), exact, rtol=1e-2, atol=1e-2)


def test_a_loss_is_shown_in_a_short_line():
    assert repr(ExpressionLoss("abs(sub(f, y))", kind="regression")) == (
        "ExpressionLoss(abs(sub(f, y)), activation='identity', kind='regression', reduction='mean')"
    )
    large = ExpressionLoss(Expression(["add"] * 60 + ["f"] + ["y"] * 60), weights=[1.0] * 120, weight=[1.0] * 1000)
    assert len(repr(large)) < 300
    assert "… (121 nodes)" in repr(large)
    assert repr(large).endswith("weight of 1000 classes)")
