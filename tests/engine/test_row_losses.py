"""Losses that are modules on rows with weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from evomal.engine.row_losses import RowLoss
from evomal.engine.rows import Rows
from evomal.errors import InputError
from evomal.losses import CrossEntropyLoss, ExpressionLoss

CLASSES, LENGTH = 3, 5
OUTPUTS = torch.randn(2 * LENGTH, CLASSES, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(2 * LENGTH) % CLASSES
MASK = torch.tensor([1.0, 1, 1, 0, 0, 1, 1, 1, 1, 0])


class Recorder(nn.Module):
    """A user's own loss, which remembers what it was given."""

    def forward(self, output, target):
        self.given = output, target
        return F.cross_entropy(output, target)


def test_a_users_loss_is_called_as_torchs_losses_are():
    rows, loss = Rows(TARGETS, MASK, (LENGTH,)), Recorder()
    value = RowLoss(loss)(OUTPUTS, rows)
    output, target = loss.given
    assert output.shape == (2, CLASSES, LENGTH)
    assert target.tolist() == torch.where(MASK > 0, TARGETS, -100).view(2, LENGTH).tolist()
    torch.testing.assert_close(value, F.cross_entropy(OUTPUTS[MASK > 0], TARGETS[MASK > 0]))
    other = nn.CrossEntropyLoss(ignore_index=255)
    torch.testing.assert_close(RowLoss(other)(OUTPUTS, rows), value)


@pytest.mark.parametrize("loss", [CrossEntropyLoss(), ExpressionLoss("mul(y, log(f))"), nn.CrossEntropyLoss()])
def test_weights_other_than_zero_and_one_weigh_every_loss(loss):
    weights = MASK * torch.linspace(0.5, 3, 10)
    costs = type(loss)(
        **({"expression": "mul(y, log(f))"} if isinstance(loss, ExpressionLoss) else {}), reduction="none"
    )
    expected = (costs(OUTPUTS, TARGETS) * weights).sum() / weights.sum()
    rows = Rows(TARGETS, weights, (LENGTH,), is_masked_only=False)
    torch.testing.assert_close(RowLoss(loss)(OUTPUTS, rows), expected)
    spoilt = torch.where(weights.unsqueeze(1) > 0, OUTPUTS, torch.inf).requires_grad_()
    RowLoss(loss)(spoilt, rows).backward()
    assert bool(torch.isfinite(spoilt.grad).all())


def test_a_loss_has_its_own_class_weights_besides():
    own, weights = torch.tensor([1.0, 2.0, 0.5]), torch.linspace(0.5, 3, 10)
    costs = F.cross_entropy(OUTPUTS, TARGETS, reduction="none")
    both = weights * own[TARGETS]
    rows = Rows(TARGETS, weights, is_masked_only=False)
    for loss in (CrossEntropyLoss(weight=own), nn.CrossEntropyLoss(own)):
        torch.testing.assert_close(RowLoss(loss)(OUTPUTS, rows), (costs * both).sum() / both.sum())


def test_a_users_loss_that_cannot_be_weighted_is_refused():
    rows = Rows(TARGETS, torch.linspace(0.5, 3, 10), is_masked_only=False)
    with pytest.raises(InputError, match="the loss Recorder must have reduction='mean', and with reduction='none'"):
        RowLoss(Recorder())(OUTPUTS, rows)

    class Stubborn(Recorder):
        reduction = "mean"

    with pytest.raises(InputError, match=r"the loss Stubborn with reduction='none' must return a loss for each of 10"):
        RowLoss(Stubborn())(OUTPUTS, rows)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5]), ignore_index=255),
        CrossEntropyLoss(),
        CrossEntropyLoss(ignore_index=1),
        ExpressionLoss("mul(y, log(f))"),
        Recorder(),
    ],
)
def test_a_batch_in_which_nothing_counts_is_zero_for_every_loss(loss):
    for is_masked_only in (True,) if isinstance(loss, Recorder) else (True, False):  # which cannot be weighted
        for outputs in (OUTPUTS, torch.full_like(OUTPUTS, torch.inf)):
            free = outputs.clone().requires_grad_()
            value = RowLoss(loss)(free, Rows(0 * TARGETS, 0 * MASK, (LENGTH,), is_masked_only))
            value.backward()
            assert value.item() == 0
            assert not free.grad.any()
