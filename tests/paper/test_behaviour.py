"""How losses push outputs, against the paper's results and against autograd."""

import math

import numpy as np
import pytest
import sympy
import torch

from evomal.errors import InputError
from evomal.expression import Expression, ramped_half_and_half
from evomal.expression.operators import EPSILON
from evomal.expression.symbolic import CLASSES_SYMBOL as C
from evomal.losses import (
    AbsoluteCrossEntropyLoss,
    CrossEntropyLoss,
    ExpressionLoss,
    FocalLoss,
    FocalSparseLabelSmoothingLoss,
    LabelSmoothingLoss,
    NeuralLoss,
    SparseLabelSmoothingLoss,
    TaylorLoss,
    named_loss,
    starting_layers,
    starting_weights,
)
from evomal.paper.behaviour import OUTPUTS, REGIMES, behaviours
from evomal.paper.smooth_forms import OPTION_SYMBOLS as SYMBOLS
from evomal.randomness import generator

xi, phi0, gamma = SYMBOLS["smoothing"], SYMBOLS["phi0"], SYMBOLS["gamma"]
oo = sympy.oo


def behaviour(loss, classes=10, name="loss"):
    return behaviours({name: loss}, classes=classes).losses[0]


def formulas(loss, classes=10):
    """Non-target, target; at the null epoch, then near zero error."""
    found = behaviour(loss, classes=classes)
    return [found.at(regime, output).formula for regime in REGIMES for output in OUTPUTS]


def pushed(loss, output: float, target: float) -> float:
    """δ by autograd."""
    prediction = torch.tensor([output], dtype=torch.float64, requires_grad=True)
    loss.value(prediction, torch.full_like(prediction, target)).sum().backward()
    return -prediction.grad.item()


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (CrossEntropyLoss(), [0, C, 0, 1]),
        (AbsoluteCrossEntropyLoss(), [0, C, 0, 1]),
        (AbsoluteCrossEntropyLoss(1.0, 1.1), [0, C, 0, -1]),
        (AbsoluteCrossEntropyLoss(1.0, 1.5), [0, C, 0, -1]),
        (AbsoluteCrossEntropyLoss(1.0, 1.99), [0, C, 0, -1]),
        (AbsoluteCrossEntropyLoss(0.3, 1.5), [0, C * phi0, 0, -phi0]),
        (LabelSmoothingLoss(0.1), [xi, C - C * xi + xi, oo, 1 - xi + xi / C]),
        (LabelSmoothingLoss(0.0), [0, C, 0, 1]),
        # By hand: (1 - ξ + ξ/C)/p - (ξ(C - 1)/C)/(1 - p).
        (SparseLabelSmoothingLoss(0.2), [0, C - C * xi, 0, -oo]),
        (SparseLabelSmoothingLoss(0.2, simplified=True), [0, C - xi * C / (C - 1), 0, -oo]),
        # By hand: (1 - p)^γ/p - γ(1 - p)^(γ - 1)·log p.
        (FocalLoss(2.0), [0, (1 - 1 / C) ** gamma * C + gamma * (1 - 1 / C) ** (gamma - 1) * sympy.log(C), 0, 0]),
        (FocalLoss(0.5), [0, (1 - 1 / C) ** gamma * C + gamma * (1 - 1 / C) ** (gamma - 1) * sympy.log(C), 0, 0]),
        (FocalLoss(0.0), [0, C, 0, 1]),
        (ExpressionLoss("abs(log(mul(y, f)))"), [0, C, 0, 1]),
        (ExpressionLoss("square(sub(f, y))"), [-2 / C, 2 - 2 / C, 0, 0]),
        (ExpressionLoss("mul(f, sub(log(f), y))"), [sympy.log(C) - 1, sympy.log(C), oo, 0]),
    ],
    ids=str,
)
def test_formulas_are_those_of_the_paper_and_those_derived_by_hand(loss, expected):
    for found, wanted in zip(formulas(loss), map(sympy.sympify, expected), strict=True):
        assert found == wanted or sympy.simplify(found - wanted) == 0


