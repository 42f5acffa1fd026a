"""Families of losses: each known loss is of its own, whatever it is multiplied by, and learned ones of the nearest."""

import pytest

import evomal
from evomal.losses.catalogue import specified_loss
from evomal.paper.families import _KNOWN, family


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in _KNOWN.items() for name in names])
def test_a_known_loss_is_of_its_own_family(kind, name):
    found = family(specified_loss(name, kind=kind))
    assert (found.name, found.similarity) == (name, pytest.approx(1.0))


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("mul(square(sub(y, f)), sub(1, -1))", "regression", "like mse (1.00)"),
        ("abs(log(mul(y, f)))", "classification", "like ce (1.00)"),
        ("tanh(square(sub(y, f)))", "regression", "like welsch (0.98)"),
        ("sqrt(abs(sub(y, f)))", "regression", "its own"),
    ],
)
def test_learned_losses_are_of_the_nearest_family(text, kind, words):
    assert str(family(evomal.ExpressionLoss(text, kind=kind))) == words
