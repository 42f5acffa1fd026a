"""Losses side by side, against closed forms."""

import numpy as np
import pytest
import torch

from evomal.errors import InputError
from evomal.figures.shape_panels import loss_surfaces, shape_panels
from evomal.losses import ExpressionLoss, FocalLoss, named_loss


def test_a_family_shows_target_and_non_target_at_each_value():
    shapes = shape_panels({}, ["absolute-ce"])
    (row,) = shapes.rows
    f = shapes.positions
    assert (f[0], f[-1], len(f)) == (0.001, 0.999, 201)
    target, other = row.panels
    assert [panel.name for panel in row.panels] == ["target", "non-target"]
    for curve, phi1 in zip(target.curves, (1, 1.1, 1.25, 1.5, 1.9), strict=True):
        assert curve.name == f"φ1 = {phi1:g}"
        np.testing.assert_allclose(curve.value, np.abs(np.log(phi1 * f)), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(curve.gradient, np.sign(np.log(phi1 * f)) / f, rtol=1e-12)
    assert all((curve.value == 0).all() and (curve.gradient == 0).all() for curve in other.curves)
    assert target.references == ()


def test_label_smoothing_acts_on_the_others_too():
    shapes = shape_panels({}, ["label-smoothing"], classes=5)
    (row,) = shapes.rows
    f = shapes.positions
    for target, other, xi in zip(row.panels[0].curves, row.panels[1].curves, (0, 0.05, 0.1, 0.2, 0.4), strict=True):
        np.testing.assert_allclose(target.value, -(1 - xi + xi / 5) * np.log(f))
        np.testing.assert_allclose(other.value, -xi / 5 * np.log(f))
        np.testing.assert_allclose(other.gradient, -xi / 5 / f)


def test_focal_sparse_has_a_row_for_each_of_its_options():
    shapes = shape_panels({}, ["focal-sparse"], classes=10)
    assert [row.title for row in shapes.rows] == [
        "focal-sparse-label-smoothing, ξ = 0.2",
        "focal-sparse-label-smoothing, γ = 2",
    ]
    f = shapes.positions
    last = shapes.rows[1].panels[0].curves[-1]  # γ = 2, ξ = 0.4
    expected = -((1 - f) ** 2 * 0.64 * np.log(f) + f**2 * 0.36 * np.log((1 - f) / 9))
    np.testing.assert_allclose(last.value, expected)
    np.testing.assert_allclose(np.gradient(last.value, f)[20:-20], last.gradient[20:-20], rtol=0.02, atol=0.02)


def test_single_losses_stand_beside_cross_entropy():
    losses = {"mine": ExpressionLoss("sub(square(f), mul(y, f))"), "focal": FocalLoss(1.0)}
    shapes = shape_panels(losses, ["focal"], points=51)
    f = shapes.positions
    assert [row.title for row in shapes.rows] == ["mine", "focal", "focal"]
    mine = shapes.rows[0].panels
    np.testing.assert_allclose(mine[0].curves[0].value, f**2 - f, atol=1e-15)
    np.testing.assert_allclose(mine[1].curves[0].gradient, 2 * f)
    np.testing.assert_allclose(mine[0].references[0].value, -np.log(f))
    assert mine[0].references[0].name == "cross-entropy"
    np.testing.assert_allclose(shapes.rows[1].panels[0].curves[0].value, -(1 - f) * np.log(f))


def test_labels_are_shown_present_and_absent():
    shapes = shape_panels({"focal": named_loss("focal", kind="multilabel")})
    present, absent = shapes.rows[0].panels
    f = shapes.positions
    assert (present.name, absent.name) == ("label present", "label absent")
    np.testing.assert_allclose(absent.curves[0].value, -(f**2) * np.log(1 - f), rtol=1e-9)
    np.testing.assert_allclose(absent.references[0].gradient, 1 / (1 - f), rtol=1e-9)


def test_regression_is_over_the_error_with_one_curve_where_the_target_does_not_matter():
    apart = ExpressionLoss("abs(mul(y, sub(f, y)))", kind="regression")
    shapes = shape_panels({"huber": named_loss("huber"), "apart": apart}, points=61)
    assert shapes.position_name == "f - y"
    assert (shapes.positions[0], shapes.positions[-1]) == (-3, 3)
    huber, other = (row.panels[0] for row in shapes.rows)
    error = shapes.positions
    expected = np.where(np.abs(error) < 1, error**2 / 2, np.abs(error) - 0.5)
    assert [curve.name for curve in huber.curves] == [""]
    np.testing.assert_allclose(huber.curves[0].value, expected, atol=1e-15)
    assert [curve.name for curve in other.curves] == ["y = -1", "y = 0", "y = 1"]
    np.testing.assert_allclose(huber.references[0].gradient, 2 * error)


def test_columns_are_tidy():
    columns = shape_panels({"mse": named_loss("mse"), "mae": named_loss("mae")}, points=5).columns()
    assert list(columns) == ["loss", "output", "curve", "f - y", "value", "gradient"]
    assert {len(column) for column in columns.values()} == {20}
    assert columns["loss"] == ["mse"] * 10 + ["mae"] * 10
    assert columns["value"][10:15] == [3, 1.5, 0, 1.5, 3]
    assert columns["curve"][15:] == ["squared error"] * 5


def test_a_surface_is_over_target_and_output():
    data = loss_surfaces({"mine": ExpressionLoss("mul(y, square(f))", kind="regression")}, points=7)
    (surface,) = data.surfaces
    f, y = np.meshgrid(data.positions, data.positions, indexing="ij")
    np.testing.assert_allclose(surface.value, y * f**2)
    np.testing.assert_allclose(surface.gradient, 2 * y * f)
    columns = data.columns()
    for row in (0, 3, 20, 48):
        assert columns["value"][row] == columns["y"][row] * columns["f"][row] ** 2
    assert {len(column) for column in columns.values()} == {49}


def test_nothing_given_is_nothing_drawn():
    assert shape_panels({}).rows == ()
    assert loss_surfaces({}).columns() == {"loss": [], "y": [], "f": [], "value": [], "gradient": []}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: shape_panels({"a": named_loss("ce"), "b": named_loss("mse")}),
            "the losses of one figure must be of one kind, but a is for classification, b is for regression",
        ),
        (
            lambda: shape_panels({"b": named_loss("mse")}, ["focal"]),
            "the losses of one figure must be of one kind, but b is for regression, focal is for classification",
        ),
        (
            lambda: loss_surfaces({"a": named_loss("ce")}),
            "a surface over y and f needs a regression loss, but a is for classification",
        ),
        (lambda: loss_surfaces({}, points=2), "points must be at least 3 but got 2"),
        (lambda: shape_panels({}, classes=1), "classes must be at least 2 but got 1"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(InputError) as refusal:
        call()
    assert str(refusal.value) == sentence


def test_random_state_is_left_alone():
    before = torch.random.get_rng_state()
    shape_panels({}, ["focal"])
    assert torch.equal(torch.random.get_rng_state(), before)
