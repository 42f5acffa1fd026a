"""The shape of a loss against closed forms."""

import numpy as np
import pytest
import torch

from evomal.errors import InputError
from evomal.figures.loss_shape import loss_shape
from evomal.losses import AbsoluteCrossEntropyLoss, ExpressionLoss, TaylorLoss, named_loss
from tests.losses.test_files import EVERY_KIND


def test_cross_entropy_over_the_target_s_probability():
    shape = loss_shape(named_loss("ce"), points=7, classes=4)
    p = np.linspace(0.001, 0.999, 7)
    np.testing.assert_allclose(shape.positions, p)
    (curve,) = shape.curves
    np.testing.assert_allclose(curve.value, -np.log(p), rtol=1e-12)
    np.testing.assert_allclose(curve.gradient, p - 1, rtol=1e-9)
    np.testing.assert_allclose(shape.references[0].value, curve.value)
    assert shape.references[0].name == "cross-entropy"
    assert shape.outputs == ()


def test_a_sum_over_outputs_is_shown_with_its_parts():
    shape = loss_shape(ExpressionLoss("sub(square(f), mul(y, f))"), classes=5)
    p, rest = shape.positions, (1 - shape.positions) / 4
    target, other = shape.outputs
    np.testing.assert_allclose(target.value, p**2 - p)
    np.testing.assert_allclose(target.gradient, 2 * p - 1, atol=1e-12)
    np.testing.assert_allclose(other.value, p**2)
    np.testing.assert_allclose(other.gradient, 2 * p)
    np.testing.assert_allclose(shape.curves[0].value, p**2 - p + 4 * rest**2)
    by_p = 2 * p - 1 - 2 * rest
    np.testing.assert_allclose(shape.curves[0].gradient, by_p * p * (1 - p), atol=1e-12)


def test_a_label_is_shown_present_and_absent():
    shape = loss_shape(named_loss("focal", kind="multilabel"))
    p = shape.positions
    assert [curve.name for curve in shape.curves] == ["y = 1", "y = 0"]
    np.testing.assert_allclose(shape.curves[0].value, -((1 - p) ** 2) * np.log(p))
    np.testing.assert_allclose(shape.curves[1].value, -(p**2) * np.log(1 - p), rtol=1e-9)
    assert [curve.name for curve in shape.references] == ["cross-entropy, y = 1", "cross-entropy, y = 0"]
    np.testing.assert_allclose(shape.references[1].gradient, p)


def test_regression_is_over_the_error_at_three_targets():
    shape = loss_shape(ExpressionLoss("square(sub(mul(f, y), y))", kind="regression"))
    error = shape.positions
    assert (error[0], error[100], error[-1]) == (-3, 0, 3)
    for curve, y in zip(shape.curves, (-1, 0, 1), strict=True):
        assert curve.name == f"y = {y}"
        np.testing.assert_allclose(curve.value, ((error + y) * y - y) ** 2, atol=1e-12)
        np.testing.assert_allclose(curve.gradient, 2 * ((error + y) * y - y) * y, atol=1e-12)
    np.testing.assert_allclose(shape.references[0].gradient, 2 * error)


@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_gradients_are_those_of_the_values_by_the_logit(kind):
    loss = TaylorLoss([0.1, -0.2, 0.3, 1 / 3, 0.5, 1, 2, 3], kind=kind)
    shape = loss_shape(loss, points=2001)
    log_odds = np.log(shape.positions / (1 - shape.positions))
    for curve in shape.curves:
        np.testing.assert_allclose(np.gradient(curve.value, log_odds)[2:-2], curve.gradient[2:-2], atol=5e-3)


@pytest.mark.parametrize("name", EVERY_KIND)
def test_every_kind_of_loss_has_a_shape_and_the_same_one_without_gradients(name):
    loss = EVERY_KIND[name]()
    with torch.no_grad():
        shape = loss_shape(loss, points=11)
    columns = shape.columns()
    assert next(iter(columns)) == ("f - y" if loss.kind == "regression" else "p")
    assert {len(column) for column in columns.values()} == {11}
    assert columns == loss_shape(loss, points=11).columns()
    assert all(entry.sentence for entry in shape.range_of_validity)


def test_class_weights_reduction_and_ignored_classes_do_not_change_the_shape():
    plain = loss_shape(AbsoluteCrossEntropyLoss(0.7, 1.3))
    other = AbsoluteCrossEntropyLoss(0.7, 1.3, weight=[1.0, 2.0, 0.1], reduction="sum", ignore_index=0)
    np.testing.assert_array_equal(loss_shape(other).curves[0].value, plain.curves[0].value)


def test_random_state_is_left_alone():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    loss_shape(named_loss("focal"))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"points": 2}, "points must be at least 3 but got 2"),
        ({"classes": 1}, "classes must be at least 2 but got 1"),
    ],
)
def test_too_few_points_or_classes_are_refused(options, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        loss_shape(named_loss("ce"), **options)
