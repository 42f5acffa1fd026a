"""What is said of a loss against what is known of it."""

import pytest
import torch

from evomal.figures.loss_shape import loss_shape
from evomal.losses import (
    AbsoluteCrossEntropyLoss,
    ExpressionLoss,
    LabelSmoothingLoss,
    NeuralLoss,
    SparseLabelSmoothingLoss,
    named_loss,
)

# What the search of docs/results.md (outliers, seed 1) found: best at 500 steps, and training on runs away.
RUNAWAY = (
    "add(mul(mul(sqrt(max(max(f, min(f, y)), min(f, y))), sub(-1, 1)), sqrt(y)), abs(max(f, max(max(f, y), y))))",
    [0.872, 0.873, 0.871, 0.872, 0.905, 0.905, 0.963, 0.965, 1.001, 0.92, 0.92, 1.0, 0.872, 0.87, 0.871, 0.871, 0.872,
     1.168, 1.166, 1.083, 1.13, 1.13, 1.13, 1.0, 1.0],
)  # fmt: skip


def regression(expression: str, weights=None) -> ExpressionLoss:
    return ExpressionLoss(expression, weights, kind="regression")


def found(loss, name: str, **options):
    return next(entry for entry in loss_shape(loss, **options).range_of_validity if entry.name == name)


@pytest.mark.parametrize("name", ["mse", "mae", "huber"])
def test_the_usual_losses_of_regression_have_every_property(name):
    properties = loss_shape(named_loss(name)).range_of_validity
    assert [entry.name for entry in properties] == [
        "finite",
        "bounded below",
        "non-negative",
        "minimum at f = y",
        "gradient never vanishes",
        "symmetric in the error",
        "depends on the error alone",
    ]
    assert all(entry.holds for entry in properties)
    assert properties[0].sentence == "value and gradient are finite for f - y from -3 to 3 at y = -1, 0 and 1"
    assert properties[1].sentence == "does not keep falling towards f - y = -1e6 or 1e6"
    assert properties[2].sentence == "lowest value 0 at f - y = 0 (y = -1)"


@pytest.mark.parametrize("kind", ["classification", "multilabel"])
@pytest.mark.parametrize("name", ["ce", "focal"])
def test_the_usual_losses_of_classification_have_every_property(name, kind):
    properties = loss_shape(named_loss(name, kind=kind)).range_of_validity
    minimum = "minimum at p = 1" if kind == "classification" else "minimum at p = y"
    names = ["finite", "bounded below", "non-negative", minimum, "gradient never vanishes", "monotone in p"]
    assert [entry.name for entry in properties] == names
    assert all(entry.holds for entry in properties)


def test_a_learned_loss_that_ran_away_has_no_lower_bound():
    entry = found(regression(*RUNAWAY), "bounded below")
    assert not entry.holds
    assert entry.sentence == (
        "keeps falling: -20.35 at f - y = -1000 and -690.4 at f - y = -1e6 (y = -1); likewise (y = 0, 1)"
    )
    assert found(regression(*RUNAWAY), "non-negative").sentence == "keeps falling, so it is negative in the end"
    minimum = found(regression(*RUNAWAY), "minimum at f = y")
    assert (minimum.holds, minimum.sentence) == (False, "lowest nowhere, as it keeps falling")


@pytest.mark.parametrize(
    ("expression", "is_bounded"),
    [
        ("mul(-1, abs(sub(f, y)))", False),
        ("sub(y, f)", False),
        ("mul(-1, log(sub(f, y)))", False),
        ("mul(-1, sqrt(log(sub(f, y))))", False),
        ("mul(-1, log(log(sub(f, y))))", False),
        ("mul(f, mul(f, sub(f, y)))", False),
        ("mul(-1, " + "square(" * 10 + "sub(f, y)" + ")" * 11, False),
        ("log(sub(f, y))", True),
        ("mul(-1, tanh(square(sub(f, y))))", True),
        ("aq(1, sub(f, y))", True),
        ("aq(1, sqrt(sqrt(sub(f, y))))", True),
        ("aq(1, log(sub(f, y)))", True),
        ("square(" * 10 + "sub(f, y)" + ")" * 10, True),
    ],
)
def test_what_falls_forever_is_told_from_what_falls_to_a_limit(expression, is_bounded):
    assert found(regression(expression), "bounded below").holds is is_bounded


@pytest.mark.parametrize(
    ("expression", "weights", "holds", "sentence"),
    [
        ("square(sub(f, y))", [1, 1, 1.1], False,
         "lowest at f - y = -0.1 (y = -1), at f - y = 0 (y = 0), at f - y = 0.1 (y = 1)"),
        ("square(sub(f, y))", [1, 1, 1.003], True,
         "lowest at f - y = -0.003 (y = -1), at f - y = 0 (y = 0), at f - y = 0.003 (y = 1)"),
        ("square(sub(f, y))", [1, 1, 1], True, "lowest at f = y"),
        ("max(1, abs(sub(f, y)))", None, True, "lowest at f = y"),
        ("aq(1, sub(f, y))", None, False, "lowest towards f - y = -1000"),
    ],
)  # fmt: skip
def test_where_a_loss_of_regression_is_lowest(expression, weights, holds, sentence):
    entry = found(regression(expression, weights), "minimum at f = y")
    assert (entry.holds, entry.sentence) == (holds, sentence)


