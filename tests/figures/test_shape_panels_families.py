"""Families of hand-made losses over their options."""

import pytest

from evomal.errors import InputError
from evomal.figures.shape_panels import FAMILIES, shape_panels


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
