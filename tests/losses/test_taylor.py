"""A Taylor polynomial written as an expression with weights is the same loss."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evomal.errors import InputError
from evomal.losses import ExpressionLoss, TaylorLoss
from evomal.losses.taylor import as_tree

THETA = st.lists(st.floats(-5, 5), min_size=8, max_size=8)


@given(THETA, st.sampled_from(["classification", "regression", "multilabel"]), st.integers(0, 1000))
def test_the_tree_has_the_same_values_and_gradients(theta, kind, seed):
    drawn = torch.Generator().manual_seed(seed)
    outputs = torch.randn(6, 3, generator=drawn, dtype=torch.float64, requires_grad=True)
    targets = {
        "classification": torch.randint(3, (6,), generator=drawn),
        "multilabel": torch.randint(2, (6, 3), generator=drawn),
        "regression": torch.randn(6, 3, generator=drawn, dtype=torch.float64),
    }[kind]
    tree, weights = as_tree(theta)
    losses = TaylorLoss(theta, kind=kind), ExpressionLoss(tree, weights=weights, kind=kind)
    values = [loss(outputs, targets) for loss in losses]
    gradients = [torch.autograd.grad(value, outputs)[0] for value in values]
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


def test_a_polynomial_has_eight_parameters():
    with pytest.raises(InputError, match="theta must have 8 numbers but got 7"):
        as_tree([1.0] * 7)