@pytest.mark.parametrize(("smoothing", "classes"), [(0.1, 10), (0.4, 10), (0.2, 3)])
def test_smoothed_losses_are_lowest_where_the_smoothed_target_is(smoothing, classes):
    for make in (LabelSmoothingLoss, SparseLabelSmoothingLoss):
        entry = found(make(smoothing), "minimum at p = 1", classes=classes)
        expected = 1 - smoothing + smoothing / classes
        assert not entry.holds
        assert entry.sentence == f"lowest at p* = {expected:.4g}, so it lowers p above that"


def test_absolute_cross_entropy_pushes_back_beyond_the_inverse_of_phi1():
    loss = AbsoluteCrossEntropyLoss(0.5, 1.25)
    assert found(loss, "minimum at p = 1").sentence == "lowest at p* = 0.8, so it lowers p above that"
    entry = found(loss, "monotone in p", points=999)
    assert (entry.holds, entry.sentence) == (False, "rises from p = 0.8 to 0.999")
    assert found(loss, "gradient never vanishes").holds


def test_a_loss_that_learns_the_opposite_is_seen():
    loss = ExpressionLoss("mul(y, f)")
    assert found(loss, "minimum at p = 1").sentence == "lowest at p* = 0"
    assert found(loss, "monotone in p").sentence == "rises from p = 0.001 to 0.999"
    absent = found(ExpressionLoss("mul(y, f)", kind="multilabel"), "monotone in p")
    assert (absent.holds, absent.sentence) == (False, "rises from p = 0.001 to 0.999 (y = 1)")
    constant = found(ExpressionLoss("mul(y, sub(f, 1))", kind="multilabel", weights=[1, -1, 1, 1]), "monotone in p")
    assert constant.sentence == "does not change with p (y = 0)"


@pytest.mark.parametrize(
    ("expression", "holds", "sentence"),
    [
        ("square(square(sub(f, y)))", True, "no flat stretch, and no change of sign except at the minimum"),
        ("max(1, abs(sub(f, y)))", False, "almost zero from f - y = -0.99 to 0.99"),
        ("tanh(square(sub(f, y)))", False,
         "almost zero from f - y = -3 to -2.91; almost zero from f - y = 2.91 to 3"),
        ("mul(-1, abs(sub(f, y)))", False, "changes sign at f - y = 0"),
        ("sign(mul(f, y))", False, "zero everywhere, so nothing can be learned from it"),
        ("square(sub(abs(f), y))", False, "changes sign at f - y = -2 (y = 1); changes sign at f - y = -1.005 (y = 1)"),
    ],
)  # fmt: skip
def test_where_the_gradient_vanishes(expression, holds, sentence):
    entry = found(regression(expression), "gradient never vanishes")
    assert entry.holds is holds
    assert entry.sentence == sentence


def test_many_places_are_counted_rather_than_listed():
    layers = [torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.eye(2), torch.tensor([[1.0, 1.0]])]
    assert found(NeuralLoss(layers, kind="regression"), "gradient never vanishes").holds
    wavy = regression("min(abs(sub(f, y)), min(abs(sub(f, 1)), abs(sub(f, -1))))")
    sentence = found(wavy, "gradient never vanishes").sentence
    assert sentence.count("changes sign at") == 3
    assert sentence.endswith(" more such places")


def test_symmetry_and_dependence_are_measured():
    pinball = regression("max(sub(f, y), mul(-1, sub(f, y)))", [2, 1, 1, 1, 1, 1, 1, 1])
    entry = found(pinball, "symmetric in the error")
    assert (entry.holds, entry.sentence) == (False, "an error of 3 costs 6 and one of -3 costs 3 (y = -1)")
    assert found(pinball, "depends on the error alone").holds
    entry = found(regression("mul(abs(sub(f, y)), add(y, 1))", [1, 1, 1, 1, 2, 1, 3]), "depends on the error alone")
    assert (entry.holds, entry.sentence) == (False, "an error of -3 costs 12 at y = -1 and 24 at y = 1")


def test_what_overflows_in_single_precision_is_not_finite():
    loss = regression("square(" * 8 + "sub(f, y)" + ")" * 8)  # the 256th power: 3.4e38 at 1.4
    entry = found(loss, "finite")
    assert (entry.holds, entry.sentence) == (
        False,
        "no finite value or gradient at 324 of 603 places, first f - y = -3 (y = -1)",
    )
    assert found(loss, "minimum at f = y").holds


def test_nothing_is_said_of_a_loss_that_is_finite_nowhere():
    loss = regression("square(" * 6 + "add(log(sub(1, 1)), tanh(mul(f, y)))" + ")" * 6)
    first, *others = loss_shape(loss).range_of_validity
    assert first.sentence == "no finite value or gradient at 603 of 603 places, first f - y = -3 (y = -1)"
    assert {(entry.holds, entry.sentence) for entry in others} == {(False, "cannot be judged: finite nowhere")}


def test_a_tree_of_thousands_of_nodes_has_a_shape():
    full = "f"
    for _ in range(11):
        full = f"add({full}, {full})"
    loss = regression(f"sub(y, {full})")
    assert loss.expression.size == 4097
    assert found(loss, "bounded below").sentence.startswith("keeps falling: -2.046e6 at f - y = 1000")
