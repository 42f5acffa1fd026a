"""The formulas of single outputs against those of the losses themselves."""

import types

import pytest
import sympy
import torch

from evomal.errors import InputError
from evomal.expression.symbolic import PREDICTION_SYMBOL, TARGET_SYMBOL
from evomal.figures.shape_panels import FAMILIES, OUTPUT_LOSSES, output_loss, shape_panels
from evomal.losses import (
    AbsoluteCrossEntropyLoss,
    CrossEntropyLoss,
    FocalLoss,
    FocalSparseLabelSmoothingLoss,
    LabelSmoothingLoss,
    SparseLabelSmoothingLoss,
)
from evomal.losses.catalogue import name_of
from evomal.losses.target_losses import CLASSES_SYMBOL, PROBABILITY_SYMBOL

LOSSES = [
    CrossEntropyLoss(), AbsoluteCrossEntropyLoss(0.7, 1.3), LabelSmoothingLoss(0.3), SparseLabelSmoothingLoss(0.3),
    SparseLabelSmoothingLoss(0.3, simplified=True), FocalLoss(1.5), FocalSparseLabelSmoothingLoss(1.5, 0.2),
]  # fmt: skip
SYMPY = types.SimpleNamespace(abs=sympy.Abs, log=sympy.log)


def test_every_hand_made_classification_loss_has_a_formula():
    assert {name_of(loss) for loss in LOSSES} == set(OUTPUT_LOSSES)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_an_output_s_formula_is_the_loss_s_own(loss):
    options = {option: getattr(loss, option) for option in loss.option_names}
    own = loss.sympy()
    for y in (1, 0):
        if isinstance(loss, LabelSmoothingLoss):
            expected = own.subs({TARGET_SYMBOL: y, PREDICTION_SYMBOL: PROBABILITY_SYMBOL})
        else:
            expected = y * own
        found = output_loss(name_of(loss), SYMPY, PROBABILITY_SYMBOL, y, CLASSES_SYMBOL, options)
        for p, classes in ((0.2, 3), (0.9, 10)):
            places = {PROBABILITY_SYMBOL: p, CLASSES_SYMBOL: classes}
            assert float(found.subs(places)) == pytest.approx(float(expected.subs(places)), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_outputs_of_a_sample_add_up_to_its_loss(loss):
    logits = torch.tensor([[0.3, -1.0, 0.8, 0.1]], dtype=torch.float64)
    options = {option: getattr(loss, option) for option in loss.option_names}
    total = sum(
        output_loss(name_of(loss), torch, p, int(place == 2), 4, options)
        for place, p in enumerate(logits.softmax(1)[0])
    )
    assert float(total) == pytest.approx(float(loss(logits, torch.tensor([2]))), rel=1e-12)


def test_families_vary_one_option_each_and_start_at_cross_entropy_or_near():
    varied = {name: [(family.option, dict(family.fixed)) for family in rows] for name, rows in FAMILIES.items()}
    assert varied == {
        "absolute-ce": [("phi1", {})],
        "label-smoothing": [("smoothing", {})],
        "sparse-label-smoothing": [("smoothing", {})],
        "focal": [("gamma", {})],
        "focal-sparse": [("gamma", {"smoothing": 0.2}), ("smoothing", {"gamma": 2.0})],
    }
    (family,) = FAMILIES["absolute-ce"]
    labels, losses = zip(*family.members().items(), strict=True)
    assert labels == ("φ1 = 1", "φ1 = 1.1", "φ1 = 1.25", "φ1 = 1.5", "φ1 = 1.9")
    assert [loss.phi1 for loss in losses] == [1, 1.1, 1.25, 1.5, 1.9]
    assert FAMILIES["focal-sparse"][1].title == "focal-sparse-label-smoothing, γ = 2"


def test_an_unknown_family_gets_the_nearest_name():
    with pytest.raises(InputError, match=r"^there is no family named 'focals': did you mean 'focal'\?$"):
        shape_panels({}, ["focals"])