@pytest.mark.parametrize("classes", [3, 10, 1000])
@pytest.mark.parametrize("phi1", [1.01, 1.3, 1.99])
def test_absolute_cross_entropy_pushes_back_whatever_phi1_between_one_and_two(phi1, classes):
    assert formulas(AbsoluteCrossEntropyLoss(1.0, phi1), classes) == [0, C, 0, -1]


def test_the_sign_at_the_null_epoch_is_that_of_the_given_number_of_classes():
    assert formulas(AbsoluteCrossEntropyLoss(1.0, 4.0), 3) == [0, -C, 0, -1]
    assert formulas(AbsoluteCrossEntropyLoss(1.0, 4.0), 5) == [0, C, 0, -1]


@pytest.mark.parametrize("classes", [2, 7])
@pytest.mark.parametrize(
    "loss",
    [
        named_loss("ce"), AbsoluteCrossEntropyLoss(0.7, 1.3), LabelSmoothingLoss(0.3), SparseLabelSmoothingLoss(0.3),
        FocalLoss(1.5), FocalSparseLabelSmoothingLoss(1.5, 0.2), ExpressionLoss("sub(square(f), mul(y, log(f)))"),
        TaylorLoss([0.1, -0.2, 0.3, 1 / 3, 0.5, 1, 2, 3]),
    ],
    ids=str,
)  # fmt: skip
def test_through_the_softmax_the_null_epoch_is_the_real_gradient_of_the_loss(loss, classes):
    logits = torch.zeros(1, classes, dtype=torch.float64, requires_grad=True)
    loss.of_classes(logits, torch.tensor([0]), None).sum().backward()
    found = behaviour(loss, classes=classes)
    other, target = (found.at("null epoch", output).exact for output in OUTPUTS)
    share = 1 / classes
    assert -logits.grad[0, 0].item() == pytest.approx(share * (1 - share) * (target - other), rel=1e-9)


def test_pushes_of_random_trees_are_those_of_autograd_and_their_formulas_have_the_values_beside_them():
    trees = ramped_half_and_half(50, heights=(2, 3), generator=generator(5, "behaviour"))
    formulas_found = 0
    for number, tree in enumerate(trees):
        weights = None if number % 2 else starting_weights(tree, generator=generator(number, "weights"))
        loss = ExpressionLoss(tree, weights)
        for delta in behaviour(loss, classes=7).deltas:
            y = float(delta.output == "target")
            place = 1 / 7 if delta.regime == "null epoch" else (1 - 1e-13 if y else 1e-20)
            assert delta.exact == pytest.approx(pushed(loss, place, y), rel=1e-5, abs=1e-5), (str(tree), delta)
            if delta.formula is not None:
                assert float(delta.formula.subs(C, 7)) == pytest.approx(delta.value, rel=1e-8, abs=1e-10)
                formulas_found += 1
    assert formulas_found > 180


def test_what_epsilon_changes_is_told():
    delta = behaviour(ExpressionLoss("abs(log(mul(y, f)))")).at("zero error", "target")
    assert delta.value == 1
    # log(1 + ε) is above zero, so within ε of one the probability is pushed back.
    assert delta.exact == pytest.approx(-1 / (1 + EPSILON), rel=1e-12)
    assert delta.differs_by_epsilon
    undefined = behaviour(ExpressionLoss("mul(sub(f, y), log(sub(y, y)))")).at("null epoch", "target")
    assert (undefined.value, undefined.formula) == (math.inf, oo)
    assert undefined.exact == pytest.approx(-math.log(EPSILON))


def test_a_softplus_at_the_root_takes_part():
    loss = ExpressionLoss("square(sub(y, f))", activation="softplus")
    found = behaviour(loss, classes=4).at("null epoch", "target")
    assert found.value == pytest.approx(pushed(loss, 0.25, 1.0), rel=1e-12)
    assert found.how == "substitution"


def test_ties_follow_torch():
    loss = ExpressionLoss("max(mul(y, f), min(f, f))")
    found = behaviour(loss, classes=4)
    assert found.at("null epoch", "target").exact == pushed(loss, 0.25, 1.0) == -1
    meeting = ExpressionLoss("abs(sub(add(f, f), y))")
    assert behaviour(meeting, classes=2).at("null epoch", "target").exact == pushed(meeting, 0.5, 1.0) == 0


def test_a_tree_too_large_for_sympy_has_numbers():
    tree = Expression.parse("square(sub(f, y))")
    while tree.size < 200:
        tree = Expression(("add", *tree.tokens, *Expression.parse("tanh(mul(f, y))").tokens))
    loss = ExpressionLoss(tree)
    found = behaviour(loss, classes=4)
    assert {delta.how for delta in found.deltas} == {"numeric"}
    assert found.at("null epoch", "target").value == pytest.approx(pushed(loss, 0.25, 1.0), rel=1e-12)


def test_a_neural_loss_has_numbers():
    loss = NeuralLoss(starting_layers(hidden=7, generator=torch.Generator().manual_seed(0)))
    found = behaviour(loss, classes=4)
    for delta in found.deltas:
        y = float(delta.output == "target")
        assert delta.how == "numeric"
        place = 0.25 if delta.regime == "null epoch" else abs(y - 1e-10)
        assert delta.value == pytest.approx(pushed(loss, place, y), rel=1e-8)
    assert found.at("zero error", "target").text == f"{found.at('zero error', 'target').value:.4g}"


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (named_loss("ce"), "it still pushes the target's probability up"),
        (AbsoluteCrossEntropyLoss(1, 1.5), "it pushes the target's probability back"),
        (named_loss("label-smoothing"), "it raises the others more and pushes the target back"),
        (named_loss("sparse-label-smoothing"), "it pushes the target's probability back"),
        (named_loss("focal"), "it lets go of the target's probability"),
        # Both pushes tend to infinity; with ε, the target's is the larger.
        (ExpressionLoss("mul(f, log(mul(f, sub(f, y))))"), "it still pushes the target's probability up"),
    ],
    ids=str,
)
def test_the_end_of_training_in_words(loss, words):
    assert behaviour(loss).sentence == f"near zero training error {words}"


def test_words_agree_with_the_real_gradient_near_the_end():
    gap = math.log(9) + 12.0  # nine others, and odds of e^12
    for name in ("ce", "label-smoothing", "sparse-label-smoothing", "focal-sparse-label-smoothing"):
        loss = named_loss(name)
        logits = torch.tensor([[gap] + [0.0] * 9], dtype=torch.float64, requires_grad=True)
        loss.of_classes(logits, torch.tensor([0]), None).sum().backward()
        assert behaviour(loss).pushes_back == (logits.grad[0, 0].item() > 0)


def test_columns_are_of_one_length_and_in_latex():
    data = behaviours({"smoothed": LabelSmoothingLoss(0.1), "ce": named_loss("ce")}, classes=10)
    columns = data.columns()
    assert {len(column) for column in columns.values()} == {8}
    assert columns["loss"] == ["smoothed"] * 4 + ["ce"] * 4
    assert columns["latex"][:3] == [r"\xi", r"- C \xi + C + \xi", r"\infty"]
    np.testing.assert_allclose(columns["value"], [0.1, 9.1, math.inf, 0.91, 0, 10, 0, 1])
    assert columns["how"] == ["substitution", "substitution", "limit"] + ["substitution"] * 5


@pytest.mark.parametrize(
    ("loss", "options", "sentence"),
    [
        (named_loss("mse"), {}, "mine is for regression, but δ at f = 1/C is about classification"),
        (
            named_loss("focal", kind="multilabel"),
            {},
            "mine is for multilabel, but δ at f = 1/C is about classification",
        ),
        (named_loss("ce"), {"classes": 1}, "classes must be at least 2 but got 1"),
    ],
)
def test_what_has_no_behaviour_is_refused(loss, options, sentence):
    with pytest.raises(InputError) as refusal:
        behaviour(loss, name="mine", **options)
    assert str(refusal.value) == sentence
